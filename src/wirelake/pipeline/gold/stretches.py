"""Minutes put together to stretches of time: what has to be worked out again, in few conditions."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wirelake.limits import GOLD_STRETCHES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Stretch(Struct, frozen=True, order=True):
    from_us: int
    until_us: int

    @property
    def times(self) -> tuple[datetime, datetime]:
        return _time(self.from_us), _time(self.until_us)


def stretches(starts_us: Iterable[int], length_us: int) -> list[Stretch]:
    """Each start with its length; what touches is one. With too many, the nearest are joined: more is worked out."""
    found: list[Stretch] = []
    for start_us in sorted(set(starts_us)):
        if found and found[-1].until_us >= start_us:
            found[-1] = Stretch(found[-1].from_us, start_us + length_us)
        else:
            found.append(Stretch(start_us, start_us + length_us))
    if len(found) <= GOLD_STRETCHES_MAX:
        return found
    gaps = sorted(range(1, len(found)), key=lambda place: found[place].from_us - found[place - 1].until_us)
    joined = set(gaps[: len(found) - GOLD_STRETCHES_MAX])
    kept: list[Stretch] = []
    for place, stretch in enumerate(found):
        if place in joined:
            kept[-1] = Stretch(kept[-1].from_us, stretch.until_us)
        else:
            kept.append(stretch)
    return kept


def days(of: Sequence[Stretch]) -> set[date]:
    """Every day that a stretch touches."""
    found: set[date] = set()
    for stretch in of:
        first, last = _time(stretch.from_us).date(), _time(stretch.until_us - 1).date()
        found.update(first + timedelta(days=more) for more in range((last - first).days + 1))
    return found


def within(column: "Column", of: Sequence[Stretch]) -> "Column":
    """A condition that Parquet's own statistics can answer for most rows."""
    from pyspark.sql import functions as f  # noqa: PLC0415 (half a gigabyte)

    ranges = [(column >= f.lit(first)) & (column < f.lit(end)) for first, end in (each.times for each in of)]
    return reduce(lambda one, other: one | other, ranges)


def _time(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
