"""Generate the lines of a kernel that read fields, and refuse what the codec refuses.

The lines work on plain arrays: a frame is in `data` from `place` up to `end`. The variables for a field begin with its
name: `<name>_value` is a number, `<name>_from` and `<name>_to` are where its bytes begin and end.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.fields import (
    Bool8,
    Const,
    Counted,
    FieldSpec,
    Fixed,
    Nested,
    Number,
    Prefixed,
    Rest,
    ShortLength,
    SizedBy,
)
from wirelake.layout.forms import ChosenBy
from wirelake.layout.frame_plans import (
    CannotGenerate,
    as_64_bits,
    check_marks,
    has_conditions,
    is_checked,
    least_size,
    run_size,
)
from wirelake.layout.generated import Source, plus
from wirelake.layout.sized import SizedNumber, SizeOf


class KernelReader:
    """Write the lines that read fields. Names of variables begin with `prefix`."""

    def __init__(self, source: Source, prefix: str = "") -> None:
        self._source = source
        self._prefix = prefix
        self._offset = 0  # the next byte is at `place + offset`
        self._checked = 0  # so many bytes after `place` are there
        self._read: dict[str, FieldSpec] = {}  # by the names of their variables
        self._unchecked: list[str] = []  # texts that may not be UTF-8

    def _on_read(self) -> None:
        """Do what is possible now that another field was read."""

    def _write_while_reading(self, _name: str) -> bool:
        """Write the lines that read a list and do something with its items at once; return False if nothing is done."""
        return False

    def _read_choice(self, field: FieldSpec, _kind: ChosenBy, _name: str, _prefix: str) -> None:
        raise CannotGenerate(f"{field.name} has several forms")

    @property
    def _position(self) -> str:
        return plus("place", self._offset)

    def _refuse(self, condition: str) -> None:
        with self._source.block(f"if {condition}:"):
            self._source.line("return REFUSED")

    def _need(self, size: int) -> None:
        if self._offset + size > self._checked:
            self._checked = self._offset + size
            self._refuse(f"{plus('place', self._checked)} > end")

    def _move(self, position: str) -> None:
        if position != "place":
            self._source.line(f"place = {position}")
        self._offset = self._checked = 0

    def _read_head(self, envelope: EnvelopeSpec, kind: Any, used: set[str]) -> None:
        fields = list(envelope.head)
        if fields and isinstance(fields[0].kind, ShortLength):
            self._source.line("place += 1 if data[place] < 0x80 else 2")
            fields.pop(0)
        for index, field in enumerate(fields):
            if field.per_frame is not None:
                fields[index] = replace(field, const=Const(constant_of(field, kind)))
        self._read_fields(fields, "", used)

    def _read_fields(self, fields: Sequence[FieldSpec], prefix: str, used: set[str] | None) -> None:
        """Write the lines that read fields. If `used` is given, others are only checked."""
        if used is not None:  # and numbers that say which fields are there
            used = used | {field.present_if.field for field in fields if field.present_if is not None}
            used |= {field.kind.field for field in fields if isinstance(field.kind, ChosenBy | SizedBy)}
        for index, field in enumerate(fields):
            if field.is_optional:
                self._read_optional(field, prefix)
            else:
                self._need(run_size(fields[index:]))
                self._read_field(field, prefix, used is None or field.name in used)
            if prefix == self._prefix:
                self._on_read()

    def _read_field(self, field: FieldSpec, prefix: str, is_used: bool) -> None:  # noqa: PLR0912 (one for each kind)
        name, kind, source = prefix + field.name, field.kind, self._source
        check_marks(field)
        match kind:
            case Number() | Bool8():
                if is_used or is_checked(field):
                    source.line(f"{name}_value = {self._number(field, kind)}")
                    self._check(field, f"{name}_value")
                self._offset += kind.size
            case Fixed(size=size):
                source.line(f"{name}_from, {name}_to = {self._position}, {plus('place', self._offset + size)}")
                if field.const is not None:
                    expected = self._source.constant("BYTES", f"np.frombuffer({field.const.value!r}, np.uint8)")
                    self._refuse(f"not is_same(data, {name}_from, {expected})")
                self._offset += size
            case Prefixed(prefix=size):
                source.line(f"{name}_from = {plus('place', self._offset + size)}")
                source.line(f"{name}_to = {name}_from + {self._unsigned(size, field.order)}")
                self._refuse(f"{name}_to > end")
                self._move(f"{name}_to")
            case SizedBy(field=other):
                source.line(f"{name}_from = {self._position}")
                source.line(f"{name}_to = {name}_from + {prefix}{other}_value")
                self._refuse(f"{name}_to > end")
                self._move(f"{name}_to")
            case Rest():
                source.line(f"{name}_from, {name}_to = {self._position}, end")
                self._refuse(f"{name}_from > end")
                self._move("end")
            case Counted():
                self._read_list(field, kind, name, is_top=prefix == self._prefix)
            case Nested():
                self._read_fields(kind.fields, f"{name}__", None if is_used else set())
            case ChosenBy():
                self._read_choice(field, kind, name, prefix)
                return
            case SizedNumber():
                source.line(f"{name}_size = wide(data[{self._position}])")
                source.line(f"{name}_from = {plus('place', self._offset + 1)}")
                source.line(f"{name}_to = {name}_from + {name}_size")
                self._refuse(f"{name}_to > end")
                self._move(f"{name}_to")
            case SizeOf(field=other):
                source.line(f"{name}_value = {prefix}{other}_size")
            case _:
                raise CannotGenerate(f"{field.name} is a {type(kind).__name__}")
        if isinstance(kind, Fixed | Prefixed | Rest | SizedBy) and kind.is_text:
            self._unchecked.append(name)
        self._read[name] = field

    def _check_texts(self) -> None:
        """Write the checks of texts that were not checked while they were written."""
        for name in self._unchecked:
            self._refuse(f"bad_utf8(data, {name}_from, {name}_to) >= 0")
        self._unchecked.clear()

    def _unsigned(self, size: int, order: str) -> str:
        if size == 1:
            return f"wide(data[{self._position}])"
        return f"u16_{order}(data, {self._position})" if size == 2 else f"{order}(data, {self._position}, {size})"

    def _number(self, field: FieldSpec, kind: Number | Bool8) -> str:
        value = self._unsigned(kind.size, field.order)
        if isinstance(kind, Number) and kind.is_signed and kind.size < 8:
            return f"signed({value}, {1 << 8 * kind.size - 1:#x})"
        return value

    def _check(self, field: FieldSpec, value: str) -> None:
        if isinstance(field.kind, Number) and field.kind.is_float and is_checked(field):
            raise CannotGenerate(f"{field.name} is a float with a condition")
        if isinstance(field.kind, Bool8):
            self._refuse(f"{value} > 1")
        if field.const is not None:
            self._refuse(f"{value} != {as_64_bits(field.const.value)}")
        if field.between is not None:
            if field.size == 8:
                raise CannotGenerate(f"{field.name} is a number of 64 bits with a range")
            self._refuse(f"{value} < {field.between.least} or {value} > {field.between.most}")
        if field.flags is not None and field.flags.reserved:
            self._refuse(f"{value} & {as_64_bits(field.flags.reserved)}")
        if field.enum is not None:
            self._refuse(" and ".join(f"{value} != {as_64_bits(int(member))}" for member in field.enum))

    def _read_optional(self, field: FieldSpec, prefix: str) -> None:
        name, present, source = prefix + field.name, field.present_if, self._source
        if isinstance(field.kind, Counted | Nested):
            raise CannotGenerate(f"{name} is optional")
        self._move(self._position)
        condition = "place < end"
        if present is not None:
            bearer = f"{prefix}{present.field}"
            if bearer not in self._read or isinstance(field.kind, Rest):
                raise CannotGenerate(f"{name} depends on {bearer}")
            condition = f"{bearer}_value & {as_64_bits(present.bits)} != 0"
        source.line(f"{name}_given = {condition}")
        source.line(f"{name}_value = {name}_from = {name}_to = wide(0)")
        inner = replace(field, is_optional=False)
        with source.block(f"if {name}_given:"):
            self._need(least_size(inner))
            self._read_field(inner, prefix, is_used=True)
            self._move(self._position)
        self._read[name] = field

    def _read_list(self, field: FieldSpec, kind: Counted, name: str, *, is_top: bool) -> None:
        item, source = kind.item, self._source
        if item is None or not least_size(item):
            raise CannotGenerate(f"{name} is a list of nothing")
        source.line(f"{name}_count = {self._unsigned(kind.prefix, field.order)}")
        self._offset += kind.prefix
        self._move(self._position)
        source.line(f"{name}_first = place")
        self._read[name] = field
        if is_top and self._write_while_reading(name):
            return
        if item.size is not None and not has_conditions(item):
            source.line(f"place += {name}_count * {item.size}")
            self._refuse("place > end")
        else:
            outer, self._unchecked = self._unchecked, []
            with source.block(f"for {name}_index in range({name}_count):"):
                self._read_item(item, name)
                self._check_texts()
            self._unchecked = outer

    def _read_item(self, item: FieldSpec, name: str) -> FieldSpec:
        item = replace(item, name="item")
        self._need(run_size([item]))
        self._read_field(item, f"{name}__", is_used=True)
        self._move(self._position)
        return item
