"""Generate `decode`: one function that reads each class of frames, and how the right one is chosen."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from wirelake.layout.envelope import NO_ENVELOPE, EnvelopeSpec, constant_of
from wirelake.layout.fields import ByteOrder, FieldSpec, Rest, ShortLength, SizedBy, in_order
from wirelake.layout.generated import Source, local, plus
from wirelake.layout.reading import FrameReader, fixed_size, is_text, literal, raw_name, struct_code


def generate_decode(envelope: EnvelopeSpec, kinds: Sequence[Any], filename: str) -> Source:
    """Return the source of `decode` for frames of these classes."""
    source = Source(filename)
    opcode = envelope.opcode
    if envelope.order_shown_by:
        _generate_prefix_table(source, envelope, kinds)
    elif opcode is None or opcode.opcode is None or opcode.opcode.mask or envelope.before(opcode.name) is None:
        _generate_branches(source, envelope, opcode, kinds)
    else:
        _generate_table(source, envelope, opcode, kinds)
    return source


def _generate_table(source: Source, envelope: EnvelopeSpec, opcode: FieldSpec, kinds: Sequence[Any]) -> None:
    """Write one function for each frame. The opcode, which is at a fixed place, chooses between them."""
    functions = _FunctionTable(source)
    for kind in kinds:
        functions.add(envelope, kind, f"{kind.opcode!r}", f"read_{kind.__name__}", frozenset({opcode.name}))
    table = functions.write_tables()
    offset, size = envelope.before(opcode.name) or 0, fixed_size(opcode)
    number = f"frame[{offset}]" if size == 1 else f'int.from_bytes(frame[{offset} : {offset + size}], "{opcode.order}")'
    _generate_lookup(source, f"{table}[{number}]")


def _generate_prefix_table(source: Source, envelope: EnvelopeSpec, kinds: Sequence[Any]) -> None:
    """Write one function for each frame and byte order. The first bytes, which show both, choose between them."""
    functions = _FunctionTable(source)
    known = frozenset(field.name for field in envelope.prefix)
    orders: tuple[ByteOrder, ByteOrder] = ("big", "little")
    for order in orders:
        ordered = envelope.in_order(order)
        for kind in kinds:
            functions.add(ordered, kind, repr(ordered.prefix_of(kind)), f"read_{kind.__name__}_{order}", known)
    _generate_lookup(source, f"{functions.write_tables()}[frame[:{envelope.prefix_size}]]")


def generate_body_decode(kind: Any, filename: str) -> Source:
    """Return the source of `decode` for the fields of a class alone, without an envelope."""
    source = Source(filename)
    with source.block("def decode(frame):"):
        with source.block("try:"):
            source.line("size = len(frame)")
            reader = FrameReader(source, 0)
            reader.read(kind.__layout_fields__)
            _finish(reader, NO_ENVELOPE, kind)
        _refuse(source, "frame")
    return source


def _generate_lookup(source: Source, function: str) -> None:
    with source.block("def decode(frame, sender):"):
        with source.block("try:"):
            source.line(f"return {function}(frame)")
        _refuse(source)


class _FunctionTable:
    """Functions that read frames of one class, and for each sender a table of them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._names: list[str] = []
        self._entries: dict[str, list[str]] = {"client": [], "server": []}

    def add(self, envelope: EnvelopeSpec, kind: Any, key: str, name: str, known: frozenset[str]) -> None:
        """Write the function for a class, whose key in the tables is this expression. Skip the fields in `known`."""
        source = self._source
        while name in self._names:  # a class of the same name
            name += "_"
        self._names.append(name)
        with source.block(f"def {name}(frame):"):
            source.line("size = len(frame)")
            reader = FrameReader(source, envelope.tail_size)
            fields = kind.__layout_fields__
            if envelope.order_shown_by:
                fields = tuple(in_order(field, envelope.order) for field in fields)
                reader.values["little"] = str(envelope.order == "little")
            head = envelope.head
            if isinstance(head[-1].kind, SizedBy) and len(envelope.sizes) == 1 and _is_simple(fields):
                self._add_usual(reader, envelope, kind, fields, known)
                head = head[-1:]
            reader.read((*head, *fields), known)
            _finish(reader, envelope, kind)
            source.line("raise IndexError")
        source.line("")
        source.line("")
        for sender, entries in self._entries.items():
            if kind.sender is None or kind.sender == sender:
                entries.append(f"{key}: {name}")

    @staticmethod
    def _add_usual(
        reader: FrameReader, envelope: EnvelopeSpec, kind: Any, fields: Sequence[FieldSpec], known: frozenset[str]
    ) -> None:
        """Read the frame as if the last part of the head, which varies in size, were empty, as it usually is.

        Leave the reader behind the fixed part of the head.
        """
        *head, sized = envelope.head
        usual = reader.fork()
        usual.read((*head, *fields), known)
        (size,) = envelope.sizes
        reader.values |= {field.name: usual.values[field.name] for field in head if field.name in usual.values}
        reader.checks = list(usual.checks)
        reader.offset = envelope.head_size or 0
        usual.checks.append(f"{usual.values[size.name]} == 0")
        usual.values[sized.name] = repr("" if is_text(sized) else b"")
        _finish(usual, envelope, kind)

    def write_tables(self) -> str:
        """Write the tables. Return the expression of the one to look in."""
        source, entries = self._source, self._entries
        is_same = entries["client"] == entries["server"]
        source.call("FROM_CLIENT = {", entries["client"], "}")
        if not is_same:
            source.call("FROM_SERVER = {", entries["server"], "}")
        source.line("")
        source.line("")
        return "FROM_CLIENT" if is_same else "(FROM_CLIENT if sender is CLIENT else FROM_SERVER)"


def _generate_branches(source: Source, envelope: EnvelopeSpec, opcode: FieldSpec | None, kinds: Sequence[Any]) -> None:
    """Write one function that reads the head once, and then goes on as the opcode says."""
    with source.block("def decode(frame, sender):"):
        with source.block("try:"):
            source.line("size = len(frame)")
            reader = FrameReader(source, envelope.tail_size)
            reader.read(envelope.head)
            word, excluded = "if", 0  # opcodes below are those of branches before
            for kind in kinds:
                conditions = []
                if opcode is not None and opcode.opcode is not None:
                    number, mask = raw_name(opcode, ""), opcode.opcode.mask
                    if mask and opcode.flags is not None:
                        mask |= opcode.flags.reserved
                    conditions.append(_opcode_condition(number, kind.opcode, mask, fixed_size(opcode), excluded))
                    if kind.sender is None and kind.opcode == excluded:
                        excluded += mask & -mask if mask else 1
                if kind.sender is not None:
                    conditions.append(f"sender is {kind.sender.upper()}")
                branch = reader.fork()
                with source.block(f"{word} {' and '.join(conditions)}:") if conditions else nullcontext():
                    word = "elif"
                    branch.read(kind.__layout_fields__)
                    _finish(branch, envelope, kind)
        _refuse(source)


def _opcode_condition(number: str, opcode: int, mask: int, size: int, excluded: int) -> str:
    """Return the condition that the bits of the mask, or all, are those of the opcode. None is below `excluded`."""
    lowest = mask & -mask
    if not mask:
        return f"{number} == {opcode}"
    if mask + lowest != 1 << 8 * size:
        return f"{number} & {mask:#x} == {opcode:#x}"
    below = f"{number} < {opcode + lowest:#x}"  # all the high bits: then it is a range, which is faster
    return f"{opcode:#x} <= {below}" if opcode > excluded else below


def _finish(reader: FrameReader, envelope: EnvelopeSpec, kind: Any) -> None:
    """Write the lines that return the frame, if all conditions hold."""
    source = reader.source
    sizes = [] if reader.is_at_end else [plus(reader.base, reader.offset + envelope.tail_size)]
    conditions = list(dict.fromkeys(reader.checks))
    length = envelope.length
    if length is not None and length.length is not None:
        name = raw_name(length, "")
        if isinstance(length.kind, ShortLength):
            sizes.append(plus(f"at + {name}", -length.length.plus))
        else:
            varying = [local(each.name) for each in envelope.sizes if each.name in envelope.added_sizes]
            sizes.append(plus(" + ".join([name, *varying]), envelope.added_to_length()))
        if length.length.at_least > _least_after(envelope, kind):
            conditions.append(f"{name} >= {length.length.at_least}")
    if sizes:
        conditions.insert(0, " == ".join(["size", *sizes]))
    conditions += [
        f"{reader.values[field.name]} == {literal(constant_of(field, kind))}"
        for field in envelope.head
        if field.per_frame is not None and field.name in reader.values
    ]
    conditions += _tail_conditions(source, envelope)
    fields = kind.__struct_fields__
    if fields:
        values = _arguments(kind, reader.values)
        with source.condition(conditions):
            source.call(f"return {source.use(kind.__name__, kind)}(", values, ")")
    else:
        with source.condition(conditions):
            source.line(f"return {source.use(f'THE_{kind.__name__.upper()}', kind())}")


def _arguments(kind: Any, values: Mapping[str, str]) -> list[str]:
    """Return the arguments for a frame. Those at the end that have their default value are left out."""
    fields, defaults, places = kind.__struct_fields__, kind.__struct_defaults__, list(kind.__match_args__)
    known = dict(zip(fields[len(fields) - len(defaults) :], map(repr, defaults), strict=True))
    while places and values[places[-1]] == known.get(places[-1]):
        places.pop()
    keywords = [name for name in fields if name not in kind.__match_args__ and values[name] != known.get(name)]
    return [*(values[name] for name in places), *(f"{name}={values[name]}" for name in keywords)]


def _is_simple(fields: Sequence[FieldSpec]) -> bool:
    """Return whether one call unpacks the fields, so that reading them from the wrong bytes raises nothing else."""
    fixed = fields[:-1] if fields and isinstance(fields[-1].kind, Rest) and not is_text(fields[-1]) else fields
    return all(struct_code(field) and field.size is not None and field.enum is None for field in fixed)


def _least_after(envelope: EnvelopeSpec, kind: Any) -> int:
    """Return how many bytes there are at least after the length."""
    names = [field.name for field in envelope.head]
    after = envelope.head[names.index(envelope.length.name) + 1 :] if envelope.length is not None else envelope.head
    fields = [field for field in (*after, *kind.__layout_fields__) if not field.is_optional]
    return sum(map(fixed_size, fields)) + envelope.tail_size


def _tail_conditions(source: Source, envelope: EnvelopeSpec) -> list[str]:
    conditions = []
    left = envelope.tail_size
    for field in envelope.tail:
        size = fixed_size(field)
        stop = f"-{left - size}" if left > size else ""
        stored = f"frame[-{left}:{stop}]"
        checksum = field.checksum
        if field.const is not None:
            value = field.const.value
            expected = value if isinstance(value, bytes) else value.to_bytes(size, field.order)
            conditions.append(f"{stored} == {expected!r}")
        elif checksum is not None:
            compute = source.use(f"{field.name}_function", checksum.compute)
            start, after = envelope.covered(field)
            if (
                (start, after, left) == (0, size, size)
                and checksum.residue is not None
                and (checksum.residue_order == field.order)
            ):
                conditions.append(f"{compute}(frame) == {checksum.residue}")
            else:
                covered = f"frame[{start or ''}:-{after}]"
                conditions.append(f'{compute}({covered}) == int.from_bytes({stored}, "{field.order}")')
        left -= size
    return conditions


def _refuse(source: Source, arguments: str = "frame, sender") -> None:
    with source.block("except (IndexError, KeyError, UnicodeDecodeError, StructError, ProtocolError):"):
        source.line("pass")
    fault = 'AssertionError("dissect accepts a frame that decode refuses")'
    source.line(f"raise dissect({arguments}).error or {fault}")
