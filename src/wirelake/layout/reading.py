"""Generate the source that reads the fields of frames.

The generated code only detects that something is wrong: a missing byte raises IndexError or struct.error, and a slice
that is too short leads to an end beyond the frame, which the last condition finds. `dissect` then says what and where.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from wirelake.layout.fields import (
    Bool8,
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
)
from wirelake.layout.forms import ChosenBy
from wirelake.layout.generated import Source, local, plus
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.layout.variants import read_choice, read_sized_number
from wirelake.layout.varint import varint_reader

_INDEXED_MAX: Final = 4  # single bytes that are faster to index than to unpack
_PREFIX_CODES: Final = {1: "B", 2: "H", 4: "I"}
_AFTER_PREFIX: Final = (Prefixed, Counted, SizedNumber)  # what comes after its size or count


class FrameReader:
    """Write the lines that read fields one after the other. `values` has the expression of each value by its name."""

    def __init__(self, source: Source, tail_size: int) -> None:
        self.source = source
        self.tail_size = tail_size
        self.base = ""  # the position is `base + offset`
        self.offset = 0
        self.checks: list[str] = []  # conditions of a valid frame, beside its size
        self.values: dict[str, str] = {}
        self.is_at_end = False  # a field took all that is left
        self.is_inner = False  # inside a loop or a condition
        self._unpacked = ""  # the position up to which the bytes are known to be there

    def fork(self) -> "FrameReader":
        """Return a reader that goes on from here, for one of several continuations."""
        other = FrameReader(self.source, self.tail_size)
        other.base, other.offset = self.base, self.offset
        other.checks, other.values = list(self.checks), dict(self.values)
        return other

    @property
    def position(self) -> str:
        return plus(self.base, self.offset)

    @property
    def body_end(self) -> str:
        return plus("size", -self.tail_size)

    def raise_unless_checked(self) -> None:
        """Write the lines that check the conditions here, as inside a loop or a branch."""
        for check in self.checks:
            with self.source.block(f"if not {check}:"):
                self.source.line("raise IndexError")

    def read(self, fields: Sequence[FieldSpec], skipped: frozenset[str] = frozenset(), prefix: str = "") -> None:
        """Write the lines for the fields. Those in `skipped` are known already."""
        index = 0
        while index < len(fields):
            run = self._run(fields, index)
            if run:
                size = self._read_run(run, skipped, prefix)
                index += len(run)
                if isinstance(run[-1].kind, _AFTER_PREFIX):
                    self._read_after_prefix(run[-1], size, prefix)
            else:
                self._read_one(fields[index], prefix)
                index += 1

    # ── runs of fixed fields, which one call unpacks

    @staticmethod
    def _run(fields: Sequence[FieldSpec], start: int) -> list[FieldSpec]:
        """Return the fields from `start` on that have a format and one byte order; the last may be a prefix."""
        run: list[FieldSpec] = []
        for field in fields[start:]:
            is_prefix = isinstance(field.kind, _AFTER_PREFIX)
            order_differs = any(
                len(struct_code(each)) and fixed_size(each) > 1 and each.order != field.order for each in run
            )
            if field.is_optional or not struct_code(field) or (order_differs and fixed_size(field) > 1):
                break
            run.append(field)
            if is_prefix:
                break
        return run

    def _read_run(self, run: list[FieldSpec], skipped: frozenset[str], prefix: str) -> str:
        """Write the lines for the fields of a run. Return the expression of the last one."""
        read = [field for field in run if field.name not in skipped]
        raw = [raw_name(field, prefix) for field in read]
        kept = raw
        if all(fixed_size(field) == 1 and struct_code(field) == "B" for field in read) and len(read) <= _INDEXED_MAX:
            kept = self._index(run, skipped, prefix)
        elif len(read) == 1 and read[0] is run[0] and struct_code(run[0]) == "H":
            self.source.line(f"{raw[0]} = {self._u16(run[0])}")
        else:
            order = next((field.order for field in run if fixed_size(field) > 1), run[0].order)
            codes = "".join("x" * fixed_size(each) if each.name in skipped else struct_code(each) for each in run)
            unpack = self.source.struct(order, codes, "unpack_from")
            names = f"{raw[0]}," if len(raw) == 1 else ", ".join(raw)
            at = f", {self.position}" if self.position != "0" else ""
            self.source.line(f"{names} = {unpack}(frame{at})")
            self._unpacked = plus(self.base, self.offset + sum(map(fixed_size, run)))
        for field, name in zip(read, kept, strict=True):
            self._keep(field, name, prefix)
        self.offset += sum(map(fixed_size, run))
        return kept[-1] if kept else ""

    def _index(self, run: list[FieldSpec], skipped: frozenset[str], prefix: str) -> list[str]:
        """Write the lines for single bytes. Return their expressions: one that is needed once needs no variable."""
        offset, found = self.offset, []
        is_fixed = not self.is_inner and self.base != "end"  # else the position is another one later
        for field in run:
            if field.name not in skipped:
                name, value = raw_name(field, prefix), f"frame[{plus(self.base, offset)}]"
                if is_fixed and (_is_plain(field) or isinstance(field.kind, Prefixed)):
                    name = value
                else:
                    self.source.line(f"{name} = {value}")
                found.append(name)
            offset += fixed_size(field)
        return found

    def _u16(self, field: FieldSpec) -> str:
        high, low = self.position, plus(self.base, self.offset + 1)
        if field.order == "little":
            high, low = low, high
        return f"frame[{high}] << 8 | frame[{low}]"

    def _keep(self, field: FieldSpec, raw: str, prefix: str) -> None:
        """Note the value of a field that was read into the variable `raw`, and its conditions."""
        value = raw
        if isinstance(field.kind, _AFTER_PREFIX):
            return
        if isinstance(field.kind, Bool8):
            self.checks.append(f"{raw} <= 1")
            value = f"{raw} == 1"
        if field.const is not None:
            expected = field.const.value
            self.checks.append(f"{raw} == {literal(expected)}")
            value = repr(expected)
        if field.between is not None:
            self.checks.append(f"{field.between.least} <= {raw} <= {field.between.most}")
        is_branch = field.opcode is not None and field.opcode.mask != 0  # then the branch checks it
        if field.flags is not None and field.flags.reserved and not is_branch:
            self.checks.append(f"not {raw} & {field.flags.reserved:#x}")
        if field.enum is not None:
            members = self.source.use(field.enum.__name__, {int(member): member for member in field.enum})
            value = f"{members}[{raw}]"
        self.values[prefix + field.name] = value

    # ── fields whose size is known only now

    def _read_after_prefix(self, field: FieldSpec, size: str, prefix: str) -> None:
        name = local(prefix + field.name)
        if isinstance(field.kind, Counted):
            self._read_list(field.kind, name, size)
        elif isinstance(field.kind, SizedNumber):
            read_sized_number(self, field, field.kind, name, size)
            if field.kind.size_name:
                self.values[prefix + field.kind.size_name] = size
        else:
            if self.base and self.offset:
                self.source.line(f"{name}_start = {self.position}")
                self.base, self.offset = f"{name}_start", 0
            self.source.line(f"{name}_end = {self.position} + {size}")
            self._slice(field, name, f"{name}_end")
            self.base, self.offset = f"{name}_end", 0
        self.values[prefix + field.name] = name

    def _slice(self, field: FieldSpec, name: str, end: str) -> None:
        decode = ".decode()" if is_text(field) else ""
        self.source.line(f"{name} = frame[{self.position} : {end}]{decode}")

    def _read_list(self, kind: Counted, name: str, count: str) -> None:
        item, source = _item(kind), self.source
        if isinstance(item.kind, Number) and item.code and item.enum is None and not _is_checked(item):
            order = ">" if item.order == "big" else "<"
            source.line(f'{name} = unpack_from(f"{order}{{{count}}}{item.code}", frame, {self.position})')
            source.line(f"{name}_end = {self.position} + {count} * {item.kind.size}")
            self.base, self.offset = f"{name}_end", 0
            return
        source.line(f"{name} = []")
        source.line(f"{name}_end = {self.position}")
        with source.block(f"for _ in range({count}):"):
            inner = FrameReader(source, self.tail_size)
            inner.base, inner.is_inner = f"{name}_end", True
            if isinstance(item.kind, Prefixed) and item.kind.prefix <= 2:
                decode = ".decode()" if item.kind.is_text else ""
                size = f"frame[{name}_end]" if item.kind.prefix == 1 else f"({inner._u16(item)})"
                source.line(f"start = {name}_end + {item.kind.prefix}")
                source.line(f"{name}_end = start + {size}")
                source.line(f"{name}.append(frame[start:{name}_end]{decode})")
            else:
                one = replace(item, name="item")
                inner.read([one], prefix=f"{name}_")
                inner.raise_unless_checked()
                source.line(f"{name}_end = {inner.position}")
                source.line(f"{name}.append({inner.values[f'{name}_item']})")
        source.line(f"{name} = tuple({name})")
        self.base, self.offset = f"{name}_end", 0

    def _read_one(self, field: FieldSpec, prefix: str) -> None:  # noqa: C901, PLR0912 (one for each kind)
        """Write the lines for a field that is not part of a run."""
        if field.is_optional:
            self._read_optional(field, prefix)
            return
        name, kind, source = local(prefix + field.name), field.kind, self.source
        match kind:
            case Number():
                end = plus(self.base, self.offset + kind.size)
                signed = ", signed=True" if kind.is_signed else ""
                source.line(f'{name} = int.from_bytes(frame[{self.position} : {end}], "{field.order}"{signed})')
                self.offset += kind.size
                self._keep(field, name, prefix)
                return
            case Fixed(size=0):
                self.values[prefix + field.name] = '""' if kind.is_text else 'b""'
                return
            case Fixed():
                self._slice(field, name, plus(self.base, self.offset + kind.size))
                self.offset += kind.size
            case SizedBy():
                size = self.values[prefix + kind.field]
                if self.base and self.offset:
                    source.line(f"{name}_start = {self.position}")
                    self.base, self.offset = f"{name}_start", 0
                source.line(f"{name}_end = {self.position} + {size}")
                self._slice(field, name, f"{name}_end")
                self.base, self.offset = f"{name}_end", 0
            case Rest():
                if self.tail_size or self._unpacked != self.position:
                    self.checks.append(f"{plus(self.base, self.offset + self.tail_size)} <= size")
                self._slice(field, name, f"-{self.tail_size}" if self.tail_size else "")
                self.is_at_end = True
            case Varint():
                self._read_varint(kind, name)
            case SizedBytes():
                self._read_sized(kind, field, name)
            case Nested():
                inner = f"{prefix}{field.name}__"
                self.read(kind.fields, prefix=inner)
                values = ", ".join(self.values.pop(inner + each.name) for each in kind.fields)
                source.line(f"{name} = {source.use(kind.kind.__name__, kind.kind)}({values})")
            case SizeOf():
                return  # the number before it has set the value
            case ChosenBy():
                read_choice(self, field, kind, name, prefix)
            case ShortLength():
                self._read_short_length(name)
            case Custom():
                read = source.use(f"{name}_reader", kind.read)
                source.line(f"{name}, {name}_end = {read}(frame, {self.position}, {self.body_end})")
                self.base, self.offset = f"{name}_end", 0
            case _:
                raise TypeError(f"{field.name}: {kind} cannot be read")
        self.values[prefix + field.name] = name

    def _read_varint(self, kind: Varint, name: str) -> None:
        """Write the lines for a number of varying size; one byte, which is usual, is read here."""
        source, read = self.source, self.source.use(f"read_{kind.title}", varint_reader(kind.bits, kind.is_signed))
        source.line(f"{name} = frame[{self.position}]")
        source.line(f"{name}_end = {plus(self.base, self.offset + 1)}")
        if kind.is_signed:
            with source.block(f"if {name} < 128:"):
                source.line(f"{name} = {name} >> 1 ^ -({name} & 1)")
            with source.block("else:"):
                source.line(f"{name}, {name}_end = {read}(frame, {self.position}, {self.body_end})")
        else:
            with source.block(f"if {name} > 127:"):
                source.line(f"{name}, {name}_end = {read}(frame, {self.position}, {self.body_end})")
        self.base, self.offset = f"{name}_end", 0

    def _read_sized(self, kind: SizedBytes, field: FieldSpec, name: str) -> None:
        source, encoding = self.source, kind.encoding
        call = f"{source.use(f'{name}_reader', encoding.read)}(frame, {self.position}, {self.body_end})"
        if encoding.one_byte_max < 0:
            source.line(f"{name}_size, {name}_start = {call}")
        else:
            source.line(f"{name}_size = frame[{self.position}]")
            odd = f" or {name}_size & {(1 << encoding.shift) - 1}" if encoding.shift else ""
            with source.block(f"if {name}_size > {encoding.one_byte_max}{odd}:"):
                source.line(f"{name}_size, {name}_start = {call}")
            with source.block("else:"):
                if encoding.shift:
                    source.line(f"{name}_size >>= {encoding.shift}")
                source.line(f"{name}_start = {plus(self.base, self.offset + 1)}")
        source.line(f"{name}_end = {name}_start + {name}_size")
        self.base, self.offset = f"{name}_start", 0
        self._slice(field, name, f"{name}_end")
        self.base = f"{name}_end"

    def _read_optional(self, field: FieldSpec, prefix: str) -> None:
        name, source = local(prefix + field.name), self.source
        source.line(f"{name} = {field.missing!r}")
        if self.position != "end":
            source.line(f"end = {self.position}")
        condition = f"end < {self.body_end}"
        if field.present_if is not None:
            condition = f"{self.values[prefix + field.present_if.field]} & {field.present_if.bits:#x}"
        with source.block(f"if {condition}:"):
            inner = FrameReader(source, self.tail_size)
            inner.base, inner.is_inner = "end", True
            inner.values = dict(self.values)
            inner.read([replace(field, is_optional=False)], prefix=prefix)
            inner.raise_unless_checked()
            if inner.values[prefix + field.name] != name:
                source.line(f"{name} = {inner.values[prefix + field.name]}")
            source.line(f"end = {self.body_end if inner.is_at_end else inner.position}")
        self.base, self.offset = "end", 0
        self.values[prefix + field.name] = name

    def _read_short_length(self, name: str) -> None:
        source = self.source
        source.line(f"{name} = frame[0]")
        source.line("at = 1")
        with source.block(f"if {name} > 127:"):
            source.line("at = 2")
            source.line(f"{name} = {name} & 127 | frame[1] << 7")
            with source.block(f"if {name} < 128:"):
                source.line("raise IndexError")
        self.base, self.offset = "at", 0


def struct_code(field: FieldSpec) -> str:
    """Return the `struct` format of a field, or of its prefix; empty if there is none."""
    if isinstance(field.kind, _AFTER_PREFIX):
        return _PREFIX_CODES[field.kind.prefix]
    return field.code


def fixed_size(field: FieldSpec) -> int:
    """Return the size of a field, or of its prefix."""
    return field.kind.prefix if isinstance(field.kind, _AFTER_PREFIX) else field.size or 0


def raw_name(field: FieldSpec, prefix: str) -> str:
    name = local(prefix + field.name)
    if isinstance(field.kind, Prefixed | SizedNumber):
        return f"{name}_size"
    return f"{name}_count" if isinstance(field.kind, Counted) else name


def literal(value: int | bytes) -> str:
    return f"{value:#x}" if isinstance(value, int) else repr(value)


def is_text(field: FieldSpec) -> bool:
    return isinstance(field.kind, Fixed | Prefixed | SizedBy | SizedBytes | Rest) and field.kind.is_text


def _is_plain(field: FieldSpec) -> bool:
    """Return whether a number is used for nothing but its value."""
    is_used = field.opcode is not None or field.length is not None or field.flags is not None or field.sizes != ""
    is_used = is_used or field.between is not None
    return isinstance(field.kind, Number) and field.enum is None and not is_used


def _is_checked(field: FieldSpec) -> bool:
    is_limited = field.const is not None or field.between is not None
    return is_limited or (field.flags is not None and field.flags.reserved != 0)


def _item(kind: Counted) -> FieldSpec:
    if kind.item is None:
        raise TypeError("a list needs the type of its items, as in list8[u16]")
    return kind.item
