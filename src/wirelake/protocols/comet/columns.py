"""Decode comet frames by kernel: see `columnar.ColumnDecoder`."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.message import GATEWAY_SERVICE
from wirelake.protocols.columnar import (
    MESSAGE_COLUMNS,
    DecodedFrames,
    bytes_and_offsets,
    column_of,
    explain_refusals,
)
from wirelake.protocols.comet.constants import ClientType, ServerType
from wirelake.protocols.comet.frames import Heartbeat
from wirelake.protocols.comet.kernels import ERROR, FROM_SERVER, parse_frames
from wirelake.protocols.comet.protocol import PROTOCOL

SAMPLES: Final = (Heartbeat().encode(), b"")
_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
# By the kernel's number of a type: what all frames of the type have in common.
_OPS: Final = ("login", None, "topics", "subscribe", "unsubscribe", "backlog", "ping", "ack", None)
_RESPONSES: Final = ServerType.MESSAGE.value  # the types before it are responses
_NAMES: Final = pa.array([kind.name.lower() for types in (ClientType, ServerType) for kind in types], _TEXT)
_KINDS: Final = pa.array(
    [*["control"] * ClientType.REPORT_ENVIRON.value, "event", *["response"] * _RESPONSES, "notification"], _TEXT
)
_SERVICES: Final = pa.array([op and GATEWAY_SERVICE for op in _OPS] + [None] * len(ServerType), _TEXT)
_OP_NAMES: Final = pa.array([*_OPS, *[None] * len(ServerType)], _TEXT)
_STATUSES: Final = pa.array([*[None] * FROM_SERVER, *["ok"] * _RESPONSES, None], _TEXT)
_MORE: Final = pa.array([*[None] * FROM_SERVER, *[0] * _RESPONSES, None], pa.int64())


def decode(frames: Any, from_server: Any) -> DecodedFrames:
    """Decode a binary column of frames."""
    data, offsets = bytes_and_offsets(frames)
    rows, types, text_ends, text, payload_ends, payload, faults = parse_frames(data, offsets, from_server)
    kinds, payloads = pa.array(types), column_of(_BYTES, payload_ends, payload)
    statuses = _STATUSES.take(kinds)
    is_error = types == ERROR
    if is_error.any():  # the kernel returns their reasons in place of payloads
        mask = pa.array(is_error)
        reasons = payloads.filter(mask).cast(_TEXT)
        reasons = pc.if_else(pc.equal(reasons, ""), "failed", reasons)
        statuses = pc.replace_with_mask(statuses, mask, reasons)
        payloads = pc.if_else(mask, pa.scalar(b"", _BYTES), payloads)
    columns = [
        _KINDS.take(kinds),
        _NAMES.take(kinds),
        pa.nulls(len(rows), _TEXT),
        _SERVICES.take(kinds),
        _OP_NAMES.take(kinds),
        pa.nulls(len(rows), _TEXT),
        statuses,
        column_of(_TEXT, text_ends, text),
        payloads,
        _MORE.take(kinds),
    ]
    messages = pa.record_batch(columns, MESSAGE_COLUMNS)
    return DecodedFrames(rows, messages, explain_refusals(PROTOCOL, frames, from_server, np.asarray(faults)[:, 0]))
