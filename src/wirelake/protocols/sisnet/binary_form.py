"""The binary form: a byte of flags says which fields follow, each with its size.

            ├───────┼───────┼───────┼──────────────────────┼──────────────────────────
n a m e :   │   B   │ flags │ count │ size | data …        │ size | name | size | data …
            └───────┴───────┴───────┴──────────────────────┴──────────────────────────
flags   80 extension fields follow, `count` says how many (the byte is there only then)   40 answer
request 01 ver  02 command  04 service  08 ask  10 fmt  20 lnk
answer  01 ver  02 ans      04 msg      08 fuc          20 lnk
No field at all: nothing more (an answer then means OK), or one size | data.

Behind several names (`17:n1:B…`) it has to be told from a data line whose key begins with B: see `find_relayed_binary`.
"""

import re
from typing import ClassVar

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.sisnet.names import NAME, RELAYED_BINARY, SisnetFrame
from wirelake.protocols.sisnet.opcodes import ANSWER, ANSWER_FIELDS, EXTENDED, REQUEST_FIELDS, RESERVED_IN_ANSWERS
from wirelake.protocols.sisnet.sizes import ONE_BYTE_MAX, read_size, sized

NUMBER = re.compile(rb"-?[0-9]{1,18}")
_FIELD_BITS = 0x3F
_EXTENSIONS_MAX = 0xFF


class Extension(Struct, frozen=True):
    name: bytes
    data: bytes


class BinaryFrame(SisnetFrame, frozen=True):
    fields: ClassVar[tuple[tuple[int, str], ...]]
    base_flags: ClassVar[int]

    relayed_names = RELAYED_BINARY
    first_byte = b"B"
    data: bytes | None
    extensions: tuple[Extension, ...] | None

    @property
    def can_be_relayed(self) -> bool:
        """Whether it is told from a data line when it stands behind several names."""
        raise NotImplementedError

    def encode(self) -> bytes:
        if ":" in self.message_name and not self.can_be_relayed:
            raise EncodeError("this binary message cannot stand behind several names: it could be a data line")
        return super().encode()

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
        """It needs a command; what is text in it must be readable."""
        if self.command is None:
            return (self.ver, self.service, self.ask, self.fmt, self.lnk) == (None,) * 5
        return all(map(_is_readable, (self.command, self.service or b"", self.fmt or b"")))


class BinaryAnswer(BinaryFrame, frozen=True, kw_only=True):
    """`ans` and `fuc` are decimal text. With nothing set it means OK."""

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
    """The message whose flags are at `start`. None, IndexError or ProtocolError where it is bad: the tree says how."""
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
    """Find a binary message behind further names, which begin at `start`, and where its letter stands.

    A data line's key may begin with B, too. So the sizes have to fit to the byte, and the message has to say what a
    relay would send: a request with a command, an answer with `ans`, or data alone.
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
