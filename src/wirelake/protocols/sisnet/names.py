"""The name that every message begins with. It ties an answer to its question, and is what a relay looks at.

A relay puts its own name before a message that has one already, `oname:cname:{…}` or `oname:cname:B…`, and such a
message is answered under both. The other forms cannot be told from a data line there, so they are relayed under one
name only; and no form has more than three names, because a data line's bytes may begin like JSON.
"""

import re
from typing import ClassVar

from wirelake.errors import EncodeError
from wirelake.protocols.frame import Frame
from wirelake.protocols.sisnet.limits import SISNET_NAME_BYTES_MAX

NAME = re.compile(rb"[^{}():]{0,%d}:" % SISNET_NAME_BYTES_MAX)
RELAYED_NAME = re.compile(
    rb"(?![BHR\[])[^{}():]{0,%d}:(?:(?!\[)[^{}():]{0,%d}:)?(?=[{\[])" % (SISNET_NAME_BYTES_MAX, SISNET_NAME_BYTES_MAX)
)
RELAYED_BINARY = re.compile(
    rb"(?:(?![BHR\[])[^{}():]{0,%d}:)(?:(?![BHR\[])[^{}():]{0,%d}:)?(?=B)"
    % (SISNET_NAME_BYTES_MAX, SISNET_NAME_BYTES_MAX)
)
SECTION = re.compile(rb"[^{}():]*:")
FORBIDDEN = re.compile(rb"[{}()]")


def own_name(message_name: str) -> str:
    """The relay's own, of the names that an answer comes back under."""
    return message_name.partition(":")[0]


def can_name_binary(message_name: str) -> bool:
    """Whether a binary message can stand behind these names."""
    first, colon, _ = message_name.partition(":")
    if not colon:
        return True
    head = message_name.encode() + b":"
    found = RELAYED_BINARY.match(head + b"B", len(first.encode()) + 1)
    return found is not None and found.end() == len(head)


def relayed(own: str, asked: str) -> str:
    """Both names, for a request that was asked under `asked` and goes on under `own`.

    Names beyond the third are joined with dots. Where a reader would take the asker's name for something else, or where
    it is too long, it stays behind: the relay knows it anyway. What can name a binary message can name JSON.
    """
    first, colon, rest = asked.partition(":")
    name = f"{own}:{first}{colon}{rest.replace(':', '.')}"
    return name if can_name_binary(name) else own


class SisnetFrame(Frame, frozen=True):
    """`message_name` is what stands before the first colon; in a relayed message, before the last one of its names."""

    relayed_names: ClassVar[re.Pattern[bytes] | None] = None  # of the forms that can be relayed under several names
    first_byte: ClassVar[bytes] = b""  # of what follows those
    message_name: str

    def encode(self) -> bytes:
        return self._head() + self._rest()

    def _rest(self) -> bytes:
        raise NotImplementedError

    def _head(self) -> bytes:
        head = self.message_name.encode() + b":"
        found = NAME.match(head)
        if found is not None and found.end() < len(head) and self.relayed_names is not None:
            found = self.relayed_names.match(head + self.first_byte, found.end())
        if found is None or found.end() != len(head):
            raise EncodeError(f"not a message name: {self.message_name[:64]!r}")
        return head
