"""What a batch of the log becomes."""

from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from wirelake.lake import tables

MESSAGES: Final = tables.MESSAGES.schema
QUARANTINE: Final = tables.QUARANTINE.schema
PACKETS: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("at", tables.TIME),
        ("node", pa.string()),
        ("session", pa.string()),
        ("identity", pa.string()),
        ("serial", pa.string()),
        ("device_type", pa.uint8()),
        ("direction", pa.string()),
        *((flag, pa.bool_()) for flag in ("to_device", "answer", "first", "last", "zlib", "sealed", "receipt")),
        ("command_no", pa.uint8()),
        ("packet_no", pa.uint8()),
        ("data", pa.binary()),
    ]
)


class Decoded(Struct, frozen=True):
    """Three record batches. Every record with event `frame` is in `messages` or in `quarantine`, never in both."""

    messages: Any  # pa.RecordBatch, columns MESSAGES
    quarantine: Any  # columns QUARANTINE; also what was refused at the door
    packets: Any  # columns PACKETS: apostol's, to be put together
