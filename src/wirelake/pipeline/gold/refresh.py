"""Refresh the gold tables: merge the partials of committed batches, in one commit for each table.

A commit holds the number of the last batch that it includes, so a refresh that is repeated or was interrupted changes
nothing that is already there. It reads no rows of bronze or silver, except open ones. If history has changed, days are
computed again from the rows in the tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, timedelta
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import BATCHES, COUNTS_HOUR, DAY, DEVICE_COMMANDS, DEVICE_LATEST, FRAMES, LEDGER
from wirelake.limits import GOLD_REBUILD_DAYS
from wirelake.pipeline.commit.delta import DeltaWriter, listing_lock, live_files, replace_files
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.gold import counts
from wirelake.pipeline.gold.counts import COUNTED
from wirelake.pipeline.gold.ledger_check import LedgerCheck
from wirelake.pipeline.gold.merge import (
    FileChanges,
    MinuteMerge,
    by_day,
    merge_counts,
    merge_latest,
    of_day,
    replace_counts,
)
from wirelake.pipeline.gold.minute_files import read_files, write_file
from wirelake.pipeline.gold.open_rows import OPEN_TABLES, OpenRows, changed_times
from wirelake.pipeline.gold.partials import (
    COUNTS,
    READINGS,
    REPORTS,
    STATUSES,
    SUMMARIES,
    Partials,
    PartialSums,
    decode_partials,
)
from wirelake.pipeline.gold.summarize import missing_file_error, run_summaries
from wirelake.pipeline.gold.sums import MINUTE_TABLES
from wirelake.pipeline.time_ranges import time_of

_LOCK: Final = "gold.lock"
_MINUTE_TABLES: Final = {each.table.name: each for each in MINUTE_TABLES}
_DEVICES: Final = (REPORTS, STATUSES, READINGS)
_PARTS: Final = {
    **{name: (name,) for name in _MINUTE_TABLES},
    DEVICE_LATEST.name: _DEVICES,
    COUNTS_HOUR.name: (COUNTS,),
}


class GoldPosition(Struct, frozen=True):
    """Hold the last batch that the gold tables include."""

    batch: int = -1
    until_seq: int = 0
    now_us: int = 0


class _Snapshot(Struct, frozen=True):
    """Hold what the tables have: those of bronze and silver between two batches, those of gold before a refresh."""

    committed: int  # the last batch
    today: date
    opened: Partials  # sums of the open rows
    tables: dict[str, DeltaTable]

    def files(self, name: str) -> list[FileAction]:
        table = self.tables.get(name)
        return [] if table is None else live_files(table, name)


def gold_lock(lake: Store) -> AbstractContextManager[None]:
    """Lock the gold tables while they are written: by a job, or by a redecode."""
    return lake.lock(_LOCK)


class GoldTables:
    """Write the gold tables of a lake. `app` names the checkpoint that numbers the batches."""

    def __init__(self, lake: Store, checkpoint: Store, app: str) -> None:
        self._lake = lake
        self._checkpoint = checkpoint
        self._manifests = ManifestStore(checkpoint)
        self._tables = DeltaWriter(lake, app)
        self._open_rows = OpenRows(lake)
        self._open: Partials | None = None  # as of the last refresh; None: not known
        self._check = LedgerCheck(lake)

    def refresh(self, spark: Any = None) -> GoldPosition:
        """Merge all committed batches. If the partials of one are not there, compute everything again."""
        with gold_lock(self._lake):
            snapshot = self._take_snapshot()
            self._catch_up(spark, snapshot)
            return self._position(snapshot.committed)

    def rebuild(self, spark: Any, tables: Iterable[str], days: Iterable[date]) -> None:
        """Compute days again on which rows of these tables have changed."""
        with gold_lock(self._lake):
            snapshot = self._take_snapshot()
            if not self._catch_up(spark, snapshot):
                self._rebuild(spark, snapshot, set(tables), set(days))

    def check(self, recount: bool = True) -> Any:
        """Write the ledger of all days, and return the rows of it that do not balance.

        All rows are counted again; without `recount`, only those of days whose tables have more or fewer than written.
        """
        with gold_lock(self._lake):
            snapshot = self._take_snapshot()
            self._catch_up(None, snapshot)
            days = {day for name in COUNTED for day in by_day(snapshot.files(name))}
            self._write_ledger(snapshot, days, recount)
            rows = read_files(self._lake, LEDGER, self._files(LEDGER.name))
            return rows.filter(pc.invert(rows["balanced"])).sort_by([("hour", "ascending"), ("protocol", "ascending")])

    def _take_snapshot(self) -> _Snapshot:
        """Note what there is between two batches: a ledger of tables with and without a batch would not balance."""
        with listing_lock(self._lake):
            tables = self._open_tables(*SUMMARIES, *OPEN_TABLES)
            committed = max(self._last_batch(tables, name) for name in (FRAMES.name, BATCHES.name))
        last = self._manifests.get(committed)
        today = time_of(last.now_us if last is not None else 0).date()
        self._check.tables = tables
        gold = self._open_tables(*_PARTS, LEDGER.name)
        return _Snapshot(committed, today, self._open_rows.sums(tables), tables | gold)

    def _open_tables(self, *names: str) -> dict[str, DeltaTable]:
        return {name: self._tables.table(name) for name in names if self._tables.exists(name)}

    def _last_batch(self, tables: Mapping[str, DeltaTable], name: str) -> int:
        return self._tables.batch_of(tables[name]) if name in tables else -1

    def _catch_up(self, spark: Any, snapshot: _Snapshot) -> bool:
        """Merge what is committed. Return whether everything was computed again instead."""
        merged = self._last_batch(snapshot.tables, LEDGER.name)  # which is written last
        waiting = [each for each in self._manifests.since(merged) if each.batch <= snapshot.committed]
        is_complete = [each.batch for each in waiting] == list(range(merged + 1, snapshot.committed + 1))
        if not is_complete or any(each.partials is None for each in waiting):  # such as tables of an earlier version
            self._rebuild(spark, snapshot, set(SUMMARIES), None)
            return True
        if waiting:
            self._merge(waiting, snapshot)
        self._open = snapshot.opened
        return False

    def position(self) -> GoldPosition:
        """Return what the gold tables include."""
        return self._position(self._tables.last_batch(LEDGER.name))

    def _position(self, batch: int) -> GoldPosition:
        last = self._manifests.get(batch)
        return GoldPosition(batch) if last is None else GoldPosition(last.batch, last.until_seq, last.now_us)

    def _files(self, name: str) -> list[FileAction]:
        """Return the files that a table has after the commits of this refresh."""
        return live_files(self._tables.table(name), name)

    def _merge(self, waiting: Sequence[Manifest], snapshot: _Snapshot) -> None:
        partials = {each.batch: decode_partials(self._checkpoint.read(each.partials or "")) for each in waiting}
        for name, parts in _PARTS.items():
            last = self._last_batch(snapshot.tables, name)
            if last < snapshot.committed:
                total = PartialSums()
                for batch, of_batch in partials.items():
                    if batch > last:
                        total.merge({part: of_batch[part] for part in parts if part in of_batch})
                self._commit(name, snapshot.committed, self._changes(name, total.result(), snapshot))
        days = {day for each in partials.values() if COUNTS in each for day in _days(each[COUNTS], "hour")}
        self._write_ledger(snapshot, days | {time_of(hour).date() for hour in self._changed(snapshot, COUNTS, "hour")})

    def _changes(self, name: str, sums: Partials, snapshot: _Snapshot) -> FileChanges:
        """Return the files to write with these sums."""
        if name == DEVICE_LATEST.name:
            return merge_latest(self._lake, snapshot.files(name), sums) if sums else FileChanges()
        if name == COUNTS_HOUR.name:
            return merge_counts(self._lake, by_day(snapshot.files(name)), sums[COUNTS]) if sums else FileChanges()
        gold = _MINUTE_TABLES[name]
        touched_us = self._changed(snapshot, name, "minute")
        if not sums and not touched_us:
            return FileChanges()
        merge = self._minute_merge(name, snapshot.files(name), snapshot)
        return merge.merge(sums.get(name, gold.schema.empty_table()), touched_us)

    def _minute_merge(self, name: str, files: Sequence[FileAction], snapshot: _Snapshot) -> MinuteMerge:
        gold = _MINUTE_TABLES[name]
        opened = snapshot.opened.get(name, gold.schema.empty_table())
        return MinuteMerge(self._lake, gold, by_day(files), opened, snapshot.today)

    def _changed(self, snapshot: _Snapshot, name: str, time: str) -> set[int]:
        """Return the times whose open rows have changed since the last refresh."""
        before = self._open.get(name) if self._open is not None else None
        return changed_times(before, snapshot.opened.get(name), time)

    def _commit(self, name: str, batch: int, changes: FileChanges) -> None:
        if not changes:
            return
        if not self._tables.commit(name, batch, changes.adds, changes.removes):  # it has the batch: rows have changed
            table = self._tables.table(name)
            replace_files(self._lake, table, name, changes.adds, changes.removes, data_change=True)

    def _write_ledger(self, snapshot: _Snapshot, days: Iterable[date], recount: bool = False) -> None:
        """Write the ledger of these days, and the number of the batch in any case."""
        opened = snapshot.opened.get(COUNTS, counts.SCHEMA.empty_table())
        counted, files = by_day(self._files(COUNTS_HOUR.name)), by_day(self._files(LEDGER.name))
        changes = FileChanges()
        for day in sorted(set(days)):
            known = read_files(self._lake, COUNTS_HOUR, counted.get(day, ())).select(counts.SCHEMA.names)
            rows = self._check.ledger_of(day, known, of_day(opened, "hour", day), recount)
            changes.removes += files.get(day, ())
            if len(rows):
                changes.adds.append(write_file(self._lake, LEDGER, {"day": day.isoformat()}, "", rows))
        if not self._tables.commit(LEDGER.name, snapshot.committed, changes.adds, changes.removes):
            self._commit(LEDGER.name, snapshot.committed, changes)

    def _rebuild(self, spark: Any, snapshot: _Snapshot, tables: set[str], days: set[date] | None) -> None:
        """Compute days again, or all of them."""
        golds = {name for table in tables for name in SUMMARIES[table]}
        sources = tables | {table for table, fed in SUMMARIES.items() if not golds.isdisjoint(fed.keys() - {COUNTS})}
        files = [file for name in sorted(sources) for file in snapshot.files(name)]
        if days is None:
            days = {*by_day(files)}
            for sums in snapshot.opened.values():
                days |= _days(sums, "minute" if "minute" in sums.schema.names else "hour")
        elif DEVICE_COMMANDS.name in tables:  # which are counted by the hour of their first packet
            days = days | {day - timedelta(days=1) for day in days}
        changes: dict[str, FileChanges] = {name: FileChanges() for name in _PARTS}
        others = PartialSums()
        minute_tables = golds & _MINUTE_TABLES.keys()
        minute_merges = {name: self._minute_merge(name, self._files(name), snapshot) for name in minute_tables}
        for chunk in _chunks(sorted(days), GOLD_REBUILD_DAYS):
            sums = self._summarize(spark, _of_days(files, chunk), golds)
            for name, merge in minute_merges.items():
                found = merge.replace(sums.pop(name, merge.gold.schema.empty_table()), chunk)
                changes[name].adds += found.adds
                changes[name].removes += found.removes
            if COUNTS in sums:
                rows = sums[COUNTS]
                sums[COUNTS] = rows.filter(pc.is_in(rows["hour"].cast(DAY), pa.array(chunk, DAY)))
            others.merge(sums)
        total = others.result()
        columns = [column for name in sorted(sources & COUNTED.keys()) for column in COUNTED[name].columns]
        changes[DEVICE_LATEST.name] = merge_latest(self._lake, self._files(DEVICE_LATEST.name), total)
        changes[COUNTS_HOUR.name] = replace_counts(
            self._lake,
            by_day(self._files(COUNTS_HOUR.name)),
            dict.fromkeys(days, columns),
            total.get(COUNTS, counts.SCHEMA.empty_table()),
        )
        for name, of_table in changes.items():
            self._commit(name, snapshot.committed, of_table)
        self._write_ledger(snapshot, days)
        self._open = snapshot.opened

    def _summarize(self, spark: Any, files: Sequence[FileAction], golds: set[str]) -> Partials:
        try:
            return run_summaries(spark, self._lake, files, golds)
        except Exception as error:
            for file in files:
                if self._lake.size(file.lake_path) is None:
                    path = self._lake.name(file.lake_path)
                    raise missing_file_error(next(iter(SUMMARIES[file.table])), path) from error
            raise


def _of_days(files: Iterable[FileAction], days: Iterable[date]) -> list[FileAction]:
    """Return the files of these days. Commands of a day may also be in the files of the day after."""
    wanted = {day.isoformat() for day in days}
    after = wanted | {(day + timedelta(days=1)).isoformat() for day in days}
    return [
        file for file in files if file.partition["day"] in (after if file.table == DEVICE_COMMANDS.name else wanted)
    ]


def _days(sums: Any, time: str) -> set[date]:
    return set(pc.unique(sums[time].cast(DAY)).to_pylist())


def _chunks(days: Iterable[date], size: int) -> Iterator[list[date]]:
    rest = iter(days)
    while chunk := list(islice(rest, size)):
        yield chunk
