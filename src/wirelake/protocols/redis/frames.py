"""RESP frames: text lines that end in CR LF, and bytes whose length is given in decimal.

A client sends commands, each an array of bulk strings, or a line of words:

├───┬─────┬──────╥───┬─────┬──────┬───────────┬──────╥───
│ * │ "2" │ CRLF ║ $ │ "3" │ CRLF │ 3 bytes   │ CRLF ║ …     command
└───┴─────┴──────╨───┴─────┴──────┴───────────┴──────╨───
├─────────────────────┬───────────┤
│ words               │ [CR] LF   │                           inline command
└─────────────────────┴───────────┘

A server sends values; the first byte of each is its type:

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
from wirelake.protocols.redis.constants import REDIS_DEPTH_MAX, REDIS_LINE_BYTES_MAX, REDIS_NUMBER_CHARS_MAX

I64_MIN = -(2**63)
I64_MAX = 2**63 - 1

DOUBLE_FORM = re.compile(rb"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)")
BIG_NUMBER_FORM = re.compile(rb"[+-]?\d+")


class RespFrame(Frame, frozen=True):
    """A command or a value."""

    sender: ClassVar[Sender]


class ClientFrame(RespFrame, frozen=True):
    """A command of either form. One without words is ignored."""

    sender = Sender.CLIENT
    args: tuple[bytes, ...]

    @property
    def verb(self) -> bytes:
        """Return the name of the command in lower case."""
        return self.args[0].lower() if self.args else b""


class Command(ClientFrame, frozen=True):
    name = "command"

    def encode(self) -> bytes:
        parts = [b"*%d\r\n" % len(self.args)]
        parts += [b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in self.args]
        return b"".join(parts)


class Inline(ClientFrame, frozen=True):
    """`line` is the line as sent, with its end; `args` are its words."""

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
    """A value that a server sends. Values nest."""

    sender = Sender.SERVER

    def write(self, parts: list[bytes], _depth: int) -> None:
        """Append the bytes of this value, which is nested in `_depth` others."""
        parts.append(self.encode())


class SimpleString(Value, frozen=True):
    name = "simple_string"
    text: bytes

    def encode(self) -> bytes:
        return b"+%b\r\n" % _line(self.text)


class SimpleError(Value, frozen=True):
    """An error. By convention the text begins with a code in capitals: ERR, NOAUTH, WRONGPASS …"""

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
    """A long array that was encoded incrementally. Its items have the same encoding in both versions."""

    name = "encoded_array"
    data: bytes

    def encode(self) -> bytes:
        return self.data


class EncodedMap(Value, frozen=True):
    """A long map that was encoded incrementally: `count` pairs of bulk strings."""

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
    """The null of RESP 2."""

    name = "null_bulk_string"

    def encode(self) -> bytes:
        return b"$-1\r\n"


class NullArray(Value, frozen=True):
    """The null of RESP 2 in place of an array."""

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
    """A float, kept as text: 1.10 and 1.1 are the same number, but not the same bytes."""

    name = "double"
    text: bytes

    @property
    def value(self) -> float:
        return float(self.text)

    def encode(self) -> bytes:
        return b",%b\r\n" % _number(self.text, DOUBLE_FORM)


class BigNumber(Value, frozen=True):
    """An integer, kept as text: it may be larger than JSON and most readers accept."""

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
    """Text with a format of three bytes: txt, mkd …"""

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
    """A set, in the order of the wire: RESP allows duplicates."""

    name = "set"
    items: tuple[Value, ...]

    def write_inside(self, parts: list[bytes], depth: int) -> None:
        parts.append(b"~%d\r\n" % len(self.items))
        for item in self.items:
            item.write(parts, depth)


class Push(Aggregate, frozen=True):
    """A value that answers no command."""

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
    """Metadata about the value that follows it, and that value."""

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
