"""Run operations that take steps to their end, and read records with their times."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from wirelake.commit import Commit
from wirelake.state.records import SeriesRecord
from wirelake.state.store import StateStore
from wirelake.state.values import ALL_KEYS, Values

Result = TypeVar("Result")
SERIES_MAX = 1000
_RECORDS = (
    "SELECT time, data FROM records JOIN series ON number = series"
    " WHERE (dataset, key, sdb, dropped) = (?, ?, ?, 0) ORDER BY time, arrival"
)


def finish(steps: Generator[None, None, Result]) -> Result:
    """Take all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


def add_records(store: StateStore, dataset: str, key: str, sdb: str, records: Sequence[SeriesRecord]) -> Commit:
    return store.records.set_many(dataset, {}, {(key, sdb): records})


def stored_records(store: StateStore, dataset: str, key: str, sdb: str) -> list[SeriesRecord]:
    """Return the records of a series as they are on disk."""
    return [SeriesRecord(*row) for row in store.database.reader.rows(_RECORDS, (dataset, key, sdb))]


def find_series(store: StateStore, dataset: str, keys: str, sdbs: str) -> list[tuple[str, str]]:
    return finish(store.records.find_in_steps(dataset, keys, sdbs, SERIES_MAX))


def matching_keys(values: Values, pattern: bytes, now_ms: int) -> list[bytes]:
    return [key for _, keys in values.scan_in_steps(pattern, 0, ALL_KEYS, now_ms) for key in keys]
