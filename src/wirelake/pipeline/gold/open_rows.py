"""Count open rows: calls without a response, deliveries without an ack, commands and counter intervals that go on.

They are counted as they are when the gold tables are written. A file of open rows never changes, so each is read once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from wirelake.lake import tables as lake_tables
from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.pipeline.commit.delta import live_files
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold import counts
from wirelake.pipeline.gold.minute_files import read_file
from wirelake.pipeline.gold.partials import COUNTS, Partials, PartialSums, call_sums, open_delivery_sums
from wirelake.pipeline.gold.sums import CALLS, DELIVERIES

# By table of open rows: what they add to which gold tables.
_SUMMARIES: Final[dict[str, dict[str, Callable[[Any], Any]]]] = {
    lake_tables.CALLS.open_table.name: {CALLS.table.name: call_sums},
    lake_tables.DELIVERIES.open_table.name: {
        DELIVERIES.table.name: open_delivery_sums,
        COUNTS: lambda rows: counts.without(counts.count_deliveries(rows), ["delivery_rows"]),
    },
    lake_tables.DEVICE_COMMANDS.open_table.name: {
        COUNTS: lambda rows: counts.without(counts.count_commands(rows), ["command_rows"])
    },
    lake_tables.TALLIES.open_table.name: {
        COUNTS: lambda rows: counts.without(counts.count_tallies(rows), ["tally_rows"])
    },
}


OPEN_TABLES: Final = tuple(_SUMMARIES)


class OpenRows:
    """Hold the sums of the open rows."""

    def __init__(self, lake: Store) -> None:
        self._lake = lake
        self._by_file: dict[str, Partials] = {}

    def sums(self, tables: Mapping[str, DeltaTable]) -> Partials:
        """Return the sums of the open rows. `tables` are those of OPEN_TABLES that exist, and others."""
        known, self._by_file = self._by_file, {}
        total = PartialSums()
        for file in (file for name in OPEN_TABLES if name in tables for file in live_files(tables[name], name)):
            path = file.lake_path
            self._by_file[path] = known.get(path) or self._summarize(lake_tables.TABLES[file.table], file)
            total.merge(self._by_file[path])
        return total.result()

    def _summarize(self, table: LakeTable, file: FileAction) -> Partials:
        rows = read_file(self._lake, table, file)
        return {name: summarize(rows) for name, summarize in _SUMMARIES[table.name].items()} if len(rows) else {}


def changed_times(before: Any, after: Any, time: str) -> set[int]:
    """Return the times of rows that are in one of two tables only, as microseconds since 1970."""
    if before is None or after is None:
        rows = before if after is None else after
        return set() if rows is None else set(rows[time].cast(pa.int64()).to_pylist())
    both = pa.concat_tables([before, after])
    names = both.schema.names
    found = both.group_by(names, use_threads=False).aggregate([([], "count_all")])
    single = found.filter(pc.equal(found["count_all"], 1))
    return set(single[time].cast(pa.int64()).to_pylist())
