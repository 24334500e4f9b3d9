"""Generate the splitter of an envelope: a `Splitter` whose `_ends` is written for this length field.

Without a length field, the frames themselves must say where they end: then there is only one kind of frame, of fields
with a fixed size or after their size.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.fields import Counted, FieldSpec, Prefixed, ShortLength
from wirelake.layout.generated import Source, plus
from wirelake.protocols.splitter import Splitter

_REPEATS_MAX: Final = 1024  # frames of one length that are walked over at once


class LayoutSplitter(Splitter):
    """The base of generated splitters."""

    __slots__ = ()
    default_bytes_max: ClassVar[int]  # that of the envelope

    def __init__(self, frame_bytes_max: int | None = None) -> None:
        super().__init__(self.default_bytes_max if frame_bytes_max is None else frame_bytes_max)


def repeats_end(buffer: bytes | bytearray, start: int, whole: int, ends: list[int]) -> int:
    """Append the ends of the frames from `start` on that begin with the same byte as the first. Return the last end.

    It is for lengths of one byte at the beginning: then these frames are of one size.
    """
    lengths = bytes(buffer[start : start + whole * _REPEATS_MAX : whole])
    alike = len(lengths) - len(lengths.lstrip(lengths[:1]))
    alike = min(alike, (len(buffer) - start) // whole)
    end = start + alike * whole
    ends.extend(range(start + whole, end + 1, whole))
    return end


def generate_splitter(
    envelope: EnvelopeSpec, kinds: Sequence[Any], filename: str
) -> tuple[Source, type[LayoutSplitter]]:
    """Return the source of `_ends`, and a class that has it."""
    source = Source(filename)
    with source.block("def _ends(self, buffer, ends):"):
        source.line("size, start, limit, append = len(buffer), 0, self.frame_bytes_max, ends.append")
        length = envelope.length
        if length is None:
            _cut_by_fields(source, envelope, kinds)
        elif isinstance(length.kind, ShortLength):
            _cut_by_short_length(source, envelope, length)
        else:
            _cut_by_length(source, envelope, length)
    ends = source.compile(repeats_end=repeats_end)["_ends"]
    members = {"__slots__": (), "default_bytes_max": envelope.frame_bytes_max, "_ends": ends}
    return source, type(f"{envelope.name}Splitter", (LayoutSplitter,), members)


def _cut_by_length(source: Source, envelope: EnvelopeSpec, length: FieldSpec) -> None:
    before, size = envelope.before(length.name) or 0, length.size or 0
    head = before + size
    with source.block(f"while start + {head} <= size:"):
        _check_constants(source, envelope.head, length.name)
        value = _number(length, before, size)
        source.line(f"whole = {plus(f'({value})', envelope.added_to_length())}")
        _check_least(source, envelope, length)
        if envelope.added_to_length() < head:
            with source.block(f"if whole < {head}:"):
                text = f'f"{length.name} {{{value}}}: the frame would end inside its head"'
                source.line(f'raise ProtocolError("{length.name}", {text}, start + {before})')
        _step(source, envelope)
        if before == 0 and size == 1 and not envelope.added_to_length() < 1:
            with source.block("if start < size and buffer[start] == buffer[start - whole]:"):
                source.line("start = repeats_end(buffer, start, whole, ends)")
    source.line(f"return {head}")


def _cut_by_short_length(source: Source, envelope: EnvelopeSpec, length: FieldSpec) -> None:
    role = length.length
    added = -role.plus if role is not None else 0
    with source.block("while start < size:"):
        source.line("length = buffer[start]")
        with source.block("if length < 128:"):
            source.line(f"whole = {plus('length', 1 + added)}")
            _check_least(source, envelope, length)
        with source.block("elif start + 1 == size:"):
            source.line("return 2")
        with source.block("elif not buffer[start + 1]:"):
            text = f'f"{length.name} {{length & 127}} in two bytes: one is enough"'
            source.line(f'raise ProtocolError("{length.name}_form", {text}, start)')
        with source.block("else:"):
            source.line(f"whole = {plus('(length & 127 | buffer[start + 1] << 7)', 2 + added)}")
        _step(source, envelope)
        with source.block("if start < size and buffer[start] == length < 128:"):
            source.line("start = repeats_end(buffer, start, whole, ends)")
    source.line("return 1")


def _cut_by_fields(source: Source, envelope: EnvelopeSpec, kinds: Sequence[Any]) -> None:
    if len(kinds) != 1:
        raise TypeError(f"{envelope.name} needs a length field: it has {len(kinds)} kinds of frames")
    fields = (*envelope.head, *kinds[0].__layout_fields__, *envelope.tail)
    first = 0  # bytes up to the first prefix, or all
    for field in fields:
        first += _fixed_size(field, envelope)
        if field.size is None:
            break
    with source.block(f"while start + {first} <= size:"):
        base, offset, is_checked = "", 0, False
        for field in fields:
            offset += _fixed_size(field, envelope)
            if field.size is not None:
                continue
            if not is_checked:
                _check_constants(source, envelope.head, "")
                is_checked = True
            else:
                with source.block(f"if start + {plus(base, offset)} > size:"):
                    source.line(f"return {plus(base, offset)}")
            count = _number(field, offset - _fixed_size(field, envelope), _fixed_size(field, envelope), base)
            item = field.kind.item.size if isinstance(field.kind, Counted) and field.kind.item is not None else 1
            times = f" * {item}" if item != 1 else ""
            source.line(f"whole = {plus(base, offset)} + ({count}){times}")
            with source.block("if whole > limit:"):
                source.line(f'self._check_size(whole, start, "{envelope.limit_name}")')
            base, offset = "whole", 0
        if not is_checked:
            _check_constants(source, envelope.head, "")
        source.line(f"whole = {plus(base, offset)}")
        _step(source, envelope)
    source.line(f"return {first}")


def _fixed_size(field: FieldSpec, envelope: EnvelopeSpec) -> int:
    """Return the size of a field, or of its prefix."""
    if field.size is not None:
        return field.size
    if isinstance(field.kind, Prefixed) and not field.is_optional:
        return field.kind.prefix
    item = field.kind.item if isinstance(field.kind, Counted) and not field.is_optional else None
    if isinstance(field.kind, Counted) and item is not None and item.size is not None:
        return field.kind.prefix
    raise TypeError(f"{envelope.name} needs a length field: the end of {field.name} cannot be found without decoding")


def _number(field: FieldSpec, offset: int, size: int, base: str = "") -> str:
    """Return the expression of an unsigned number in the buffer."""
    start = plus(f"start + {base}" if base else "start", offset)
    if size == 1:
        return f"buffer[{start}]"
    places = [plus(f"start + {base}" if base else "start", offset + index) for index in range(size)]
    if field.order == "little":
        places.reverse()
    shifts = range(8 * (size - 1), -1, -8)
    return " | ".join(f"buffer[{at}] << {by}" if by else f"buffer[{at}]" for at, by in zip(places, shifts, strict=True))


def _check_constants(source: Source, head: Sequence[FieldSpec], until: str) -> None:
    """Refuse other constants than those described, among the fields before `until`."""
    offset = 0
    for field in head:
        if field.name == until or field.size is None:
            return
        const = field.const
        if const is not None:
            value = const.value if isinstance(const.value, bytes) else const.value.to_bytes(field.size, field.order)
            place = plus("start", offset)
            if field.size == 1:
                condition = f"buffer[{place}] != {value[0]}"
            else:
                condition = f"buffer[{place} : {plus('start', offset + field.size)}] != {value!r}"
            text = const.text or f"{field.name} is not {const.value!r}"
            with source.block(f"if {condition}:"):
                source.line(f"raise ProtocolError({(const.code or field.name)!r}, {text!r}, {place})")
        offset += field.size


def _check_least(source: Source, envelope: EnvelopeSpec, length: FieldSpec) -> None:
    least = length.length.at_least if length.length is not None else 0
    if least:
        is_short = isinstance(length.kind, ShortLength)
        added = 1 if is_short else envelope.added_to_length()
        with source.block(f"if whole < {least + added}:"):
            text = f'f"{length.name} {{whole - {added}}}: the least is {least}"'
            place = plus("start", envelope.before(length.name) or 0)
            source.line(f'raise ProtocolError("{length.name}_min", {text}, {place})')


def _step(source: Source, envelope: EnvelopeSpec) -> None:
    """Write the lines that take a frame of `whole` bytes, if it is there."""
    with source.block("if whole > limit:"):
        source.line(f'self._check_size(whole, start, "{envelope.limit_name}")')
    source.line("start += whole")
    with source.block("if start > size:"):
        source.line("return whole")
    source.line("append(start)")
