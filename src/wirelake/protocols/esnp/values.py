"""Var: a value that says of what type it is.

 0       1
├───────┼───────────────
│  tag  │ value …          Map = zigzag count | (LenString key | Var)…     List = zigzag count | Var…
└───────┴───────────────

One public library writes the counts of Maps and Lists as plain varints. A line whose zigzag reading does not end
exactly with the line is read again with plain counts; where that does not fit either, the first error stands.
"""

from collections.abc import Callable, Mapping
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any

from msgspec import Struct

from wirelake.errors import EncodeError, LimitError, ProtocolError, TranslationError
from wirelake.protocols.esnp import varint
from wirelake.protocols.esnp.limits import ESNP_DEPTH_MAX, ESNP_ITEMS_MAX
from wirelake.protocols.esnp.opcodes import TAG_NAMES, Tag

_FLOAT32 = Layout(">f")
_FLOAT64 = Layout(">d")
_MAP = Tag.MAP.value
_LIST = Tag.LIST.value
_ITEM_BYTES_MIN = {_MAP: 2, _LIST: 1}
_TAG_BYTES = {tag.value: bytes((tag,)) for tag in Tag}


class Var(Struct, frozen=True):
    """A Map's value is a dict of text to Var, a List's a tuple of Vars; of two equal keys the last counts."""

    tag: int
    value: Any = None

    def encode(self, *, plain_counts: bool = False) -> bytes:
        """With the counts of Maps and Lists as zigzag varints, or as plain ones for a peer that writes them so."""
        return _write(self, 0, varint.write_uvarint if plain_counts else varint.write_signed)

    def plain(self) -> Any:
        """The value alone, all the way down, as the common message has it."""
        if self.tag == _MAP:
            return {key: each.plain() for key, each in self.value.items()}
        if self.tag == _LIST:
            return [each.plain() for each in self.value]
        return self.value


class VarReader:
    """Reads the named values of one message, which share the bound on items."""

    __slots__ = ("items_left", "plain_counts")

    def __init__(self, items_max: int = ESNP_ITEMS_MAX) -> None:
        self.items_left = items_max
        self.plain_counts = False  # how the line read last wrote its counts

    def named(self, data: bytes) -> tuple[str, Var]:
        """LenString name, Var, and nothing behind it."""
        name, place = varint.read_text(data, 0)
        self.plain_counts = False
        if place == len(data) or data[place] not in _ITEM_BYTES_MIN:
            return name, self._whole(data, place)  # without counts there is nothing to read differently
        before = self.items_left
        try:
            return name, self._whole(data, place)
        except ProtocolError as error:
            zigzag_error = error
        self.items_left, self.plain_counts = before, True
        try:
            return name, self._whole(data, place)
        except ProtocolError:
            self.items_left = before
            raise zigzag_error from None

    def count(self, data: bytes, place: int) -> tuple[int, int]:
        if self.plain_counts:
            return varint.read_unsigned(data, place, varint.INT32_BITS)
        return varint.read_signed(data, place)

    def _whole(self, data: bytes, place: int) -> Var:
        found, end = self._var(data, place, 0)
        if end != len(data):
            raise ProtocolError("trailing", f"{len(data) - end} bytes too many", end)
        return found

    def _var(self, data: bytes, place: int, depth: int) -> tuple[Var, int]:
        if place >= len(data):
            raise ProtocolError("short", "a tag is missing", len(data))
        tag = data[place]
        read = READ_SCALAR.get(tag)
        if read is not None:
            value, end = read(data, place + 1)
            return Var(tag, value), end
        if tag not in _ITEM_BYTES_MIN:
            raise ProtocolError("unknown_tag", f"no value has tag {tag}", place)
        if depth >= ESNP_DEPTH_MAX:
            raise LimitError("esnp_depth_max", f"values nest more than {ESNP_DEPTH_MAX} deep", place)
        return self._container(data, place, depth + 1)

    def _container(self, data: bytes, place: int, depth: int) -> tuple[Var, int]:
        tag = data[place]
        count, end = self.count(data, place + 1)
        if not 0 <= count * _ITEM_BYTES_MIN[tag] <= len(data) - end:
            text = f"a {TAG_NAMES[tag]} of {count} does not fit the {len(data) - end} bytes left"
            raise ProtocolError("count", text, place + 1)
        if count > self.items_left:
            text = f"the Maps and Lists of one message hold at most {ESNP_ITEMS_MAX} values"
            raise LimitError("esnp_items_max", text, place + 1)
        self.items_left -= count
        if tag == _MAP:
            entries: dict[str, Var] = {}
            for _ in range(count):
                key, end = varint.read_text(data, end)
                entries[key], end = self._var(data, end, depth)
            return Var(tag, entries), end
        items = []
        for _ in range(count):
            item, end = self._var(data, end, depth)
            items.append(item)
        return Var(tag, tuple(items)), end


def var_of(value: Any, depth: int = 0) -> Var:
    """The Var for a plain value: Float64 for a float, the narrowest of Int32, Int64 and UInt64 for an integer."""
    tag = _TAG_OF.get(type(value))
    if tag is not None:
        return Var(tag, value)
    if isinstance(value, int):
        return Var(_integer_tag(value), int(value))
    if isinstance(value, str):
        return Var(Tag.STRING.value, str(value))  # a StrEnum's member, for one
    if depth >= ESNP_DEPTH_MAX:
        raise TranslationError(f"values that nest more than {ESNP_DEPTH_MAX} deep")
    if isinstance(value, list | tuple):
        return Var(_LIST, tuple([var_of(each, depth + 1) for each in value]))
    if not isinstance(value, Mapping):
        raise TranslationError(f"a value of type {type(value).__name__}")
    if not all(isinstance(key, str) for key in value):
        raise TranslationError("a Map whose keys are not all text")
    return Var(_MAP, {key: var_of(each, depth + 1) for key, each in value.items()})


_TAG_OF: Mapping[type, int] = {
    type(None): Tag.NULL.value,
    bool: Tag.BOOL.value,
    float: Tag.FLOAT64.value,
    str: Tag.STRING.value,
    bytes: Tag.BYTES.value,
}


def _integer_tag(value: int) -> int:
    if -(1 << 31) <= value < 1 << 31:
        return Tag.INT32.value
    if -(1 << 63) <= value < 1 << 63:
        return Tag.INT64.value
    if 0 <= value < 1 << 64:
        return Tag.UINT64.value
    raise TranslationError(f"an integer of {value.bit_length()} bits")


def _read_bool(data: bytes, place: int) -> tuple[bool, int]:
    return _read_byte(data, place)[0] != 0, place + 1


def _read_byte(data: bytes, place: int) -> tuple[int, int]:
    if place >= len(data):
        raise ProtocolError("short", "a byte is missing", len(data))
    return data[place], place + 1


def _read_int8(data: bytes, place: int) -> tuple[int, int]:
    value, end = _read_byte(data, place)
    return value - 0x100 if value >= 0x80 else value, end


def _float_reader(layout: Layout) -> Callable[[bytes, int], tuple[float, int]]:
    def read(data: bytes, place: int) -> tuple[float, int]:
        try:
            return layout.unpack_from(data, place)[0], place + layout.size
        except struct_error:
            text = f"a float needs {layout.size} bytes, {len(data) - place} are left"
            raise ProtocolError("short", text, len(data)) from None

    return read


def _signed_reader(bits: int) -> Callable[[bytes, int], tuple[int, int]]:
    return lambda data, place: varint.read_signed(data, place, bits)


def _unsigned_reader(bits: int) -> Callable[[bytes, int], tuple[int, int]]:
    return lambda data, place: varint.read_unsigned(data, place, bits)


READ_SCALAR: Mapping[int, Callable[[bytes, int], tuple[Any, int]]] = {
    Tag.NULL.value: lambda _data, place: (None, place),
    Tag.BOOL.value: _read_bool,
    Tag.INT.value: varint.read_signed,
    Tag.INT8.value: _read_int8,
    Tag.INT16.value: _signed_reader(16),
    Tag.INT32.value: varint.read_signed,
    Tag.INT64.value: _signed_reader(64),
    Tag.UINT.value: _unsigned_reader(32),
    Tag.UINT8.value: _read_byte,
    Tag.UINT16.value: _unsigned_reader(16),
    Tag.UINT32.value: _unsigned_reader(32),
    Tag.UINT64.value: _unsigned_reader(64),
    Tag.FLOAT32.value: _float_reader(_FLOAT32),
    Tag.FLOAT64.value: _float_reader(_FLOAT64),
    Tag.BYTES.value: varint.read_bytes,
    Tag.STRING.value: varint.read_text,
}


def _write(var: Var, depth: int, count: Callable[[int], bytes]) -> bytes:
    tag = var.tag
    write = _WRITE_SCALAR.get(tag)
    try:
        if write is not None:
            return _TAG_BYTES[tag] + write(var.value)
        if tag not in _ITEM_BYTES_MIN:
            raise EncodeError(f"no value has tag {tag}")
        if depth >= ESNP_DEPTH_MAX:
            raise EncodeError(f"values nest more than {ESNP_DEPTH_MAX} deep")
        parts = [_TAG_BYTES[tag], count(len(var.value))]
        if tag == _MAP:
            for key, each in var.value.items():
                parts += (varint.write_text(key), _write(each, depth + 1, count))
        else:
            parts += [_write(each, depth + 1, count) for each in var.value]
        return b"".join(parts)
    except (TypeError, AttributeError, OverflowError, struct_error) as error:
        raise EncodeError(f"{type(var.value).__name__} is not a value for tag {tag}") from error


def _signed_writer(bits: int) -> Callable[[int], bytes]:
    return lambda value: varint.write_signed(value, bits)


def _unsigned_writer(bits: int) -> Callable[[int], bytes]:
    return lambda value: varint.write_unsigned(value, bits)


_WRITE_SCALAR: Mapping[int, Callable[[Any], bytes]] = {
    Tag.NULL.value: lambda _value: b"",
    Tag.BOOL.value: lambda value: b"\x01" if value else b"\x00",
    Tag.INT.value: varint.write_signed,
    Tag.INT8.value: lambda value: value.to_bytes(1, "big", signed=True),
    Tag.INT16.value: _signed_writer(16),
    Tag.INT32.value: varint.write_signed,
    Tag.INT64.value: _signed_writer(64),
    Tag.UINT.value: _unsigned_writer(32),
    Tag.UINT8.value: lambda value: value.to_bytes(1, "big"),
    Tag.UINT16.value: _unsigned_writer(16),
    Tag.UINT32.value: _unsigned_writer(32),
    Tag.UINT64.value: _unsigned_writer(64),
    Tag.FLOAT32.value: _FLOAT32.pack,
    Tag.FLOAT64.value: _FLOAT64.pack,
    Tag.BYTES.value: varint.write_bytes,
    Tag.STRING.value: varint.write_text,
}
