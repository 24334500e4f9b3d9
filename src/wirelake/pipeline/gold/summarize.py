"""Summarize the rows of files: what the tasks of a batch would have summarized when they wrote them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.errors import StorageError
from wirelake.lake import tables as lake_tables
from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.limits import GOLD_REBUILD_BYTES, PIPELINE_CHUNK_ROWS
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold.counts import COUNTED
from wirelake.pipeline.gold.partials import (
    COUNTS,
    SUMMARIES,
    Partials,
    PartialSums,
    decode_partials,
    encode_partials,
)
from wirelake.pipeline.time_ranges import AT

PARTIAL_SCHEMA: Final = pa.schema([("partials", pa.binary())])
_TIMES: Final = ("seq", AT, "protocol")
# By table: the columns that summaries read, besides those that are counted.
_COLUMNS: Final = {
    lake_tables.MESSAGES.name: ("name", "direction", "bytes", "status"),
    lake_tables.QUARANTINE.name: ("direction", "frame"),
    lake_tables.CALLS.name: ("service", "op", "asked_at", "status", "latency_ms"),
    lake_tables.DELIVERIES.name: ("topic", "first_sent_at", "attempts", "state", "latency_ms"),
    lake_tables.RECORDS.name: ("key", "sdb", "time", "recorded_at", "fields"),
    lake_tables.DEVICE_COMMANDS.name: ("device_time", "command_type", "error", "fields"),
    lake_tables.READINGS.name: ("serial", "device_time", "type", "name", "value", "unit"),
}


class FileUnit(Struct, frozen=True):
    """Describe files of one table that one task summarizes."""

    table: str
    files: list[FileAction]


def plan_units(files: Iterable[FileAction]) -> list[FileUnit]:
    """Return units of files, each of one table and not too large."""
    units: list[FileUnit] = []
    size = 0
    for file in sorted(files, key=lambda each: (each.table, each.partition.get("day") or "", each.path)):
        if not units or units[-1].table != file.table or size + file.bytes > GOLD_REBUILD_BYTES:
            units.append(FileUnit(file.table, []))
            size = 0
        units[-1].files.append(file)
        size += file.bytes
    return units


class SummarizeTask(Struct, frozen=True):
    """Describe how to summarize files. This is sent to the executors."""

    lake: Store
    units: list[FileUnit]
    only: frozenset[str]  # for which gold tables

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over the numbers of units."""

        def summarize(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch["id"].to_pylist():
                    data = encode_partials(summarize_files(self.lake, self.units[number].files, self.only))
                    yield pa.record_batch([pa.array([data], pa.binary())], schema=PARTIAL_SCHEMA)

        return summarize


def run_summaries(spark: Any, lake: Store, files: Sequence[FileAction], only: Collection[str]) -> Partials:
    """Summarize files as a Spark job, or here without `spark`."""
    units = plan_units(file for file in files if not SUMMARIES[file.table].keys().isdisjoint(only))
    total = PartialSums()
    if spark is None:
        for unit in units:
            total.merge(summarize_files(lake, unit.files, only))
    elif units:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        task = SummarizeTask(lake, units, frozenset(only))
        numbers = spark.range(0, len(units), 1, len(units))
        for row in numbers.mapInArrow(task.task(), from_arrow_schema(PARTIAL_SCHEMA)).collect():
            total.merge(decode_partials(bytes(row.partials)))
    return total.result()


def summarize_files(lake: Store, files: Iterable[FileAction], only: Collection[str]) -> Partials:
    """Return the partials of the rows of these files."""
    sums = PartialSums(only)
    for file in files:
        table = TABLES[file.table]
        for rows in read_batches(lake, table, file, _columns(table, only)):
            sums.add(table.name, rows)
    return sums.result()


def _columns(table: LakeTable, only: Collection[str]) -> list[str]:
    names = {*_TIMES, *(COUNTED[table.name].needs if table.name in COUNTED else ())}
    if set(only) != {COUNTS}:
        names.update(_COLUMNS.get(table.name, ()))
    return [name for name in table.schema.names if name in names]


def read_batches(lake: Store, table: LakeTable, file: FileAction, columns: Sequence[str]) -> Iterator[Any]:
    """Yield some columns of a file, with its partition columns, and with nulls for columns that it lacks."""
    with lake.open_input(file.lake_path) as source, pq.ParquetFile(source) as opened:
        stored = [name for name in columns if name in opened.schema_arrow.names]
        for batch in opened.iter_batches(PIPELINE_CHUNK_ROWS, columns=stored):
            yield pa.table({name: _column(table, file, batch, name) for name in columns})


def _column(table: LakeTable, file: FileAction, batch: Any, name: str) -> Any:
    type_ = table.schema.field(name).type
    if name in batch.schema.names:
        return batch.column(name).cast(type_)
    value = file.partition.get(name)
    return pa.nulls(len(batch), type_) if value is None else pa.repeat(pa.scalar(value).cast(type_), len(batch))


def missing_file_error(table: str, path: str) -> StorageError:
    return StorageError(
        f"cannot compute {table}: {path} is part of a table and is missing; restore it from a backup, or move "
        "the lake and its checkpoint away to fill the tables again"
    )
