"""Test which files are written again for which minutes."""

from hypothesis import given
from hypothesis import strategies as st

from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold.minute_files import WHOLE_DAY, Minutes, minutes_of_file, plan_files, plan_joins

minutes = st.integers(0, 1439)


def file(found: Minutes | None, size: int = 1) -> FileAction:
    label = "" if found is None else f"{found.label}-"
    return FileAction("gold.traffic_minute", f"day=2026-01-02/part-{label}12345678-abcd.parquet", size, 1)


@given(minutes, minutes)
def test_a_name_says_which_minutes(one: int, other: int) -> None:
    expected = Minutes(min(one, other), max(one, other))
    assert minutes_of_file(file(expected)) == expected


def test_a_file_of_others_may_hold_any_minute() -> None:
    assert minutes_of_file(file(None)) == WHOLE_DAY
    assert minutes_of_file(FileAction("t", "part-00000-12345678-c000.snappy.parquet", 1, 1)) == WHOLE_DAY


def test_new_minutes_get_files_of_their_own() -> None:
    known = file(Minutes(720, 729))
    assert plan_files([known], [719, 731, 735], 10) == ([Minutes(710, 719), Minutes(730, 739)], [])


def test_a_file_is_written_with_all_its_minutes() -> None:
    hour, beside = file(Minutes(720, 779)), file(Minutes(780, 789))
    assert plan_files([hour, beside], [725], 10) == ([Minutes(720, 779)], [hour])


@given(st.sets(minutes, min_size=1, max_size=20), st.lists(st.tuples(minutes, minutes), max_size=8))
def test_no_minute_is_in_two_of_the_files_that_are_left(touched: set[int], pairs: list[tuple[int, int]]) -> None:
    files = [
        FileAction("t", f"part-{Minutes(min(pair), max(pair)).label}-{number}.parquet", 1, 1)
        for number, pair in enumerate(pairs)
    ]
    ranges, replaced = plan_files(files, touched, 10)
    left = [minutes_of_file(each) for each in files if each not in replaced]
    assert not any(one.overlaps(other) for one in ranges for other in left)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one != other)
    assert all(any(each.first <= minute <= each.last for each in ranges) for minute in touched)
    for each in replaced:
        found = minutes_of_file(each)
        assert any(wide.first <= found.first and found.last <= wide.last for wide in ranges)


def test_the_files_of_a_day_are_joined_up_to_a_size() -> None:
    small = [file(Minutes(start, start + 9)) for start in (20, 0, 10)]
    large = file(Minutes(30, 39), 1 << 30)
    assert list(plan_joins([*small, large])) == [(Minutes(0, 29), sorted(small, key=minutes_of_file))]
    assert list(plan_joins([large])) == []
