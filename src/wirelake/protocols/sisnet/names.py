"""The name that every message begins with. It ties an answer to its question, and is what a relay looks at.

A relay puts its own name before a JSON message that has one already, `oname:cname:{…}`, and such a message is answered
under both. Only JSON can be told from a data line there, so no other form is relayed with two names; and JSON with no
more than three, because a data line's bytes may begin like JSON.
"""

import re
from typing import ClassVar

from wirelake.errors import EncodeError
from wirelake.limits import SISNET_NAME_BYTES_MAX
from wirelake.protocols.frame import Frame

NAME = re.compile(rb"[^{}():]{0,%d}:" % SISNET_NAME_BYTES_MAX)
RELAYED_NAME = re.compile(
    rb"(?![BHR\[])[^{}():]{0,%d}:(?:(?!\[)[^{}():]{0,%d}:)?(?=[{\[])" % (SISNET_NAME_BYTES_MAX, SISNET_NAME_BYTES_MAX)
)
SECTION = re.compile(rb"[^{}():]*:")
FORBIDDEN = re.compile(rb"[{}()]")


def own_name(message_name: str) -> str:
    """The relay's own, of the names that an answer comes back under."""
    return message_name.partition(":")[0]


def relayed(own: str, asked: str) -> str:
    """Both names, for a request that was asked under `asked` and goes on under `own`.

    Names beyond the third are joined with dots. Where a reader would take the asker's name for something else, or where
    it is too long, it stays behind: the relay knows it anyway.
    """
    first, colon, rest = asked.partition(":")
    name = f"{own}:{first}{colon}{rest.replace(':', '.')}"
    head = name.encode() + b":"
    found = RELAYED_NAME.match(head + b"{", len(own) + 1)
    return name if asked and found is not None and found.end() == len(head) else own


class SisnetFrame(Frame, frozen=True):
    """`message_name` is what stands before the first colon; for relayed JSON, before the last one of its names."""

    relayable: ClassVar[bool] = False
    message_name: str

    def encode(self) -> bytes:
        return self._head() + self._rest()

    def _rest(self) -> bytes:
        raise NotImplementedError

    def _head(self) -> bytes:
        head = self.message_name.encode() + b":"
        found = NAME.match(head)
        if found is not None and found.end() < len(head) and self.relayable:
            found = RELAYED_NAME.match(head + b"{", found.end())
        if found is None or found.end() != len(head):
            raise EncodeError(f"not a message name: {self.message_name[:64]!r}")
        return head
