"""Write a Kaitai Struct specification (.ksy) from the description of a protocol's frames.

The specification reads what one end sends: frames up to the end of the input. What it cannot check: checksums, and that
nothing is left after the last field of a body.
"""

import inspect
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from wirelake.errors import InputError
from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.export.naming import UniqueNames, bit_names, described_in, identifier, size_after, value_names
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
from wirelake.layout.frame_set import FrameSet
from wirelake.layout.sized import SizedNumber, SizeOf
from wirelake.protocols.frame import Sender

_KS_VERSION: Final = "0.11"  # the first with `in-enum`
_OWN_SIZES: Final = (3, 6)  # of numbers that Kaitai has no type for
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ /.-]*")
_EXPRESSION_WORDS: Final = ("true", "false", "and", "or", "not")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_HEAD = """\
# {name} for Kaitai Struct {version} or later.
# Generated from the description in {modules} by
#     wirelake protocol export {name} --format kaitai
# Do not edit it: change the description, and export it again.
"""


def kaitai_struct(frames: FrameSet, title: str) -> str:
    """Return the text of a specification."""
    return _Specification(frames, title).text()


class _Type:
    """A type of the specification, while it is written."""

    def __init__(self) -> None:
        self.doc = ""
        self.meta: list[str] = []
        self.params: list[str] = []
        self.seq: list[str] = []
        self.instances: list[str] = []
        self.ids = UniqueNames(*_EXPRESSION_WORDS)
        self.id_of: dict[str, str] = {}  # by the name of a field

    def lines(self) -> list[str]:
        lines = [f"doc: {_quote(self.doc)}"] if self.doc else []
        for title, part in (
            ("meta", self.meta),
            ("params", self.params),
            ("seq", self.seq),
            ("instances", self.instances),
        ):
            if part:
                lines += [f"{title}:", *_indent(part)]
        return lines or ["seq: []"]


class _Specification:
    """Collect the types and enums. A class of frames, or of parts of frames, is a type."""

    def __init__(self, frames: FrameSet, title: str) -> None:
        self._frames = frames
        self._title = title
        self._order = "" if frames.envelope.order_shown_by else frames.envelope.order
        self._types: dict[str, list[str]] = {}
        self._type_names = UniqueNames("frame", "ordered_frame", *_EXPRESSION_WORDS)
        self._of_class: dict[type, str] = {}
        self._enums: dict[str, list[str]] = {}
        self._enum_names = UniqueNames("sender", "frame_kind", *_EXPRESSION_WORDS)
        self._has_senders = any(kind.sender is not None for kind in frames.frames)

    def text(self) -> str:
        frame = self._frame(self._frames.envelope)
        if self._has_senders:
            self._enums["sender"] = ["0: client", "1: server"]
        head = _HEAD.format(
            name=self._frames.name, version=_KS_VERSION, modules=described_in(self._frames.frames)
        ).splitlines()
        endian = "le" if self._frames.envelope.order == "little" else "be"
        meta = [f"id: {identifier(self._frames.name)}", f"title: {_quote(self._title)}"]
        meta += [f'ks-version: "{_KS_VERSION}"', f"endian: {endian}"]
        lines = [*head, "meta:", *_indent(meta)]
        argument = ""
        if self._has_senders:
            lines += ["doc: What one end of a connection sends.", "params:", *_indent(_SENDER)]
            argument = "(sender)"
        name = "frame" if self._order else "ordered_frame"
        lines += ["seq:", "  - id: frames", f"    type: {name}{argument}", "    repeat: eos"]
        types = [line for name, part in self._types.items() for line in (f"{_quote(name)}:", *_indent(part))]
        lines += ["types:", "  frame:", *_indent(frame, 2)]
        if self._order:
            lines += _indent(types)
        else:  # inside the frame, whose byte order they have
            lines += ["    types:", *_indent(types, 3)] if types else []
            lines += ["  ordered_frame:", *_indent(self._ordered_frame(self._frames.envelope, argument), 2)]
        if self._enums:
            lines.append("enums:")
        for name, members in self._enums.items():
            lines += [f"  {_quote(name)}:", *_indent(members, 2)]
        return "\n".join(lines) + "\n"

    # ── the frame around the body

    def _frame(self, envelope: EnvelopeSpec) -> list[str]:
        type_ = _Type()
        if self._has_senders:
            type_.params += _SENDER
            type_.ids.add("sender")
        if envelope.order_shown_by:
            type_.meta = self._order_cases(envelope)
        for field in envelope.head:
            self._add_field(type_, field)
        body = ["- id: " + type_.ids.add("body")]
        size = self._body_size(envelope, type_.id_of)
        if size:
            body.append(f"  size: {_expression(size)}")
        body += [f"  {line}" for line in self._body_type(type_, envelope)]
        type_.seq += body
        for field in envelope.tail:
            self._add_field(type_, field)
        return type_.lines()

    def _ordered_frame(self, envelope: EnvelopeSpec, argument: str) -> list[str]:
        """Return the type around a frame that finds out its byte order, which one of its fields shows."""
        field = next(each for each in envelope.head if each.name == envelope.order_shown_by)
        type_ = _Type()
        type_.doc = f"Finds out the byte order of the frame: that in which {field.name} is a known number."
        type_.params = _SENDER if argument else []
        type_.seq = ["- id: frame", f"  type: frame{argument}"]
        place = envelope.before(field.name) or 0
        type_.instances = ["shown_order:", f"  pos: {_expression(f'_io.pos + {place}')}", f"  type: u{field.size}be"]
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

    def _body_type(self, type_: _Type, envelope: EnvelopeSpec) -> list[str]:
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
        names = UniqueNames(*_EXPRESSION_WORDS)
        for kind in self._frames.frames:
            for index, sender in enumerate(Sender):
                if kind.sender not in (None, sender) or (index and not self._has_senders):
                    continue
                name = names.add(f"{sender}_{kind.name}" if self._has_senders else kind.name)
                members.append(f"{(kind.opcode or 0) + index * step}: {_quote(name)}")
                cases.append(f"frame_kind::{name}: {self._class(kind)}")
        self._enums["frame_kind"] = members
        kind_id = type_.ids.add("frame_kind")
        type_.instances += [f"{kind_id}:", f"  value: {_expression(number)}", "  enum: frame_kind"]
        return ["type:", f"  switch-on: {kind_id}", "  cases:", *_indent(cases, 2)]

    # ── types

    def _class(self, kind: Any) -> str:
        """Return the type of a described class."""
        if kind in self._of_class:
            return self._of_class[kind]
        name = self._type_names.add(getattr(kind, "name", kind.__name__))
        self._of_class[kind] = name
        self._types[name] = []  # its place is before those of its parts
        type_ = _Type()
        own = kind.__dict__.get("__doc__")
        type_.doc = inspect.cleandoc(own) if own else ""
        fields = tuple(field for field in kind.__layout_fields__ if field.size != 0)
        for index, field in enumerate(fields):
            after = size_after(fields[index + 1 :])
            self._add_field(type_, field, after)
            if isinstance(field.kind, Custom) and after is None:
                type_.seq.append("# The fields after it are not shown: where they begin, only the decoder knows.")
                break
        self._types[name] = type_.lines()
        return name

    def _add_field(self, type_: _Type, field: FieldSpec, after: int | None = 0) -> None:
        """Add a field to a type."""
        id_ = type_.id_of[field.name] = type_.ids.add(field.name)
        condition = self._condition(type_, field)
        kind = field.kind
        if isinstance(kind, Prefixed | Counted) and not field.is_optional:
            many = isinstance(kind, Counted)
            prefix = type_.ids.add(f"{'num' if many else 'len'}_{id_}")
            type_.seq += [f"- id: {_quote(prefix)}", f"  type: {self._number(field, kind.prefix, 'u')}"]
            type_.seq += [f"- id: {_quote(id_)}", *_indent(self._after_prefix(type_, id_, field, prefix))]
        else:
            type_.seq += [f"- id: {_quote(id_)}", *_indent(self._attribute(type_, id_, field, after))]
        if condition:
            type_.seq.append(f"  if: {_expression(condition)}")
        doc = _doc(field)
        if doc:
            type_.seq.append(f"  doc: {_quote(doc)}")
        if not field.is_optional:
            for mask, name, bit in bit_names(field):
                flag = type_.ids.add(f"{id_}_{bit}")
                type_.instances += [f"{_quote(flag)}:", f"  value: {_expression(f'({id_} & {mask:#x}) != 0')}"]
                if name != bit:
                    type_.instances.append(f"  doc: {_quote(name)}")

    @staticmethod
    def _condition(type_: _Type, field: FieldSpec) -> str:
        if field.present_if is not None:
            return f"({type_.id_of[field.present_if.field]} & {field.present_if.bits:#x}) != 0"
        return "not _io.eof" if field.is_optional else ""

    def _after_prefix(self, type_: _Type, id_: str, field: FieldSpec, prefix: str) -> list[str]:
        """Return the attributes of what follows a size or a count."""
        if isinstance(field.kind, Counted) and field.kind.item is not None:
            return [*self._attribute(type_, id_, field.kind.item), "repeat: expr", f"repeat-expr: {prefix}"]
        is_text = isinstance(field.kind, Prefixed) and field.kind.is_text
        return _sized(prefix, is_text)

    def _attribute(  # noqa: PLR0911 (one for each kind)
        self, type_: _Type, id_: str, field: FieldSpec, after: int | None = 0
    ) -> list[str]:
        """Return the attributes of a field that needs one id only. `after`: bytes of the fields after it."""
        match field.kind:
            case Number() as number:
                return self._number_attribute(id_, field, number)
            case Bool8():
                return ["type: u1", "valid:", "  max: 1"]
            case Fixed(size=size, is_text=is_text):
                if field.const is not None and isinstance(field.const.value, bytes):
                    return [f"contents: {_byte_list(field.const.value)}"]
                return _sized(str(size), is_text)
            case Prefixed() | Counted():
                return [f"type: {self._prefixed_type(id_, field)}"]
            case Rest(is_text=is_text):
                return [*(_sized("", is_text)), "size-eos: true"]
            case SizedBytes() | Varint():
                raise InputError(f"{field.name}: a {type(field.kind).__name__} cannot be exported yet")
            case SizedBy(field=size_field, is_text=is_text):
                return _sized(type_.id_of[size_field], is_text)
            case SizedNumber() | SizeOf() | ChosenBy():
                raise InputError(f"{field.name}: a field whose form depends on another one cannot be exported yet")
            case Nested(kind=kind):
                return [f"type: {self._class(kind)}"]
            case ShortLength():
                self._types.setdefault("short_length", _SHORT_LENGTH)
                least = field.length.at_least if field.length is not None else 0
                return ["type: short_length", *(_valid(f"_.value >= {least}") if least else [])]
            case Custom():
                return [f"size: {_expression(f'_io.size - _io.pos - {after}')}"] if after else ["size-eos: true"]

    def _number_attribute(self, id_: str, field: FieldSpec, number: Number) -> list[str]:
        if number.size in _OWN_SIZES and not self._order and not field.has_own_order:
            return [f"size: {number.size}", "doc: A number in the byte order of the frame."]
        if field.const is not None and not self._order and number.size > 1 and not field.has_own_order:
            return [f"type: {self._number(field, number.size, 'u')}", f"valid: {field.const.value!r}"]
        if field.const is not None and isinstance(field.const.value, int):
            return [f"contents: {_byte_list(field.const.value.to_bytes(number.size, field.order))}"]
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
            lines += _valid(" or ".join(f"{value} == {each!r}" for each in known))
        elif field.flags is not None and field.flags.reserved:
            lines += _valid(f"(_ & {field.flags.reserved:#x}) == 0")
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
            self._types.setdefault(name, _signed_type(size, suffix))
            return name
        is_own = field.order != self._order if self._order else field.has_own_order
        return f"{letter}{size}{suffix if size > 1 and is_own else ''}"

    def _prefixed_type(self, id_: str, field: FieldSpec) -> str:
        """Return a type of a size or count and what follows it, for an item of a list or an optional field."""
        kind, type_ = field.kind, _Type()
        prefix = kind.prefix if isinstance(kind, Prefixed | Counted) else 1
        order = "le" if field.order == "little" and prefix > 1 else ""
        if isinstance(kind, Counted) and kind.item is not None:
            name = self._type_names.add(f"{id_}_list")
            self._types[name] = []
            type_.seq = ["- id: num_items", f"  type: {self._number(field, prefix, 'u')}", "- id: items"]
            type_.seq += _indent([*self._attribute(type_, id_, kind.item), "repeat: expr", "repeat-expr: num_items"])
        else:
            is_text = isinstance(kind, Prefixed) and kind.is_text
            name = f"{'text' if is_text else 'bytes'}{8 * prefix}{order}"
            type_.seq = ["- id: len_value", f"  type: {self._number(field, prefix, 'u')}", "- id: value"]
            type_.seq += _indent(_sized("len_value", is_text))
        self._types[name] = type_.lines()
        return name

    def _enum(self, id_: str, field: FieldSpec, named: dict[int, str]) -> str:
        names = UniqueNames(*_EXPRESSION_WORDS)
        members: list[str] = []
        for number, name in named.items():
            member = names.add(name)
            members += [
                f"{number}:",
                f"  id: {_quote(member)}",
                *([f"  doc: {_quote(name)}"] if member != name else []),
            ]
        for taken, others in self._enums.items():
            if others == members:
                return taken
        found = self._enum_names.add(field.enum.__name__ if field.enum is not None else id_)
        self._enums[found] = members
        return found


_SENDER: Final = ["- id: sender", "  type: u1", "  enum: sender"]
_SHORT_LENGTH: Final = [
    "doc: A length of one byte up to 127; above, of two.",
    "seq:",
    "  - id: low",
    "    type: u1",
    "  - id: high",
    "    type: u1",
    "    if: low > 0x7f",
    "instances:",
    "  value:",
    '    value: "low > 0x7f ? (low & 0x7f) | (high << 7) : low"',
]


def _signed_type(size: int, suffix: str) -> list[str]:
    top = 1 << 8 * size - 1
    return [
        "seq:",
        "  - id: bits",
        f"    type: b{8 * size}{suffix}",
        "instances:",
        "  value:",
        f'    value: "bits >= {top:#x} ? bits - {2 * top:#x} : bits"',
    ]


def _sized(size: str, is_text: bool) -> list[str]:
    lines = [f"size: {size}"] if size else []
    return [*lines, "type: str", "encoding: UTF-8"] if is_text else lines


def _valid(expression: str) -> list[str]:
    return ["valid:", f"  expr: {_expression(expression)}"]


def _byte_list(value: bytes) -> str:
    return f"[{', '.join(f'{byte:#04x}' for byte in value)}]"


def _doc(field: FieldSpec) -> str:
    """Return what is known about a field that its type does not say."""
    parts: list[str] = []
    if field.is_secret:
        parts.append("Secret.")
    if field.scale is not None:
        parts.append(f"Times {field.scale.factor:g} {field.scale.unit}.")
    if field.checksum is not None:
        over = f" over {field.checksum.over}" if field.checksum.over else ""
        parts.append(f"{field.checksum.title}{over}. It is not verified here.")
    if isinstance(field.kind, Custom):
        parts.append(f"{field.kind.title}: read by the decoder's own code, here as bytes.")
    return " ".join(parts)


def _expression(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quote(text)


def _quote(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS else json.dumps(text, ensure_ascii=False)


def _indent(lines: Sequence[str], times: int = 1) -> list[str]:
    return [f"{'  ' * times}{line}" for line in lines]
