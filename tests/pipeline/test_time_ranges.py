from datetime import UTC, date, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wirelake.limits import GOLD_TIME_RANGES_MAX
from wirelake.pipeline.time_ranges import HOUR_US, MINUTE_US, TimeRange, days_of, join_ranges


def test_minutes_that_touch_are_one_stretch() -> None:
    minutes = [n * MINUTE_US for n in (7, 1, 2, 3, 7)]
    assert join_ranges(minutes, MINUTE_US) == [
        TimeRange(MINUTE_US, 4 * MINUTE_US),
        TimeRange(7 * MINUTE_US, 8 * MINUTE_US),
    ]


def test_days_end_before_midnight() -> None:
    noon_us = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 1_000_000
    assert days_of([TimeRange(noon_us, noon_us + 12 * HOUR_US)]) == {date(2026, 1, 2)}
    assert days_of([TimeRange(noon_us, noon_us + 12 * HOUR_US + 1)]) == {date(2026, 1, 2), date(2026, 1, 3)}


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=400))
def test_every_minute_is_in_one_of_few(minutes: set[int]) -> None:
    found = join_ranges((minute * MINUTE_US for minute in minutes), MINUTE_US)
    assert len(found) <= GOLD_TIME_RANGES_MAX
    assert all(one.until_us < other.from_us for one, other in pairwise(found))
    for minute in minutes:
        assert sum(each.from_us <= minute * MINUTE_US < each.until_us for each in found) == 1
