"""Compare what the batches wrote with what the tables have, day by day, before the ledger says that all is there.

This takes the number of rows from the log of each Delta table, and asks whether its files exist; it reads no rows. If
something differs, the rows of that table and day are counted again. Not found this way: a file that was changed in
place, and losses of one table and day that cancel out. `recount` finds these too.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.store import Store
from wirelake.lake.tables import DEVICE_COMMANDS
from wirelake.limits import GOLD_CHECK_EVERY_S
from wirelake.pipeline.commit.delta import live_files
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold import counts
from wirelake.pipeline.gold.counts import COUNTED, CountedTable
from wirelake.pipeline.gold.ledger import MissingFiles, ledger
from wirelake.pipeline.gold.merge import of_day
from wirelake.pipeline.gold.summarize import read_batches

_MISSING_SHOWN: Final = 3  # missing files that are named
_DAYS_KEPT: Final = 16  # days of which it is remembered which files are missing


class LedgerCheck:
    """Compute the ledger of days. `tables` are Delta tables, all after the same batch."""

    def __init__(self, lake: Store) -> None:
        self._lake = lake
        self.tables: Mapping[str, Any] = {}
        self._missing: dict[date, tuple[float, frozenset[str]]] = {}  # when a day was checked, and what is missing

    def ledger_of(self, day: date, known: Any, opened: Any, recount: bool = False) -> Any:
        """Return the ledger of a day, from its counts and those of open rows."""
        files = {name: self._files(name, [day]) for name in COUNTED}
        missing = self._missing_of(day, [file for each in files.values() for file in each], recount)
        for name, of_table in files.items():
            counted = COUNTED[name]
            if recount or self._differs(counted, of_table, known, missing):
                found = self._count(counted, day, missing)
                known = counts.add_up([counts.without(known, counted.columns), found])
        total = counts.add_up([known, opened])
        return ledger(total, _by_first_hour(day, known, sorted(missing)) if missing else None)

    def _files(self, name: str, days: Sequence[date]) -> list[FileAction]:
        """Return the files with settled rows of these days."""
        table = self.tables.get(name)
        return [] if table is None else live_files(table, name, days)

    def _differs(self, counted: CountedTable, files: Sequence[FileAction], known: Any, missing: frozenset[str]) -> bool:
        if any(_path(file) in missing for file in files):
            return True
        rows = [file.rows for file in files]
        written = pc.sum(known[counted.rows]).as_py() or 0
        return None in rows or sum(rows) != written

    def _missing_of(self, day: date, files: Sequence[FileAction], now: bool) -> frozenset[str]:
        """Return which files of a day are missing; asked for once in a while, because a store may be far away."""
        checked_s, missing = self._missing.get(day, (float("-inf"), frozenset()))
        if now or time.monotonic() - checked_s >= GOLD_CHECK_EVERY_S:
            missing = frozenset(_path(file) for file in files if self._lake.size(file.lake_path) is None)
            self._missing = {day: (time.monotonic(), missing), **{d: m for d, m in self._missing.items() if d != day}}
            for old in list(self._missing)[_DAYS_KEPT:]:
                del self._missing[old]
        return missing & {_path(file) for file in files}

    def _count(self, counted: CountedTable, day: date, missing: frozenset[str]) -> Any:
        """Count the rows that a table has of a day."""
        days = [day]
        if counted.table is DEVICE_COMMANDS:  # a command is in the file of its last packet's day
            days.append(day + timedelta(days=1))
        rows = [counted.table.schema.empty_table().select(counted.needs)]
        for file in self._files(counted.table.name, days):
            if _path(file) not in missing:
                rows += read_batches(self._lake, counted.table, file, counted.needs)
        return of_day(counts.count_unique(counted, pa.concat_tables(rows)), "hour", day)


def _path(file: FileAction) -> str:
    return f"{file.table}/{file.path}"


def _by_first_hour(day: date, known: Any, missing: Sequence[str]) -> Mapping[datetime, MissingFiles]:
    text = ", ".join(missing[:_MISSING_SHOWN]) + (", …" if len(missing) > _MISSING_SHOWN else "")
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return {pc.min(known["hour"]).as_py() or midnight: MissingFiles(len(missing), text)}
