"""Generate the splitter of an envelope: a `Splitter` whose `_ends` is written for this length field.

Without a length field, the frames themselves must say where they end: then there is only one kind of frame, of fields
with a fixed size or after their size. In datagrams, each message is one frame.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from wirelake.errors import LimitError, ProtocolError
from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.fields import ByteOrder, Counted, FieldSpec, Prefixed, ShortLength
from wirelake.layout.generated import Source, local, plus
from wirelake.protocols.frame import Sender
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.tree import Tree

_PREFIX_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_REPEATS_MAX: Final = 1024  # frames of one length that are walked over at once


class LayoutSplitter(Splitter):
    """The base of generated splitters."""

    __slots__ = ("is_little", "limits")
    default_bytes_max: ClassVar[int]  # that of the envelope
    default_limits: ClassVar[Mapping[str, int]]  # of its lengths that are `limited`

    def __init__(self, frame_bytes_max: int | None = None, limits: Mapping[str, int] | None = None) -> None:
        super().__init__(self.default_bytes_max if frame_bytes_max is None else frame_bytes_max)
        self.limits = {**self.default_limits, **(limits or {})}
        self.is_little: bool | None = None  # the byte order, once a frame has shown it

    def _check_limit(self, field: str, size: int, offset: int, limit_name: str) -> None:
        """Raise LimitError if a length is over its limit."""
        most = self.limits[field]
        if size > most:
            raise LimitError(limit_name, f"{field} {size} is over the limit of {most}", offset)

    @staticmethod
    def _refuse_begin(begin: bytes, dissect: Callable[[bytes, Sender], Tree], start: int, place: int) -> None:
        """Raise the error of the first bytes of a frame; without one, they are of the other byte order."""
        error = dissect(begin, Sender.CLIENT).error
        if error is None or error.code == "short":
            error = ProtocolError("byte_order", f"the byte order changed within the stream: {begin.hex()}", place)
        raise error.shift(start)


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
    envelope: EnvelopeSpec, kinds: Sequence[Any], filename: str, dissect: Callable[[bytes, Sender], Tree]
) -> tuple[Source, type[LayoutSplitter]]:
    """Return the source of `_ends`, and a class that has it. `dissect` finds what is wrong with the first bytes."""
    source = Source(filename)
    with source.block("def _ends(self, buffer, ends):"):
        source.line("size, start, limit, append = len(buffer), 0, self.frame_bytes_max, ends.append")
        length = envelope.length
        if envelope.is_datagram:
            _cut_by_message(source, envelope)
        elif length is None:
            _cut_by_fields(source, envelope, kinds)
        elif isinstance(length.kind, ShortLength):
            _cut_by_short_length(source, envelope, length)
        elif envelope.order_shown_by:
            _cut_by_shown_order(source, envelope, length, kinds)
        else:
            _cut_by_length(source, envelope, length)
    ends = source.compile(repeats_end=repeats_end, dissect=dissect)["_ends"]
    members = {
        "__slots__": (),
        "default_bytes_max": envelope.frame_bytes_max,
        "default_limits": {field.name: field.limited.bytes_max for field in envelope.head if field.limited is not None},
        "_ends": ends,
    }
    return source, type(f"{envelope.name}Splitter", (LayoutSplitter,), members)


def _cut_by_length(source: Source, envelope: EnvelopeSpec, length: FieldSpec) -> None:
    before, size = envelope.before(length.name) or 0, length.size or 0
    head = before + size
    with source.block(f"while start + {head} <= size:"):
        _check_constants(source, envelope.head, length.name)
        value = _number(length, before, size)
        limited = [field for field in (*envelope.sizes, length) if field.limited is not None]
        for field in limited:
            source.line(f"{local(field.name)} = {_number(field, envelope.before(field.name) or 0, field.size or 0)}")
        numbers = {field.name: local(field.name) for field in limited}
        for name in envelope.added_sizes:
            field = next(each for each in envelope.sizes if each.name == name)
            numbers.setdefault(name, f"({_number(field, envelope.before(name) or 0, field.size or 0)})")
        parts = [numbers.get(length.name, f"({value})"), *(numbers[name] for name in envelope.added_sizes)]
        source.line(f"whole = {plus(' + '.join(parts), envelope.added_to_length())}")
        for field in limited:
            source.line(_limit_check(envelope, field))
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


def _cut_by_shown_order(source: Source, envelope: EnvelopeSpec, length: FieldSpec, kinds: Sequence[Any]) -> None:
    """Read the whole head at once, in the byte order of the stream's first frame."""
    first, head = envelope.prefix_size, (envelope.before(length.name) or 0) + (length.size or 0)
    numbers = [*envelope.sizes, length]
    code = _PREFIX_CODES.get(first, f"{first}s")
    codes, at = code, first
    for field in numbers:
        before = envelope.before(field.name) or 0
        codes += f"{before - at}x" * (before > at) + field.code
        at = before + (field.size or 0)
    big, little = source.struct("big", codes, "unpack_from"), source.struct("little", codes, "unpack_from")
    orders: tuple[ByteOrder, ByteOrder] = ("big", "little")
    for order in orders:
        prefixes = [envelope.in_order(order).prefix_of(kind) for kind in kinds]
        unpacked = [struct.unpack((">" if order == "big" else "<") + code, prefix)[0] for prefix in prefixes]
        source.use(f"{order.upper()}_PREFIXES", frozenset(unpacked))
    begin = {order: source.struct(order, code, "unpack_from") for order in orders}
    with source.block("if self.is_little is None:"):
        with source.block(f"if size < {first}:"):
            source.line(f"return {first}")
        source.line(f"self.is_little = {begin['little']}(buffer)[0] in LITTLE_PREFIXES")
    with source.block("if self.is_little:"):
        source.line(f"unpack, begin, prefixes = {little}, {begin['little']}, LITTLE_PREFIXES")
    with source.block("else:"):
        source.line(f"unpack, begin, prefixes = {big}, {begin['big']}, BIG_PREFIXES")
    limited = [field for field in numbers if field.limited is not None]
    for field in limited:
        source.line(f'{local(field.name)}_max = self.limits["{field.name}"]')
    names = ", ".join(["prefix", *(local(field.name) for field in numbers)])
    added = " + ".join([local(length.name), *map(local, envelope.added_sizes)])
    place = envelope.before(envelope.order_shown_by)
    refuse = f"self._refuse_begin(bytes(buffer[start : start + {first}]), dissect, start, {place})"
    checks = [f"{local(field.name)} > {local(field.name)}_max" for field in limited]
    with source.block(f"while start + {head} <= size:"):
        source.line(f"{names} = unpack(buffer, start)")
        with source.block("if prefix not in prefixes:"):
            source.line(refuse)
        source.line(f"whole = {plus(added, envelope.added_to_length())}")
        with source.block(f"if {' or '.join([*checks, 'whole > limit'])}:"):
            for field in limited:
                source.line(_limit_check(envelope, field))
            source.line(_size_check(envelope))
        _check_least(source, envelope, length)
        source.line("start += whole")
        with source.block("if start > size:"):
            source.line("return whole")
        source.line("append(start)")
    with source.block(f"if start + {first} > size:"):
        source.line(f"return {first}")
    with source.block("if begin(buffer, start)[0] not in prefixes:  # no need to wait for the whole head"):
        source.line(refuse)
    source.line(f"return {head}")


def _limit_check(envelope: EnvelopeSpec, field: FieldSpec) -> str:
    """Return the call that refuses a length over its own limit."""
    name, place = field.limited.name if field.limited is not None else "", envelope.before(field.name) or 0
    return f'self._check_limit("{field.name}", {local(field.name)}, {plus("start", place)}, "{name}")'


def _size_check(envelope: EnvelopeSpec) -> str:
    """Return the call that refuses a frame over the limit: at its length, if that has a limit of its own."""
    length = envelope.length
    is_limited = length is not None and length.limited is not None
    place = envelope.before(length.name) or 0 if length is not None and is_limited else 0
    return f'self._check_size(whole, {plus("start", place)}, "{envelope.limit_name}")'


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


def _cut_by_message(source: Source, envelope: EnvelopeSpec) -> None:
    """Write the lines that take all that arrives at once as one frame."""
    with source.block("if size:"):
        with source.block("if size > limit:"):
            source.line(f'self._check_size(size, start, "{envelope.limit_name}")')
        source.line("append(size)")
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
        source.line(_size_check(envelope))
    source.line("start += whole")
    with source.block("if start > size:"):
        source.line("return whole")
    source.line("append(start)")
