"""Generate the source for fields whose form is known only from the frame: choices, and numbers after their size."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wirelake.layout.fields import FieldSpec, Fixed, Prefixed, Rest
from wirelake.layout.forms import ChosenBy
from wirelake.layout.sized import SizedNumber

if TYPE_CHECKING:
    from wirelake.layout.reading import FrameReader
    from wirelake.layout.writing import FrameWriter


def read_choice(reader: "FrameReader", field: FieldSpec, kind: ChosenBy, name: str, prefix: str) -> None:
    """Write one branch for each form. All of them set the variable of the field and `end`."""
    source, key, word = reader.source, reader.values[prefix + kind.field], "if"
    for number, form in kind.cases:
        with source.block(f"{word} {key} == {number}:"):
            _read_form(reader, replace(form, name=field.name), name, prefix)
        word = "elif"
    with source.block("else:"):
        if kind.other is None:
            source.line("raise IndexError")
        else:
            _read_form(reader, replace(kind.other, name=field.name), name, prefix)
    reader.base, reader.offset = "end", 0


def _read_form(reader: "FrameReader", form: FieldSpec, name: str, prefix: str) -> None:
    source, inner = reader.source, reader.fork()
    inner.checks, inner.is_inner = [], True
    inner.read([form], prefix=prefix)
    inner.raise_unless_checked()
    if inner.values[prefix + form.name] != name:
        source.line(f"{name} = {inner.values[prefix + form.name]}")
    end = inner.body_end if inner.is_at_end else inner.position
    if end != "end":
        source.line(f"end = {end}")


def write_choice(writer: "FrameWriter", kind: ChosenBy, name: str, value: str) -> None:
    """Write one branch for each form. All of them set the variable `<name>_piece`."""
    source, key, word = writer.source, f"{value.rpartition('.')[0]}.{kind.field}", "if"
    for number, form in kind.cases:
        with source.block(f"{word} {key} == {number}:"):
            _write_form(writer, form, name, value)
        word = "elif"
    with source.block("else:"):
        if kind.other is None:
            source.line(f'raise EncodeError(f"{kind.field} is {{{key}}}, which has no meaning")')
        else:
            _write_form(writer, kind.other, name, value)


def _write_form(writer: "FrameWriter", form: FieldSpec, name: str, value: str) -> None:
    source = writer.source
    inner: Any = type(writer)(source)
    if isinstance(form.kind, ChosenBy):
        write_choice(writer, form.kind, name, value)
        return
    if isinstance(form.kind, Rest | Prefixed | Fixed):
        inner.write(form, value, name=name)
        inner.join(f"{name}_piece = ")
        return
    with source.block(f"if isinstance({value}, bytes):"):
        source.line(f"{name}_piece = {value}")
    with source.block("else:"):
        inner.write(form, value, name=name)
        inner.join(f"{name}_piece = ")


def read_sized_number(reader: "FrameReader", field: FieldSpec, kind: SizedNumber, name: str, size: str) -> None:
    """Write the lines that read the value after its size, which is in the variable `size`."""
    source = reader.source
    source.line(f"{name}_start = {reader.position}")
    source.line(f"{name}_end = {name}_start + {size}")
    source.line(f"{name} = frame[{name}_start : {name}_end]")
    word = "if"
    if kind.integers:
        signed = ", signed=True" if kind.is_signed else ""
        with source.block(f"if {size} in {kind.integers!r}:"):
            source.line(f'{name} = int.from_bytes({name}, "{field.order}"{signed})')
        word = "elif"
    for each in kind.floats:
        with source.block(f"{word} {size} == {each}:"):
            source.line(f'({name},) = unpack_from("{kind.float_format(each, field.order)}", {name})')
        word = "elif"
    reader.base, reader.offset = f"{name}_end", 0


def write_sized_number(writer: "FrameWriter", field: FieldSpec, kind: SizedNumber, name: str, value: str) -> None:
    """Write the line that calls the number's own function."""
    write = writer.source.use(f"{name}_writer", kind.write)
    size = f", {value.rpartition('.')[0]}.{kind.size_name}" if kind.size_name else ""
    writer.source.line(f'{name} = {write}({value}, "{field.order}"{size})')
    writer.piece(name)
