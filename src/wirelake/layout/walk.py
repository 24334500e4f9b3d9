"""Read a frame by its description, field by field: for its tree, for what is secret in it, and for errors.

The order of the checks here defines which error a bad frame has. After the length, the checksum is checked first: a
frame that was damaged on its way is reported as such, and shown as far as it can be read.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.layout.envelope import EnvelopeSpec, constant_of
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
    in_order,
)
from wirelake.layout.frame import LayoutFrame
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Dissector, Tree

_PREFIX_CODES = {1: "B", 2: "H", 4: "I"}
_TEXT_BLANK = b"*"


class FrameWalk:
    """One walk over the bytes of a frame. Afterwards, `secrets` has the ranges of the secret fields."""

    def __init__(self, data: bytes, sender: Sender, envelope: EnvelopeSpec, kinds: Sequence[Any], name: str) -> None:
        self.secrets: list[tuple[int, int, bytes]] = []  # first byte, end, what to write over it
        self.kind: type[LayoutFrame] | None = None
        self.body_start: int | None = None
        self._checksum_note = ""
        self._sender = sender
        self.envelope = envelope
        self.kinds = kinds
        self._name = name
        self.dissector = Dissector(data, name)
        self._order: ByteOrder | None = None  # that this frame shows
        self._numbers: dict[str, int] = {}  # of the envelope
        self.error: ProtocolError | None = None
        try:
            self._walk()
        except ProtocolError as error:
            self.error = error

    def tree(self) -> Tree:
        return Tree(self.dissector.root, self.error)

    def _walk(self) -> None:
        d, envelope = self.dissector, self.envelope
        rest = list(envelope.head)
        if envelope.length is not None:
            while rest:
                field = rest.pop(0)
                self._head_field(field)
                if field is envelope.length:
                    break
        else:
            while rest and rest[0].const is not None:
                self._head_field(rest.pop(0))
        fault = self._checksum_fault()
        if fault is None:
            self._after_length(rest)
            return
        with suppress(ProtocolError):
            self._after_length(rest)
        d.end = len(d.data)
        raise fault

    def _after_length(self, rest: list[FieldSpec]) -> None:
        d, envelope = self.dissector, self.envelope
        tail = envelope.tail_size
        if tail:
            d.need(tail, envelope.tail[0].name)
        d.end -= tail
        if not envelope.opcode:
            self.kind = self._choose(None)
        for field in rest:
            self._head_field(field)
        if self.kind is None:
            raise ProtocolError("unknown_frame", f"no frame that a {self._sender} sends", 0)
        self.body_start = d.position
        self.fields(self.kind.__layout_fields__)
        d.finish()
        d.end += tail
        for field in envelope.tail:
            self._field(field)
            if field.checksum is not None:
                d.note(self._checksum_note)

    def _head_field(self, field: FieldSpec) -> None:
        d, start = self.dissector, self.dissector.position
        if field.name == self.envelope.order_shown_by:
            d.need(field.size or 0, field.name)
            self._order = self._shown_order(field, d.data[start : start + (field.size or 0)])
        value = self._field(field, numbers=self._numbers)
        if isinstance(field.kind, Number):
            self._numbers[field.name] = value
        if field.per_frame is not None and value not in {constant_of(field, kind) for kind in self.kinds}:
            self._refuse_per_frame(field, value, start)
        if field.length is not None:
            self._check_length(field, int(value), start)
        if field.opcode is not None:
            number = int(value) & field.opcode.mask if field.opcode.mask else int(value)
            self.kind = self._choose(number)
            if self.kind is None:
                code = field.opcode.code or f"unknown_{field.name}"
                raise ProtocolError(code, f"{field.name} {number} is not one that a {self._sender} sends", start)
            for each in self.envelope.head:
                seen = self._numbers.get(each.name)
                if each.per_frame is not None and seen not in (None, constant_of(each, self.kind)):
                    self._refuse_per_frame(each, seen, self.envelope.before(each.name) or 0)
            if not field.opcode.mask:
                d.note(f"{self.kind.name}, {self._order}-endian" if self._order else self.kind.name)
        elif self.kind is not None and field.per_frame is not None and value != constant_of(field, self.kind):
            self._refuse_per_frame(field, value, start)

    def _shown_order(self, field: FieldSpec, data: bytes) -> ByteOrder:
        valid = {constant_of(field, kind) for kind in self.kinds}
        is_little = int.from_bytes(data, "little") in valid and int.from_bytes(data, "big") not in valid
        return "little" if is_little else "big"

    def _refuse_per_frame(self, field: FieldSpec, value: Any, start: int) -> None:
        of = f"that of a {self.kind.name}" if self.kind is not None else "that of any frame"
        code = field.per_frame.code if field.per_frame is not None else ""
        raise ProtocolError(code or field.name, f"{field.name} {value!r} is not {of}", start)

    def _choose(self, number: int | None) -> type[LayoutFrame] | None:
        for kind in self.kinds:
            if kind.opcode == number and (kind.sender is None or kind.sender is self._sender):
                if self._name != kind.name:
                    self.dissector.root.name = f"{self._name} {kind.name}"
                chosen: type[LayoutFrame] = kind
                return chosen
        return None

    def _check_length(self, field: FieldSpec, value: int, start: int) -> None:
        role, d = field.length, self.dissector
        if role is None:
            return
        if value < role.at_least:
            text = f"{field.name} {value}: the least is {role.at_least}"
            raise ProtocolError(f"{field.name}_min", text, start)
        if isinstance(field.kind, ShortLength):
            whole = d.position + value - role.plus
        else:
            added = sum(self._numbers[name] for name in self.envelope.added_sizes)
            whole = value + added + self.envelope.added_to_length()
        if whole != len(d.data):
            counted = value + len(d.data) - whole
            raise ProtocolError(role.code or field.name, f"{field.name} says {value}, the frame has {counted}", start)

    def _checksum_fault(self) -> ProtocolError | None:
        field, d = self.envelope.checksum, self.dissector
        if field is None or field.checksum is None or d.left < self.envelope.tail_size:
            return None
        start, after = self.envelope.covered(field)
        left = self.envelope.tail_size
        for each in self.envelope.tail:
            if each is field:
                break
            left -= each.size or 0
        place = len(d.data) - left
        stored = int.from_bytes(d.data[place : place + (field.size or 0)], field.order)
        computed = field.checksum.compute(d.data[start : len(d.data) - after])
        digits = 2 + 2 * (field.size or 0)
        self._checksum_note = "right" if stored == computed else f"should be {computed:#0{digits}x}"
        if stored == computed:
            return None
        text = f"{field.name} is {stored:#0{digits}x}, the bytes before it give {computed:#0{digits}x}"
        return ProtocolError(field.checksum.code or field.name, text, place)

    # ── fields

    def fields(self, fields: Sequence[FieldSpec]) -> None:
        numbers: dict[str, int] = {}
        for field in fields:
            present = field.present_if
            if present is not None:
                if not numbers[present.field] & present.bits:
                    continue
            elif field.is_optional and not self.dissector.left:
                return
            value = self._field(field, numbers=numbers)
            if isinstance(field.kind, Number):
                numbers[field.name] = value

    def _field(self, field: FieldSpec, label: str = "", numbers: Mapping[str, int] | None = None) -> Any:
        """Read one field, check its value, and return it. `numbers` are the earlier ones beside it."""
        d, label = self.dissector, label or field.name
        if self._order is not None:
            field = in_order(field, self._order)
        d.order = ">" if field.order == "big" else "<"
        start = d.position
        value = self._value(field, label, numbers or {})
        if field.is_secret and not isinstance(field.kind, Prefixed | Nested | Counted):
            self._note_secret(field, start, d.position)
        if isinstance(field.kind, Number | Bool8 | Fixed | Prefixed | SizedBy | Rest):
            self._check_value(field, value, start)
            note = _note(field, value)
            if note:
                d.note(note)
        return value

    def _value(self, field: FieldSpec, label: str, numbers: Mapping[str, int]) -> Any:  # noqa: PLR0911 (one for each kind)
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
            case Fixed(size=size):
                return self._sized(field, label, size)
            case Prefixed(prefix=prefix):
                size = d.number(f"{label} size", _PREFIX_CODES[prefix])
                start = d.position
                if field.is_secret:
                    self._note_secret(field, start, min(start + size, d.end))
                return self._sized(field, label, size)
            case SizedBy(field=size_field):
                return self._sized(field, label, numbers[size_field])
            case Rest():
                return self._sized(field, label, d.left)
            case ShortLength():
                return self._short_length(label)
            case Counted():
                self._list(field, kind, label)
            case Nested():
                with d.group(label):
                    self.fields(_secret_too(kind.fields, field))
            case Custom():
                return self._custom(kind, label)
        return None

    def _sized(self, field: FieldSpec, label: str, size: int) -> Any:
        is_text = isinstance(field.kind, Fixed | Prefixed | SizedBy | Rest) and field.kind.is_text
        return self.dissector.text(label, size) if is_text else self.dissector.raw(label, size)

    def _list(self, field: FieldSpec, kind: Counted, label: str) -> None:
        each = field.item_name or label
        title = "count" if field.item_name else f"{label} count"
        count = self.dissector.number(title, _PREFIX_CODES[kind.prefix])
        if kind.item is not None:
            (item,) = _secret_too((kind.item,), field)
            for index in range(count):
                self._field(item, f"{each} {index}")

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
        d.add(label, end - d.position, value)
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
        if field.flags is not None and value & field.flags.reserved:
            text = f"{field.name} is {value:#x}: the bits {field.flags.reserved:#x} must be zero"
            raise ProtocolError(field.name, text, start)
        if isinstance(field.kind, Bool8) and value > 1:
            raise ProtocolError(field.name, f"{field.name} is {value}, neither 0 nor 1", start)
        if field.enum is not None and value not in {int(member) for member in field.enum}:
            raise ProtocolError(f"unknown_{field.name}", f"{field.name} {value} has no meaning", start)

    def _note_secret(self, field: FieldSpec, start: int, end: int) -> None:
        is_text = isinstance(field.kind, Fixed | Prefixed | SizedBy | Rest) and field.kind.is_text
        self.secrets.append((start, end, (_TEXT_BLANK if is_text else b"\0") * (end - start)))


def redact(walk: FrameWalk) -> bytes:
    """Return the bytes of a frame with its secrets blanked: of the same length, and with a right checksum.

    In a malformed frame, secrets cannot be told from the rest, and even its opcode may be wrong: then its whole body is
    blanked. Without secrets, return the same object.
    """
    if not walk.secrets and walk.error is None:
        return walk.dissector.data
    envelope, data = walk.envelope, bytearray(walk.dissector.data)
    for start, end, blank in walk.secrets:
        data[start:end] = blank
    if walk.error is not None:
        start = walk.dissector.position if walk.body_start is None else walk.body_start
        data[start:] = bytes(len(data) - start)
        return bytes(data)
    field = envelope.checksum
    if walk.secrets and field is not None and field.checksum is not None:
        start, after = envelope.covered(field)
        checksum = field.checksum.compute(bytes(data[start : len(data) - after]))
        size = field.size or 0
        data[len(data) - size :] = checksum.to_bytes(size, field.order)
    return bytes(data)


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
