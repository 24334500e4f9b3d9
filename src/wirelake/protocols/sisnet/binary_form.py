"""The binary form: a byte of flags says which fields follow, each with its size.

            ├───────┼───────┼───────┼──────────────────────┼──────────────────────────
n a m e :   │   B   │ flags │ count │ size | data …        │ size | name | size | data …
            └───────┴───────┴───────┴──────────────────────┴──────────────────────────
flags   80 extension fields follow, `count` says how many (the byte is there only then)   40 answer
request 01 ver  02 command  04 service  08 ask  10 fmt  20 lnk
answer  01 ver  02 ans      04 msg      08 fuc          20 lnk
No field at all: nothing more (an answer then means OK), or one size | data.
"""

import re
from typing import ClassVar

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.sisnet.names import SisnetFrame
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

    data: bytes | None
    extensions: tuple[Extension, ...] | None

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


def _read_sized(message: bytes, start: int) -> tuple[bytes, int]:
    size = message[start]
    start += 1
    if size > ONE_BYTE_MAX:
        size, start = read_size(message, start - 1)
    end = start + size
    if end > len(message):
        raise ProtocolError("short", "a field is not whole", len(message))
    return message[start:end], end
