"""Markdown for the page of a protocol: a byte diagram and a table of fields for each frame."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from wirelake.layout.envelope import EnvelopeSpec, constant_of
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
from wirelake.layout.sized import SizedNumber, SizeOf

_CELL_MIN = 7


def frame_markdown(kind: Any, envelope: EnvelopeSpec) -> str:
    """Return the section of one frame."""
    about = [] if kind.opcode is None else [str(kind.opcode)]
    about += [f"from the {kind.sender}"] if kind.sender else []
    title = f"### {kind.name} ({', '.join(about)})" if about else f"### {kind.name}"
    return _section(title, kind, (*envelope.head, *kind.__layout_fields__, *envelope.tail))


def part_markdown(kind: Any) -> str:
    """Return the section of a class that is a part of frames."""
    return _section(f"### {getattr(kind, 'name', kind.__name__)}", kind, kind.__layout_fields__)


def _section(title: str, kind: Any, fields: tuple[FieldSpec, ...]) -> str:
    rows = [
        f"| {field.label or field.name} | {type_name(field)} | {_meaning(field, kind)} |"
        for field in fields
        if field.size != 0
    ]
    own = kind.__dict__.get("__doc__")
    parts = [title, inspect.cleandoc(own)] if own else [title]
    table = ["| field | type | meaning |", "| --- | --- | --- |", *rows]
    return "\n\n".join([*parts, f"```text\n{diagram(fields)}\n```", "\n".join(table)])


def diagram(fields: tuple[FieldSpec, ...]) -> str:
    """Return the fields side by side, with the offsets of those that have a fixed one."""
    cells: list[tuple[str, str]] = []
    offset: int | None = 0
    for field in fields:
        for label, size in _cells(field):
            cells.append((label, "" if offset is None else str(offset)))
            offset = None if offset is None or size is None else offset + size
    widths = [max(len(label) + 2, _CELL_MIN) for label, _ in cells]
    numbers = " " + "".join(number.ljust(width + 1) for (_, number), width in zip(cells, widths, strict=True))
    top = "├" + "┼".join("─" * width for width in widths) + "┤"
    middle = "│" + "│".join(label.center(width) for (label, _), width in zip(cells, widths, strict=True)) + "│"
    bottom = "└" + "┴".join("─" * width for width in widths) + "┘"
    return "\n".join([numbers.rstrip(), top, middle, bottom])


def _cells(field: FieldSpec) -> list[tuple[str, int | None]]:
    kind, name = field.kind, field.label or field.name
    if field.size == 0:
        return []
    if isinstance(kind, SizedNumber):
        return [(kind.size_name or f"{name} size", kind.prefix), (f"{name} …", None)]
    if isinstance(kind, Prefixed) and not field.is_optional:
        return [(f"{name} size", kind.prefix), (f"{name} …", None)]
    if isinstance(kind, SizedBytes) and not field.is_optional:
        return [(f"{name} size …", None), (f"{name} …", None)]
    if isinstance(kind, Counted) and not field.is_optional:
        return [(f"{name} count", kind.prefix), (f"{name} …", None)]
    return [(name if field.size is not None else f"{name} …", field.size)]


def type_name(field: FieldSpec) -> str:
    """Return the type of a field as an author writes it."""
    return f"{_kind_name(field)}, optional" if field.is_optional else _kind_name(field)


def _kind_name(field: FieldSpec) -> str:  # noqa: C901, PLR0911, PLR0912 (one for each kind)
    order = ", little-endian" if field.order == "little" else ""
    match field.kind:
        case Number(size=size, is_signed=is_signed, is_float=is_float):
            letter = "f" if is_float else "i" if is_signed else "u"
            return f"{letter}{8 * size}{order if size > 1 else ''}"
        case Bool8():
            return "bool8"
        case Fixed(size=0):
            return "nothing"
        case Fixed(size=size, is_text=is_text):
            return f"{'text' if is_text else 'bytes'} of {size}"
        case Prefixed(prefix=prefix, is_text=is_text):
            return f"{'text' if is_text else 'bytes'}{8 * prefix}"
        case SizedBy(field=size, is_text=is_text):
            return f"{'text' if is_text else 'bytes'} of {size}"
        case Varint():
            return field.kind.title
        case SizedBytes(encoding=encoding, is_text=is_text):
            return f"{'text' if is_text else 'bytes'} after a {encoding.title}"
        case Rest(is_text=is_text):
            return "text, the rest" if is_text else "bytes, the rest"
        case Counted(prefix=prefix, item=item):
            return f"list{8 * prefix} of {type_name(item) if item is not None else '?'}"
        case Nested(kind=kind):
            return str(getattr(kind, "name", kind.__name__))
        case ShortLength():
            return "u8 up to 127, else two bytes"
        case SizedNumber():
            return f"number after its size{order}"
        case SizeOf():
            return "u8"
        case ChosenBy(field=by, cases=cases, other=other):
            known = [f"{number}: {type_name(form)}" for number, form in cases]
            return f"by {by} ({'; '.join([*known, *([f'else {type_name(other)}'] if other is not None else [])])})"
        case Custom(title=title):
            return title


def _meaning(field: FieldSpec, kind: Any) -> str:  # noqa: C901, PLR0911, PLR0912 (one for each mark)
    if field.is_secret:
        return "secret"
    if field.const is not None:
        value = field.const.value
        return f"always {value.hex() if isinstance(value, bytes) else f'{value:#04x}'}"
    if field.length is not None:
        counted = {"rest": "all bytes after it", "frame": "all bytes of the frame", "body": "the bytes of the body"}
        extra = f", and {field.length.plus} more" if field.length.plus else ""
        return f"counts {counted[field.length.counts]}{extra}"
    if field.opcode is not None and not field.opcode.mask:
        return f"{kind.opcode}"
    if field.sizes:
        return f"counts the bytes of {field.sizes}"
    if field.per_frame is not None:
        value = constant_of(field, kind)
        return value.hex() if isinstance(value, bytes) else f"{value:#04x}"
    if field.checksum is not None:
        return field.checksum.title + (f" over {field.checksum.over}" if field.checksum.over else "")
    if isinstance(field.kind, SizedNumber):
        return _sizes(field.kind)
    if field.between is not None and field.names is None:
        return f"from {field.between.least} to {field.between.most}"
    if field.contains is not None:
        return f"may hold a {' or a '.join(dict.fromkeys(content.label for content in field.contains.contents))}"
    if field.scale is not None:
        return f"times {field.scale.factor:g} {field.scale.unit}"
    if field.enum is not None:
        return ", ".join(f"{int(member)} {member.name.lower()}" for member in field.enum)
    if field.names is not None:
        return ", ".join(f"{number} {name}" for number, name in field.names.names.items())
    if field.present_if is not None:
        return f"if {field.present_if.field} has a bit of {field.present_if.bits:#04x}"
    if field.flags is not None:
        return ", ".join(f"bit {bit} {name}" for bit, name in enumerate(field.flags.names) if name)
    return ""


def _sizes(kind: SizedNumber) -> str:
    numbers = [f"{', '.join(map(str, kind.integers))}: {'signed' if kind.is_signed else 'unsigned'}"]
    numbers += [f"{', '.join(map(str, kind.floats))}: float"] if kind.floats else []
    return "; ".join([*numbers, "any other size: bytes"])


def parts_of(fields: Sequence[FieldSpec]) -> Iterator[type]:
    """Yield the classes inside these fields, those of lists and choices included."""
    for field in fields:
        if isinstance(field.kind, Nested):
            yield field.kind.kind
            yield from parts_of(field.kind.fields)
        elif isinstance(field.kind, Counted) and field.kind.item is not None:
            yield from parts_of((field.kind.item,))
        elif isinstance(field.kind, ChosenBy):
            yield from parts_of(field.kind.forms)
