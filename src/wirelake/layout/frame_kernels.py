"""Generate the function that reads the frames of one class in a kernel, and writes their values as JSON.

The function works on plain arrays: a frame is from `start` to `end` in `data`, and its JSON is written to `out` from
`at` on. It returns where the JSON ends, or -1 if the frame is not valid: then the codec says why. Everything else goes
to the array `found`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.fields import Bool8, Const, Counted, FieldSpec, Fixed, Nested, Number, Prefixed, Rest, ShortLength
from wirelake.layout.frame_plans import (
    CannotGenerate,
    Constant,
    FramePlan,
    JsonMember,
    Objects,
    as_64_bits,
    has_conditions,
    is_checked,
    least_size,
    quoted,
    run_size,
)
from wirelake.layout.generated import Source, plus
from wirelake.layout.measuring import scale_of
from wirelake.layout.messages import Bit, InUnits, Listed

# Places in `found`: how many floats there are; then start and end of each span.
FOUND_FLOATS: Final = 0
FOUND_SPANS: Final = 1
# Forms of floats: bits of 8 or 4 bytes; then the scales, for numbers that become floats.
FORM_F64: Final = 0
FORM_F32: Final = 1
FORM_SCALES: Final = 2

_DECIMAL_DIGITS_MAX: Final = 4  # beyond that, a float may be written with an exponent
_SCALED_BYTES_MAX: Final = 6  # a number of so many bytes has at most 15 digits, so that a float holds it
_NUMBER_CHARS: Final = 24  # of the longest number
_TEXT_FACTOR: Final = 6  # bytes of JSON for a byte of text, at most
_BYTES_FACTOR: Final = 2  # the same, for base64


class FrameKernel:
    """Write the lines of the function for one class of frames."""

    def __init__(self, source: Source, scales: list[tuple[str, float]], plan: FramePlan) -> None:
        self._source = source
        self._scales = scales  # of all classes: how a number becomes a float
        self._plan = plan
        self._offset = 0  # the next byte is at `place + offset`
        self._checked = 0  # so many bytes after `place` are there
        self._read: dict[str, FieldSpec] = {}  # by the names of their variables
        self._unchecked: list[str] = []  # texts that may not be UTF-8
        self._members = list(plan.members)  # not written yet
        self._pending = ""  # JSON that is the same for all frames, to be written at once
        self._comma = "never"  # whether a member comes before the next one: never, always or maybe
        # An upper bound for the bytes of JSON is json_bytes + json_factor * bytes of the frame.
        self.json_bytes = 0
        self.json_factor = 0
        self.floats = 0  # how many values are floats; in lists, of each item

    def generate(self, envelope: EnvelopeSpec, columns: Sequence[str]) -> None:
        """Write the function, without its name."""
        source, plan = self._source, self._plan
        with source.block("(data, start, end, out, at, floats, found):"):
            if envelope.tail_size:
                source.line(f"end -= {envelope.tail_size}")
            source.line("place = start")
            self._json("{")
            self._read_head(envelope, plan.used())
            self._read_fields(plan.kind.__layout_fields__, "", plan.used())
            self._refuse(f"{self._position} != end")
            self._write_members()
            if self._members:
                raise CannotGenerate(f"{self._members[0].attribute} is not read")
            self._json("}")
            self._flush()
            self._check_texts()
            for index, column in enumerate(columns):
                start, end = self._span(plan.spans[column]) if column in plan.spans else ("0", "0")
                place = FOUND_SPANS + 2 * index
                source.line(f"found[{place}], found[{place + 1}] = {start}, {end}")
            source.line("return at")

    def _span(self, attribute: str) -> tuple[str, str]:
        field = self._read.get(attribute)
        if field is None or field.is_optional:
            raise CannotGenerate(f"{attribute} may be missing")
        match field.kind:
            case Prefixed() | Rest() | Fixed():
                return f"{attribute}_from", f"{attribute}_to"
            case Number(is_float=False):
                return f"{attribute}_value", "0"
        raise CannotGenerate(f"{attribute} is neither a number nor text nor bytes")

    # ── reading

    @property
    def _position(self) -> str:
        return plus("place", self._offset)

    def _refuse(self, condition: str) -> None:
        with self._source.block(f"if {condition}:"):
            self._source.line("return -1")

    def _need(self, size: int) -> None:
        if self._offset + size > self._checked:
            self._checked = self._offset + size
            self._refuse(f"{plus('place', self._checked)} > end")

    def _move(self, position: str) -> None:
        if position != "place":
            self._source.line(f"place = {position}")
        self._offset = self._checked = 0

    def _read_head(self, envelope: EnvelopeSpec, used: set[str]) -> None:
        fields = list(envelope.head)
        if fields and isinstance(fields[0].kind, ShortLength):
            self._source.line("place += 1 if data[place] < 0x80 else 2")
            fields.pop(0)
        for index, field in enumerate(fields):
            if field.per_frame is not None:
                fields[index] = replace(field, const=Const(constant_of(field, self._plan.kind)))
        self._read_fields(fields, "", used)

    def _read_fields(self, fields: Sequence[FieldSpec], prefix: str, used: set[str] | None) -> None:
        """Write the lines that read fields. If `used` is given, others are only checked."""
        if used is not None:  # a number that says which fields are there
            used = used | {field.present_if.field for field in fields if field.present_if is not None}
        for index, field in enumerate(fields):
            if field.is_optional:
                self._read_optional(field, prefix)
            else:
                self._need(run_size(fields[index:]))
                self._read_field(field, prefix, used is None or field.name in used)
            if not prefix:
                self._write_members()

    def _read_field(self, field: FieldSpec, prefix: str, is_used: bool) -> None:
        name, kind, source = prefix + field.name, field.kind, self._source
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
            case Rest():
                source.line(f"{name}_from, {name}_to = {self._position}, end")
                self._refuse(f"{name}_from > end")
                self._move("end")
            case Counted():
                self._read_list(field, kind, name, is_top=not prefix)
            case Nested():
                self._read_fields(kind.fields, f"{name}__", None if is_used else set())
            case _:
                raise CannotGenerate(f"{field.name} is a {type(kind).__name__}")
        if isinstance(kind, Fixed | Prefixed | Rest) and kind.is_text:
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
        source.line(f"{name}_from = place")
        if is_top and self._members and self._members[0].attribute == name:
            self._read[name] = field
            self._write_member(is_reading=True)  # while it is read
        elif item.size is not None and not has_conditions(item):
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

    # ── writing

    def _json(self, text: str) -> None:
        self._pending += text
        self.json_bytes += len(text.encode())

    def _flush(self) -> None:
        """Write the lines for the pending JSON."""
        pending, self._pending = self._pending, ""
        if len(pending) == 1:
            self._source.line(f"out[at] = {ord(pending)}  # {pending}")
            self._source.line("at += 1")
        elif pending:
            self._put("put", self._source.constant("TEXT", f"ascii_array({pending!r})"))

    def _put(self, function: str, *arguments: str) -> None:
        self._flush()
        self._source.line(f"at = {function}(out, at{''.join(f', {each}' for each in arguments)})")

    def _write_members(self) -> None:
        """Write the members up to the first whose value is not read yet."""
        while self._members and (not self._members[0].attribute or self._members[0].attribute in self._read):
            self._write_member()

    def _write_member(self, *, is_reading: bool = False) -> None:
        member = self._members.pop(0)
        if not member.is_sparse:
            self._write_comma()
            self._write_key_and_value(member, is_reading=is_reading)
            self._comma = "always"
            return
        self._flush()
        with self._source.block(f"if {self._is_given(member.attribute)}:"):
            self._write_comma()
            self._write_key_and_value(member, is_reading=is_reading)
            self._flush()
        self._comma = "maybe" if self._comma == "never" else self._comma

    def _is_given(self, name: str) -> str:
        """Return the condition that a value is neither zero nor empty."""
        field = self._read[name]
        match field.kind:
            case Number(is_float=False) if not field.is_optional:
                return f"{name}_value"
            case Prefixed() | Rest() | Fixed() if not field.is_optional:
                return f"{name}_to > {name}_from"
            case Counted():
                return f"{name}_count"
        raise CannotGenerate(f"{name} may be missing")

    def _write_comma(self) -> None:
        if self._comma == "always":
            self._json(",")
        elif self._comma == "maybe":
            self._put("put_comma")
            self.json_bytes += 1

    def _write_key_and_value(self, member: JsonMember, *, is_reading: bool = False) -> None:
        self._json(f"{quoted(member.key)}:")
        name = member.attribute
        match member.value:
            case Constant(text=text):
                self._json(text)
            case Objects(members=members):
                self._write_list(name, members, is_reading=is_reading)
            case Bit(bits=bits):
                self._write_bool(f"{name}_value & {as_64_bits(bits)}")
            case InUnits():
                self._if_given(name, self._write_scaled)
            case Listed():
                self._json("[")
                self._write_value(name)
                self._json("]")
            case _ if is_reading:
                self._write_list(name, (), is_reading=True)
            case _:
                self._write_value(name)

    def _write_value(self, name: str) -> None:
        self._if_given(name, self._write_plain)

    def _if_given(self, name: str, write: Callable[[FieldSpec, str], None]) -> None:
        """Write a value with this function, or that it is missing."""
        field = self._read[name]
        if not field.is_optional:
            write(field, name)
            return
        self._flush()
        with self._source.block(f"if {name}_given:"):
            write(replace(field, is_optional=False), name)
            self._flush()
        with self._source.block("else:"):
            self._json("null" if field.missing is None else quoted(field.missing))
            self._flush()

    def _write_plain(self, field: FieldSpec, name: str) -> None:
        match field.kind:
            case Number(is_float=True, size=size):
                self._write_float(f"{name}_value", FORM_F32 if size == 4 else FORM_F64)
            case Number(size=size, is_signed=is_signed):
                self._put("put_unsigned" if size == 8 and not is_signed else "put_number", f"{name}_value")
                self.json_bytes += _NUMBER_CHARS
            case Bool8():
                self._write_bool(f"{name}_value")
            case Fixed(is_text=is_text) | Prefixed(is_text=is_text) | Rest(is_text=is_text):
                self._put("put_text" if is_text else "put_base64", "data", f"{name}_from", f"{name}_to")
                if name in self._unchecked:
                    self._refuse("at < 0")
                    self._unchecked.remove(name)
                self.json_bytes += _NUMBER_CHARS  # quotes and padding
                self.json_factor += _TEXT_FACTOR if is_text else _BYTES_FACTOR
            case Counted():
                self._write_list(name, ())
            case Nested(fields=fields):
                shown = [each.name for each in fields if not each.is_secret]
                self._write_object([(each, each) for each in shown], f"{name}__")
            case _:
                raise CannotGenerate(f"{name} is a {type(field.kind).__name__}")

    def _write_object(self, members: Sequence[tuple[str, str | Constant]], prefix: str) -> None:
        self._json("{")
        for index, (key, value) in enumerate(members):
            self._json(f"{',' if index else ''}{quoted(key)}:")
            if isinstance(value, Constant):
                self._json(value.text)
            else:
                self._write_value(prefix + value)
        self._json("}")

    def _write_bool(self, value: str) -> None:
        true, false = (self._source.constant("TEXT", f"ascii_array({text!r})") for text in ("true", "false"))
        self._put("put", f"{true} if {value} else {false}")
        self.json_bytes += len("false")

    def _write_scaled(self, field: FieldSpec, name: str) -> None:
        if not isinstance(field.kind, Number) or field.kind.is_float or field.kind.size > _SCALED_BYTES_MAX:
            raise CannotGenerate(f"{name} may not fit a float")
        sign, number = scale = scale_of(field)
        digits = len(str(number)) - 1
        if sign == "/" and number == 10**digits and 1 <= digits <= _DECIMAL_DIGITS_MAX:
            self._put("put_decimal", f"{name}_value", str(digits))
            self.json_bytes += _NUMBER_CHARS
            return
        if scale not in self._scales:
            self._scales.append(scale)
        self._write_float(f"{name}_value", FORM_SCALES + self._scales.index(scale))

    def _write_float(self, value: str, form: int) -> None:
        """Write the lines that note a float: its text is inserted later."""
        self._flush()
        last = f"found[{FOUND_FLOATS}]"
        self._source.line(f"floats[{last}, 0], floats[{last}, 1], floats[{last}, 2] = at, {value}, {form}")
        self._source.line(f"{last} += 1")
        self.floats += 1

    def _write_list(
        self, name: str, members: Sequence[tuple[str, str | Constant]], *, is_reading: bool = False
    ) -> None:
        """Write the lines that write a list, and read it unless that was done already."""
        field, source = self._read[name], self._source
        item = field.kind.item if isinstance(field.kind, Counted) else None
        if item is None:
            raise CannotGenerate(f"{name} is not a list")
        self._json("[")
        self._flush()
        if not is_reading:
            resume = f"{name}_resume"
            source.line(f"{resume} = {self._position}")
            before = (self._offset, self._checked)
            self._move(f"{name}_from")
        bound, outer = (self.json_bytes, self.json_factor), self._unchecked
        self.json_bytes, self.json_factor, self._unchecked = 0, 0, []
        with source.block(f"for {name}_index in range({name}_count):"):
            with source.block(f"if {name}_index:"):
                self._json(",")
                self._flush()
            self._read_item(item, name)
            if members:
                self._write_object(members, f"{name}__item__")
            else:
                self._write_value(f"{name}__item")
            self._flush()
            self._check_texts()
        self._unchecked = outer
        each = -(-self.json_bytes // least_size(item))
        self.json_bytes, self.json_factor = bound[0], bound[1] + self.json_factor + each
        if not is_reading:
            self._move(resume)
            self._offset = 0
            self._checked = max(0, before[1] - before[0])
        self._json("]")
