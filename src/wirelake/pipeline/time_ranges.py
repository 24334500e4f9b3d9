"""Compute minutes, hours and days of times."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import MESSAGES, LakeTable

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(us: int) -> datetime:
    """Return the time of so many microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=us)


def time_column(table: LakeTable) -> str:
    """Return the column whose day partitions the table, and by whose minute gold tables are computed."""
    return next(name for name in ("recorded_at", "received_at", "hour") if name in table.schema.names)


AT: Final = time_column(MESSAGES)  # when the gateway saw it


def minutes_of(table: LakeTable, rows: Any) -> set[int]:
    """Return the minutes of these rows, as microseconds since 1970."""
    times = rows[time_column(table)].cast(pa.int64())
    minutes = pc.unique(pc.divide(times, MINUTE_US)).to_pylist()
    return {minute * MINUTE_US for minute in minutes if minute is not None}
