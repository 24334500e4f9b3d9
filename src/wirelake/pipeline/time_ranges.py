"""Compute minutes, hours and ranges of time: which rows changed, and what has to be computed again."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.tables import LakeTable
from wirelake.limits import GOLD_TIME_RANGES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimeRange(Struct, frozen=True, order=True):
    """Describe a range of microseconds since 1970, without its end."""

    from_us: int
    until_us: int

    @property
    def times(self) -> tuple[datetime, datetime]:
        return _time(self.from_us), _time(self.until_us)


def join_ranges(starts_us: Iterable[int], length_us: int) -> list[TimeRange]:
    """Return ranges of this length, with adjacent ones joined. If there are too many, join the nearest as well."""
    found: list[TimeRange] = []
    for start_us in sorted(set(starts_us)):
        if found and found[-1].until_us >= start_us:
            found[-1] = TimeRange(found[-1].from_us, start_us + length_us)
        else:
            found.append(TimeRange(start_us, start_us + length_us))
    if len(found) <= GOLD_TIME_RANGES_MAX:
        return found
    gaps = sorted(range(1, len(found)), key=lambda index: found[index].from_us - found[index - 1].until_us)
    closed = set(gaps[: len(found) - GOLD_TIME_RANGES_MAX])
    joined: list[TimeRange] = []
    for index, each in enumerate(found):
        if index in closed:
            joined[-1] = TimeRange(joined[-1].from_us, each.until_us)
        else:
            joined.append(each)
    return joined


def days_of(ranges: Sequence[TimeRange]) -> set[date]:
    """Return every day that a range touches."""
    found: set[date] = set()
    for each in ranges:
        first, last = _time(each.from_us).date(), _time(each.until_us - 1).date()
        found.update(first + timedelta(days=more) for more in range((last - first).days + 1))
    return found


def is_within(column: "Column", ranges: Sequence[TimeRange]) -> "Column":
    """Return a condition that Parquet's statistics can decide for most rows."""
    from pyspark.sql import functions as f  # noqa: PLC0415 (half a gigabyte)

    conditions = [(column >= f.lit(first)) & (column < f.lit(end)) for first, end in (each.times for each in ranges)]
    return reduce(lambda one, other: one | other, conditions)


def time_column(table: LakeTable) -> str:
    """Return the column whose day partitions the table, and by whose minute gold tables are computed."""
    return next(name for name in ("recorded_at", "at", "hour") if name in table.schema.names)


def minutes_of(table: LakeTable, rows: Any) -> set[int]:
    """Return the minutes of these rows, as microseconds since 1970."""
    times = rows[time_column(table)].cast(pa.int64())
    minutes = pc.unique(pc.divide(times, MINUTE_US)).to_pylist()
    return {minute * MINUTE_US for minute in minutes if minute is not None}


def _time(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
