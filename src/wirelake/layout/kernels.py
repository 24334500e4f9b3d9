"""Generate a Numba kernel that decodes a column of frames, from their description.

The kernel reads each valid frame once, writes its fields as JSON, and copies single values to columns. It leaves every
other frame to the codec: those that are not valid, and those with a part that it cannot read.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from fastcrc.crc16 import modbus
from msgspec import Struct

from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.fields import FieldSpec, Number, ShortLength
from wirelake.layout.frame_kernels import FrameKernel
from wirelake.layout.frame_plans import CannotGenerate, FramePlan
from wirelake.layout.generated import Source, plus
from wirelake.layout.messages import spec_of
from wirelake.protocols.frame import Sender

PRIMITIVES: Final = "wirelake.protocols.kernel_primitives"
FLOATS: Final = "wirelake.protocols.kernel_floats"
_LABELS_MAX: Final = 255
_PREFIX_BYTES_MAX: Final = 7  # so that they are a positive number of 64 bits
_CHECKSUMS: Final[dict[Callable[..., int], str]] = {modbus: "crc16"}  # functions that a kernel has, too
_PRIMITIVE_NAMES: Final = (
    "ascii_array", "bad_utf8", "big", "crc16", "is_same", "little", "put", "put_base64", "put_comma",
    "put_decimal", "put_number", "put_span", "put_text", "put_unsigned", "room", "signed", "u16_big", "u16_little",
    "wide",
)  # fmt: skip
_FLOAT_NAMES: Final = ("put_f32", "put_f64", "put_float")
_HEADER: Final = '''"""Decode a column of {name} frames. Generated from their description."""

import numpy as np

from wirelake.jit import inlined, kernel
{imports}
REFUSED = {refused}

'''


class KernelModule(Struct, frozen=True):
    """The source of a module with the kernel `parse_frames`, and what its results mean.

    `parse_frames(data, offsets, from_server)` returns the indices of the frames that it decoded, and of the others. For
    each that it decoded it returns the label, which is the index of its plan in `plans`; ends and bytes of the JSON;
    and ends and bytes for each of `columns`. For a column of numbers, both are the array of the numbers.
    If frames show their byte order, each plan has two labels, one for each order.
    """

    text: str
    plans: tuple[FramePlan, ...]
    columns: tuple[str, ...]
    number_sizes: dict[str, int]  # columns of numbers: how many bytes they need


def generate_kernel(name: str, envelope: EnvelopeSpec, plans: Sequence[FramePlan]) -> KernelModule | None:
    """Return a module for all frames that a kernel can decode; None if there are none."""
    columns = tuple(dict.fromkeys(column for plan in plans for column in _columns(plan)))
    sizes = {column: _number_size(plans, column) for column in columns}
    is_number = {column: size > 0 for column, size in sizes.items()}
    envelopes = [envelope]
    if envelope.order_shown_by:
        envelopes = [envelope.in_order("big"), envelope.in_order("little")]
    usable = [plan for plan in plans if _can_generate(envelope, plan, is_number)]
    labelled = [(each, plan) for each in envelopes for plan in usable]
    done = tuple(plan for _, plan in labelled)
    if not 0 < len(done) <= _LABELS_MAX:
        return None
    source = Source(f"{name}.kernel")
    try:
        _write_label_of(source, envelope, labelled)
    except CannotGenerate:
        return None
    functions, frames = list[str](), list[FrameKernel]()
    bodies: dict[str, str] = {}  # frames with the same fields share a function: it is compiled once
    for label, (ordered, plan) in enumerate(labelled):
        body = Source("frame", source)
        frame = FrameKernel(body, plan)
        frame.generate(ordered, is_number)
        if body.lines not in bodies:
            bodies[body.lines] = _function_name(done, label)
            source.line("@inlined")
            source.line(f"def {bodies[body.lines]}{body.lines}")
        functions.append(bodies[body.lines])
        frames.append(frame)
    bound = f"{max(each.json_bytes for each in frames)} + {max(each.json_factor for each in frames)} * (end - start)"
    _write_loop(source, functions, [_Column(name, sizes[name]) for name in columns], bound)
    numbers_of_frame = 1 + sum(1 if size else 2 for size in sizes.values())
    refused = f"({', '.join(['-1'] + ['0'] * (numbers_of_frame - 1))})"
    header = _HEADER.format(name=name, imports=_imports(source.text), refused=refused)
    numbers = {column: size for column, size in sizes.items() if size}
    return KernelModule(header + source.text, done, columns, numbers)


def _imports(text: str) -> str:
    """Return the lines that import what a text calls."""
    lines = ""
    for module, names in ((FLOATS, _FLOAT_NAMES), (PRIMITIVES, _PRIMITIVE_NAMES)):
        used = [f"    {each},\n" for each in names if re.search(rf"\b{each}\(", text)]
        lines += f"from {module} import (\n{''.join(used)})\n" if used else ""
    return lines


def _columns(plan: FramePlan) -> list[str]:
    inner = [column for content in plan.contents for column in _columns(content.plan)]
    return [*plan.spans, *plan.numbers, *inner]


def _can_generate(envelope: EnvelopeSpec, plan: FramePlan, is_number: dict[str, bool]) -> bool:
    for column, attribute in plan.spans.items():
        if isinstance(spec_of(plan.kind, attribute).kind, Number) != is_number[column]:
            return False
    try:
        FrameKernel(Source("trial"), plan).generate(envelope, is_number)
    except CannotGenerate:
        return False
    return True


def _number_size(plans: Sequence[FramePlan], column: str) -> int:
    """Return how many bytes a number of this column has at most, 0 if it is a column of text or bytes."""
    inner = [content.plan for plan in plans for content in plan.contents]
    declared = [plan.numbers[column].size for plan in (*plans, *inner) if column in plan.numbers]
    if declared:
        return max(declared)
    kinds = [spec_of(plan.kind, plan.spans[column]).kind for plan in plans if column in plan.spans]
    numbers = [kind for kind in kinds if isinstance(kind, Number)]
    sizes = [max(kind.size, 2) if kind.is_signed else kind.size + (kind.size == 8) for kind in numbers]
    return max(sizes) if sizes and len(sizes) == len(kinds) and max(sizes) <= 8 else 0


def _function_name(plans: Sequence[FramePlan], label: int) -> str:
    name = plans[label].kind.__name__
    is_unique = sum(plan.kind.__name__ == name for plan in plans) == 1
    return f"put_{name}" if is_unique else f"put_{name}_{label}"


# ── which frame it is


_Labelled = Sequence[tuple[EnvelopeSpec, FramePlan]]  # a plan and the envelope in its byte order, by label


def _write_label_of(source: Source, envelope: EnvelopeSpec, labelled: _Labelled) -> None:
    """Write the function that checks length and checksum, and returns the label of a frame."""
    source.line("@kernel")
    with source.block("def label_of(data, start, end, from_server):"):
        if envelope.order_shown_by:
            _write_prefix_branches(source, envelope, labelled)
        else:
            _write_opcode_branches(source, envelope, [plan for _, plan in labelled])
    source.line("")
    source.line("")


def _write_prefix_branches(source: Source, envelope: EnvelopeSpec, labelled: _Labelled) -> None:
    """Write the lines that find the label by the first bytes, which show the byte order and the opcode."""
    size = envelope.prefix_size
    if size > _PREFIX_BYTES_MAX:
        raise CannotGenerate("the byte order is not shown by the first bytes")
    _refuse(source, f"{plus('start', size)} > end")
    source.line(f"prefix = big(data, start, {size})")
    source.line("label = -1")
    found: dict[tuple[bytes, Sender | None], int] = {}  # a later one takes precedence, as in `decode`
    for label, (ordered, plan) in enumerate(labelled):
        found[ordered.prefix_of(plan.kind), plan.kind.sender] = label
    senders = {None: "", Sender.CLIENT: " and not from_server", Sender.SERVER: " and from_server"}
    for (prefix, sender), label in found.items():
        with source.block(f"if prefix == {int.from_bytes(prefix):#x}{senders[sender]}:"):
            source.line(f"label = {label}")
    _refuse(source, "label < 0")
    middle = len(labelled) // 2  # from there on, the numbers are little-endian
    for condition, (ordered, _) in ((f"if label < {middle}:", labelled[0]), ("else:", labelled[middle])):
        with source.block(condition):
            if ordered.length is not None:
                _write_length(source, ordered, ordered.length)
            _refuse(source, f"{plus('start', (ordered.head_size or 0) + ordered.tail_size)} > end")
            _write_tail(source, ordered)
    source.line("return label")


def _write_opcode_branches(source: Source, envelope: EnvelopeSpec, plans: Sequence[FramePlan]) -> None:
    """Write the lines that find the label by the opcode."""
    opcode, length = envelope.opcode, envelope.length
    base = "start"
    if length is not None and isinstance(length.kind, ShortLength):
        base = "at"
        _write_short_length(source, length)
    elif length is not None:
        _write_length(source, envelope, length)
    needed = _offset(envelope, opcode) + (opcode.size or 0) if opcode is not None else 0
    _refuse(source, f"{plus(base, needed + envelope.tail_size)} > end")
    _write_tail(source, envelope)
    if opcode is not None and opcode.opcode is not None:
        mask = f" & {opcode.opcode.mask:#x}" if opcode.opcode.mask else ""
        source.line(f"number = {_number(opcode, plus(base, _offset(envelope, opcode)))}{mask}")
    for sender, condition in ((Sender.SERVER, "if from_server:"), (Sender.CLIENT, "else:")):
        with source.block(condition):
            for label, plan in enumerate(plans):
                if plan.kind.sender in (None, sender):
                    if opcode is None:
                        source.line(f"return {label}")
                        break
                    with source.block(f"if number == {plan.kind.opcode}:"):
                        source.line(f"return {label}")
            else:
                source.line("return -1")


def _refuse(source: Source, condition: str) -> None:
    with source.block(f"if {condition}:"):
        source.line("return -1")


def _number(field: FieldSpec, position: str) -> str:
    size = field.size or 0
    if not isinstance(field.kind, Number) or field.kind.is_signed or field.kind.is_float or size > 4:
        raise CannotGenerate(f"{field.name} is not a number that a kernel compares")
    return f"wide(data[{position}])" if size == 1 else f"{field.order}(data, {position}, {size})"


def _offset(envelope: EnvelopeSpec, field: FieldSpec) -> int:
    """Return how many bytes are before a field, apart from a length of one or two bytes."""
    offset = 0
    for each in envelope.head:
        if each.name == field.name:
            return offset
        if each.size is None and not isinstance(each.kind, ShortLength):
            raise CannotGenerate(f"where {field.name} is differs from frame to frame")
        offset += each.size or 0
    raise CannotGenerate(f"{field.name} is not in the head")


def _write_short_length(source: Source, field: FieldSpec) -> None:
    least = field.length.at_least if field.length is not None else 0
    _refuse(source, "start >= end")
    source.line("at = start + 1")
    source.line("length = wide(data[start])")
    with source.block("if length > 0x7F:"):
        _refuse(source, "at >= end")
        source.line("length = length & 0x7F | wide(data[at]) << 7")
        source.line("at += 1")
        _refuse(source, "length < 0x80")
    _refuse(source, f"length < {least} or at + length != end" if least else "at + length != end")


def _write_length(source: Source, envelope: EnvelopeSpec, field: FieldSpec) -> None:
    offset, least = _offset(envelope, field), field.length.at_least if field.length is not None else 0
    _refuse(source, f"{plus('start', offset + (field.size or 0))} > end")
    source.line(f"length = {_number(field, plus('start', offset))}")
    sizes = [each for each in envelope.sizes if each.name in envelope.added_sizes]
    added = "".join(f" + {_number(each, plus('start', _offset(envelope, each)))}" for each in sizes)
    condition = f"length{added} != {plus('end - start', -envelope.added_to_length())}"
    _refuse(source, f"length < {least} or {condition}" if least else condition)


def _write_tail(source: Source, envelope: EnvelopeSpec) -> None:
    """Write the checks of checksums and constants after the body."""
    left = envelope.tail_size
    for field in envelope.tail:
        place, size = plus("end", -left), field.size or 0
        if field.const is not None:
            value = field.const.value
            expected = value if isinstance(value, bytes) else value.to_bytes(size, field.order)
            constant = source.constant("BYTES", f"np.frombuffer({expected!r}, np.uint8)")
            _refuse(source, f"not is_same(data, {place}, {constant})")
        elif field.checksum is not None:
            function = _CHECKSUMS.get(field.checksum.compute)
            if function is None:
                raise CannotGenerate(f"{field.checksum.title} is not one that a kernel computes")
            start, after = envelope.covered(field)
            if start and envelope.head_size is None:
                raise CannotGenerate(f"{field.name} does not cover all of the head")
            computed = f"{function}(data, {plus('start', start)}, {plus('end', -after)})"
            _refuse(source, f"{computed} != {_number(field, place)}")
        left -= size


# ── the loop over all frames


class _Column(Struct, frozen=True):
    """A column of the kernel: numbers, or the bytes from `<name>_from` to `<name>_to`."""

    name: str
    size: int  # of numbers; 0 for text and bytes

    @property
    def variables(self) -> list[str]:
        return [f"{self.name}_value"] if self.size else [f"{self.name}_from", f"{self.name}_to"]

    def allocate(self, source: Source) -> None:
        if self.size:
            source.line(f"{self.name}_values = np.empty(count, np.{'uint8' if self.size == 1 else 'int64'})")
        else:
            source.line(f"{self.name}_bytes, {self.name}_at = np.empty(total, np.uint8), wide(0)")
            source.line(f"{self.name}_ends = np.zeros(count + 1, np.int32)")

    def store(self, source: Source) -> None:
        if self.size:
            source.line(f"{self.name}_values[good] = {self.name}_value")
        else:
            at = f"{self.name}_at"
            source.line(f"{at} = put_span({self.name}_bytes, {at}, data, {self.name}_from, {self.name}_to)")
            source.line(f"{self.name}_ends[good + 1] = {at}")

    def returned(self) -> str:
        if self.size:
            return f"{self.name}_values[:good], {self.name}_values[:good],"
        return f"{self.name}_ends[: good + 1], {self.name}_bytes[: {self.name}_at],"


def _write_loop(source: Source, functions: Sequence[str], columns: Sequence[_Column], bound: str) -> None:
    source.line("@kernel")
    with source.block("def parse_frames(data, offsets, from_server):"):
        source.line("count = offsets.size - 1")
        source.line("total = wide(offsets[count]) - wide(offsets[0])")
        source.line("rows, others = np.empty(count, np.int64), np.empty(count, np.int64)")
        source.line("labels, text_ends = np.empty(count, np.uint8), np.zeros(count + 1, np.int64)")
        source.line("text, text_at = np.empty(64 * count + 1024, np.uint8), wide(0)")
        for column in columns:
            column.allocate(source)
        source.line("good = bad = wide(0)")
        with source.block("for row in range(count):"):
            source.line("start, end = wide(offsets[row]), wide(offsets[row + 1])")
            source.line("label = label_of(data, start, end, from_server[row])")
            source.line("found = REFUSED")
            with source.block("if label >= 0:"):
                with source.block(f"if text.size < text_at + {bound}:"):
                    source.line(f"text = room(text, text_at, {bound})")
                _write_calls(source, functions)
            names = ["text_end", *(name for column in columns for name in column.variables)]
            source.line(f"{', '.join(names)} = found")
            with source.block("if text_end < 0:"):
                source.line("others[bad] = row")
                source.line("bad += 1")
                source.line("continue")
            for column in columns:
                column.store(source)
            source.line("text_at, rows[good], labels[good] = text_end, row, label")
            source.line("good += 1")
            source.line("text_ends[good] = text_at")
        source.line("return (")
        source.line("    rows[:good], others[:bad], labels[:good],")
        source.line("    text_ends[: good + 1], text[:text_at],")
        for column in columns:
            source.line(f"    {column.returned()}")
        source.line(")")


def _write_calls(source: Source, functions: Sequence[str]) -> None:
    for index, function in enumerate(dict.fromkeys(functions)):
        labels = [str(label) for label, each in enumerate(functions) if each == function]
        condition = f"label in ({', '.join(labels)})" if len(labels) > 1 else f"label == {labels[0]}"
        with source.block(f"{'elif' if index else 'if'} {condition}:"):
            source.line(f"found = {function}(data, start, end, text, text_at)")
