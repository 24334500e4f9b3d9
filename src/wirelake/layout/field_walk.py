"""Read fields by their description, one after the other: for trees, for what is secret, and for errors."""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.layout.fields import (
    Bool8,
    ByteOrder,
    Counted,
    Custom,
    FieldSpec,
    Fixed,
    Nested,
    Number,
    Prefixed,
    Rest,
    ShortLength,
    SizedBy,
    SizedBytes,
    Varint,
    in_order,
)
from wirelake.layout.forms import ChosenBy, Contains
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.layout.varint import varint_reader
from wirelake.protocols.tree import Dissector

_PREFIX_CODES = {1: "B", 2: "H", 4: "I"}
_TEXT_BLANK = b"*"
# Of these, only a part may be secret: not the size, for example.
_HOLDS_SECRETS = (Prefixed, SizedBytes, SizedNumber, Nested, Counted, ChosenBy)


class FieldWalk:
    """A walk over the bytes of a dissector. Afterwards, `secrets` has the ranges of the secret fields."""

    def __init__(self, dissector: Dissector) -> None:
        self.dissector = dissector
        self.secrets: list[tuple[int, int, bytes]] = []  # first byte, end, what to write over it
        self.order: ByteOrder | None = None  # that this frame shows
        self.values: dict[str, Any] = {}  # of the numbers so far, by name

    def fields(self, fields: Sequence[FieldSpec]) -> None:
        for field in fields:
            present = field.present_if
            if present is not None:
                if not self.values[present.field] & present.bits:
                    continue
            elif field.is_optional and not self.dissector.left:
                return
            self.field(field)

    def _part(self, fields: Sequence[FieldSpec]) -> None:
        """Read the fields of another class, whose names are its own."""
        outer, self.values = self.values, {}
        self.fields(fields)
        self.values = outer

    def field(self, field: FieldSpec, label: str = "") -> Any:
        """Read one field, check its value, and return it."""
        d, label = self.dissector, label or field.label or field.name
        if self.order is not None:
            field = in_order(field, self.order)
        d.order = ">" if field.order == "big" else "<"
        start = d.position
        value = self._value(field, label)
        if isinstance(field.kind, Number):
            self.values[field.name] = value
        if field.is_secret and not isinstance(field.kind, _HOLDS_SECRETS):
            self._note_secret(field, start, d.position)
        if isinstance(field.kind, Number | Varint | Bool8 | Fixed | Prefixed | SizedBy | SizedBytes | Rest) or (
            isinstance(field.kind, Custom) and field.kind.dissect is None
        ):
            self._check_value(field, value, start)
            note = _note(field, value)
            if note:
                d.note(note)
        return value

    def _value(self, field: FieldSpec, label: str) -> Any:  # noqa: C901, PLR0911, PLR0912 (one for each kind)
        d, kind = self.dissector, field.kind
        match kind:
            case Number(code=code) if code:
                return d.number(label, code)
            case Bool8():
                return d.u8(label)
            case Number(size=size, is_signed=is_signed):
                d.need(size, label)
                value = int.from_bytes(d.data[d.position : d.position + size], field.order, signed=is_signed)
                d.add(label, size, value)
                return value
            case Fixed(size=0) | SizeOf():
                return None
            case Fixed(size=size):
                return self._sized(field, label, size)
            case SizedNumber():
                return self._sized_number(field, kind, label)
            case Prefixed(prefix=prefix):
                size = d.number(f"{label} size", _PREFIX_CODES[prefix])
                start = d.position
                if field.is_secret:
                    self._note_secret(field, start, min(start + size, d.end))
                return self._sized(field, label, size)
            case SizedBy(field=size_field):
                return self._sized(field, label, self.values[size_field])
            case Varint(bits=bits, is_signed=is_signed):
                return self._own_number(label, varint_reader(bits, is_signed))
            case SizedBytes(encoding=encoding):
                size = self._own_number(f"{label} size", encoding.read)
                if field.is_secret:
                    self._note_secret(field, d.position, min(d.position + size, d.end))
                return self._sized(field, label, size)
            case Rest():
                return self._sized(field, label, d.left)
            case ShortLength():
                return self._short_length(label)
            case Counted():
                self._list(field, kind, label)
            case ChosenBy():
                return self._choice(field, kind, label)
            case Nested():
                with d.group(label):
                    self._part(_secret_too(kind.fields, field))
            case Custom():
                return self._custom(kind, label)
        return None

    def _sized(self, field: FieldSpec, label: str, size: int) -> Any:
        if field.contains is not None:
            return self._content(field.contains, label, size)
        is_text = isinstance(field.kind, Fixed | Prefixed | SizedBy | SizedBytes | Rest) and field.kind.is_text
        return self.dissector.text(label, size) if is_text else self.dissector.raw(label, size)

    def _own_number(self, label: str, read: Callable[[bytes, int, int], tuple[int, int]]) -> int:
        """Read a number of varying size."""
        d = self.dissector
        try:
            value, end = read(d.data, d.position, d.end)
        except IndexError as error:
            raise ProtocolError("short", f"{label} is cut off", d.end) from error
        d.add(label, end - d.position, value)
        return value

    def _content(self, contains: Contains, label: str, size: int) -> bytes:
        """Add the frame that bytes hold, or the bytes as they are if they hold none that can be read."""
        d = self.dissector
        d.need(size, label)
        data, content = d.data[d.position : d.position + size], contains.find(self.values)
        if content is None:
            return d.raw(label, size, contains.otherwise(self.values))
        tree = content.frames.dissect(data, content.sender)
        if tree.error is not None:
            d.malformed(label, size, f"not readable as a {content.label}: {tree.error.text}", tree.error)
        else:
            d.graft(content.label, tree.root)
        return data

    def _sized_number(self, field: FieldSpec, kind: SizedNumber, label: str) -> Any:
        d = self.dissector
        size = d.number(kind.size_name or f"{label} size", "B")
        d.need(size, label)
        if field.is_secret:
            self._note_secret(field, d.position, d.position + size)
        value = kind.read(d.data[d.position : d.position + size], field.order)
        d.add(label, size, value, "of no known size, kept as bytes" if isinstance(value, bytes) else "")
        return value

    def _choice(self, field: FieldSpec, kind: ChosenBy, label: str) -> Any:
        number = self.values[kind.field]
        form = dict(kind.cases).get(number, kind.other)
        if form is None:
            text = f"{kind.field} {number} has no meaning"
            raise ProtocolError(f"unknown_{kind.field}", text, self.dissector.position)
        (form,) = _secret_too((form,), field)
        if isinstance(form.kind, Nested):  # its fields stand for themselves, without a group
            self._part(_secret_too(form.kind.fields, field))
            return None
        return self.field(form, label)

    def _list(self, field: FieldSpec, kind: Counted, label: str) -> None:
        each = field.item_name or label
        title = "count" if field.item_name else f"{label} count"
        count = self.dissector.number(title, _PREFIX_CODES[kind.prefix])
        if kind.item is not None:
            (item,) = _secret_too((kind.item,), field)
            for index in range(count):
                self.field(item, f"{each} {index}")

    def _custom(self, kind: Custom, label: str) -> Any:
        d = self.dissector
        try:
            value, end = kind.read(d.data, d.position, d.end)
        except (IndexError, struct.error) as error:
            raise ProtocolError("short", f"{label} is cut off", d.end) from error
        except (KeyError, UnicodeDecodeError) as error:
            raise ProtocolError(label, f"{label} cannot be read: {error}", d.position) from error
        if not d.position <= end <= d.end:
            raise ProtocolError("short", f"{label} needs {end - d.position} bytes, {d.left} are left", d.end)
        if kind.dissect is None:
            d.add(label, end - d.position, value)
        else:
            kind.dissect(d, label)
            if d.position != end:
                raise AssertionError(f"{label} ends at {end}, its parts at {d.position}")
        return value

    def _short_length(self, label: str) -> int:
        d = self.dissector
        d.need(1, label)
        size, length = 1, d.data[0]
        if length > 0x7F:
            d.need(2, label)
            size, length = 2, length & 0x7F | d.data[1] << 7
            if length <= 0x7F:
                raise ProtocolError(f"{label}_form", f"{label} {length} in two bytes: one is enough", 0)
        d.add(label, size, length, "all bytes after it")
        return length

    @staticmethod
    def _check_value(field: FieldSpec, value: Any, start: int) -> None:
        if field.const is not None and value != field.const.value:
            text = field.const.text or f"{field.name} is {value!r}, not {field.const.value!r}"
            raise ProtocolError(field.const.code or field.name, text, start)
        if field.between is not None and not field.between.least <= value <= field.between.most:
            raise ProtocolError(field.name, f"{field.name} is {value:#04x}: {field.between.text}", start)
        if field.flags is not None and value & field.flags.reserved:
            text = f"{field.name} is {value:#x}: the bits {field.flags.reserved:#x} must be zero"
            raise ProtocolError(field.flags.code or field.name, text, start)
        if isinstance(field.kind, Bool8) and value > 1:
            raise ProtocolError(field.name, f"{field.name} is {value}, neither 0 nor 1", start)
        if field.enum is not None and value not in {int(member) for member in field.enum}:
            raise ProtocolError(f"unknown_{field.name}", f"{field.name} {value} has no meaning", start)

    def _note_secret(self, field: FieldSpec, start: int, end: int) -> None:
        is_text = isinstance(field.kind, Fixed | Prefixed | SizedBy | SizedBytes | Rest) and field.kind.is_text
        self.secrets.append((start, end, (_TEXT_BLANK if is_text else b"\0") * (end - start)))


def _secret_too(fields: tuple[FieldSpec, ...], outer: FieldSpec) -> tuple[FieldSpec, ...]:
    """Return the fields inside another one, which are secret if that is."""
    if not outer.is_secret:
        return fields
    return tuple(replace(field, is_secret=True) for field in fields)


def _note(field: FieldSpec, value: Any) -> str:  # noqa: PLR0911 (one for each mark)
    """Return the meaning of a value."""
    if field.shown is not None:
        return field.shown(value)
    if field.scale is not None:
        digits = max(0, -round(math.log10(field.scale.factor)))
        return f"{value * field.scale.factor:.{digits}f} {field.scale.unit}"
    if field.enum is not None:
        return field.enum(value).name.lower()
    if field.names is not None:
        return field.names.names.get(value, field.names.other)
    if field.flags is not None:
        found = [name for bit, name in enumerate(field.flags.names) if name and value >> bit & 1]
        return ", ".join(found) or "none"
    if isinstance(field.kind, Bool8):
        return "yes" if value else "no"
    return ""
