"""The vocabulary of descriptions: field types for annotations, and marks that say more about a field.

A field type is an alias of `Annotated`, so that a type checker sees the plain Python type, as in `station: text8` (a
`str`) or `samples: list8[u16]` (a `tuple[int, ...]`). Marks are added with `Annotated`, as in
`Annotated[i16, scaled(0.1, "°C")]`. `parse_field` turns an annotation into the `FieldSpec` that the rest of the package
works with.
"""

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from wirelake.layout.forms import ChosenBy, Contains
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.layout.varint import read_zigzag_size, varint_reader, varint_writer
from wirelake.protocols.tree import Dissector

ByteOrder = Literal["big", "little"]
T = TypeVar("T")


# ── how a value is laid out in bytes


class Number(Struct, frozen=True):
    """An integer or a float of a fixed size. `code` is its `struct` format, empty if there is none (u24, u48)."""

    size: int
    code: str
    is_signed: bool = False
    is_float: bool = False


class Bool8(Struct, frozen=True):
    """One byte, 0 or 1."""

    size: int = 1


class Fixed(Struct, frozen=True):
    """Bytes or text of a fixed size."""

    size: int
    is_text: bool = False


class Prefixed(Struct, frozen=True):
    """Bytes or text after their size."""

    prefix: int
    is_text: bool


class SizedBy(Struct, frozen=True):
    """Bytes or text whose size is the value of an earlier field."""

    field: str
    is_text: bool = False


class Varint(Struct, frozen=True):
    """A number of seven bits a byte, the lowest first; in zigzag if it has a sign."""

    bits: int
    is_signed: bool = False

    @property
    def title(self) -> str:
        return f"{'zigzag' if self.is_signed else 'varint'}{self.bits}"


class SizeEncoding(Struct, frozen=True):
    """How a protocol writes sizes, if not as a number of a fixed size.

    `read` gets a frame and the range in which a size begins. It returns the size and where it ends, or raises
    ProtocolError with an offset into the frame; IndexError means that bytes are missing. A first byte up to
    `one_byte_max` is a size by itself, shifted to the left by `shift` bits: then `read` is not called.
    """

    title: str
    read: Callable[[bytes, int, int], tuple[int, int]]
    write: Callable[[int], bytes]
    one_byte_max: int = -1
    shift: int = 0


class SizedBytes(Struct, frozen=True):
    """Bytes or text after their size in an encoding of its own."""

    encoding: SizeEncoding
    is_text: bool = False


class Rest(Struct, frozen=True):
    """Bytes or text up to the end of the body."""

    is_text: bool


class Counted(Struct, frozen=True):
    """A list of values after their count."""

    prefix: int
    item: "FieldSpec | None" = None


class Nested(Struct, frozen=True):
    """The fields of another described class, in its own order."""

    kind: type
    fields: tuple["FieldSpec", ...]


class ShortLength(Struct, frozen=True):
    """A length of one byte up to 127; above, of two: 0x80 | (length & 0x7F), length >> 7."""


class Custom(Struct, frozen=True):
    """A value that cannot be described: the author's own functions read and write it.

    `read` gets a frame and the range in which the value may lie. It returns the value and where it ends, or raises
    ProtocolError with an offset into the frame; IndexError and struct.error mean that bytes are missing. `write`
    returns the bytes, or raises EncodeError. `strategy` returns a Hypothesis strategy for the values; only tests call
    it.
    """

    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    strategy: Callable[[], Any] | None = None
    title: str = "…"
    dissect: Callable[[Dissector, str], None] | None = None  # adds the parts of the value at the dissector's position


Kind = (Number | Bool8 | Fixed | Prefixed | SizedBy | Varint | SizedBytes | SizedNumber | SizeOf) | (
    Rest | Counted | Nested | ChosenBy | ShortLength | Custom
)
KINDS: Final = (
    *(Number, Bool8, Fixed, Prefixed, SizedBy, Varint, SizedBytes, SizedNumber, SizeOf),
    *(Rest, Counted, ShortLength, Custom),
)


# ── marks


class Const(Struct, frozen=True):
    value: int | bytes
    code: str = ""  # of the error; the name of the field by default
    text: str = ""
    is_carried: bool = False  # of an envelope: each frame has an attribute for it


class Between(Struct, frozen=True):
    least: int
    most: int
    text: str = ""  # of the error


class Scaled(Struct, frozen=True):
    factor: float
    unit: str


class ValueNames(Struct, frozen=True):
    names: Mapping[int, str]
    other: str = "not a known value"


class Flags(Struct, frozen=True):
    names: tuple[str, ...]  # from bit 0 on; an empty name is a bit without a meaning
    reserved: int = 0  # bits that must be zero
    code: str = ""  # of the error; the name of the field by default


class Shown(Struct, frozen=True):
    function: Callable[[Any], str]


class PresentIf(Struct, frozen=True):
    field: str
    bits: int


class AtMost(Struct, frozen=True):
    limit: int


class ItemName(Struct, frozen=True):
    name: str


class Direction(Struct, frozen=True):
    bits: int


class Label(Struct, frozen=True):
    text: str


class LengthRole(Struct, frozen=True):
    """The length of a frame. It counts `plus` bytes more than what it is named for."""

    counts: Literal["rest", "frame", "body"]
    plus: int = 0
    at_least: int = 0  # a smaller one is refused
    write_max: int = 0  # a larger one is not written, although it is read; 0: no such limit
    code: str = ""  # of the error if it does not fit the frame; the name of the field by default


class OpcodeRole(Struct, frozen=True):
    """Says which frame it is. With a mask, other bits of the field mean something else, and each frame holds them."""

    mask: int = 0
    code: str = ""  # of the error; `unknown_` and the name of the field by default


class Crc(Struct, frozen=True):
    """The parameters of a CRC, as catalogues list them."""

    width: int  # in bits
    polynomial: int
    initial: int = 0
    is_reflected: bool = False  # input and output
    final: int = 0  # XORed to the result


class PerFrame(Struct, frozen=True):
    """A field of an envelope whose value each class of frames sets."""

    code: str = ""  # of the error; the name of the field by default


class Limited(Struct, frozen=True):
    bytes_max: int
    name: str  # of the limit, which is the code of the error


class Checksum(Struct, frozen=True):
    """A checksum. To add another one, make an instance with its function.

    `residue`: what `compute` gives for bytes that end with their own checksum in `residue_order`, if that is always
    the same. It is then checked without copying the bytes. `crc`: its parameters if it is a CRC of at most 32 bits;
    exported dissectors then verify it, too.
    """

    title: str
    compute: Callable[[bytes], int]
    over: str = ""  # `first..last` by name; everything before it by default
    residue: int | None = None
    residue_order: ByteOrder = "little"
    code: str = ""  # of the error; the name of the field by default
    crc: Crc | None = None


class _Mark(Enum):
    SECRET = "secret"  # noqa: S105 (the mark of a secret, not one)
    BIG = "big"
    LITTLE = "little"
    OR_EMPTY = "or_empty"


class Body(Struct, frozen=True):
    """Stands for the fields of the frame in an `Envelope`."""


class FieldSpec(Struct, frozen=True):
    """One field of a description."""

    name: str
    kind: Kind
    order: ByteOrder = "big"
    const: Const | None = None
    between: Between | None = None
    scale: Scaled | None = None
    names: ValueNames | None = None
    flags: Flags | None = None
    enum: type[IntEnum] | None = None
    shown: Callable[[Any], str] | None = None
    present_if: PresentIf | None = None
    at_most: int | None = None
    label: str = ""  # in trees and docs, if it is not the name
    item_name: str = ""  # of a list: in trees, its count is `count`, and its items are `<item_name> 0` and so on
    length: LengthRole | None = None
    opcode: OpcodeRole | None = None
    checksum: Checksum | None = None
    contains: Contains | None = None
    direction: Direction | None = None
    per_frame: PerFrame | None = None
    limited: Limited | None = None
    sizes: str = ""  # the field of an envelope whose size this is
    is_secret: bool = False
    is_optional: bool = False
    missing: bytes | None = None  # the value of an optional field that is not there
    has_own_order: bool = False  # it says its byte order itself

    @property
    def size(self) -> int | None:
        """Return how many bytes it has, None if that differs from frame to frame."""
        if self.is_optional:
            return None
        if isinstance(self.kind, Number | Bool8 | Fixed):
            return self.kind.size
        if isinstance(self.kind, Nested):
            sizes = [field.size for field in self.kind.fields]
            return None if None in sizes else sum(size for size in sizes if size is not None)
        return 0 if isinstance(self.kind, SizeOf) else None

    @property
    def code(self) -> str:
        """Return its `struct` format, empty if there is none."""
        match self.kind:
            case Number(code=code):
                return code
            case Bool8():
                return "B"
            case Fixed(size=size, is_text=False) if size:
                return f"{size}s"
        return ""


# ── the names that authors use

u8 = Annotated[int, Number(1, "B")]
u16 = Annotated[int, Number(2, "H")]
u24 = Annotated[int, Number(3, "")]
u32 = Annotated[int, Number(4, "I")]
u48 = Annotated[int, Number(6, "")]
u64 = Annotated[int, Number(8, "Q")]
i8 = Annotated[int, Number(1, "b", is_signed=True)]
i16 = Annotated[int, Number(2, "h", is_signed=True)]
i24 = Annotated[int, Number(3, "", is_signed=True)]
i32 = Annotated[int, Number(4, "i", is_signed=True)]
i48 = Annotated[int, Number(6, "", is_signed=True)]
i64 = Annotated[int, Number(8, "q", is_signed=True)]
f32 = Annotated[float, Number(4, "f", is_float=True)]
f64 = Annotated[float, Number(8, "d", is_float=True)]
bool8 = Annotated[bool, Bool8()]
bytes8 = Annotated[bytes, Prefixed(1, is_text=False)]
bytes16 = Annotated[bytes, Prefixed(2, is_text=False)]
bytes32 = Annotated[bytes, Prefixed(4, is_text=False)]
text8 = Annotated[str, Prefixed(1, is_text=True)]
text16 = Annotated[str, Prefixed(2, is_text=True)]
text32 = Annotated[str, Prefixed(4, is_text=True)]
varint32 = Annotated[int, Varint(32)]
varint64 = Annotated[int, Varint(64)]
zigzag32 = Annotated[int, Varint(32, is_signed=True)]
zigzag64 = Annotated[int, Varint(64, is_signed=True)]
_VARINT_SIZE = SizeEncoding("varint32", varint_reader(32, False), varint_writer(32, False), 0x7F)
_ZIGZAG_SIZE = SizeEncoding("zigzag32", read_zigzag_size, varint_writer(32, True), 0x7F, shift=1)
bytes_varint = Annotated[bytes, SizedBytes(_VARINT_SIZE)]
text_varint = Annotated[str, SizedBytes(_VARINT_SIZE)]
bytes_zigzag = Annotated[bytes, SizedBytes(_ZIGZAG_SIZE)]
text_zigzag = Annotated[str, SizedBytes(_ZIGZAG_SIZE)]
rest_bytes = Annotated[bytes, Rest(is_text=False)]
rest_text = Annotated[str, Rest(is_text=True)]
list8 = Annotated[tuple[T, ...], Counted(1)]
list16 = Annotated[tuple[T, ...], Counted(2)]
optional: TypeAlias = T | None  # at the end of a body: None if the body ends before it
short_length = Annotated[int, ShortLength()]  # of an envelope

secret: Final = _Mark.SECRET  # blanked in what is logged
big: Final = _Mark.BIG  # the byte order of a field
little: Final = _Mark.LITTLE  # the same
or_empty: Final = _Mark.OR_EMPTY  # at the end of a body: fixed bytes that are b"" if the body ends before them


def fixed(size: int) -> Fixed:
    """Mark `bytes` or `str` that always has this many bytes. One of none has no place in trees."""
    return Fixed(size)


def sized_by(field: str) -> SizedBy:
    """Mark `bytes` or `str` whose size is the value of an earlier number; in an envelope, encoding computes that."""
    return SizedBy(field)


def sized_in(encoding: SizeEncoding) -> SizedBytes:
    """Mark `bytes` or `str` after their size in an encoding of its own: see `SizeEncoding`."""
    return SizedBytes(encoding)


def per_frame(*, code: str = "") -> PerFrame:
    """Mark a field of an envelope whose value each class of frames sets: a class variable of the same name."""
    return PerFrame(code)


def limited(bytes_max: int, name: str) -> Limited:
    """Mark a length in an envelope: the splitter refuses a larger one as soon as it is read, with this code."""
    return Limited(bytes_max, name)


def const(value: int | bytes, *, code: str = "", text: str = "", is_carried: bool = False) -> Const:
    """Mark a field that always has this value. `code` and `text` are those of the error if it has another.

    With `is_carried`, a constant of an envelope is an attribute of every frame, as other fields before the body are.
    """
    return Const(value, code, text, is_carried)


def between(least: int, most: int, *, text: str = "") -> Between:
    """Mark a number that is refused if it is less or more. `text` says why."""
    return Between(least, most, text or f"it must be between {least} and {most}")


def scaled(factor: float, unit: str) -> Scaled:
    """Mark a number that stands for `factor` times as much, in this unit. The attribute holds the number itself."""
    return Scaled(float(factor), unit)  # a factor of 1 gives floats, too


def names(names: Mapping[int, str], other: str = "not a known value") -> ValueNames:
    """Mark a number whose values have names. Others are accepted; for a closed set, use `Annotated[AnIntEnum, u8]`."""
    return ValueNames(names, other)


def flags(*names: str, reserved: int = 0, code: str = "") -> Flags:
    """Mark a number whose bits have names, from bit 0 on. A frame with a bit of `reserved` is refused, by this code."""
    return Flags(names, reserved, code)


def shown(meaning: Callable[[Any], str] | str) -> Shown:
    """Mark a field that has this meaning, or whose meaning this function returns; an empty text if it has none."""
    if isinstance(meaning, str):
        return Shown(lambda _value: meaning)
    return Shown(meaning)


def present_if(field: str, bits: int) -> PresentIf:
    """Mark an `optional` field that is there if an earlier number has any of these bits, wherever it stands."""
    return PresentIf(field, bits)


def at_most(limit: int) -> AtMost:
    """Mark a list, text or bytes that writers keep this short, although readers accept more."""
    return AtMost(limit)


def direction(bits: int) -> Direction:
    """Mark a number in an envelope that has these bits in frames from the server, and not in those from the client."""
    return Direction(bits)


def label(text: str) -> Label:
    """Mark a field that trees and docs show under another name than its attribute."""
    return Label(text)


def items(name: str) -> ItemName:
    """Mark a list of which trees show the `count`, and then `<name> 0`, `<name> 1`, …"""
    return ItemName(name)


def custom(
    read: Callable[[bytes, int, int], tuple[Any, int]],
    write: Callable[[Any], bytes],
    *,
    strategy: Callable[[], Any] | None = None,
    title: str = "…",
    dissect: Callable[[Dissector, str], None] | None = None,
) -> Custom:
    """Mark a field that the author's own functions read and write: see `Custom`."""
    return Custom(read, write, strategy, title, dissect)


# ── what others ask about fields


def in_order(field: FieldSpec, order: ByteOrder) -> FieldSpec:
    """Return the field, and those inside it, with this byte order if they do not say their own."""
    if field.has_own_order:
        return field
    kind = field.kind
    if isinstance(kind, Counted) and kind.item is not None:
        kind = Counted(kind.prefix, in_order(kind.item, order))
    elif isinstance(kind, Nested):
        kind = Nested(kind.kind, tuple(in_order(each, order) for each in kind.fields))
    elif isinstance(kind, ChosenBy):
        cases = tuple((number, in_order(form, order)) for number, form in kind.cases)
        kind = ChosenBy(kind.field, cases, None if kind.other is None else in_order(kind.other, order))
    return replace(field, kind=kind, order=order)


def has_secret(fields: tuple[FieldSpec, ...]) -> bool:
    """Return whether any of the fields, or of those inside them, is secret."""
    for field in fields:
        inner: tuple[FieldSpec, ...] = ()
        if isinstance(field.kind, Nested):
            inner = field.kind.fields
        elif isinstance(field.kind, ChosenBy):
            inner = field.kind.forms
        elif isinstance(field.kind, Counted) and field.kind.item is not None:
            inner = (field.kind.item,)
        if field.is_secret or has_secret(inner):
            return True
    return False
