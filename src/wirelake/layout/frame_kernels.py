"""Generate the function that reads the frames of one class in a kernel, and writes their values as JSON.

The function works on plain arrays: a frame is from `start` to `end` in `data`, and its JSON is written to `out` from
`at` on. It returns where the JSON ends, and the value of each column: a number, or where its bytes begin and end. For a
frame that is not valid it returns REFUSED, and the codec says why.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.fields import (
    Bool8,
    Counted,
    FieldSpec,
    Fixed,
    Nested,
    Number,
    Prefixed,
    Rest,
    SizedBy,
    in_order,
)
from wirelake.layout.forms import ChosenBy
from wirelake.layout.frame_plans import (
    CannotGenerate,
    Constant,
    ContentPlan,
    Forms,
    FramePlan,
    JsonMember,
    Objects,
    as_64_bits,
    least_size,
    quoted,
    run_size,
)
from wirelake.layout.generated import Source
from wirelake.layout.kernel_reading import KernelReader
from wirelake.layout.measuring import scale_of
from wirelake.layout.messages import AtLeast, Bit, Equals, InUnits, Listed
from wirelake.layout.sized import SizedNumber, SizeOf

_SCALE_MIN: Final = 1e-250  # a float that is scaled by less might not be a normal one
_DECIMAL_DIGITS_MAX: Final = 4  # beyond that, a float may be written with an exponent
_SCALED_BYTES_MAX: Final = 6  # a number of so many bytes has at most 15 digits, so that a float holds it
_NUMBER_CHARS: Final = 24  # of the longest number
_TEXT_FACTOR: Final = 6  # bytes of JSON for a byte of text, at most
_BYTES_FACTOR: Final = 2  # the same, for base64


class FrameKernel(KernelReader):
    """Write the lines of the function for one class of frames."""

    def __init__(self, source: Source, plan: FramePlan, outer: "FrameKernel | None" = None) -> None:
        """With `outer`, these are frames inside the bytes of another one, whose variables they may use."""
        super().__init__(source, "" if outer is None else f"{plan.kind.__name__.lower()}__")
        if outer is not None:
            self._read = dict(outer._read)
            self._unchecked = list(outer._unchecked)
        self._plan = plan
        self._members = list(plan.members)  # not written yet
        self._pending = ""  # JSON that is the same for all frames, to be written at once
        self._is_writing = False  # not before it is known what the frame holds
        self._comma = "never"  # whether a member comes before the next one: never, always or maybe
        # An upper bound for the bytes of JSON is json_bytes + json_factor * bytes of the frame.
        self.json_bytes = 0
        self.json_factor = 0

    def generate(self, envelope: EnvelopeSpec, columns: Mapping[str, bool]) -> None:
        """Write the function, without its name. `columns` says whether they are of numbers."""
        source, plan = self._source, self._plan
        with source.block("(data, start, end, out, at):"):
            if envelope.tail_size:
                source.line(f"end -= {envelope.tail_size}")
            source.line("place = start")
            if not plan.contents:
                self._begin()
            self._read_head(envelope, plan.kind, plan.used())
            fields = plan.kind.__layout_fields__
            if envelope.order_shown_by:
                fields = tuple(in_order(field, envelope.order) for field in fields)
            self._read_fields(fields, "", plan.used())
            self._refuse(f"{self._position} != end")
            self._check_conditions()
            for content in plan.contents:
                self._write_content(content, columns)
            if plan.contents:
                self._begin()
            self._finish(columns)

    def _check_conditions(self) -> None:
        for condition in self._plan.conditions:
            name, kind = condition.attribute, self._read[condition.attribute].kind
            match condition:
                case Equals(value=bytes(value)):
                    expected = self._source.constant("BYTES", f"np.frombuffer({value!r}, np.uint8)")
                    self._refuse(f"{name}_to - {name}_from != {len(value)}")
                    self._refuse(f"not is_same(data, {name}_from, {expected})")
                case Equals(value=value):
                    self._refuse(f"{name}_value != {as_64_bits(value)}")
                case AtLeast(least=least):
                    if isinstance(kind, Number) and kind.size == 8 and not kind.is_signed:
                        raise CannotGenerate(f"{name} is a number of 64 bits with a range")
                    self._refuse(f"{name}_value < {as_64_bits(least)}")

    def _begin(self) -> None:
        self._is_writing = True
        if self._plan.has_json:
            self._json("{")

    def _finish(self, columns: Mapping[str, bool]) -> None:
        """Write the end of the JSON, and what is found besides."""
        source, plan = self._source, self._plan
        self._on_read()
        if self._members:
            raise CannotGenerate(f"{self._members[0].attribute} is not read")
        if plan.has_json:
            self._json("}")
        self._flush()
        self._check_texts()
        found = ["at"]
        for column, is_number in columns.items():
            start, end = "wide(0)", "wide(0)"
            if column in plan.spans:
                start, end = self._span(plan.spans[column])
            elif column in plan.numbers:
                start = f"wide({plan.numbers[column].expression})"
            found += [start] if is_number else [start, end]
        source.call("return (", found, ")")

    def _write_content(self, content: ContentPlan, columns: Mapping[str, bool]) -> None:
        """Write the lines for bytes that hold another frame."""
        envelope, conditions = content.plan.kind.envelope, content.conditions
        if envelope.head or envelope.tail:
            raise CannotGenerate(f"the frames in {content.attribute} have a head or an end")
        start, end = self._span(content.attribute)
        inner = FrameKernel(self._source, content.plan, self)
        texts = [f"{each.field}_value & {each.mask:#x} == {each.value:#x}" for each in conditions]
        with self._source.block(f"if {' and '.join(texts) or 'True'}:"):
            self._source.line(f"place, end = {start}, {end}")
            inner._begin()
            inner._read_fields(content.plan.kind.__layout_fields__, inner._prefix, content.plan.used())
            inner._refuse(f"{inner._position} != end")
            inner._finish(columns)
        self.json_bytes = max(self.json_bytes, inner.json_bytes)
        self.json_factor = max(self.json_factor, inner.json_factor)

    def _span(self, attribute: str) -> tuple[str, str]:
        name = attribute[1:] if attribute.startswith(".") else self._prefix + attribute
        field = self._read.get(name)
        if field is None or field.is_optional:
            raise CannotGenerate(f"{attribute} may be missing")
        match field.kind:
            case Prefixed() | Rest() | Fixed() | SizedBy():
                return f"{name}_from", f"{name}_to"
            case Number(is_float=False):
                return f"{name}_value", "0"
        raise CannotGenerate(f"{attribute} is neither a number nor text nor bytes")

    # ── what the reader calls

    def _on_read(self) -> None:
        """Write the members up to the first whose value is not read yet."""
        while self._is_writing and self._members:
            attribute = self._members[0].attribute
            if attribute and self._prefix + attribute not in self._read:
                return
            self._write_member()

    def _write_while_reading(self, name: str) -> bool:
        if not self._is_writing or not self._members or self._prefix + self._members[0].attribute != name:
            return False
        if not isinstance(self._members[0].value, str | Objects):
            return False
        self._write_member(is_reading=True)
        return True

    def _read_choice(self, field: FieldSpec, kind: ChosenBy, name: str, prefix: str) -> None:
        """Write one branch for each form, which also writes its value; bytes are left for a column."""
        forms = self._members.pop(0).value if self._members and prefix == self._prefix else None
        if not isinstance(forms, Forms) or forms.attribute != field.name:
            raise CannotGenerate(f"{field.name} has several forms")
        keys = list(forms.keys)
        self._flush()
        self._move(self._position)
        self._source.line(f"{name}_from = {name}_to = place")
        self._write_branches(field, kind, prefix, keys)
        self._read[name] = replace(field, kind=Rest(is_text=False))

    def _write_branches(self, field: FieldSpec, kind: ChosenBy, prefix: str, keys: list[str]) -> None:
        word = "if"
        for number, form in kind.cases:
            with self._source.block(f"{word} {prefix}{kind.field}_value == {number}:"):
                self._write_form(replace(form, name=field.name), prefix, keys)
            word = "elif"
        with self._source.block("else:"):
            if kind.other is None:
                self._source.line("return REFUSED")
            else:
                self._write_form(replace(kind.other, name=field.name), prefix, keys)

    def _write_form(self, form: FieldSpec, prefix: str, keys: list[str]) -> None:
        if isinstance(form.kind, ChosenBy):
            self._write_branches(form, form.kind, prefix, keys)
            return
        key, comma = keys.pop(0), self._comma
        if key:
            self._members.insert(0, JsonMember(key, form.name))
        self._read.pop(prefix + form.name, None)
        self._need(run_size([form]))
        self._read_field(form, prefix, is_used=True)
        if key:
            self._on_read()
        self._move(self._position)
        self._flush()
        self._comma = comma

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

    def _write_member(self, *, is_reading: bool = False) -> None:
        member = self._members.pop(0)
        if not member.is_sparse:
            self._write_comma()
            self._write_key_and_value(member, is_reading=is_reading)
            self._comma = "always"
            return
        self._flush()
        with self._source.block(f"if {member.condition or self._is_given(self._prefix + member.attribute)}:"):
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
            case Prefixed() | Rest() | Fixed() | SizedBy() if not field.is_optional:
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
        name = self._prefix + member.attribute
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
                self._put(f"put_f{8 * size}", f"{name}_value")
                self.json_bytes += _NUMBER_CHARS
            case Number(size=size, is_signed=is_signed):
                self._put("put_unsigned" if size == 8 and not is_signed else "put_number", f"{name}_value")
                self.json_bytes += len(str(1 << 8 * size)) + 1
            case SizeOf():
                self._put("put_number", f"{name}_value")
                self.json_bytes += len("255")
            case SizedNumber() as number:
                self._write_sized_number(number, field.order, name)
            case Bool8():
                self._write_bool(f"{name}_value")
            case Fixed(is_text=is_text) | Prefixed(is_text=is_text) | Rest(is_text=is_text) | SizedBy(is_text=is_text):
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

    def _write_sized_number(self, kind: SizedNumber, order: str, name: str) -> None:
        if not kind.integers or max(kind.integers) >= 8:
            raise CannotGenerate(f"{name} may have 64 bits")
        self._flush()
        source, value = self._source, f"{order}(data, {name}_from, {name}_size)"
        if kind.is_signed:
            value = f"signed({value}, wide(1) << 8 * {name}_size - 1)"
        with source.block(f"if {name}_size in {kind.integers!r}:"):
            self._put("put_number", value)
        for size in kind.floats:
            with source.block(f"elif {name}_size == {size}:"):
                self._put(f"put_f{8 * size}", f"{order}(data, {name}_from, {size})")
        with source.block("else:"):
            self._put("put_base64", "data", f"{name}_from", f"{name}_to")
        self.json_bytes += _NUMBER_CHARS
        self.json_factor += _BYTES_FACTOR

    def _write_bool(self, value: str) -> None:
        true, false = (self._source.constant("TEXT", f"ascii_array({text!r})") for text in ("true", "false"))
        self._put("put", f"{true} if {value} else {false}")
        self.json_bytes += len("false")

    def _write_scaled(self, field: FieldSpec, name: str) -> None:
        if not isinstance(field.kind, Number) or field.kind.is_float or field.kind.size > _SCALED_BYTES_MAX:
            raise CannotGenerate(f"{name} may not fit a float")
        sign, number = scale_of(field)
        digits = len(str(number)) - 1
        if sign == "/" and number == 10**digits and 1 <= digits <= _DECIMAL_DIGITS_MAX:
            self._put("put_decimal", f"{name}_value", str(digits))
        elif _SCALE_MIN <= number <= 1 / _SCALE_MIN:
            self._put("put_float", f"np.float64({name}_value) {sign} {number!r}")
        else:
            raise CannotGenerate(f"{name} may not fit a float")
        self.json_bytes += _NUMBER_CHARS

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
            self._move(f"{name}_first")
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
