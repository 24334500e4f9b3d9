"""Write a Kaitai Struct specification (.ksy) from the description of a protocol's frames.

The specification reads what one end sends: frames up to the end of the input. What it cannot check: checksums, and that
nothing is left after the last field of a body.
"""

import inspect
from typing import Any, Final

from msgspec.structs import replace

from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.export.ksy_text import (
    EXPRESSION_WORDS,
    SENDER,
    SHORT_LENGTH,
    KsyType,
    byte_list,
    expression,
    field_doc,
    indent,
    quote,
    signed_type,
    sized,
    unparsed,
    valid,
    varint_type,
)
from wirelake.layout.export.naming import (
    VARINT_SIZES,
    UniqueNames,
    bit_names,
    content_classes,
    described_in,
    forms_of,
    has_bytes,
    identifier,
    is_custom,
    size_after,
    value_names,
)
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
from wirelake.layout.forms import ChosenBy, Content
from wirelake.layout.frame_set import FrameSet
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.protocols.frame import Sender

_KS_VERSION: Final = "0.11"  # the first with `in-enum`
_OWN_SIZES: Final = (3, 6)  # of numbers that Kaitai has no type for
_HEAD = """\
# {name} for Kaitai Struct {version} or later.
# Generated from the description in {modules} by
#     wirelake protocol export {name} --format kaitai
# Do not edit it: change the description, and export it again.
"""


def kaitai_struct(frames: FrameSet, title: str) -> str:
    """Return the text of a specification."""
    return _Specification(frames, title).text()


class _Specification:
    """Collect the types and enums. A class of frames, or of parts of frames, is a type."""

    def __init__(self, frames: FrameSet, title: str) -> None:
        self._frames = frames
        self._title = title
        self._order = "" if frames.envelope.order_shown_by else frames.envelope.order
        self._types: dict[str, list[str]] = {}
        self._type_names = UniqueNames("frame", "ordered_frame", *EXPRESSION_WORDS)
        self._of_class: dict[type, str] = {}
        self._enums: dict[str, list[str]] = {}
        self._enum_names = UniqueNames("sender", "frame_kind", *EXPRESSION_WORDS)
        self._has_senders = any(kind.sender is not None for kind in frames.frames)

    def text(self) -> str:
        frame = self._frame(self._frames.envelope)
        if self._has_senders:
            self._enums["sender"] = ["0: client", "1: server"]
        head = _HEAD.format(
            name=self._frames.name, version=_KS_VERSION, modules=described_in(self._frames.frames)
        ).splitlines()
        endian = "le" if self._frames.envelope.order == "little" else "be"
        meta = [f"id: {identifier(self._frames.name)}", f"title: {quote(self._title)}"]
        meta += [f'ks-version: "{_KS_VERSION}"', f"endian: {endian}"]
        lines = [*head, "meta:", *indent(meta)]
        argument = ""
        if self._has_senders:
            lines += ["doc: What one end of a connection sends.", "params:", *indent(SENDER)]
            argument = "(sender)"
        name = "frame" if self._order else "ordered_frame"
        lines += ["seq:", "  - id: frames", f"    type: {name}{argument}", "    repeat: eos"]
        types = [line for name, part in self._types.items() for line in (f"{quote(name)}:", *indent(part))]
        lines += ["types:", "  frame:", *indent(frame, 2)]
        if self._order:
            lines += indent(types)
        else:  # inside the frame, whose byte order they have
            lines += ["    types:", *indent(types, 3)] if types else []
            lines += ["  ordered_frame:", *indent(self._ordered_frame(self._frames.envelope, argument), 2)]
        if self._enums:
            lines.append("enums:")
        for name, members in self._enums.items():
            lines += [f"  {quote(name)}:", *indent(members, 2)]
        return "\n".join(lines) + "\n"

    # ── the frame around the body

    def _frame(self, envelope: EnvelopeSpec) -> list[str]:
        type_ = KsyType()
        if self._has_senders:
            type_.params += SENDER
            type_.ids.add("sender")
        if envelope.order_shown_by:
            type_.meta = self._order_cases(envelope)
        for field in envelope.head:
            self._add_field(type_, field)
        body = ["- id: " + type_.ids.add("body")]
        size = self._body_size(envelope, type_.id_of)
        if size:
            body.append(f"  size: {expression(size)}")
        elif envelope.is_datagram:
            body.append(f"  size: {expression(f'_io.size - _io.pos - {envelope.tail_size}')}")
        body += [f"  {line}" for line in self._body_type(type_, envelope)]
        type_.seq += body
        for field in envelope.tail:
            self._add_field(type_, field)
        return type_.lines()

    def _ordered_frame(self, envelope: EnvelopeSpec, argument: str) -> list[str]:
        """Return the type around a frame that finds out its byte order, which one of its fields shows."""
        field = next(each for each in envelope.head if each.name == envelope.order_shown_by)
        type_ = KsyType()
        type_.doc = f"Finds out the byte order of the frame: that in which {field.name} is a known number."
        type_.params = SENDER if argument else []
        type_.seq = ["- id: frame", f"  type: frame{argument}"]
        place = envelope.before(field.name) or 0
        type_.instances = ["shown_order:", f"  pos: {expression(f'_io.pos + {place}')}", f"  type: u{field.size}be"]
        return type_.lines()

    def _order_cases(self, envelope: EnvelopeSpec) -> list[str]:
        """Return the byte order of a frame by the number that its field is in big-endian."""
        field = next(each for each in envelope.head if each.name == envelope.order_shown_by)
        numbers = {constant_of(field, kind) for kind in self._frames.frames}
        known = sorted(number for number in numbers if isinstance(number, int))
        turned = [int.from_bytes(number.to_bytes(field.size or 0, "little"), "big") for number in known]
        cases = [f"    {number:#x}: le" for number in turned if number not in known]
        return ["endian:", "  switch-on: _parent.shown_order", "  cases:", *cases, "    _: be"]

    @staticmethod
    def _body_size(envelope: EnvelopeSpec, ids: dict[str, str]) -> str:
        """Return the expression of the size of the body; an empty one if only its fields tell where it ends."""
        length = envelope.length
        if length is None or length.length is None:
            return ""
        if isinstance(length.kind, ShortLength):
            value, counted = f"{ids[length.name]}.value", -length.length.plus
        else:
            value = ids[length.name]
            counted = envelope.added_to_length() - (envelope.before(length.name) or 0) - (length.size or 0)
        after_length = envelope.head[envelope.head.index(length) + 1 :]
        terms: list[str] = []
        for field in after_length:
            counted -= field.kind.prefix if isinstance(field.kind, Prefixed) else field.size or 0
            if isinstance(field.kind, Prefixed):
                terms.append(f" - len_{ids[field.name]}")
            elif isinstance(field.kind, SizedBy) and field.kind.field not in envelope.added_sizes:
                terms.append(f" - {ids[field.kind.field]}")
        counted -= envelope.tail_size
        number = f" + {counted}" if counted > 0 else f" - {-counted}" if counted else ""
        return value + number + "".join(terms)

    def _body_type(self, type_: KsyType, envelope: EnvelopeSpec) -> list[str]:
        """Return the type of the body, by the opcode and the sender."""
        if envelope.opcode is None and len(self._frames.frames) == 1:
            return [f"type: {self._class(self._frames.frames[0])}"]
        opcode = envelope.opcode
        step = 1 << 8 * (opcode.size or 1) if opcode is not None else 1
        number = type_.id_of[opcode.name] if opcode is not None else "0"
        if opcode is not None and opcode.opcode is not None and opcode.opcode.mask:
            number = f"{number} & {opcode.opcode.mask:#x}"
        if self._has_senders:
            number = f"sender == sender::client ? {number} : ({number}) + {step:#x}"
        members: list[str] = []
        cases: list[str] = []
        names = UniqueNames(*EXPRESSION_WORDS)
        for kind in self._frames.frames:
            for index, sender in enumerate(Sender):
                if kind.sender not in (None, sender) or (index and not self._has_senders):
                    continue
                name = names.add(f"{sender}_{kind.name}" if self._has_senders else kind.name)
                members.append(f"{(kind.opcode or 0) + index * step}: {quote(name)}")
                cases.append(f"frame_kind::{name}: {self._class(kind)}")
        self._enums["frame_kind"] = members
        kind_id = type_.ids.add("frame_kind")
        type_.instances += [f"{kind_id}:", f"  value: {expression(number)}", "  enum: frame_kind"]
        return ["type:", f"  switch-on: {kind_id}", "  cases:", *indent(cases, 2)]

    # ── types

    def _class(self, kind: Any) -> str:
        """Return the type of a described class."""
        if kind in self._of_class:
            return self._of_class[kind]
        name = self._type_names.add(getattr(kind, "name", kind.__name__))
        self._of_class[kind] = name
        self._types[name] = []  # its place is before those of its parts
        type_ = KsyType()
        own = kind.__dict__.get("__doc__")
        type_.doc = inspect.cleandoc(own) if own else ""
        fields: tuple[FieldSpec, ...] = kind.__layout_fields__
        for index, field in enumerate(fields):
            if not has_bytes(field):
                continue
            after = size_after(fields[index + 1 :])
            self._add_field(type_, field, after)
            if is_custom(field) and after is None:
                type_.seq.append("# The fields after it are not shown: where they begin, only the decoder knows.")
                break
        self._types[name] = type_.lines()
        return name

    def _add_field(self, type_: KsyType, field: FieldSpec, after: int | None = 0) -> None:
        """Add a field to a type."""
        if isinstance(field.kind, ChosenBy):
            self._add_forms(type_, field, field.kind, "", after)
            return
        self._add_form(type_, field, field.name, self._condition(type_, field), after)

    def _add_forms(self, type_: KsyType, field: FieldSpec, kind: ChosenBy, outer: str, after: int | None) -> None:
        """Add one field for each form of a choice, of which one is there."""
        number = type_.number(kind.field)
        others = " and ".join(f"{number} != {each}" for each, _ in kind.cases)
        for each, form in forms_of(kind):
            condition = others if each is None else f"{number} == {each}"
            condition = f"{outer} and {condition}" if outer else condition
            if isinstance(form.kind, ChosenBy):
                self._add_forms(type_, field, form.kind, condition, after)
            elif has_bytes(form):
                self._add_form(type_, replace(form, is_secret=field.is_secret), field.name, condition, after)

    def _add_form(self, type_: KsyType, field: FieldSpec, name: str, condition: str, after: int | None) -> None:
        id_ = type_.id_of[name] = type_.ids.add(field.label or name)
        kind = field.kind
        if value_names(field):
            type_.enums.add(id_)
        if isinstance(kind, Prefixed | Counted | SizedNumber) and not field.is_optional:
            many = isinstance(kind, Counted)
            prefix = type_.ids.add(f"{'num' if many else 'len'}_{id_}")
            type_.seq += [f"- id: {quote(prefix)}", f"  type: {self._number(field, kind.prefix, 'u')}"]
            type_.seq += [f"  if: {expression(condition)}"] if condition else []
            type_.seq += [f"- id: {quote(id_)}", *indent(self._after_prefix(type_, id_, field, prefix))]
        elif isinstance(kind, SizedBytes) and not is_custom(field) and not field.is_optional:
            prefix = type_.ids.add(f"len_{id_}")
            type_.seq += [f"- id: {quote(prefix)}", f"  type: {self._varint(VARINT_SIZES[kind.encoding.title])}"]
            type_.seq += [f"- id: {quote(id_)}", *indent(sized(f"{prefix}.value", kind.is_text))]
        else:
            type_.seq += [f"- id: {quote(id_)}", *indent(self._attribute(type_, id_, field, after))]
        if condition:
            type_.seq.append(f"  if: {expression(condition)}")
        doc = field_doc(field)
        if doc:
            type_.seq.append(f"  doc: {quote(doc)}")
        if not field.is_optional:
            for mask, title, bit in bit_names(field):
                flag = type_.ids.add(f"{id_}_{bit}")
                type_.instances += [f"{quote(flag)}:", f"  value: {expression(f'({id_} & {mask:#x}) != 0')}"]
                if title != bit:
                    type_.instances.append(f"  doc: {quote(title)}")

    @staticmethod
    def _condition(type_: KsyType, field: FieldSpec) -> str:
        if field.present_if is not None:
            return f"({type_.number(field.present_if.field)} & {field.present_if.bits:#x}) != 0"
        return "not _io.eof" if field.is_optional else ""

    def _after_prefix(self, type_: KsyType, id_: str, field: FieldSpec, prefix: str) -> list[str]:
        """Return the attributes of what follows a size or a count."""
        if isinstance(field.kind, Counted) and field.kind.item is not None:
            return [*self._attribute(type_, id_, field.kind.item), "repeat: expr", f"repeat-expr: {prefix}"]
        if isinstance(field.kind, SizedNumber):
            return self._sized_number(field, field.kind, prefix)
        is_text = isinstance(field.kind, Prefixed) and field.kind.is_text
        return sized(prefix, is_text)

    def _sized_number(self, field: FieldSpec, kind: SizedNumber, prefix: str) -> list[str]:
        """Return the attributes of a number by its size. One of another size stays bytes."""
        cases: list[str] = []
        letter = "s" if kind.is_signed else "u"
        for size, each in [*((size, letter) for size in kind.integers), *((size, "f") for size in kind.floats)]:
            inner = self._number(field, size, each)
            name = f"sized_{inner}"
            self._types.setdefault(name, ["seq:", "  - id: as_number", f"    type: {inner}"])
            cases.append(f"{size}: {name}")
        return [f"size: {prefix}", "type:", f"  switch-on: {prefix}", "  cases:", *indent(cases, 2)]

    def _varint(self, is_signed: bool) -> str:
        """Return the type of a number of seven bits a byte."""
        name = "zigzag" if is_signed else "varint"
        self._types.setdefault(name, varint_type(is_signed))
        return name

    def _content(self, type_: KsyType, id_: str, contents: list[tuple[Content, Any]]) -> list[str]:
        """Return the attributes of bytes that may contain other frames."""
        chosen = type_.ids.add(f"{id_}_content")
        value = "0"
        cases: list[str] = []
        for number, (content, kind) in reversed(list(enumerate(contents, start=1))):
            bits = [f"({type_.number(each.field)} & {each.mask:#x}) == {each.value:#x}" for each in content.conditions]
            value = f"({' and '.join(bits) or 'true'}) ? {number} : {value}"
            cases.insert(0, f"{number}: {self._class(kind)}")
        type_.instances += [f"{chosen}:", f"  value: {expression(value)}"]
        return ["size-eos: true", "type:", f"  switch-on: {chosen}", "  cases:", *indent(cases, 2)]

    def _attribute(  # noqa: PLR0911, PLR0912 (one for each kind)
        self, type_: KsyType, id_: str, field: FieldSpec, after: int | None = 0
    ) -> list[str]:
        """Return the attributes of a field that needs one id only. `after`: bytes of the fields after it."""
        match field.kind:
            case Number() as number:
                return self._number_attribute(id_, field, number)
            case Bool8():
                return ["type: u1", "valid:", "  max: 1"]
            case Fixed(size=size, is_text=is_text):
                if field.const is not None and isinstance(field.const.value, bytes):
                    return [f"contents: {byte_list(field.const.value)}"]
                return sized(str(size), is_text)
            case Varint(is_signed=is_signed):
                return [f"type: {self._varint(is_signed)}"]
            case SizedBytes() if is_custom(field):
                return unparsed(after)
            case Prefixed() | Counted() | SizedBytes() | SizedNumber():
                return [f"type: {self._prefixed_type(id_, field)}"]
            case Rest() if (contents := content_classes(field)) is not None:
                return self._content(type_, id_, contents)
            case Rest(is_text=is_text):
                return [*(sized("", is_text)), "size-eos: true"]
            case SizedBy(field=size_field, is_text=is_text):
                return sized(type_.id_of[size_field], is_text)
            case Nested(kind=kind):
                return [f"type: {self._class(kind)}"]
            case ShortLength():
                self._types.setdefault("short_length", SHORT_LENGTH)
                least = field.length.at_least if field.length is not None else 0
                return ["type: short_length", *(valid(f"_.value >= {least}") if least else [])]
            case Custom() | ChosenBy() | SizeOf():
                return unparsed(after)

    def _number_attribute(self, id_: str, field: FieldSpec, number: Number) -> list[str]:
        if number.size in _OWN_SIZES and not self._order and not field.has_own_order:
            return [f"size: {number.size}", "doc: A number in the byte order of the frame."]
        if field.const is not None and not self._order and number.size > 1 and not field.has_own_order:
            return [f"type: {self._number(field, number.size, 'u')}", f"valid: {field.const.value!r}"]
        if field.const is not None and isinstance(field.const.value, int):
            return [f"contents: {byte_list(field.const.value.to_bytes(number.size, field.order))}"]
        letter = "f" if number.is_float else "s" if number.is_signed else "u"
        lines = [f"type: {self._number(field, number.size, letter)}"]
        is_own = number.size in _OWN_SIZES and number.is_signed
        named = value_names(field)
        if named and not is_own:
            lines.append(f"enum: {self._enum(id_, field, named)}")
        if field.enum is not None and not is_own:
            lines += ["valid:", "  in-enum: true"]
        elif field.per_frame is not None:
            known = dict.fromkeys(constant_of(field, kind) for kind in self._frames.frames)
            value = "_.to_i" if named else "_"
            lines += valid(" or ".join(f"{value} == {each!r}" for each in known))
        elif field.flags is not None and field.flags.reserved:
            lines += valid(f"(_ & {field.flags.reserved:#x}) == 0")
        elif field.between is not None:
            value = "_.to_i" if named else "_"
            lines += valid(f"{value} >= {field.between.least} and {value} <= {field.between.most}")
        elif field.length is not None and field.length.at_least:
            lines += ["valid:", f"  min: {field.length.at_least}"]
        return lines

    def _number(self, field: FieldSpec, size: int, letter: str) -> str:
        """Return the type of a number. Its byte order is named if it is not that of the envelope."""
        suffix = "le" if field.order == "little" else "be"
        if size in _OWN_SIZES:
            if letter == "u":
                return f"b{8 * size}{suffix}"
            name = f"i{8 * size}{suffix}"
            self._types.setdefault(name, signed_type(size, suffix))
            return name
        is_own = field.order != self._order if self._order else field.has_own_order
        return f"{letter}{size}{suffix if size > 1 and is_own else ''}"

    def _prefixed_type(self, id_: str, field: FieldSpec) -> str:
        """Return a type of a size or count and what follows it, for an item of a list or an optional field."""
        kind, type_ = field.kind, KsyType()
        if isinstance(kind, SizedBytes):
            name = f"{'text' if kind.is_text else 'bytes'}_{kind.encoding.title}"
            type_.seq = ["- id: len_value", f"  type: {self._varint(VARINT_SIZES[kind.encoding.title])}", "- id: value"]
            type_.seq += indent(sized("len_value.value", kind.is_text))
            self._types[name] = type_.lines()
            return name
        if isinstance(kind, SizedNumber):
            name = self._type_names.add(f"{id_}_number")
            type_.seq = ["- id: len_value", f"  type: {self._number(field, kind.prefix, 'u')}", "- id: value"]
            type_.seq += indent(self._sized_number(field, kind, "len_value"))
            self._types[name] = type_.lines()
            return name
        prefix = kind.prefix if isinstance(kind, Prefixed | Counted) else 1
        order = "le" if field.order == "little" and prefix > 1 else ""
        if isinstance(kind, Counted) and kind.item is not None:
            name = self._type_names.add(f"{id_}_list")
            self._types[name] = []
            type_.seq = ["- id: num_items", f"  type: {self._number(field, prefix, 'u')}", "- id: items"]
            type_.seq += indent([*self._attribute(type_, id_, kind.item), "repeat: expr", "repeat-expr: num_items"])
        else:
            is_text = isinstance(kind, Prefixed) and kind.is_text
            name = f"{'text' if is_text else 'bytes'}{8 * prefix}{order}"
            type_.seq = ["- id: len_value", f"  type: {self._number(field, prefix, 'u')}", "- id: value"]
            type_.seq += indent(sized("len_value", is_text))
        self._types[name] = type_.lines()
        return name

    def _enum(self, id_: str, field: FieldSpec, named: dict[int, str]) -> str:
        names = UniqueNames(*EXPRESSION_WORDS)
        members: list[str] = []
        for number, name in named.items():
            member = names.add(name)
            members += [
                f"{number}:",
                f"  id: {quote(member)}",
                *([f"  doc: {quote(name)}"] if member != name else []),
            ]
        for taken, others in self._enums.items():
            if others == members:
                return taken
        found = self._enum_names.add(field.enum.__name__ if field.enum is not None else id_)
        self._enums[found] = members
        return found
