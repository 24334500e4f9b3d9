"""Decode columns of apostol packets: see `columnar.ColumnDecoder`.

The kernels are generated from the descriptions of packets and commands. The plans below say what becomes of their
fields, as `translation.to_message` does for one packet. A command that is malformed is left to the codec.
"""

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from wirelake.layout import Bit
from wirelake.layout.frame_plans import ContentPlan, Forms, FramePlan, JsonMember, NumberColumn
from wirelake.layout.kernels import generate_kernel
from wirelake.layout.messages import spec_of
from wirelake.message import BROADCAST_DEVICE_TYPE, Kind
from wirelake.protocols.apostol.commands import DeviceCommand, ServerCommand
from wirelake.protocols.apostol.constants import (
    ANSWER,
    FIRST,
    LAST,
    RECEIPT,
    SEALED,
    TO_DEVICE,
    ZIPPED,
)
from wirelake.protocols.apostol.frames import FRAMES, Packet, Receipt
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.translation import failure_of
from wirelake.protocols.columnar import MESSAGE_COLUMNS, PACKET_COLUMNS, DecodedFrames, decode_each, flags
from wirelake.protocols.kernel_columns import NUMBERS, KernelRows, LoadedKernel, load_kernel, merged

SAMPLES: Final = (b"",)
_TEXT: Final = pa.string()
_KINDS: Final = (Kind.TELEMETRY, Kind.RESPONSE, Kind.REQUEST, Kind.EVENT, Kind.CONTROL)
_KIND_NAMES: Final = pa.array([kind.value for kind in _KINDS], _TEXT)
_NAMES: Final = pa.array([Packet.name, Receipt.name], _TEXT)  # by label
_OK: Final = 1  # numbers of statuses: 0 is none, and a device's error is added to _FAILED
_FAILED: Final = 2
_STATUSES: Final = pa.array([None, "ok", *(failure_of(error).text for error in range(256))], _TEXT)

# What a kernel returns of every packet, by attribute; and expressions of its variables.
_ATTRIBUTES: Final = ("params", "device_type", "serial", "command_no", "packet_no", "data")
_SPANS: Final = {name: name for name in _ATTRIBUTES}
_OUTER_SPANS: Final = {name: f".{name}" for name in _ATTRIBUTES}  # of a command: those of its packet
_IS_ANSWER: Final = f"params_value & {ANSWER:#x}"
_ERROR: Final = "devicecommand__error_value"


def _kind(kind: Kind) -> str:
    return str(_KINDS.index(kind))


_KIND: Final = NumberColumn(
    f"{_kind(Kind.RESPONSE)} if {_IS_ANSWER}"
    f" else {_kind(Kind.TELEMETRY)} if not params_value & {TO_DEVICE:#x}"
    f" else {_kind(Kind.EVENT)} if device_type_value == {BROADCAST_DEVICE_TYPE} and serial_to == serial_from"
    f" else {_kind(Kind.REQUEST)}",
    size=1,
)
_CONTROL: Final = NumberColumn(_kind(Kind.CONTROL), size=1)
_DEVICE_STATUS: Final = NumberColumn(f"({_FAILED} + {_ERROR} if {_ERROR} else {_OK}) if {_IS_ANSWER} else 0", size=2)
_SERVER_STATUS: Final = NumberColumn(f"{_OK} if {_IS_ANSWER} else 0", size=2)
_COMMAND_PLANS: Final = (
    FramePlan(
        DeviceCommand,
        (
            JsonMember("code", "error", is_sparse=True, condition=f"{_IS_ANSWER} and {_ERROR}"),
            JsonMember("command_type", "command_type"),
            JsonMember("error", "error"),
            JsonMember("device_time", "time"),
            JsonMember("data", Forms("data", ("status", "readings", "", ""))),
        ),
        {**_OUTER_SPANS, "payload": "data"},
        {"kind": _KIND, "status": _DEVICE_STATUS},
    ),
    FramePlan(
        ServerCommand,
        (JsonMember("command_type", "command_type"),),
        {**_OUTER_SPANS, "payload": "data"},
        {"kind": _KIND, "status": _SERVER_STATUS},
    ),
)


def _contents() -> tuple[ContentPlan, ...]:
    """Return the plans of the commands that packets hold, with the conditions of their description."""
    held = spec_of(Packet, "data").contains
    contents = held.contents if held is not None else ()
    plans = {plan.kind.sender: plan for plan in _COMMAND_PLANS}
    return tuple(ContentPlan("data", content.conditions, plans[content.sender]) for content in contents)


_MESSAGE_PLANS: Final = (
    FramePlan(
        Packet,
        (
            JsonMember("packet_no", "packet_no"),
            JsonMember("first", Bit("params", FIRST)),
            JsonMember("last", Bit("params", LAST)),
        ),
        {**_SPANS, "payload": "data"},
        {"kind": _KIND},
        _contents(),
    ),
    FramePlan(Receipt, (JsonMember("packet_no", "packet_no"),), _SPANS, {"kind": _CONTROL}),
)
_PACKET_PLANS: Final = tuple(FramePlan(kind, (), _SPANS, has_json=False) for kind in FRAMES.frames)


@cache
def message_kernel() -> LoadedKernel:
    """Return the kernel for messages and packets."""
    return load_kernel(PROTOCOL.name, generate_kernel(PROTOCOL.name, FRAMES.envelope, _MESSAGE_PLANS))


@cache
def packet_kernel() -> LoadedKernel:
    """Return the kernel for packets alone, which is faster."""
    return load_kernel(f"{PROTOCOL.name}_packets", generate_kernel(PROTOCOL.name, FRAMES.envelope, _PACKET_PLANS))


def parse_packets(frames: Any) -> tuple[Any, Any]:
    """Return the indices of the packets that are valid, and their PACKET_COLUMNS."""
    found = packet_kernel().run(frames, np.zeros(len(frames), np.bool_))
    return found.rows, _packets(found)


def decode(frames: Any, _from_server: Any = None) -> DecodedFrames:
    """Decode a binary column. The direction is in the packets themselves."""
    from_server = np.zeros(len(frames), np.bool_)
    found = message_kernel().run(frames, from_server)
    decoded = DecodedFrames(found.rows, _messages(found), [], _packets(found))
    if not len(found.others):
        return decoded
    others = frames.take(pa.array(found.others))
    _, packets = parse_packets(others)  # the commands of some are malformed, but the packets are not
    rest = replace(decode_each(PROTOCOL, others, from_server[found.others]), packets=packets)
    return merged(decoded, rest, found.others)


def _packets(found: KernelRows) -> Any:
    params = found.numbers("params")
    columns = [
        found.text("serial"),
        pa.array(found.numbers("device_type")),
        *(flags(params & bit) for bit in (TO_DEVICE, ANSWER, FIRST, LAST, ZIPPED, SEALED, RECEIPT)),
        pa.array(found.numbers("command_no")),
        pa.array(found.numbers("packet_no")),
        found.data("data"),
    ]
    return pa.record_batch(columns, PACKET_COLUMNS)


def _messages(found: KernelRows) -> Any:
    nulls, statuses = pa.nulls(len(found.rows), _TEXT), found.numbers("status")
    columns = [
        _KIND_NAMES.take(pa.array(found.numbers("kind"))),
        _NAMES.take(pa.array(found.labels)),
        nulls,
        nulls,
        nulls,
        NUMBERS.take(pa.array(found.numbers("command_no"))),
        _STATUSES.take(pa.array(statuses)),
        found.fields,
        found.data("payload"),
        pa.array(np.zeros(len(statuses), np.int64), mask=statuses == 0),  # a response is one command, complete
    ]
    return pa.record_batch(columns, MESSAGE_COLUMNS)
