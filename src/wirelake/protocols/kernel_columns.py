"""Decode columns of described frames with a generated kernel: see `columnar.ColumnDecoder`.

Whatever the kernel does not decode is left to the codec: frames that are not valid, whose error the codec words, and
those with a part or a rule that no kernel can follow.
"""

import logging
from collections.abc import Mapping
from inspect import unwrap
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from wirelake import jit
from wirelake.layout.fields import Number
from wirelake.layout.frame_plans import Constant, FramePlan, JsonMember, Objects, quoted
from wirelake.layout.kernels import FLOATS, PRIMITIVES, KernelModule, generate_kernel
from wirelake.layout.messages import Attribute, MessageRule, NonZero, fields_of, part_kind, spec_of
from wirelake.message import Kind, Op
from wirelake.protocols import registry
from wirelake.protocols.columnar import (
    LOGIN_FIELDS,
    MESSAGE_COLUMNS,
    ColumnDecoder,
    DecodedFrames,
    RefusedFrame,
    bytes_and_offsets,
    column_of,
)
from wirelake.protocols.distinct_frames import decode_distinct
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.redaction import BLANK_TEXT, LOGIN_OPS, SECRET_FIELDS, may_take_frames, takes_frames

_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
NUMBERS: Final = pa.array([str(number) for number in range(256)], _TEXT)
_OWN_COLUMNS: Final = ("fields", "payload")  # of each frame


_log = logging.getLogger(__name__)
_decoders: "dict[str, tuple[Protocol, KernelDecoder | None]]" = {}  # by the protocol's name


class FrameRow(Struct, frozen=True):
    """What a rule makes of the frames of one class: the plan of the kernel, and columns that are always the same."""

    plan: FramePlan
    constants: Mapping[str, Any]
    texts_before: Mapping[str, str] = {}  # texts before the values of columns
    nonzero: frozenset[str] = frozenset()  # columns of numbers in which 0 is none


class KernelRows(Struct, frozen=True):
    """What a kernel found. `rows` are the indices of the frames that it decoded, `others` those of the others."""

    rows: Any
    others: Any
    labels: Any  # of each row, the index of its plan
    fields: Any  # the column `fields`
    columns: Mapping[str, tuple[Any, Any]]  # ends and bytes, or twice the numbers

    def numbers(self, column: str) -> Any:
        return self.columns[column][1]

    def text(self, column: str) -> Any:
        return column_of(_TEXT, *self.columns[column])

    def data(self, column: str) -> Any:
        return column_of(_BYTES, *self.columns[column])


class LoadedKernel:
    """A generated kernel, compiled or loaded from the cache."""

    def __init__(self, name: str, module: KernelModule) -> None:
        self.module = module
        self.parse_frames = jit.load_module(name, module.text, PRIMITIVES, FLOATS).parse_frames

    def run(self, frames: Any, from_server: Any) -> KernelRows:
        """Decode a binary column."""
        data, offsets = bytes_and_offsets(frames)
        rows, others, labels, ends, text, *parts = self.parse_frames(data, offsets, from_server)
        columns = {name: (parts[2 * index], parts[2 * index + 1]) for index, name in enumerate(self.module.columns)}
        return KernelRows(rows, others, labels, column_of(_TEXT, ends, text), columns)


def load_kernel(name: str, module: KernelModule | None) -> LoadedKernel:
    """Load a kernel that there must be."""
    if module is None:
        raise TypeError(f"{name}: no kernel can be generated from its plans")
    return LoadedKernel(name, module)


class KernelDecoder:
    """The column decoder of a described protocol whose messages follow rules."""

    SAMPLES: tuple[bytes, ...] = (b"",)

    def __init__(self, protocol: Protocol, module: KernelModule, rows: Mapping[Any, FrameRow]) -> None:
        self._protocol = protocol
        self.kernel = LoadedKernel(protocol.name, module)
        found = [rows[plan.kind] for plan in module.plans]
        self._constants = {
            field.name: pa.array([each.constants.get(field.name) for each in found], field.type)
            for field in MESSAGE_COLUMNS
            if field.name not in _OWN_COLUMNS
        }
        self._has = {
            column: np.array([column in plan.spans for plan in module.plans], np.bool_) for column in module.columns
        }
        self._texts_before = {
            column: pa.array([each.texts_before.get(column, "") for each in found], _TEXT)
            for column in {name for each in found for name in each.texts_before}
        }
        self._is_nonzero = {
            column: np.array([column in each.nonzero for each in found], np.bool_)
            for column in {name for each in found for name in each.nonzero}
        }

    @property
    def kinds(self) -> tuple[Any, ...]:
        """Return the classes of frames that the kernel decodes."""
        return tuple(dict.fromkeys(plan.kind for plan in self.kernel.module.plans))

    @property
    def source(self) -> str:
        """Return the generated source of the kernel."""
        return self.kernel.module.text

    def decode(self, frames: Any, from_server: Any) -> DecodedFrames:
        """Decode a binary column."""
        found = self.kernel.run(frames, from_server)
        count, indices, columns = len(found.rows), pa.array(found.labels), dict[str, Any]()
        for name, constants in self._constants.items():
            if name in found.columns:
                columns[name] = self._text_column(name, found, constants)
            elif constants.null_count == len(constants):
                columns[name] = pa.nulls(count, constants.type)
            else:
                columns[name] = constants.take(indices)
        columns["fields"] = found.fields
        has_payload = "payload" in found.columns
        columns["payload"] = found.data("payload") if has_payload else pa.repeat(pa.scalar(b"", _BYTES), count)
        messages = pa.record_batch([columns[name] for name in MESSAGE_COLUMNS.names], MESSAGE_COLUMNS)
        decoded = DecodedFrames(found.rows, messages, [])
        if not len(found.others):
            return decoded
        rest = decode_distinct(self._protocol, frames.take(pa.array(found.others)), from_server[found.others])
        return merged(decoded, rest, found.others)

    def _text_column(self, name: str, found: KernelRows, constants: Any) -> Any:
        """Return the texts of a column; where there is none, what is the same for all frames of a class."""
        if name in self.kernel.module.number_sizes:
            numbers = found.numbers(name)
            column = pa.array(numbers)
            texts = NUMBERS.take(column) if self.kernel.module.number_sizes[name] == 1 else column.cast(_TEXT)
            given = self._has[name][found.labels]
            if name in self._is_nonzero:
                given &= (numbers != 0) | ~self._is_nonzero[name][found.labels]
        else:
            ends = found.columns[name][0]
            texts, given = found.text(name), ends[1:] > ends[:-1]
        if name in self._texts_before:
            before = self._texts_before[name].take(pa.array(found.labels))
            texts = pc.binary_join_element_wise(before, texts, "")
            given |= pc.not_equal(before, "").to_numpy(zero_copy_only=False)
        if given.all():
            return texts
        others = constants.take(pa.array(found.labels))
        return pc.if_else(pa.array(given), texts, others) if given.any() else others


def column_decoder(protocol: Protocol) -> ColumnDecoder | None:
    """Return what decodes many frames of a protocol at once: its own module, or a kernel; None if it has neither."""
    if protocol.columns:
        module: ColumnDecoder = registry.load_module(protocol.columns)
        return module
    made = _decoders.get(protocol.name)
    if made is None or made[0] is not protocol:
        made = _decoders[protocol.name] = (protocol, _checked_decoder(protocol))
    return made[1]


def _checked_decoder(protocol: Protocol) -> "KernelDecoder | None":
    """Return a decoder that is compiled. An installed protocol for which that fails is decoded by its codec."""
    try:
        decoder = kernel_decoder(protocol)
        if decoder is not None:
            decoder.decode(pa.array(decoder.SAMPLES, _BYTES), np.zeros(len(decoder.SAMPLES), np.bool_))
    except Exception:
        if protocol.name in registry.BUILT_IN:
            raise
        _log.exception(
            "%s: no kernel can be made from its description; its frames are decoded one by one", protocol.name
        )
        return None
    return decoder


def kernel_decoder(protocol: Protocol) -> KernelDecoder | None:
    """Return the decoder of a protocol; None if it has no rules, or no kernel can follow them.

    A protocol that decodes or translates in a way of its own has none, either: a kernel knows the layout and the rules.
    """
    layout, rules = protocol.layout, protocol.message_rules
    if layout is None or rules is None:
        return None
    if unwrap(protocol.decode) != layout.decode or unwrap(protocol.to_message) != rules.to_message:
        return None
    rows = {}
    for kind in layout.frames:
        rule = rules.rules.get(kind)
        row = None if rule is None else frame_row(protocol, kind, rule)
        if row is not None:
            rows[kind] = row
    kernel = generate_kernel(protocol.name, layout.envelope, [row.plan for row in rows.values()])
    return None if kernel is None else KernelDecoder(protocol, kernel, rows)


# ── from a rule to a row


def frame_row(protocol: Protocol, kind: Any, rule: MessageRule) -> FrameRow | None:
    """Return what `row_of` makes of the messages of a rule; None if a kernel cannot know that."""
    members = None if _may_have_secrets(kind, rule) else _members(protocol, kind, rule)
    if members is None:
        return None
    constants: dict[str, Any] = {"kind": rule.kind.value, "name": rule.name or kind.name or None}
    spans = {"payload": rule.payload, "topic": rule.topic, "correlation": rule.correlation_attribute}
    texts_before = {}
    if _is_login(rule):
        del spans["payload"]
    for column, value in (("service", rule.target_service), ("op", rule.op)):
        if rule.topic:
            continue
        if isinstance(value, Attribute):
            spans[column] = value.name
            if value.before:
                texts_before[column] = value.before
        else:
            constants[column] = str(value) or None
    if rule.failure is not None:
        spans["status"], constants["status"] = rule.failure[0], "failed"
    elif rule.kind is Kind.RESPONSE and not (protocol.reassembly and "packet_no" in fields_of(kind, rule)):
        constants["status"] = "ok"
    if rule.kind is Kind.RESPONSE and "status" in constants:
        constants["more"] = 0
    spans = {name: each for name, each in spans.items() if each}
    nonzero = frozenset({"correlation"} if isinstance(rule.correlation, NonZero) else ())
    return FrameRow(FramePlan(kind, members, spans, conditions=rule.when), constants, texts_before, nonzero)


def _is_login(rule: MessageRule) -> bool:
    return rule.kind is Kind.CONTROL and rule.op == Op.LOGIN


def _may_have_secrets(kind: Any, rule: MessageRule) -> bool:
    """Return whether it differs from frame to frame what `without_secrets` removes."""
    if rule.kind is Kind.RESPONSE or rule.topic:
        return False
    service = rule.target_service
    if isinstance(rule.op, Attribute) and (rule.kind is Kind.CONTROL or not _is_public(kind, rule)):
        return True
    if not rule.payload or _is_login(rule):
        return False
    return may_take_frames(service.before) if isinstance(service, Attribute) else takes_frames(service)


def _is_public(kind: Any, rule: MessageRule) -> bool:
    return not any(name.lower() in SECRET_FIELDS for name in fields_of(kind, rule))


def _members(protocol: Protocol, kind: Any, rule: MessageRule) -> tuple[JsonMember, ...] | None:
    """Return the members of the JSON object in the column `fields`; None if that is not known."""
    code = rule.failure[1] if rule.failure is not None else ""
    given = (("id", rule.id), ("type", rule.type), ("ts", rule.at_ms), ("code", code))
    extra = [JsonMember(key, name, is_sparse=True) for key, name in given if name]
    if rule.id and isinstance(spec_of(kind, rule.id).kind, Number):
        return None
    if rule.parts:
        extra.append(JsonMember("parts", Objects(rule.parts, _part_members(protocol, kind, rule)), is_sparse=True))
    fields = [JsonMember(name, value) for name, value in fields_of(kind, rule).items()]
    if _is_login(rule):
        fields = [member for member in fields if member.key in LOGIN_FIELDS]
    elif rule.kind is not Kind.RESPONSE and (rule.kind is Kind.CONTROL or str(rule.op).lower() in LOGIN_OPS):
        blank = Constant(quoted(BLANK_TEXT))
        fields = [replace(member, value=blank) if member.key.lower() in SECRET_FIELDS else member for member in fields]
    if {member.key for member in extra} & {member.key for member in fields}:
        return None  # the field replaces the other one, in its place
    return (*extra, *fields)


def _part_members(protocol: Protocol, kind: Any, rule: MessageRule) -> tuple[tuple[str, str | Constant], ...]:
    rules = protocol.message_rules
    part = rules.rules[part_kind(kind, rule)] if rules is not None else rule
    given = (("id", part.id, '""'), ("type", part.type, "0"), ("ts", part.at_ms, "0"))
    return tuple((key, name or Constant(default)) for key, name, default in given)


# ── after the kernel


def merged(decoded: DecodedFrames, rest: DecodedFrames, others: Any) -> DecodedFrames:
    """Return the frames of both in order. `others` are the indices of the frames that `rest` was made of."""
    refused = [RefusedFrame(int(others[each.row]), each.code, each.text, each.offset) for each in rest.refused]
    if not len(rest.rows):
        return DecodedFrames(decoded.rows, decoded.messages, refused, decoded.packets)
    rows = np.concatenate([decoded.rows, others[rest.rows]])
    order = pa.array(np.argsort(rows, kind="stable"))
    packets = decoded.packets
    if packets is not None:
        packets = pa.concat_batches([packets, rest.packets]).take(order)
    messages = pa.concat_batches([decoded.messages, rest.messages]).take(order)
    return DecodedFrames(rows[order], messages, refused, packets)
