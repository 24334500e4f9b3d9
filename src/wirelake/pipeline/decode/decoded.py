"""What a batch of the log decodes to."""

from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from wirelake.lake import tables

MESSAGES: Final = tables.MESSAGES.schema
QUARANTINE: Final = tables.QUARANTINE.schema
PACKETS: Final = pa.schema(
    [
        ("seq", tables.INT),
        ("at", tables.TIME),
        ("node", tables.TEXT),
        ("session", tables.TEXT),
        ("identity", tables.TEXT),
        ("serial", tables.TEXT),
        ("device_type", pa.uint8()),
        ("direction", tables.TEXT),  # in: from the device; out: to it
        *((flag, tables.FLAG) for flag in ("to_device", "answer", "first", "last", "zlib", "sealed", "receipt")),
        ("command_no", pa.uint8()),
        ("packet_no", pa.uint8()),
        ("data", tables.BYTES),
    ]
)

# The columns of a message that its frame decides; all others it has from its record.
SAID: Final = pa.schema(
    [
        MESSAGES.field(name)
        for name in ("kind", "name", "topic", "service", "op", "correlation", "status", "fields", "payload", "more")
    ]
)


class Decoded(Struct, frozen=True):
    """Three record batches. Every record with event `frame` is in `messages` or in `quarantine`, never in both.

    Rows stand in the order of the log. `payload` is never null; texts are, where there is nothing.
    """

    messages: Any  # pa.RecordBatch, columns MESSAGES
    quarantine: Any  # columns QUARANTINE; also what was refused at the door
    packets: Any  # columns PACKETS: apostol's, to be put together


class Fault(Struct, frozen=True):
    """A frame that cannot be read. `row` counts in the frames that were handed in."""

    row: int
    code: str
    text: str
    offset: int


class Part(Struct, frozen=True):
    """What the frames of one protocol are. `rows` (int64) says which of them were good, `said` what they say."""

    rows: Any
    said: Any  # pa.RecordBatch, SAID
    faults: list[Fault]
