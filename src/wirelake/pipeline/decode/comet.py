"""comet frames, by kernel."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import BYTES, INT, TEXT
from wirelake.message import GATEWAY_SERVICE
from wirelake.pipeline.decode.buffers import bytes_and_offsets, column_of
from wirelake.pipeline.decode.comet_kernels import ERROR, FROM_SERVER, parse_comet
from wirelake.pipeline.decode.decoded import SAID, Part
from wirelake.pipeline.decode.scalar import faults_in_words
from wirelake.protocols.comet.opcodes import ClientType, ServerType
from wirelake.protocols.comet.protocol import PROTOCOL

# By the kernel's number of a type: what all frames of it have in common.
_OPS: Final = ("login", None, "topics", "subscribe", "unsubscribe", "backlog", "ping", "ack", None)
_ANSWERS: Final = ServerType.MESSAGE.value  # the types before it answer something
_NAMES: Final = pa.array([kind.name.lower() for types in (ClientType, ServerType) for kind in types], TEXT)
_KINDS: Final = pa.array(
    [*["control"] * ClientType.REPORT_ENVIRON.value, "event", *["response"] * _ANSWERS, "notification"], TEXT
)
_SERVICES: Final = pa.array([op and GATEWAY_SERVICE for op in _OPS] + [None] * len(ServerType), TEXT)
_OP_NAMES: Final = pa.array([*_OPS, *[None] * len(ServerType)], TEXT)
_STATUSES: Final = pa.array([*[None] * FROM_SERVER, *["ok"] * _ANSWERS, None], TEXT)
_MORE: Final = pa.array([*[None] * FROM_SERVER, *[0] * _ANSWERS, None], INT)


def decode_frames(frames: Any, from_server: Any) -> Part:
    data, offsets = bytes_and_offsets(frames)
    rows, types, text_ends, text, payload_ends, payload, faults = parse_comet(data, offsets, from_server)
    kinds, payloads = pa.array(types), column_of(BYTES, payload_ends, payload)
    statuses = _STATUSES.take(kinds)
    is_error = types == ERROR
    if is_error.any():  # the kernel gives their reasons in the payloads' place
        mask = pa.array(is_error)
        reasons = payloads.filter(mask).cast(TEXT)
        reasons = pc.if_else(pc.equal(reasons, ""), "failed", reasons)
        statuses = pc.replace_with_mask(statuses, mask, reasons)
        payloads = pc.if_else(mask, pa.scalar(b"", BYTES), payloads)
    columns = [
        _KINDS.take(kinds),
        _NAMES.take(kinds),
        pa.nulls(len(rows), TEXT),
        _SERVICES.take(kinds),
        _OP_NAMES.take(kinds),
        pa.nulls(len(rows), TEXT),
        statuses,
        column_of(TEXT, text_ends, text),
        payloads,
        _MORE.take(kinds),
    ]
    said = pa.record_batch(columns, SAID)
    return Part(rows, said, faults_in_words(PROTOCOL, frames, from_server, np.asarray(faults)[:, 0]))
