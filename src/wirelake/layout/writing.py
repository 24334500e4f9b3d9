"""Generate the source that encodes frames: numbers side by side are packed by one call, and all pieces joined once."""

from typing import Any, Final

from msgspec.structs import replace

from wirelake.layout.envelope import EnvelopeSpec, constant_of, is_carried
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
from wirelake.layout.forms import ChosenBy
from wirelake.layout.generated import Source, local, plus
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.layout.variants import write_choice, write_sized_number
from wirelake.layout.varint import varint_writer

_PREFIX_CODES: Final = {1: "B", 2: "H", 4: "I"}
_SHORT_LENGTH_MAX: Final = 0x7FFF


class FrameWriter:
    """Collect the pieces of a frame: expressions of bytes, and numbers that are packed together."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.pieces: list[str] = []
        self.sized: list[str] = []  # the pieces whose size differs from frame to frame
        self.fixed_size = 0
        self._run: list[tuple[str, str]] = []  # struct formats and expressions
        self._run_order: ByteOrder | None = None

    def pack(self, code: str, size: int, expression: str, order: ByteOrder) -> None:
        """Add a number to those that are packed together."""
        if size > 1 and self._run_order not in (None, order) and "s" not in code:
            self.flush()
        if size > 1 and "s" not in code:
            self._run_order = order
        self._run.append((code, expression))
        self.fixed_size += size

    def number(self, field: FieldSpec, expression: str) -> None:
        """Add the number of a field."""
        if field.code:
            self.pack(field.code, field.size or 0, expression, field.order)
        else:
            signed = ", signed=True" if isinstance(field.kind, Number) and field.kind.is_signed else ""
            value = expression if expression.isidentifier() or "." in expression else f"({expression})"
            self.piece(f'{value}.to_bytes({field.size}, "{field.order}"{signed})', field.size)

    def flush(self) -> None:
        """End the numbers that are packed together."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = [expression for _, expression in self._run]
        if len(values) == 1 and codes == f"{codes[:-1]}s":
            self.pieces.append(values[0])
        else:
            pack = self.source.struct(self._run_order or "big", codes, "pack")
            self.pieces.append(f"{pack}({', '.join(values)})")
        self._run, self._run_order = [], None

    def piece(self, expression: str, size: int | None = None) -> None:
        """Add bytes. Without a size, the expression is a variable."""
        self.flush()
        self.pieces.append(expression)
        if size is None:
            self.sized.append(expression)
        else:
            self.fixed_size += size

    def refuse(self, condition: str, text: str) -> None:
        """Raise EncodeError if the condition holds. `text` is the inside of an f-string."""
        with self.source.block(f"if {condition}:"):
            self.source.line(f"raise EncodeError({text})")

    def join(self, start: str) -> None:
        """Write a line that begins with `start` and goes on with all pieces as one."""
        self.flush()
        if len(self.pieces) <= 2:
            pieces = " + ".join(self.pieces) or 'b""'
            self.source.line(start + pieces)
        else:
            self.source.call(f'{start}b"".join((', self.pieces, "))")

    def write(  # noqa: C901, PLR0912 (one for each kind)
        self, field: FieldSpec, value: str, prefix: str = "", name: str = ""
    ) -> None:
        """Write the lines for one field, whose value is this expression. `name` is a variable for its bytes."""
        name, source, kind = name or local(prefix + field.name), self.source, field.kind
        if field.is_optional:
            self._write_optional(field, name, value)
            return
        self._check(field, value)
        match kind:
            case Number() | Bool8():
                self.number(field, value)
            case Fixed(size=0):
                empty = '""' if kind.is_text else 'b""'
                self.refuse(f"{value} != {empty}", f'"{field.name} is not empty"')
            case Fixed(size=size, is_text=False):
                self.refuse(f"len({value}) != {size}", f'f"{field.name}: {{len({value})}} bytes, not {size}"')
                self.pack(f"{size}s", size, value, field.order)
            case Fixed(size=size):
                source.line(f"{name} = {value}.encode()")
                self.refuse(f"len({name}) != {size}", f'f"{field.name}: {{len({name})}} bytes, not {size}"')
                self.piece(name, size)
            case Prefixed() | SizedBy() | Rest():
                source.line(f"{name} = {value}{'.encode()' if kind.is_text else ''}")
                if isinstance(kind, Prefixed):
                    self._at_most(field, name)
                    self.pack(_PREFIX_CODES[kind.prefix], kind.prefix, f"len({name})", field.order)
                self.piece(name)
            case Varint(bits=bits, is_signed=is_signed):
                write = source.use(f"write_{kind.title}", varint_writer(bits, is_signed))
                source.line(f"{name} = {write}({value})")
                self.piece(name)
            case SizedBytes(encoding=encoding):
                source.line(f"{name} = {value}{'.encode()' if kind.is_text else ''}")
                self._at_most(field, name)
                source.line(f"{name}_size = {source.use(f'{name}_writer', encoding.write)}(len({name}))")
                self.piece(f"{name}_size")
                self.piece(name)
            case Counted():
                self._write_list(field, kind, name, value)
            case Nested():
                for inner in kind.fields:
                    self.write(inner, f"{value}.{inner.name}", f"{name}__")
            case SizedNumber():
                write_sized_number(self, field, kind, name, value)
            case SizeOf():
                pass
            case ChosenBy():
                write_choice(self, kind, name, value)
                self.piece(f"{name}_piece")
            case Custom():
                source.line(f"{name} = {source.use(f'{name}_writer', kind.write)}({value})")
                self.piece(name)
            case ShortLength():
                raise TypeError(f"{field.name}: a short length is a field of an envelope")

    def _check(self, field: FieldSpec, value: str) -> None:
        if field.const is not None:
            self.refuse(
                f"{value} != {field.const.value!r}", f'f"{field.name} is {{{value}}}, not {field.const.value!r}"'
            )
        if field.between is not None:
            least, most = field.between.least, field.between.most
            text = f'f"{field.name} is {{{value}}}: {field.between.text}"'
            self.refuse(f"not {least} <= {value} <= {most}", text)
        if field.flags is not None and field.flags.reserved:
            reserved = f"{field.flags.reserved:#x}"
            self.refuse(f"{value} & {reserved}", f'f"{field.name} is {{{value}:#x}}: the bits {reserved} must be zero"')
        if isinstance(field.kind, Bool8):
            self.refuse(f"{value} not in (0, 1)", f'f"{field.name} is {{{value}}}, neither true nor false"')
        if field.enum is not None:
            members = self.source.use(field.enum.__name__, {int(member): member for member in field.enum})
            self.refuse(f"{value} not in {members}", f'f"{field.name} is {{{value}}}, which has no meaning"')

    def _at_most(self, field: FieldSpec, name: str) -> None:
        if field.at_most is not None:
            text = f'f"{field.name}: {{len({name})}}, writers stay within {field.at_most}"'
            self.refuse(f"len({name}) > {field.at_most}", text)

    def _write_list(self, field: FieldSpec, kind: Counted, name: str, value: str) -> None:
        item, source = kind.item, self.source
        if item is None:
            raise TypeError("a list needs the type of its items, as in list8[u16]")
        self._at_most(field, value)
        self.pack(_PREFIX_CODES[kind.prefix], kind.prefix, f"len({value})", field.order)
        if isinstance(item.kind, Number) and item.code and not (item.const or item.between or item.flags or item.enum):
            order = ">" if item.order == "big" else "<"
            source.line(f'{name} = pack(f"{order}{{len({value})}}{item.code}", *{value})')
        else:
            pieces = f"{name}_pieces"
            source.line(f"{pieces} = []")
            with source.block(f"for {name}_item in {value}:"):
                inner = FrameWriter(source)
                inner.write(item, f"{name}_item", name=f"{name}_bytes")
                inner.flush()
                if len(inner.pieces) == 1:
                    source.line(f"{pieces}.append({inner.pieces[0]})")
                elif inner.pieces:
                    source.line(f"{pieces} += ({', '.join(inner.pieces)})")
            source.line(f'{name} = b"".join({pieces})')
        self.piece(name)

    def _write_optional(self, field: FieldSpec, name: str, value: str) -> None:
        """Write a field that may be missing. Those after it must then be missing too."""
        inner = FrameWriter(self.source)
        is_missing = f"{value} is None" if field.missing is None else f"not {value}"
        with self.source.block(f"if {is_missing}:"):
            self.source.line(f'{name}_piece = b""')
        with self.source.block("else:"):
            inner.write(replace(field, is_optional=False), value, name=name)
            inner.join(f"{name}_piece = ")
        self.piece(f"{name}_piece")


def generate_encode(envelope: EnvelopeSpec, kind: Any, filename: str) -> Source:
    """Return the source of the method `encode` of a class."""
    source = Source(filename)
    with source.block("def encode(self):"):
        with source.block("try:"):
            if envelope.order_shown_by:
                with source.block("if self.little:"):
                    _write_frame(source, envelope.in_order("little"), kind)
            _write_frame(source, envelope, kind)
        with source.block("except (StructError, OverflowError, UnicodeEncodeError) as error:"):
            source.line('raise EncodeError(f"{self.name}: {error}") from error')
    return source


def _write_frame(source: Source, envelope: EnvelopeSpec, kind: Any) -> None:
    writer = FrameWriter(source)
    for field in envelope.head:
        if field.length is not None:
            _write_length(writer, field)
        elif field.sizes:
            writer.number(field, f"len({local(field.sizes)})")
        elif is_carried(field):
            if field.opcode is not None:
                mask = field.opcode.mask
                text = f'f"{field.name} is {{self.{field.name}:#x}}, which is not that of a {{self.name}}"'
                writer.refuse(f"self.{field.name} & {mask:#x} != {kind.opcode}", text)
            writer.write(field, f"self.{field.name}")
        else:
            _write_constant(writer, field, constant_of(field, kind))
    in_head = len(writer.sized)
    optional: list[FieldSpec] = []
    fields = kind.__layout_fields__
    if envelope.order_shown_by:
        fields = tuple(in_order(field, envelope.order) for field in fields)
    for field in fields:
        if isinstance(field.kind, SizedBy):
            size, text = field.kind.field, f'"{field.name} has another size than {field.kind.field} says"'
            value = f"self.{field.name}{'.encode()' if field.kind.is_text else ''}"
            writer.refuse(f"len({value}) != self.{size}", text)
        if optional and field.present_if is None:
            missing, text = optional[-1].name, f'"{field.name} is there, {optional[-1].name} before it is not"'
            writer.refuse(f"self.{missing} is None and self.{field.name} is not None", text)
        if field.present_if is not None:
            present = field.present_if
            is_announced = f"(self.{present.field} & {present.bits:#x} == 0)"
            text = f'"{field.name} does not fit the bits {present.bits:#x} of {present.field}"'
            writer.refuse(f"(self.{field.name} is None) != {is_announced}", text)
        elif field.is_optional:
            optional.append(field)
        writer.write(field, f"self.{field.name}")
    _write_end(writer, envelope, in_head if envelope.added_sizes else 0)


def _write_length(writer: FrameWriter, field: FieldSpec) -> None:
    """Write the length as the variable `whole`, which `_write_end` sets before anything is packed."""
    if isinstance(field.kind, ShortLength):
        two = '(whole & 127 | 128 | whole >> 7 << 8).to_bytes(2, "little")'
        writer.piece(f'(whole.to_bytes(1, "big") if whole < 128 else {two})', 0)
    else:
        writer.number(field, "whole")


def _write_constant(writer: FrameWriter, field: FieldSpec, value: int | bytes) -> None:
    if isinstance(value, int) and field.code:
        writer.pack(field.code, field.size or 0, repr(value), field.order)
    else:
        value = value if isinstance(value, bytes) else value.to_bytes(field.size or 0, field.order)
        writer.piece(repr(value), field.size)


def _write_end(writer: FrameWriter, envelope: EnvelopeSpec, uncounted: int) -> None:
    """Write the length, which is known now, and the bytes after the body. It does not count the first sized pieces."""
    source, length = writer.source, envelope.length
    checksums: list[FieldSpec] = []
    for index, field in enumerate(envelope.tail):
        if field.const is not None:
            _write_constant(writer, field, field.const.value)
        else:
            if checksums or any(each.const is not None for each in envelope.tail[index:]):
                raise TypeError(f"{envelope.name}.{field.name}: a checksum comes last")
            checksums.append(field)
    writer.flush()
    if length is not None and length.length is not None:
        size = " + ".join([f"len({piece})" for piece in writer.sized[uncounted:]])
        is_short = isinstance(length.kind, ShortLength)
        added = length.length.plus if is_short else envelope.added_to_length()
        total = writer.fixed_size + sum(each.size or 0 for each in checksums) + (added if is_short else -added)
        source.line(f"whole = {plus(size, total)}")
        write_max = length.length.write_max or (_SHORT_LENGTH_MAX if is_short else 0)
        if write_max:
            text = f'f"{{self.name}} of {{whole}} bytes: writers stay within {write_max}"'
            writer.refuse(f"whole > {write_max}", text)
        if length.length.at_least > total:
            text = f'f"{{self.name}} of {{whole}} bytes: the least is {length.length.at_least}"'
            writer.refuse(f"whole < {length.length.at_least}", text)
    if not checksums:
        writer.join("return ")
        return
    field = checksums[0]
    checksum = field.checksum
    start, after = envelope.covered(field)
    writer.join("frame = ")
    compute = source.use(f"{field.name}_function", checksum.compute if checksum is not None else None)
    stop = after - (field.size or 0)
    covered = "frame" if not start and not stop else f"frame[{start or ''}:{f'-{stop}' if stop else ''}]"
    source.line(f'return frame + {compute}({covered}).to_bytes({field.size}, "{field.order}")')
