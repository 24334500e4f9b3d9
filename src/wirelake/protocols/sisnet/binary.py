"""The binary form of a message. A byte of flags says which fields follow, each after its size:

            ├───────┼───────┼───────┼──────────────────────┼──────────────────────────
n a m e :   │   B   │ flags │ count │ size | data …        │ size | name | size | data …
            └───────┴───────┴───────┴──────────────────────┴──────────────────────────
flags   80 extension fields follow, `count` says how many (the byte is there only then)   40 answer
request 01 ver  02 command  04 service  08 ask  10 fmt  20 lnk
answer  01 ver  02 ans      04 msg      08 fuc          20 lnk
No field at all: nothing more (an answer then means OK), or one size | data.

`RequestBody` and `AnswerBody` describe it up to the last field with a flag. Data without a name, whose presence depends
on what is not there, and the extension fields, whose count stands far before them, are read by hand.

After several names (`17:n1:B…`) a binary message can look like a data line whose key begins with B: see
`find_relayed_binary`.
"""

import re
from typing import Annotated, ClassVar

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout import BodyCodec, LayoutFrame, flags, optional, present_if, rest_bytes, shown, sized_in, u8
from wirelake.protocols.sisnet.constants import (
    ANSWER,
    ANSWER_FIELDS,
    EXTENDED,
    REQUEST_FIELDS,
    RESERVED_IN_ANSWERS,
)
from wirelake.protocols.sisnet.envelope import (
    NAME,
    RELAYED_BINARY,
    SIZE,
    SisnetFrame,
    read_size,
    sized,
)

NUMBER = re.compile(rb"-?[0-9]{1,18}")
FIELD_BITS = 0x3F
_EXTENSIONS_MAX = 0xFF

Sized = Annotated[bytes, sized_in(SIZE)]
Count = Annotated[optional[u8], present_if("flags", EXTENDED), shown("of extension fields")]


def _flags_note(number: int) -> str:
    """Return what the flags announce."""
    fields = ANSWER_FIELDS if number & ANSWER else REQUEST_FIELDS
    words = ["answer" if number & ANSWER else "request", *(name for bit, name in fields if number & bit)]
    return ", ".join(words + ["extension fields"] * bool(number & EXTENDED))


class RequestBody(LayoutFrame, frozen=True):
    """What follows the B of a request. `rest` is data without a name, and the extension fields."""

    flags: Annotated[u8, shown(_flags_note)]
    count: Count
    ver: Annotated[optional[Sized], present_if("flags", 0x01)]
    command: Annotated[optional[Sized], present_if("flags", 0x02)]
    service: Annotated[optional[Sized], present_if("flags", 0x04)]
    ask: Annotated[optional[Sized], present_if("flags", 0x08)]
    fmt: Annotated[optional[Sized], present_if("flags", 0x10)]
    lnk: Annotated[optional[Sized], present_if("flags", 0x20)]
    rest: rest_bytes


class AnswerBody(LayoutFrame, frozen=True):
    """What follows the B of an answer. `ans` and `fuc` are decimal text."""

    flags: Annotated[u8, flags(reserved=RESERVED_IN_ANSWERS, code="reserved_flag"), shown(_flags_note)]
    count: Count
    ver: Annotated[optional[Sized], present_if("flags", 0x01)]
    ans: Annotated[optional[Sized], present_if("flags", 0x02)]
    msg: Annotated[optional[Sized], present_if("flags", 0x04)]
    fuc: Annotated[optional[Sized], present_if("flags", 0x08)]
    lnk: Annotated[optional[Sized], present_if("flags", 0x20)]
    rest: rest_bytes


REQUEST_BODY, ANSWER_BODY = BodyCodec(RequestBody), BodyCodec(AnswerBody)


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
        """Return what follows the names: by hand, since the described body takes half as long again to write."""
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
    if not message[start] & ANSWER:
        request = REQUEST_BODY.decode(message[start:])
        data, extensions = _read_rest(request)
        return BinaryRequest(
            message_name=message_name,
            ver=request.ver,
            command=request.command,
            service=request.service,
            ask=request.ask,
            fmt=request.fmt,
            lnk=request.lnk,
            data=data,
            extensions=extensions,
        )
    answer = ANSWER_BODY.decode(message[start:])
    data, extensions = _read_rest(answer)
    for number in (answer.ans, answer.fuc):
        if number is not None and NUMBER.fullmatch(number) is None:
            return None
    return BinaryAnswer(
        message_name=message_name,
        ver=answer.ver,
        ans=answer.ans,
        msg=answer.msg,
        fuc=answer.fuc,
        lnk=answer.lnk,
        data=data,
        extensions=extensions,
    )


def _read_rest(body: RequestBody | AnswerBody) -> tuple[bytes | None, tuple[Extension, ...] | None]:
    """Return data without a name, and the extension fields. Raise ProtocolError if they do not fill the rest."""
    rest, data, end = body.rest, None, 0
    if rest and not body.flags & FIELD_BITS:
        data, end = _read_sized(rest, 0)
    extensions = []
    for _ in range(body.count or 0):
        name, end = _read_sized(rest, end)
        content, end = _read_sized(rest, end)
        extensions.append(Extension(name, content))
    if end != len(rest):
        raise ProtocolError("trailing", f"{len(rest) - end} bytes too many", end)
    return data, None if body.count is None else tuple(extensions)


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
    size, start = read_size(message, start)
    end = start + size
    if end > len(message):
        raise ProtocolError("short", "a field is not whole", len(message))
    return message[start:end], end
