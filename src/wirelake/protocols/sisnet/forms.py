"""The forms of a message: binary, JSON, data lines, and messages of other protocols.

n a m e : { … }     n a m e : [ … ]                   JSON
n a m e : c o m m a n d : k e y : s d b : data …      a data line: packed records for one key and table
n a m e : H …                                         an HTTP request, or its response
n a m e : R …                                         a RESP command, or its response

The binary form has a byte of flags that says which fields follow, each with its size:

            ├───────┼───────┼───────┼──────────────────────┼──────────────────────────
n a m e :   │   B   │ flags │ count │ size | data …        │ size | name | size | data …
            └───────┴───────┴───────┴──────────────────────┴──────────────────────────
flags   80 extension fields follow, `count` says how many (the byte is there only then)   40 answer
request 01 ver  02 command  04 service  08 ask  10 fmt  20 lnk
answer  01 ver  02 ans      04 msg      08 fuc          20 lnk
No field at all: nothing more (an answer then means OK), or one size | data.

After several names (`17:n1:B…`) a binary message can look like a data line whose key begins with B: see
`find_relayed_binary`.
"""

import re
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.sisnet.constants import (
    ANSWER,
    ANSWER_FIELDS,
    EXTENDED,
    FORMS,
    REQUEST_FIELDS,
    RESERVED_IN_ANSWERS,
)
from wirelake.protocols.sisnet.envelope import (
    NAME,
    ONE_BYTE_MAX,
    RELAYED_BINARY,
    RELAYED_NAME,
    SECTION,
    SisnetFrame,
    read_size,
    sized,
)
from wirelake.protocols.text import read_json, write_json

# ── binary

NUMBER = re.compile(rb"-?[0-9]{1,18}")
_FIELD_BITS = 0x3F
_EXTENSIONS_MAX = 0xFF


class Extension(Struct, frozen=True):
    """A named field beyond those that have a flag."""

    name: bytes
    data: bytes


class BinaryFrame(SisnetFrame, frozen=True):
    """A message in the binary form. `fields` are the bits of its flags and the fields that they announce."""

    fields: ClassVar[tuple[tuple[int, str], ...]]
    base_flags: ClassVar[int]

    relayed_names = RELAYED_BINARY
    first_byte = b"B"
    data: bytes | None
    extensions: tuple[Extension, ...] | None

    @property
    def can_be_relayed(self) -> bool:
        """Return whether it cannot be mistaken for a data line after several names."""
        raise NotImplementedError

    def encode(self) -> bytes:
        if ":" in self.message_name and not self.can_be_relayed:
            raise EncodeError("this binary message cannot stand behind several names: it could be a data line")
        return self._head() + self._rest()

    def _rest(self) -> bytes:
        flags = self.base_flags
        parts = [b"B", b"", b""]
        for bit, field in self.fields:
            value: bytes | None = getattr(self, field)
            if value is not None:
                flags |= bit
                parts.append(sized(value))
        if self.data is not None:
            if flags != self.base_flags:
                raise EncodeError("data without a name stands alone, not beside other fields")
            parts.append(sized(self.data))
        if self.extensions is not None:
            flags |= EXTENDED
            parts[2] = self._count(len(parts) == 3)
            for extension in self.extensions:
                parts += (sized(extension.name), sized(extension.data))
        parts[1] = bytes((flags,))
        return b"".join(parts)

    def _count(self, nothing_before: bool) -> bytes:
        extensions = self.extensions or ()
        if nothing_before and extensions:
            raise EncodeError("extension fields need a field or data before them")
        if len(extensions) > _EXTENSIONS_MAX:
            raise EncodeError(f"{len(extensions)} extension fields: at most {_EXTENSIONS_MAX}")
        return bytes((len(extensions),))


class BinaryRequest(BinaryFrame, frozen=True, kw_only=True):
    """A request in the binary form."""

    name = "binary_request"
    fields = REQUEST_FIELDS
    base_flags = 0

    ver: bytes | None = None
    command: bytes | None = None
    service: bytes | None = None
    ask: bytes | None = None
    fmt: bytes | None = None
    lnk: bytes | None = None
    data: bytes | None = None
    extensions: tuple[Extension, ...] | None = None

    @property
    def can_be_relayed(self) -> bool:
        """Return whether it has a command, and its text is printable."""
        if self.command is None:
            return (self.ver, self.service, self.ask, self.fmt, self.lnk) == (None,) * 5
        return all(map(_is_readable, (self.command, self.service or b"", self.fmt or b"")))


class BinaryAnswer(BinaryFrame, frozen=True, kw_only=True):
    """An answer. `ans` and `fuc` are decimal text. With no field set, it means OK."""

    name = "binary_answer"
    fields = ANSWER_FIELDS
    base_flags = ANSWER

    ver: bytes | None = None
    ans: bytes | None = None
    msg: bytes | None = None
    fuc: bytes | None = None
    lnk: bytes | None = None
    data: bytes | None = None
    extensions: tuple[Extension, ...] | None = None

    @property
    def can_be_relayed(self) -> bool:
        return self.ans is not None or (self.ver, self.msg, self.fuc, self.lnk) == (None,) * 4

    def _rest(self) -> bytes:
        for number in (self.ans, self.fuc):
            if number is not None and NUMBER.fullmatch(number) is None:
                raise EncodeError(f"not a number in decimal text: {number[:32]!r}")
        return super()._rest()


def read_binary(message_name: str, message: bytes, start: int) -> BinaryRequest | BinaryAnswer | None:
    """Read the message whose flags are at `start`. Return None, or raise IndexError or ProtocolError, if it is bad."""
    flags = message[start]
    end = start + 1
    count = 0
    if flags & EXTENDED:
        count = message[end]
        end += 1
    answer = flags & ANSWER
    values: dict[str, bytes] = {}
    if flags & _FIELD_BITS:
        if answer and flags & RESERVED_IN_ANSWERS:
            return None
        for bit, field in ANSWER_FIELDS if answer else REQUEST_FIELDS:
            if flags & bit:
                values[field], end = _read_sized(message, end)
    elif end < len(message):
        values["data"], end = _read_sized(message, end)
    extensions = []
    for _ in range(count):
        name, end = _read_sized(message, end)
        data, end = _read_sized(message, end)
        extensions.append(Extension(name, data))
    if end != len(message):
        return None
    found = tuple(extensions) if flags & EXTENDED else None
    if not answer:
        return BinaryRequest(message_name=message_name, extensions=found, **values)
    for number in (values.get("ans"), values.get("fuc")):
        if number is not None and NUMBER.fullmatch(number) is None:
            return None
    return BinaryAnswer(message_name=message_name, extensions=found, **values)


def find_relayed_binary(message: bytes, start: int) -> tuple[BinaryRequest | BinaryAnswer, int] | None:
    """Return a binary message after further names, which begin at `start`, and where its letter is; None if none.

    The key of a data line may begin with B, too. So all sizes must fit, and the message must be one that a relay would
    send: a request with a command, an answer with `ans`, or data alone.
    """
    names = RELAYED_BINARY.match(message, start)
    if names is None:
        return None
    end = names.end()
    try:
        found = read_binary(message[: end - 1].decode(), message, end + 1)
    except (IndexError, UnicodeDecodeError, ProtocolError):
        return None
    return (found, end) if found is not None and found.can_be_relayed else None


def refuse_relayed_binary(message: bytes) -> None:
    """Raise EncodeError if a message of another form would be read as a relayed binary one."""
    name = NAME.match(message)
    if name is not None and find_relayed_binary(message, name.end()) is not None:
        raise EncodeError(f"would be read as a binary message behind several names: {message[:64]!r}")


def _is_readable(text: bytes) -> bool:
    try:
        return text.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _read_sized(message: bytes, start: int) -> tuple[bytes, int]:
    size = message[start]
    start += 1
    if size > ONE_BYTE_MAX:
        size, start = read_size(message, start - 1)
    end = start + size
    if end > len(message):
        raise ProtocolError("short", "a field is not whole", len(message))
    return message[start:end], end


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
