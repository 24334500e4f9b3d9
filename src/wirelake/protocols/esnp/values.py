"""The encodings inside lines: numbers, bytes and text, and values that name their type.

varint   seven bits a byte, the lowest first; bit 7 says that more follow; at most ten bytes
zigzag   0 -1 1 -2 2 … as the varints 0 1 2 3 4 …
LenBytes, LenString   zigzag length, then that many bytes

Var      tag | value
Map      zigzag count | (LenString key | Var)…
List     zigzag count | Var…

One public library writes the counts of Maps and Lists as plain varints. A line that does not end where its zigzag
counts say is read again with plain counts; if that does not fit either, the first error counts.

A function that reads takes the bytes and a position, and returns the value and the position after it. The offset of an
error counts from the first of the bytes.
"""

from collections.abc import Callable, Mapping
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any

from msgspec import Struct

from wirelake.errors import EncodeError, LimitError, ProtocolError, TranslationError
from wirelake.layout.varint import read_varint, write_varint
from wirelake.protocols.esnp.constants import ESNP_DEPTH_MAX, ESNP_ITEMS_MAX, TAG_NAMES, Tag
from wirelake.protocols.tree import utf8

# ── numbers, bytes and text

INT32_BITS = 32


def read_uvarint(data: bytes, place: int) -> tuple[int, int]:
    if place < len(data) and (byte := data[place]) < 0x80:
        return byte, place + 1
    return read_varint(data, place, len(data))


def read_unsigned(data: bytes, place: int, bits: int) -> tuple[int, int]:
    value, end = read_uvarint(data, place)
    if value >> bits:
        raise ProtocolError("int_range", f"{value} is not a UInt{bits}", place)
    return value, end


def read_signed(data: bytes, place: int, bits: int = INT32_BITS) -> tuple[int, int]:
    """Read a zigzag number. The Int of the specification is an Int32."""
    if place < len(data) and (folded := data[place]) < 0x80:  # the usual case: lengths, flags, kinds
        return folded >> 1 ^ -(folded & 1), place + 1
    folded, end = read_uvarint(data, place)
    value = folded >> 1 ^ -(folded & 1)
    if folded >> bits:
        raise ProtocolError("int_range", f"{value} is not an Int{bits}", place)
    return value, end


def read_bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, start = read_signed(data, place)
    if size < 0:
        raise ProtocolError("negative_size", f"a length of {size}", place)
    end = start + size
    if end > len(data):
        raise ProtocolError("short", f"{size} bytes are announced, {len(data) - start} are left", len(data))
    return data[start:end], end


def read_text(data: bytes, place: int) -> tuple[str, int]:
    if place < len(data) and (folded := data[place]) < 0x80 and not folded & 1:  # the usual case: a short text
        end = place + 1 + (folded >> 1)
        if end <= len(data):
            try:
                return data[place + 1 : end].decode(), end
            except UnicodeDecodeError:
                pass  # below with the offset
    raw, end = read_bytes(data, place)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return utf8(raw, end - len(raw)), end  # raises with the offset of the bad byte


def write_unsigned(value: int, bits: int) -> bytes:
    if value < 0 or value >> bits:
        raise EncodeError(f"{value} does not fit a UInt{bits}")
    return write_varint(value)


def write_signed(value: int, bits: int = INT32_BITS) -> bytes:
    folded = value << 1 if value >= 0 else ~(value << 1)
    if folded >> bits:
        raise EncodeError(f"{value} does not fit an Int{bits}")
    return write_varint(folded)


def write_bytes(data: bytes) -> bytes:
    return write_signed(len(data)) + data


def write_text(text: str) -> bytes:
    return write_bytes(raw_text(text))


def raw_text(text: str) -> bytes:
    """Encode text without a length. Raise EncodeError if it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"text with half a surrogate pair at {error.start} is not UTF-8") from error


# ── values of any type

_FLOAT32 = Layout(">f")
_FLOAT64 = Layout(">d")
_MAP = Tag.MAP.value
_LIST = Tag.LIST.value
_ITEM_BYTES_MIN = {_MAP: 2, _LIST: 1}
_TAG_BYTES = {tag.value: bytes((tag,)) for tag in Tag}


class Var(Struct, frozen=True):
    """A value with its type. A Map is a dict of text to Var, a List a tuple of Vars. Of equal keys, the last counts."""

    tag: int
    value: Any = None

    def encode(self, *, plain_counts: bool = False) -> bytes:
        """Return the bytes. `plain_counts` is for peers that write the counts of Maps and Lists as plain varints."""
        return _write(self, 0, write_varint if plain_counts else write_signed)

    def plain(self) -> Any:
        """Return the value without types, recursively, as a common message has it."""
        if self.tag == _MAP:
            return {key: each.plain() for key, each in self.value.items()}
        if self.tag == _LIST:
            return [each.plain() for each in self.value]
        return self.value


class VarReader:
    """Read the named values of one message, which share the limit on items."""

    __slots__ = ("items_left", "plain_counts")

    def __init__(self, items_max: int = ESNP_ITEMS_MAX) -> None:
        self.items_left = items_max
        self.plain_counts = False  # whether the last line had plain counts

    def named(self, data: bytes) -> tuple[str, Var]:
        """Read a LenString and a Var that fill `data`."""
        name, place = read_text(data, 0)
        return name, self.to_the_end(data, place)

    def plain_named(self, data: bytes) -> tuple[str, Any]:
        """Read the same, and return the value without types. Most are single values: they need no Var."""
        name, place = read_text(data, 0)
        read = READ_SCALAR.get(data[place]) if place < len(data) else None
        if read is None:
            return name, self.to_the_end(data, place).plain()
        self.plain_counts = False
        value, end = read(data, place + 1)
        if end != len(data):
            raise ProtocolError("trailing", f"{len(data) - end} bytes too many", end)
        return name, value

    def to_the_end(self, data: bytes, place: int) -> Var:
        """Read a Var that begins at `place` and ends with the bytes."""
        self.plain_counts = False
        if place == len(data) or data[place] not in _ITEM_BYTES_MIN:
            return self._whole(data, place)  # it has no counts that could be read differently
        before = self.items_left
        try:
            return self._whole(data, place)
        except ProtocolError as error:
            zigzag_error = error
        self.items_left, self.plain_counts = before, True
        try:
            return self._whole(data, place)
        except ProtocolError:
            self.items_left = before
            raise zigzag_error from None

    def count(self, data: bytes, place: int) -> tuple[int, int]:
        if self.plain_counts:
            return read_unsigned(data, place, INT32_BITS)
        return read_signed(data, place)

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
                key, end = read_text(data, end)
                entries[key], end = self._var(data, end, depth)
            return Var(tag, entries), end
        items = []
        for _ in range(count):
            item, end = self._var(data, end, depth)
            items.append(item)
        return Var(tag, tuple(items)), end


def var_of(value: Any, depth: int = 0) -> Var:
    """Return the Var of a plain value: Float64 for a float, the narrowest of Int32, Int64 and UInt64 for an integer."""
    tag = _TAG_OF.get(type(value))
    if tag is not None:
        return Var(tag, value)
    if isinstance(value, int):
        return Var(_integer_tag(value), int(value))
    if isinstance(value, str):
        return Var(Tag.STRING.value, str(value))  # a member of a StrEnum, for example
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
    return lambda data, place: read_signed(data, place, bits)


def _unsigned_reader(bits: int) -> Callable[[bytes, int], tuple[int, int]]:
    return lambda data, place: read_unsigned(data, place, bits)


READ_SCALAR: Mapping[int, Callable[[bytes, int], tuple[Any, int]]] = {
    Tag.NULL.value: lambda _data, place: (None, place),
    Tag.BOOL.value: _read_bool,
    Tag.INT.value: read_signed,
    Tag.INT8.value: _read_int8,
    Tag.INT16.value: _signed_reader(16),
    Tag.INT32.value: read_signed,
    Tag.INT64.value: _signed_reader(64),
    Tag.UINT.value: _unsigned_reader(32),
    Tag.UINT8.value: _read_byte,
    Tag.UINT16.value: _unsigned_reader(16),
    Tag.UINT32.value: _unsigned_reader(32),
    Tag.UINT64.value: _unsigned_reader(64),
    Tag.FLOAT32.value: _float_reader(_FLOAT32),
    Tag.FLOAT64.value: _float_reader(_FLOAT64),
    Tag.BYTES.value: read_bytes,
    Tag.STRING.value: read_text,
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
                parts += (write_text(key), _write(each, depth + 1, count))
        else:
            parts += [_write(each, depth + 1, count) for each in var.value]
        return b"".join(parts)
    except (TypeError, AttributeError, OverflowError, struct_error) as error:
        raise EncodeError(f"{type(var.value).__name__} is not a value for tag {tag}") from error


def _signed_writer(bits: int) -> Callable[[int], bytes]:
    return lambda value: write_signed(value, bits)


def _unsigned_writer(bits: int) -> Callable[[int], bytes]:
    return lambda value: write_unsigned(value, bits)


_WRITE_SCALAR: Mapping[int, Callable[[Any], bytes]] = {
    Tag.NULL.value: lambda _value: b"",
    Tag.BOOL.value: lambda value: b"\x01" if value else b"\x00",
    Tag.INT.value: write_signed,
    Tag.INT8.value: lambda value: value.to_bytes(1, "big", signed=True),
    Tag.INT16.value: _signed_writer(16),
    Tag.INT32.value: write_signed,
    Tag.INT64.value: _signed_writer(64),
    Tag.UINT.value: _unsigned_writer(32),
    Tag.UINT8.value: lambda value: value.to_bytes(1, "big"),
    Tag.UINT16.value: _unsigned_writer(16),
    Tag.UINT32.value: _unsigned_writer(32),
    Tag.UINT64.value: _unsigned_writer(64),
    Tag.FLOAT32.value: _FLOAT32.pack,
    Tag.FLOAT64.value: _FLOAT64.pack,
    Tag.BYTES.value: write_bytes,
    Tag.STRING.value: write_text,
}
