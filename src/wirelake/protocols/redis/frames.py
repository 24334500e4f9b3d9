"""RESP frames: text lines that end in CR LF, and runs of bytes that a decimal length announces.

A client sends commands, each an array of bulk strings, or a line of words:

├───┬─────┬──────╥───┬─────┬──────┬───────────┬──────╥───
│ * │ "2" │ CRLF ║ $ │ "3" │ CRLF │ 3 bytes   │ CRLF ║ …     command
└───┴─────┴──────╨───┴─────┴──────┴───────────┴──────╨───
├─────────────────────┬───────────┤
│ words               │ [CR] LF   │                           inline command
└─────────────────────┴───────────┘

A server sends values; the first byte of each says how it goes on:

├───┬──────┬──────┤        ├───┬────────┬──────┬───────────┬──────┤        ├───┬───────┬──────╥────────
│ + │ text │ CRLF │        │ $ │ length │ CRLF │ bytes     │ CRLF │        │ * │ count │ CRLF ║ values …
└───┴──────┴──────┘        └───┴────────┴──────┴───────────┴──────┘        └───┴───────┴──────╨────────
 + - : , # _ (              $ ! =                                           * ~ >, pairs: %, pairs and a value: |
"""

import re
from typing import ClassVar

from msgspec import Struct

from wirelake.errors import EncodeError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.redis.limits import REDIS_DEPTH_MAX, REDIS_LINE_BYTES_MAX, REDIS_NUMBER_CHARS_MAX

I64_MIN = -(2**63)
I64_MAX = 2**63 - 1

DOUBLE_FORM = re.compile(rb"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)")
BIG_NUMBER_FORM = re.compile(rb"[+-]?\d+")


class RespFrame(Frame, frozen=True):
    sender: ClassVar[Sender]


class ClientFrame(RespFrame, frozen=True):
    """Either form of a command. Without any words it is nothing at all, and is ignored."""

    sender = Sender.CLIENT
    args: tuple[bytes, ...]

    @property
    def verb(self) -> bytes:
        """Which command this is, in small letters."""
        return self.args[0].lower() if self.args else b""


class Command(ClientFrame, frozen=True):
    name = "command"

    def encode(self) -> bytes:
        parts = [b"*%d\r\n" % len(self.args)]
        parts += [b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in self.args]
        return b"".join(parts)


class Inline(ClientFrame, frozen=True):
    """`line` is what was sent, to the byte and with its end; `args` are the words in it."""

    name = "inline"
    line: bytes

    def encode(self) -> bytes:
        line = self.line
        if line.find(b"\n") != len(line) - 1 or not line:
            raise EncodeError("an inline command is one line that ends in LF")
        if line[0] == 0x2A:
            raise EncodeError("an inline command cannot begin with *, where an array would")
        return line


class Value(RespFrame, frozen=True):
    """Anything that a server sends. Values nest."""

    sender = Sender.SERVER

    def write(self, parts: list[bytes], _depth: int) -> None:
        """Append the bytes of this value, which stands inside `_depth` others."""
        parts.append(self.encode())


class SimpleString(Value, frozen=True):
    name = "simple_string"
    text: bytes

    def encode(self) -> bytes:
        return b"+%b\r\n" % _line(self.text)


class SimpleError(Value, frozen=True):
    """By convention the text begins with a code in capitals: ERR, NOAUTH, WRONGPASS …"""

    name = "simple_error"
    text: bytes

    def encode(self) -> bytes:
        return b"-%b\r\n" % _line(self.text)


class Integer(Value, frozen=True):
    name = "integer"
    value: int

    def encode(self) -> bytes:
        if not I64_MIN <= self.value <= I64_MAX:
            raise EncodeError(f"{self.value} does not fit 64 bits")
        return b":%d\r\n" % self.value


class EncodedArray(Value, frozen=True):
    """An array that was encoded bit by bit, because it is long. It holds only what both versions write alike."""

    name = "encoded_array"
    data: bytes

    def encode(self) -> bytes:
        return self.data


class EncodedMap(Value, frozen=True):
    """The same for a map: so many pairs of bulk strings."""

    name = "encoded_map"
    count: int
    data: bytes

    def encode(self) -> bytes:
        return b"%%%d\r\n%b" % (self.count, self.data)


class BulkString(Value, frozen=True):
    name = "bulk_string"
    data: bytes

    def encode(self) -> bytes:
        return b"$%d\r\n%b\r\n" % (len(self.data), self.data)


class NullBulkString(Value, frozen=True):
    """RESP 2's null."""

    name = "null_bulk_string"

    def encode(self) -> bytes:
        return b"$-1\r\n"


class NullArray(Value, frozen=True):
    """RESP 2's other null."""

    name = "null_array"

    def encode(self) -> bytes:
        return b"*-1\r\n"


class Null(Value, frozen=True):
    name = "null"

    def encode(self) -> bytes:
        return b"_\r\n"


class Boolean(Value, frozen=True):
    name = "boolean"
    value: bool

    def encode(self) -> bytes:
        return b"#t\r\n" if self.value else b"#f\r\n"


class Double(Value, frozen=True):
    """As text: 1.10 and 1.1 are the same number, but not the same bytes."""

    name = "double"
    text: bytes

    @property
    def value(self) -> float:
        return float(self.text)

    def encode(self) -> bytes:
        return b",%b\r\n" % _number(self.text, DOUBLE_FORM)


class BigNumber(Value, frozen=True):
    """As text: it may be larger than what JSON and most readers take."""

    name = "big_number"
    text: bytes

    @property
    def value(self) -> int:
        return int(self.text)

    def encode(self) -> bytes:
        return b"(%b\r\n" % _number(self.text, BIG_NUMBER_FORM)


class BulkError(Value, frozen=True):
    name = "bulk_error"
    text: bytes

    def encode(self) -> bytes:
        return b"!%d\r\n%b\r\n" % (len(self.text), self.text)


class VerbatimString(Value, frozen=True):
    """`format` is three bytes: txt, mkd …"""

    name = "verbatim_string"
    format: bytes
    data: bytes

    def encode(self) -> bytes:
        if len(self.format) != 3:
            raise EncodeError(f"a format has three bytes, not {len(self.format)}")
        return b"=%d\r\n%b:%b\r\n" % (len(self.data) + 4, self.format, self.data)


class Aggregate(Value, frozen=True):
    def encode(self) -> bytes:
        parts: list[bytes] = []
        self.write(parts, 0)
        return b"".join(parts)

    def write(self, parts: list[bytes], depth: int) -> None:
        if depth >= REDIS_DEPTH_MAX:
            raise EncodeError(f"values nest deeper than {REDIS_DEPTH_MAX}")
        self.write_inside(parts, depth + 1)

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        raise NotImplementedError


class Array(Aggregate, frozen=True):
    name = "array"
    items: tuple[Value, ...]

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b"*%d\r\n" % len(self.items))
        for item in self.items:
            item.write(parts, depth)


class Set(Aggregate, frozen=True):
    """In the order of the wire: RESP does not forbid repeats."""

    name = "set"
    items: tuple[Value, ...]

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b"~%d\r\n" % len(self.items))
        for item in self.items:
            item.write(parts, depth)


class Push(Aggregate, frozen=True):
    """Not an answer to anything."""

    name = "push"
    items: tuple[Value, ...]

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b">%d\r\n" % len(self.items))
        for item in self.items:
            item.write(parts, depth)


class Pair(Struct, frozen=True):
    key: Value
    value: Value


class Map(Aggregate, frozen=True):
    name = "map"
    pairs: tuple[Pair, ...]

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b"%%%d\r\n" % len(self.pairs))
        for pair in self.pairs:
            pair.key.write(parts, depth)
            pair.value.write(parts, depth)


class Attribute(Aggregate, frozen=True):
    """Remarks about the value that follows them, and that value."""

    name = "attribute"
    pairs: tuple[Pair, ...]
    value: Value

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b"|%d\r\n" % len(self.pairs))
        for pair in self.pairs:
            pair.key.write(parts, depth)
            pair.value.write(parts, depth)
        self.value.write(parts, depth)


def _line(text: bytes) -> bytes:
    if b"\r" in text or b"\n" in text:
        raise EncodeError("a line cannot hold CR or LF")
    if len(text) > REDIS_LINE_BYTES_MAX:
        raise EncodeError(f"a line of {len(text)} bytes is over the limit of {REDIS_LINE_BYTES_MAX}")
    return text


def _number(text: bytes, form: re.Pattern[bytes]) -> bytes:
    if len(text) > REDIS_NUMBER_CHARS_MAX or form.fullmatch(text) is None:
        raise EncodeError("the text of a number is not one")
    return text
