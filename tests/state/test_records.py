import pytest

from state.conftest import Reopen
from state.series import SERIES_MAX, add_records, find_series, finish, stored_records
from wirelake.errors import FullError, InputError
from wirelake.state.records import LayoutField, SeriesRecord
from wirelake.state.store import StateStore

WAIT_S = 30
SET = "sisdb"


def add(store: StateStore, key: str, sdb: str, *times: int) -> None:
    records = [SeriesRecord(time, f"{key}.{sdb} {time} {place}".encode()) for place, time in enumerate(times)]
    add_records(store, SET, key, sdb, records).wait(WAIT_S)


def times(contents: list[bytes]) -> list[int]:
    return [int(content.split()[1]) for content in contents]


def test_records_are_read_by_time_whatever_order_they_came_in(store: StateStore, reopen: Reopen) -> None:
    add(store, "sh", "day", 3, 1, 2, -5)
    add(store, "sh", "day", 2)
    store = reopen()
    add(store, "sh", "day", 2, 10)
    read = store.records.read
    assert times(read(SET, "sh", "day")) == [-5, 1, 2, 2, 2, 3, 10]
    assert read(SET, "sh", "day", since=2, until=2) == [
        b"sh.day 2 2",
        b"sh.day 2 0",
        b"sh.day 2 0",
    ]
    assert times(read(SET, "sh", "day", since=2, count=4)) == [2, 2, 2, 3]
    assert times(read(SET, "sh", "day", until=3, count=2, newest=True)) == [2, 3]
    assert times(read(SET, "sh", "day", bytes_max=10)) == [-5]
    assert read(SET, "sh", "day", count=0) == []
    assert read(SET, "sh", "week") == []
    assert read("other", "sh", "day") == []


def test_series_are_found_by_lists_and_stars(store: StateStore, reopen: Reopen) -> None:
    for key in ("b", "a"):
        for sdb in ("min", "day"):
            add(store, key, sdb, 1)
    add(store, "c", "day", 1)
    store = reopen()
    assert find_series(store, SET, "*", "*") == [("a", "day"), ("b", "day"), ("c", "day"), ("a", "min"), ("b", "min")]
    assert find_series(store, SET, "c,a,none,a", "min,day") == [("a", "min"), ("c", "day"), ("a", "day")]
    assert find_series(store, "other", "*", "*") == []
    assert finish(store.records.keys_in_steps(SET, "*", SERIES_MAX)) == ["a", "b", "c"]
    assert finish(store.records.tables_in_steps(SET)) == ["day", "min"]


def test_a_layout_is_kept_and_can_be_replaced(store: StateStore, reopen: Reopen) -> None:
    store.records.create(SET, "tick", (LayoutField("time", "I", 8), LayoutField("newp", "F", 4, 2)))
    store.records.create(SET, "day", (LayoutField("time", "I", 8),))
    store.records.create(SET, "day", (LayoutField("time", "I", 4),))
    store = reopen()
    assert store.records.layout(SET, "tick") == (LayoutField("time", "I", 8, 1), LayoutField("newp", "F", 4, 2))
    assert store.records.layout(SET, "day") == (LayoutField("time", "I", 4),)
    assert store.records.layout(SET, "none") is None
    assert finish(store.records.tables_in_steps(SET)) == ["day", "tick"]


def test_dropped_series_are_gone_at_once_and_removed_in_slices(store: StateStore, reopen: Reopen) -> None:
    add(store, "a", "day", *range(25))
    add(store, "b", "day", 1)
    dropped, commit = store.records.delete_series(SET, find_series(store, SET, "a,none", "*"))
    assert dropped == 1
    commit.wait(WAIT_S)
    assert stored_records(store, SET, "a", "day") == []
    assert store.records.read(SET, "a", "day") == []
    add(store, "a", "day", 99)
    store = reopen()
    assert times(store.records.read(SET, "a", "day")) == [99]
    removed = []
    for _ in range(5):
        removed.append(store.records.sweep(10))
        store.barrier().wait(WAIT_S)
    assert removed == [10, 10, 5, 0, 0]
    assert store.database.reader.row("SELECT count(*) FROM records") == (2,)
    assert store.database.reader.row("SELECT count(*) FROM series") == (2,)


def test_a_set_with_a_bad_record_changes_nothing(store: StateStore) -> None:
    with pytest.raises(InputError):
        add_records(store, SET, "a", "day", [SeriesRecord(1, b""), SeriesRecord(2**63, b"")])
    with pytest.raises(InputError):
        add_records(store, SET, "", "day", [SeriesRecord(1, b"")])
    assert find_series(store, SET, "*", "*") == []


def test_series_are_bounded(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.records.STATE_SERIES_MAX", 1)
    add(store, "a", "day", 1)
    with pytest.raises(FullError):
        add(store, "b", "day", 1)
    add(store, "a", "day", 2)
