"""Store time series: records ordered by time, in series of one key and one sdb (table) of a data set.

Layouts and the list of series are in memory, records on disk. Reads return what is durable: to read your own write,
await it or `StateStore.barrier` first.
"""

import heapq
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from msgspec import Struct, json

from wirelake.commit import Commit
from wirelake.errors import FullError
from wirelake.limits import (
    STATE_NAMES_SORTED_AT_ONCE,
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
    STATE_SERIES_MAX,
)
from wirelake.state.batch import SingleRowStatement, Statement
from wirelake.state.database import StateReader
from wirelake.state.schema import check_content, check_integer, check_name
from wirelake.state.writer import StateWriter

_LAYOUT: Final = Statement("layouts", "INSERT OR REPLACE INTO layouts (dataset, sdb, fields) VALUES ", "(?,?,?)")
_SERIES: Final = Statement(
    "series", "INSERT OR REPLACE INTO series (number, dataset, sdb, key, dropped) VALUES ", "(?,?,?,?,?)"
)
_REMOVE_SERIES: Final = Statement("series", "DELETE FROM series WHERE number IN (", "?", ")")
_INSERT: Final = Statement("records", "INSERT INTO records (series, time, arrival, data) VALUES ", "(?,?,?,?)")
_REMOVE: Final = SingleRowStatement(
    "records",
    "DELETE FROM records WHERE (series, time, arrival) IN"
    " (SELECT series, time, arrival FROM records WHERE series = ? LIMIT ?)",
)
_READ: Final = {
    newest: "SELECT data FROM records WHERE series = ? AND time BETWEEN ? AND ?"  # noqa: S608 (constants only)
    f" ORDER BY time {order}, arrival {order} LIMIT ?"
    for newest, order in ((False, "ASC"), (True, "DESC"))
}
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM records WHERE series = ? AND time BETWEEN ? AND ? LIMIT ?)"
_PAGE: Final = (
    "SELECT time, arrival, data FROM records WHERE series = ? AND (time, arrival) > (?, ?) AND time <= ?"
    " ORDER BY time, arrival LIMIT ?"
)
_TIME_MIN: Final = -(2**63)
_TIME_MAX: Final = 2**63 - 1
_ARRIVAL_BITS: Final = 40
ALL: Final = "*"


class LayoutField(Struct, frozen=True, array_like=True):
    """Describe one field of a layout, as on the wire: `[name, type, bytes, count]`."""

    name: str
    type: str
    bytes: int
    count: int = 1


class SeriesRecord(Struct, frozen=True, gc=False):
    time: int  # of the layout's time field, in its unit
    data: bytes  # the record as its layout packs it, or JSON


Layout = tuple[LayoutField, ...]
RecordPosition = tuple[int, int]  # time and arrival of a record in its series


class SeriesStore:
    """Store records by data set, table and key."""

    def __init__(self, writer: StateWriter, reader: StateReader, opened: int) -> None:
        self._writer = writer
        self._reader = reader
        self._layouts: dict[str, dict[str, Layout]] = {}  # data set → sdb →
        self._series: dict[str, dict[str, dict[str, int]]] = {}  # data set → sdb → key → number
        self._series_count = 0
        self._last_number = 0
        # Orders records of the same time. Each time the database is opened it starts above all earlier numbers.
        self._arrival = opened << _ARRIVAL_BITS
        self._dropped: deque[tuple[int, Commit]] = deque()  # series whose records are still to be removed

    def load(self) -> None:
        self._layouts, self._series, self._series_count, self._last_number = {}, {}, 0, 0
        self._dropped.clear()
        for dataset, sdb, fields in self._reader.rows("SELECT dataset, sdb, fields FROM layouts"):
            self._layouts.setdefault(dataset, {})[sdb] = json.decode(fields, type=Layout)
        query = "SELECT number, dataset, sdb, key, dropped FROM series ORDER BY number"
        for number, dataset, sdb, key, dropped in self._reader.rows(query):
            self._last_number = number
            if dropped:
                self._dropped.append((number, Commit.resolved()))
            else:
                self._add_series(number, dataset, sdb, key)

    def layout(self, dataset: str, sdb: str) -> Layout | None:
        self._writer.reload_if_stale()
        return self._layouts.get(dataset, {}).get(sdb)

    def has_table(self, dataset: str, sdb: str) -> bool:
        """Tell whether the table has a layout or records."""
        self._writer.reload_if_stale()
        return sdb in self._layouts.get(dataset, ()) or sdb in self._series.get(dataset, ())

    def has_series(self, dataset: str, sdb: str) -> bool:
        self._writer.reload_if_stale()
        return sdb in self._series.get(dataset, ())

    def find_in_steps(
        self, dataset: str, keys: str, sdbs: str, most: int
    ) -> Generator[None, None, list[tuple[str, str]]]:
        """Find (key, sdb) of existing series, in steps, because there may be a million. Stop early beyond `most`.

        Both arguments may be comma-separated lists, or `*`.
        """
        self._writer.reload_if_stale()
        tables = self._series.get(dataset, {})
        found: list[tuple[str, str]] = []
        for sdb in (yield from _each_in_steps(sdbs, tables)):
            table = tables.get(sdb, {})
            if keys == ALL and len(found) + len(table) > most:
                found += [(key, sdb) for key in islice(table, most + 1 - len(found))]
            else:
                found += [(key, sdb) for key in (yield from _each_in_steps(keys, table)) if key in table]
            if len(found) > most:
                break
            yield
        return found

    def keys_in_steps(self, dataset: str, sdbs: str, most: int) -> Generator[None, None, list[str]]:
        """Return the keys of these tables, sorted; if there are more than `most`, only some of them."""
        self._writer.reload_if_stale()
        tables = self._series.get(dataset, {})
        keys: set[str] = set()
        for sdb in list(tables) if sdbs == ALL else _each(sdbs, tables):
            table = list(tables.get(sdb, ()))
            for start in range(0, len(table), STATE_NAMES_SORTED_AT_ONCE):
                keys.update(table[start : start + STATE_NAMES_SORTED_AT_ONCE])
                yield
                if len(keys) > most:
                    return list(keys)
        return (yield from sort_in_steps(keys))

    def tables_in_steps(self, dataset: str) -> Generator[None, None, list[str]]:
        """Return the names of the tables with a layout or records."""
        self._writer.reload_if_stale()
        return (yield from sort_in_steps({*self._layouts.get(dataset, ()), *self._series.get(dataset, ())}))

    def create(self, dataset: str, sdb: str, layout: Layout) -> Commit:
        """Set or replace the layout of a table. Its records do not change."""
        self._writer.check_writable()
        check_name(dataset, "a data set")
        check_name(sdb, "a table")
        fields = json.encode(layout)
        check_content(fields, "a layout")
        tables = self._layouts.setdefault(dataset, {})
        if sdb not in tables and len(tables) >= STATE_SERIES_MAX:
            raise FullError(f"cannot create table {sdb!r}: the limit is {STATE_SERIES_MAX} tables")
        tables[sdb] = layout
        return self._writer.submit(_LAYOUT, (dataset, sdb, fields), key=(dataset, sdb), content_bytes=len(fields))

    def set_many(
        self, dataset: str, layouts: Mapping[str, Layout], series: Mapping[tuple[str, str], Sequence[SeriesRecord]]
    ) -> Commit:
        """Add records to several series, by key and table, and set the layouts of tables that have another one.

        It adds all or none. Records of the same time stay in the order they were added.
        """
        self._writer.check_writable()
        for records in series.values():
            for record in records:
                check_integer(record.time, "a record's time")
                check_content(record.data, "a record")
        new = [(key, sdb) for key, sdb in series if key not in self._series.get(dataset, {}).get(sdb, {})]
        self._check_new_series(dataset, new)
        with self._writer.transaction():
            for sdb, layout in layouts.items():
                if self._layouts.get(dataset, {}).get(sdb) != layout:
                    self.create(dataset, sdb, layout)
            for key, sdb in new:
                self._last_number += 1
                self._add_series(self._last_number, dataset, sdb, key)
                self._writer.submit(_SERIES, (self._last_number, dataset, sdb, key, 0))
            for (key, sdb), records in series.items():
                number = self._series[dataset][sdb][key]
                for record in records:
                    self._arrival += 1
                    row = (number, record.time, self._arrival, record.data)
                    self._writer.submit(_INSERT, row, content_bytes=len(record.data))
            return self._writer.barrier()

    def read(
        self,
        dataset: str,
        key: str,
        sdb: str,
        *,
        since: int | None = None,
        until: int | None = None,
        count: int = STATE_READ_ROWS_MAX,
        newest: bool = False,
        bytes_max: int = STATE_READ_BYTES_MAX,
    ) -> list[bytes]:
        """Return the data of records from time `since` to `until`, both inclusive, oldest first.

        These are the first `count`, or with `newest` the last. If there are more than `bytes_max` bytes, the last
        record returned is the one that exceeds it.
        """
        number, low, high = self._range(dataset, key, sdb, since, until)
        if number is None or count < 1:
            return []
        found: list[bytes] = []
        size = 0
        with closing(self._reader.rows(_READ[newest], (number, low, high, count))) as rows:
            for (data,) in rows:
                found.append(data)
                size += len(data)
                if size > bytes_max:
                    break
        if newest:
            found.reverse()
        return found

    def count(
        self, dataset: str, key: str, sdb: str, *, since: int | None = None, until: int | None = None, most: int
    ) -> int:
        """Count the records in a range, up to `most`."""
        number, low, high = self._range(dataset, key, sdb, since, until)
        if number is None:
            return 0
        (count,) = self._reader.row(_COUNT, (number, low, high, most))
        return int(count)

    def page(
        self, dataset: str, key: str, sdb: str, *, after: RecordPosition, until: int | None, count: int
    ) -> tuple[list[bytes], RecordPosition]:
        """Return the next records after a position, and the position of the last of them."""
        number, _, high = self._range(dataset, key, sdb, None, until)
        if number is None:
            return [], after
        rows = list(self._reader.rows(_PAGE, (number, *after, high, count)))
        return [row[2] for row in rows], (rows[-1][0], rows[-1][1]) if rows else after

    def _range(
        self, dataset: str, key: str, sdb: str, since: int | None, until: int | None
    ) -> tuple[int | None, int, int]:
        """Return the number of the series, and the bounds of the time range."""
        self._writer.reload_if_stale()
        low = _TIME_MIN if since is None else since
        high = _TIME_MAX if until is None else until
        check_integer(low, "a time")
        check_integer(high, "a time")
        return self._series.get(dataset, {}).get(sdb, {}).get(key), low, high

    def delete_series(self, dataset: str, series: Iterable[tuple[str, str]]) -> tuple[int, Commit]:
        """Drop those of these series, by key and table, that exist.

        Return how many. The sweep removes their records.
        """
        self._writer.check_writable()
        dropped = 0
        with self._writer.transaction():
            for key, sdb in series:
                tables = self._series.get(dataset, {})
                number = tables.get(sdb, {}).pop(key, None)
                if number is None:
                    continue
                if not tables[sdb]:
                    del tables[sdb]
                dropped += 1
                self._series_count -= 1
                commit = self._writer.submit(_SERIES, (number, dataset, sdb, key, 1))
                self._dropped.append((number, commit))
        return dropped, self._writer.barrier()

    def sweep(self, rows_max: int) -> int:
        """Remove some records of a dropped series. Return how many."""
        self._writer.check_writable()
        if not self._dropped or not self._dropped[0][1].is_durable:  # only then are all of its records visible
            return 0
        number = self._dropped[0][0]
        query = "SELECT count(*) FROM (SELECT 1 FROM records WHERE series = ? LIMIT ?)"
        (rows,) = self._reader.row(query, (number, rows_max))
        if rows:
            self._dropped[0] = (number, self._writer.submit(_REMOVE, (number, rows_max)))
        else:
            self._dropped.popleft()
            self._writer.submit(_REMOVE_SERIES, (number,))
        return int(rows)

    def _check_new_series(self, dataset: str, series: Sequence[tuple[str, str]]) -> None:
        for key, sdb in series:
            check_name(dataset, "a data set")
            check_name(key, "a record's key")
            check_name(sdb, "a table")
        if series and self._series_count + len(series) > STATE_SERIES_MAX:
            raise FullError(
                f"cannot add {len(series)} series to {self._series_count}: the limit is {STATE_SERIES_MAX} series"
            )

    def _add_series(self, number: int, dataset: str, sdb: str, key: str) -> None:
        self._series.setdefault(dataset, {}).setdefault(sdb, {})[key] = number
        self._series_count += 1


def sort_in_steps(names: Iterable[str]) -> Generator[None, None, list[str]]:
    """Sort names in steps: yield now and then, return the sorted list."""
    unsorted = list(names)
    step = STATE_NAMES_SORTED_AT_ONCE
    if len(unsorted) <= step:
        return sorted(unsorted)
    runs: list[list[str]] = []
    for start in range(0, len(unsorted), step):
        runs.append(sorted(unsorted[start : start + step]))
        yield
    merged: list[str] = []
    for name in heapq.merge(*runs):
        merged.append(name)
        if len(merged) % step == 0:
            yield
    return merged


def _each_in_steps(names: str, known: Iterable[str]) -> Generator[None, None, list[str]]:
    return (yield from sort_in_steps(known)) if names == ALL else _each(names, known)


def position_before(since: int | None) -> RecordPosition:
    """Return the position before every record of that time, or before all records."""
    return (_TIME_MIN if since is None else since, -1)


def _each(names: str, known: Iterable[str]) -> list[str]:
    """Return the names in a comma-separated list, each once; `*` stands for all known names."""
    if names == ALL:
        return sorted(known)
    return list(dict.fromkeys(name for name in names.split(",") if name))
