"""Take the readings of many telemetry messages, as columns: see `readings` for what a reading is."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.message import Kind, Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.readings import readings_of

_TEXT: Final = pa.string()
# One row for each reading. `row` is the index of its frame; `source` is null if the message names no device.
READING_COLUMNS: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("source", _TEXT),
        ("device_time", pa.timestamp("us", "UTC")),
        ("type", pa.int64()),
        ("name", _TEXT),
        ("unit", _TEXT),
        ("value", pa.float64()),
    ]
)
_TIME_MAX_MS: Final = 253_402_300_799_999  # the end of the year 9999: later times are none


class ReadingColumns:
    """Collect the readings of a protocol's telemetry."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._rows: list[tuple[Any, ...]] = []

    def add(self, row: int, message: Message) -> None:
        """Add the readings of the telemetry in this frame."""
        at_us = message.at_ms * 1000 if 0 < message.at_ms <= _TIME_MAX_MS else None
        source = message.source or None
        self._rows += [
            (row, source, at_us, each.type, each.name, each.unit, each.value)
            for each in readings_of(self._protocol, message)
        ]

    def batch(self) -> Any:
        """Return them as a record batch of READING_COLUMNS; None if there are none."""
        if not self._rows:
            return None
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, READING_COLUMNS, strict=True)]
        return pa.record_batch(arrays, READING_COLUMNS)


def readings_among(protocol: Protocol, frames: Any, from_server: Any, rows: Any, messages: Any) -> Any:
    """Return the readings of frames that a column decoder decoded to `messages`, as the codec reads them.

    `rows` are the indices of these frames. None if none of them is telemetry from a client.
    """
    is_telemetry = pc.equal(messages["kind"], Kind.TELEMETRY.value)
    if not pc.any(is_telemetry).as_py():
        return None
    found = ReadingColumns(protocol)
    for row in rows[is_telemetry.to_numpy(zero_copy_only=False)].tolist():
        if not from_server[row]:
            found.add(row, protocol.to_message(protocol.decode(frames[row].as_py(), Sender.CLIENT), Sender.CLIENT))
    return found.batch()


def shifted(readings: Any, rows: Any) -> Any:
    """Return the readings with `row` as an index of another column, in which the frames have the indices `rows`."""
    moved = np.asarray(rows)[readings["row"].to_numpy()]
    return readings.set_column(0, READING_COLUMNS.field("row"), pa.array(moved, pa.int64()))
