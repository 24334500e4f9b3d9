"""Decode columns of described frames with a generated kernel: see `columnar.ColumnDecoder`.

Whatever the kernel does not decode is left to the codec: frames that are not valid, whose error the codec words, and
those with a part or a rule that no kernel can follow.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from wirelake import jit
from wirelake.layout.fields import Number
from wirelake.layout.frame_kernels import FORM_F32, FORM_SCALES
from wirelake.layout.frame_plans import Constant, FramePlan, JsonMember, Objects, quoted
from wirelake.layout.kernels import PRIMITIVES, KernelModule, generate_kernel
from wirelake.layout.messages import Attribute, MessageRule, fields_of, part_kind, spec_of
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
    decode_each,
)
from wirelake.protocols.kernel_primitives import insert_texts
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.redaction import BLANK_TEXT, LOGIN_OPS, SECRET_FIELDS, takes_frames

_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
_NUMBERS: Final = pa.array([str(number) for number in range(256)], _TEXT)
_OWN_COLUMNS: Final = ("fields", "payload")  # of each frame


_log = logging.getLogger(__name__)
_decoders: "dict[str, tuple[Protocol, KernelDecoder | None]]" = {}  # by the protocol's name


class FrameRow(Struct, frozen=True):
    """What a rule makes of the frames of one class: the plan of the kernel, and columns that are always the same."""

    plan: FramePlan
    constants: Mapping[str, Any]


class KernelDecoder:
    """The column decoder of a described protocol whose messages follow rules."""

    SAMPLES: tuple[bytes, ...] = (b"",)

    def __init__(self, protocol: Protocol, kernel: KernelModule, rows: Mapping[Any, FrameRow]) -> None:
        self._protocol = protocol
        self._module = kernel
        self.kernel = jit.load_module(protocol.name, kernel.text, PRIMITIVES).parse_frames
        found = [rows[plan.kind].constants for plan in kernel.plans]
        self._constants = {
            field.name: pa.array([each.get(field.name) for each in found], field.type)
            for field in MESSAGE_COLUMNS
            if field.name not in _OWN_COLUMNS
        }
        self._has = {
            column: np.array([column in plan.spans for plan in kernel.plans], np.bool_) for column in kernel.columns
        }

    @property
    def kinds(self) -> tuple[Any, ...]:
        """Return the classes of frames that the kernel decodes."""
        return tuple(plan.kind for plan in self._module.plans)

    @property
    def source(self) -> str:
        """Return the generated source of the kernel."""
        return self._module.text

    def undecoded(self, frames: Any, from_server: Any) -> Any:
        """Return the indices of the frames that the kernel leaves to the codec."""
        return self.kernel(*bytes_and_offsets(frames), from_server)[1]

    def decode(self, frames: Any, from_server: Any) -> DecodedFrames:
        """Decode a binary column."""
        data, offsets = bytes_and_offsets(frames)
        rows, others, labels, text_ends, text, floats, *parts = self.kernel(data, offsets, from_server)
        if self._module.has_floats and (len(floats) or not len(rows)):  # without rows, to compile what inserts them
            text = _with_floats(text, text_ends, floats, self._module.scales)
        found = {column: parts[2 * index : 2 * index + 2] for index, column in enumerate(self._module.columns)}
        indices, columns = pa.array(labels), dict[str, Any]()
        for name, constants in self._constants.items():
            if name in found:
                columns[name] = self._text_column(name, labels, found[name], constants)
            elif constants.null_count == len(constants):
                columns[name] = pa.nulls(len(rows), constants.type)
            else:
                columns[name] = constants.take(indices)
        columns["fields"] = column_of(_TEXT, text_ends, text)
        columns["payload"] = column_of(_BYTES, *found.get("payload", (np.zeros(len(rows) + 1, np.int32), b"")))
        messages = pa.record_batch([columns[name] for name in MESSAGE_COLUMNS.names], MESSAGE_COLUMNS)
        if not len(others):
            return DecodedFrames(rows, messages, [])
        rest = decode_each(self._protocol, frames.take(pa.array(others)), from_server[others])
        return _merged(DecodedFrames(rows, messages, []), rest, others)

    def _text_column(self, name: str, labels: Any, found: Any, constants: Any) -> Any:
        """Return the texts of a column; where there is none, what is the same for all frames of a class."""
        ends, values = found
        if name in self._module.number_sizes:
            numbers = pa.array(values)
            texts = _NUMBERS.take(numbers) if self._module.number_sizes[name] == 1 else numbers.cast(_TEXT)
            given = self._has[name][labels]
        else:
            texts, given = column_of(_TEXT, ends, values), ends[1:] > ends[:-1]
        if given.all():
            return texts
        others = constants.take(pa.array(labels))
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
    """Return the decoder of a protocol; None if it has no rules, or no kernel can follow them."""
    layout, rules = protocol.layout, protocol.message_rules
    if layout is None or rules is None:
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
    spans = {"payload": rule.payload, "topic": rule.topic, "correlation": rule.correlation}
    if _is_login(rule):
        del spans["payload"]
    for column, value in (("service", rule.target_service), ("op", rule.op)):
        if rule.topic:
            continue
        if isinstance(value, Attribute):
            spans[column] = value.name
        else:
            constants[column] = str(value) or None
    if rule.failure is not None:
        spans["status"], constants["status"] = rule.failure[0], "failed"
    elif rule.kind is Kind.RESPONSE and not (protocol.reassembly and "packet_no" in fields_of(kind, rule)):
        constants["status"] = "ok"
    if rule.kind is Kind.RESPONSE and "status" in constants:
        constants["more"] = 0
    return FrameRow(FramePlan(kind, members, {name: each for name, each in spans.items() if each}), constants)


def _is_login(rule: MessageRule) -> bool:
    return rule.kind is Kind.CONTROL and rule.op == Op.LOGIN


def _may_have_secrets(kind: Any, rule: MessageRule) -> bool:
    """Return whether it differs from frame to frame what `without_secrets` removes."""
    if rule.kind is Kind.RESPONSE or rule.topic:
        return False
    service = rule.target_service
    if isinstance(rule.op, Attribute) and (rule.kind is Kind.CONTROL or not _is_public(kind, rule)):
        return True
    return bool(rule.payload) and not _is_login(rule) and (isinstance(service, Attribute) or takes_frames(service))


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


def _with_floats(text: Any, ends: Any, floats: Any, scales: tuple[tuple[str, float], ...]) -> Any:
    """Return the text with the floats, which only Python's own encoder writes as it does."""
    places, bits, forms = (np.ascontiguousarray(floats[:, index]) for index in range(3))
    values = bits.view(np.float64).copy()
    is_short = forms == FORM_F32
    values[is_short] = bits[is_short].astype(np.uint32).view(np.float32)
    for index, (sign, number) in enumerate(scales):
        chosen = forms == FORM_SCALES + index
        values[chosen] = bits[chosen] / number if sign == "/" else bits[chosen] * number
    pieces = np.frombuffer(msgspec.json.encode(values.tolist()), np.uint8)[1:-1]
    commas = np.flatnonzero(pieces == ord(","))
    piece_ends = np.concatenate([[0], commas - np.arange(len(commas)), [len(pieces) - len(commas)]])
    return insert_texts(text, ends, places, piece_ends, pieces[pieces != ord(",")])


def _merged(decoded: DecodedFrames, rest: DecodedFrames, others: Any) -> DecodedFrames:
    """Return the frames of both in order. `others` are the indices of the frames that `rest` was made of."""
    refused = [RefusedFrame(int(others[each.row]), each.code, each.text, each.offset) for each in rest.refused]
    if not len(rest.rows):
        return DecodedFrames(decoded.rows, decoded.messages, refused, decoded.packets)
    rows = np.concatenate([decoded.rows, others[rest.rows]])
    order = np.argsort(rows, kind="stable")
    messages = pa.concat_batches([decoded.messages, rest.messages]).take(pa.array(order))
    return DecodedFrames(rows[order], messages, refused, decoded.packets)
