"""Refresh the gold tables: compute the ranges of time that changed again, and replace their rows.

Nothing is added to old values, so a repeated refresh does no harm. The files of a day are replaced in one commit.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.errors import StorageError
from wirelake.lake.query import is_written
from wirelake.lake.store import Store
from wirelake.lake.tables import (
    BARS_MINUTE,
    BATCHES,
    CALL_MINUTE,
    CALLS,
    DELIVERIES,
    DELIVERY_MINUTE,
    DEVICE_COMMANDS,
    DEVICE_LATEST,
    FRAMES,
    LEDGER,
    MESSAGES,
    QUARANTINE,
    READINGS,
    RECORDS,
    TABLES,
    TALLIES,
    TIME,
    TRAFFIC_MINUTE,
    LakeTable,
)
from wirelake.limits import GOLD_LEDGER_EVERY_S, GOLD_MINUTES_EVERY_S
from wirelake.pipeline.commit.delta import listing_lock, live_files, open_table, replace_files
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.gold.ledger import ledger
from wirelake.pipeline.gold.schedule import Dirty, GoldGroup
from wirelake.pipeline.gold.tables import (
    bars_minute,
    call_minute,
    delivery_minute,
    device_latest,
    traffic_minute,
)
from wirelake.pipeline.time_ranges import HOUR_US, MINUTE_US, TimeRange, days_of, is_within, join_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MISSING_SHOWN: Final = 3  # missing files that are named


class GoldTable(Struct, frozen=True):
    """Describe how to compute a gold table by ranges of time: from which tables, each with its column of time."""

    table: LakeTable
    time: str  # the column of time in the gold table
    unit_us: int
    inputs: tuple[tuple[LakeTable, str], ...]
    compute: Callable[..., "DataFrame"]
    shows_missing_files: bool = False  # other tables are not computed if files are missing


BY_MINUTE: Final = (
    GoldTable(TRAFFIC_MINUTE, "minute", MINUTE_US, ((MESSAGES, "at"), (QUARANTINE, "at")), traffic_minute),
    GoldTable(DELIVERY_MINUTE, "minute", MINUTE_US, ((DELIVERIES, "first_sent_at"),), delivery_minute),
    GoldTable(CALL_MINUTE, "minute", MINUTE_US, ((CALLS, "asked_at"),), call_minute),
    GoldTable(BARS_MINUTE, "minute", MINUTE_US, ((RECORDS, "recorded_at"),), bars_minute),
)
BY_HOUR: Final = GoldTable(
    LEDGER,
    "hour",
    HOUR_US,
    (
        (FRAMES, "at"),
        (MESSAGES, "at"),
        (QUARANTINE, "at"),
        (DEVICE_COMMANDS, "first_at"),
        (DELIVERIES, "first_sent_at"),
        (TALLIES, "hour"),
        (BATCHES, "hour"),
    ),
    ledger,
    shows_missing_files=True,
)


def refresh_minutes(spark: "SparkSession", lake: Store, dirty: Dirty) -> None:
    for gold in BY_MINUTE:
        _rebuild(spark, lake, gold, dirty)
    _refresh_devices(spark, lake, dirty)


def refresh_ledger(spark: "SparkSession", lake: Store, dirty: Dirty) -> None:
    """Refresh the ledger. It counts whole hours of all tables, so this runs less often."""
    _rebuild(spark, lake, BY_HOUR, dirty)


GOLD: Final = (
    GoldGroup("minutes", refresh_minutes, GOLD_MINUTES_EVERY_S),
    GoldGroup("ledger", refresh_ledger, GOLD_LEDGER_EVERY_S),
)


def _rebuild(spark: "SparkSession", lake: Store, gold: GoldTable, dirty: Dirty) -> None:
    minutes = {minute for table, _ in gold.inputs for minute in dirty.get(table.name, ())}
    if not minutes:
        return
    ranges = join_ranges((minute - minute % gold.unit_us for minute in minutes), gold.unit_us)
    with listing_lock(lake):
        input_files = [table_files(lake, table, ranges) for table, _ in gold.inputs]
    missing = [file for files in input_files for file in files if lake.size(_path(file)) is None]
    extra: dict[str, Any] = {}
    if missing and gold.shows_missing_files:
        extra = {"missing_files": spark.createDataFrame(_missing_rows(missing, ranges))}
        input_files = [[file for file in files if file not in missing] for files in input_files]
    elif missing:
        raise missing_file_error(gold.table, lake.name(_path(missing[0])))
    inputs = [
        _within(_read(spark, lake, table, files), column, ranges)
        for (table, column), files in zip(gold.inputs, input_files, strict=True)
    ]
    made = gold.compute(*inputs, **extra).toArrow().select(gold.table.schema.names).cast(gold.table.schema)
    _replace(lake, gold, made, ranges)


def _path(file: FileAction) -> str:
    return f"{TABLES[file.table].folder}/{file.path}"


def missing_file_error(table: LakeTable, path: str) -> StorageError:
    return StorageError(
        f"cannot compute {table.name}: {path} is part of a table and is missing; restore it from a backup, or move "
        "the lake and its checkpoint away to fill the tables again"
    )


def _missing_rows(missing: Sequence[FileAction], ranges: Sequence[TimeRange]) -> Any:
    """Return one row for each range and each day in it of which files are missing, at its first hour."""
    rows = []
    for each in ranges:
        for day in sorted(days_of([each])):
            of_day = [file for file in missing if file.partition.get("day") == day.isoformat()]
            if of_day:
                hour = max(each.times[0], datetime(day.year, day.month, day.day, tzinfo=UTC))
                files = sorted(f"{file.table}/{file.path}" for file in of_day)
                text = ", ".join(files[:_MISSING_SHOWN]) + (", …" if len(files) > _MISSING_SHOWN else "")
                rows.append({"hour": hour, "protocol": "", "files_missing": len(files), "files": text})
    schema = pa.schema(
        [("hour", TIME), ("protocol", pa.string()), ("files_missing", pa.int64()), ("files", pa.string())]
    )
    return pa.Table.from_pylist(rows, schema)


def rows_of(
    spark: "SparkSession", lake: Store, table: LakeTable, column: str, ranges: Sequence[TimeRange]
) -> "DataFrame":
    """Return the rows of these ranges, from the files that may have some."""
    return _within(_read(spark, lake, table, table_files(lake, table, ranges)), column, ranges)


def _within(rows: "DataFrame", column: str, ranges: Sequence[TimeRange]) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 (half a gigabyte)

    return rows.where(is_within(f.col(column), ranges))


def _refresh_devices(spark: "SparkSession", lake: Store, dirty: Dirty) -> None:
    minutes = {minute for table in (DEVICE_COMMANDS, READINGS) for minute in dirty.get(table.name, ())}
    if not minutes:
        return
    ranges = join_ranges(minutes, MINUTE_US)
    old = table_files(lake, DEVICE_LATEST)
    before = _read(spark, lake, DEVICE_LATEST, old)
    commands = rows_of(spark, lake, DEVICE_COMMANDS, "at", ranges)
    readings = rows_of(spark, lake, READINGS, "at", ranges)
    latest = device_latest(before, commands, readings).toArrow()
    rows = latest.select(DEVICE_LATEST.schema.names).cast(DEVICE_LATEST.schema).sort_by("serial")
    new = write_rows(DEVICE_LATEST, rows, lake)
    replace_files(lake, open_table(lake, DEVICE_LATEST), DEVICE_LATEST.name, new, old, data_change=True)


def _replace(lake: Store, gold: GoldTable, made: Any, ranges: Sequence[TimeRange]) -> None:
    """Replace the rows of these ranges. Rows of other times in the same files stay as they are."""
    table = gold.table
    old = table_files(lake, table, ranges)
    others = [_outside(_contents(lake, table, file), gold.time, ranges) for file in old]
    rows = pa.concat_tables([*others, made]).sort_by([(name, "ascending") for name in table.schema.names[:3]])
    replace_files(lake, open_table(lake, table), table.name, write_rows(table, rows, lake), old, data_change=True)


def _outside(rows: Any, column: str, ranges: Sequence[TimeRange]) -> Any:
    times = rows.column(column)
    for each in ranges:
        first, end = (pa.scalar(us, TIME) for us in (each.from_us, each.until_us))
        rows = rows.filter(pc.or_(pc.less(times, first), pc.greater_equal(times, end)))
        times = rows.column(column)
    return rows


def _contents(lake: Store, table: LakeTable, file: FileAction) -> Any:
    """Return the rows of a small file, with its partition columns, and with nulls for columns that it lacks."""
    with lake.open_input(f"{table.folder}/{file.path}") as source:
        found = pq.ParquetFile(source).read()
    columns = []
    for field in table.schema:
        if field.name in found.schema.names:
            columns.append(found.column(field.name).cast(field.type))
        else:
            value = pa.scalar(file.partition.get(field.name)).cast(field.type) if field.name in file.partition else None
            columns.append(pa.repeat(value if value is not None else pa.scalar(None, field.type), len(found)))
    return pa.table(columns, schema=table.schema)


def table_files(lake: Store, table: LakeTable, ranges: Sequence[TimeRange] | None = None) -> list[FileAction]:
    """Return all files of a table, or those of the days that these ranges touch."""
    if not is_written(lake, table):
        return []
    return live_files(open_table(lake, table), table.name, None if ranges is None else days_of(ranges))


def _read(spark: "SparkSession", lake: Store, table: LakeTable, files: Sequence[FileAction]) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    if not files:
        return spark.createDataFrame(table.schema.empty_table())
    folder = lake.table_uri(table.folder)
    reader = spark.read.schema(from_arrow_schema(table.schema)).option("basePath", folder)
    return reader.parquet(*(f"{folder}/{file.path}" for file in files))
