"""The other forms of a message: JSON, data lines, and messages of other protocols.

n a m e : { … }     n a m e : [ … ]                   JSON
n a m e : c o m m a n d : k e y : s d b : data …      a data line: packed records for one key and table
n a m e : H …                                         an HTTP request, or its response
n a m e : R …                                         a RESP command, or its response

`binary` has the binary form.
"""

import re
from collections.abc import Set as AbstractSet
from typing import Any

from wirelake.errors import EncodeError
from wirelake.protocols.sisnet.binary import refuse_relayed_binary
from wirelake.protocols.sisnet.constants import (
    FORMS,
)
from wirelake.protocols.sisnet.envelope import (
    RELAYED_NAME,
    SECTION,
    SisnetFrame,
)
from wirelake.protocols.text import read_json, write_json

# ── JSON

REQUEST_KEYS: AbstractSet[str] = frozenset({"ask", "command", "cmd", "argv"})


class Json(SisnetFrame, frozen=True, eq=False):
    """A JSON message. `text` is as on the wire; `values` is the decoded text. Messages are equal if their texts are."""

    name = "json"
    relayed_names = RELAYED_NAME
    first_byte = b"{"
    text: bytes
    values: Any

    @classmethod
    def of(cls, message_name: str, values: Any) -> "Json":
        """Return a message with these values as compact JSON."""
        return cls(message_name, write_json(values), values)

    @classmethod
    def read(cls, message_name: str, text: bytes, offset: int) -> "Json":
        """Decode text that begins at `offset` in the message. Raise ProtocolError if it is not JSON."""
        return cls(message_name, text, read_json(text, offset))

    @property
    def is_request(self) -> bool:
        """Return whether it is a request: an object with a command or an `ask`. Anything else is an answer."""
        values = self.values
        return isinstance(values, dict) and "ans" not in values and not REQUEST_KEYS.isdisjoint(values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Json):
            return NotImplemented
        return self.message_name == other.message_name and self.text == other.text

    def __ne__(self, other: object) -> bool:
        return not self == other  # that of Struct would compare `values` too

    def __hash__(self) -> int:
        return hash((self.message_name, self.text))

    def encode(self) -> bytes:
        message = self._head() + self.text
        if ":" in self.message_name:
            refuse_relayed_binary(message)
        return message

    def _rest(self) -> bytes:
        return self.text


# ── data lines

_HEAD = re.compile(rb"([^{}():]*):([^{}():]*):([^{}():]*):")


class DataLine(SisnetFrame, frozen=True):
    """Records of one key and of the table `sdb`, whose layout is in the `dict` of the session: see `packed_records`."""

    name = "data_line"
    command: str
    key: str
    sdb: str
    data: bytes

    def encode(self) -> bytes:
        message = super().encode()
        if "B" in (self.key[:1], self.sdb[:1]):
            refuse_relayed_binary(message)
        return message

    def _rest(self) -> bytes:
        head = b""
        for section in (self.command, self.key, self.sdb):
            written = section.encode() + b":"
            if SECTION.fullmatch(written) is None:
                raise EncodeError(f"a data line cannot name {section[:64]!r}: no {{ }} ( ) or : inside")
            head += written
        if head[0] in FORMS or RELAYED_NAME.match(head):
            raise EncodeError(f"a data line cannot begin like another form: {head[:64].decode(errors='replace')!r}")
        return head + self.data


def read_data_line(message_name: str, message: bytes, start: int) -> DataLine | None:
    """Read the line whose command begins at `start`. Return None, or raise UnicodeDecodeError, if it is bad."""
    head = _HEAD.match(message, start)
    if head is None:
        return None
    command, key, sdb = head.groups()
    return DataLine(message_name, command.decode(), key.decode(), sdb.decode(), message[head.end() :])


def behind_names(line: DataLine, names: str) -> DataLine:
    """Read a line again that follows these names; return any other line as it is.

    Only the requester knows the names: for others, the second name could be a command.
    """
    head = names.encode() + b":"
    message = line.encode() if ":" in names else b""
    found = read_data_line(line.message_name, message, len(head)) if message.startswith(head) else None
    return line if found is None else found


# ── HTTP and RESP


class Http(SisnetFrame, frozen=True):
    """An HTTP request or response, as bytes."""

    name = "http"
    content: bytes

    def _rest(self) -> bytes:
        return b"H" + self.content


class Redis(SisnetFrame, frozen=True):
    """A RESP command or its answer, as bytes."""

    name = "redis"
    content: bytes

    def _rest(self) -> bytes:
        return b"R" + self.content
