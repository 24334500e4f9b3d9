"""The gold tables brought up to date: what changed since is worked out anew, and takes the place of what was there.

Nothing is added to anything, so doing it twice does no harm. A table's files of a day are replaced in one commit.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.errors import StorageError
from wirelake.lake.query import is_written
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
    Table,
)
from wirelake.limits import GOLD_LEDGER_EVERY_S, GOLD_MINUTES_EVERY_S
from wirelake.pipeline.commits import between_batches, live_files, open_table, swap
from wirelake.pipeline.gold.bars import bars_minute
from wirelake.pipeline.gold.calls import call_minute
from wirelake.pipeline.gold.deliveries import delivery_minute
from wirelake.pipeline.gold.devices import device_latest
from wirelake.pipeline.gold.ledger import ledger
from wirelake.pipeline.gold.stretches import HOUR_US, MINUTE_US, Stretch, days, stretches, within
from wirelake.pipeline.gold.traffic import traffic_minute
from wirelake.pipeline.parquet import FileAction, write
from wirelake.pipeline.refreshing import Dirty, Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_ABSENT_SHOWN: Final = 3  # missing files that are named


class Recipe(Struct, frozen=True):
    """A gold table, cut by time: the tables it is made of, each with the column that says when, and how."""

    table: Table
    time: str  # the gold table's own column
    unit_us: int
    made_of: tuple[tuple[Table, str], ...]
    make: Callable[..., "DataFrame"]
    shows_absent: bool = False  # whether it says which files are not there; the others refuse to be made without them


BY_MINUTE: Final = (
    Recipe(TRAFFIC_MINUTE, "minute", MINUTE_US, ((MESSAGES, "at"), (QUARANTINE, "at")), traffic_minute),
    Recipe(DELIVERY_MINUTE, "minute", MINUTE_US, ((DELIVERIES, "first_sent_at"),), delivery_minute),
    Recipe(CALL_MINUTE, "minute", MINUTE_US, ((CALLS, "asked_at"),), call_minute),
    Recipe(BARS_MINUTE, "minute", MINUTE_US, ((RECORDS, "recorded_at"),), bars_minute),
)
BY_HOUR: Final = Recipe(
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
    shows_absent=True,
)


def refresh_minutes(spark: "SparkSession", lake: Path, dirty: Dirty) -> None:
    for recipe in BY_MINUTE:
        _cook(spark, lake, recipe, dirty)
    _devices(spark, lake, dirty)


def refresh_ledger(spark: "SparkSession", lake: Path, dirty: Dirty) -> None:
    """It counts whole hours where they lie, so it is asked for less often."""
    _cook(spark, lake, BY_HOUR, dirty)


GOLD: Final = (
    Part("minutes", refresh_minutes, GOLD_MINUTES_EVERY_S),
    Part("ledger", refresh_ledger, GOLD_LEDGER_EVERY_S),
)


def _cook(spark: "SparkSession", lake: Path, recipe: Recipe, dirty: Dirty) -> None:
    minutes = {minute for table, _ in recipe.made_of for minute in dirty.get(table.name, ())}
    if not minutes:
        return
    when = stretches((minute - minute % recipe.unit_us for minute in minutes), recipe.unit_us)
    with between_batches(lake):
        listed = [_files(lake, table, when) for table, _ in recipe.made_of]
    absent = [file for files in listed for file in files if not _path(lake, file).exists()]
    more: dict[str, Any] = {}
    if absent and recipe.shows_absent:
        more = {"absent": spark.createDataFrame(_absent_rows(absent, when))}
        listed = [[file for file in files if file not in absent] for files in listed]
    elif absent:
        raise missing_file(recipe.table, _path(lake, absent[0]))
    inputs = [
        _within(_read(spark, lake, table, files), column, when)
        for (table, column), files in zip(recipe.made_of, listed, strict=True)
    ]
    made = recipe.make(*inputs, **more).toArrow().select(recipe.table.schema.names).cast(recipe.table.schema)
    _replace(lake, recipe, made, when)


def _path(lake: Path, file: FileAction) -> Path:
    return lake / TABLES[file.table].folder / file.path


def missing_file(made: Table, path: Path) -> StorageError:
    return StorageError(
        f"{made.name} cannot be worked out: {path} belongs to a table and is not there; bring it back from a backup, "
        "or move the lake and its checkpoint away and let the tables be filled anew"
    )


def _absent_rows(absent: Sequence[FileAction], when: Sequence[Stretch]) -> Any:
    """For each stretch of time and each day in it of which files are missing, a row in its first hour."""
    rows = []
    for stretch in when:
        for day in sorted(days([stretch])):
            mine = [file for file in absent if file.groups.get("day") == day.isoformat()]
            if mine:
                hour = max(stretch.times[0], datetime(day.year, day.month, day.day, tzinfo=UTC))
                files = sorted(f"{file.table}/{file.path}" for file in mine)
                said = ", ".join(files[:_ABSENT_SHOWN]) + (", …" if len(files) > _ABSENT_SHOWN else "")
                rows.append({"hour": hour, "protocol": "", "files_missing": len(files), "files": said})
    schema = pa.schema(
        [("hour", TIME), ("protocol", pa.string()), ("files_missing", pa.int64()), ("files", pa.string())]
    )
    return pa.Table.from_pylist(rows, schema)


def rows_of(spark: "SparkSession", lake: Path, table: Table, column: str, when: Sequence[Stretch]) -> "DataFrame":
    """The table's rows of these times, out of the files that may have some."""
    return _within(_read(spark, lake, table, _files(lake, table, when)), column, when)


def _within(rows: "DataFrame", column: str, when: Sequence[Stretch]) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 (half a gigabyte)

    return rows.where(within(f.col(column), when))


def _devices(spark: "SparkSession", lake: Path, dirty: Dirty) -> None:
    minutes = {minute for table in (DEVICE_COMMANDS, READINGS) for minute in dirty.get(table.name, ())}
    if not minutes:
        return
    when = stretches(minutes, MINUTE_US)
    old = _files(lake, DEVICE_LATEST)
    before = _read(spark, lake, DEVICE_LATEST, old)
    commands = rows_of(spark, lake, DEVICE_COMMANDS, "at", when)
    readings = rows_of(spark, lake, READINGS, "at", when)
    latest = device_latest(before, commands, readings).toArrow()
    rows = latest.select(DEVICE_LATEST.schema.names).cast(DEVICE_LATEST.schema).sort_by("serial")
    new = write(DEVICE_LATEST, rows, lake)
    swap(open_table(lake, DEVICE_LATEST), DEVICE_LATEST.name, new, old, data_change=True)


def _replace(lake: Path, recipe: Recipe, made: Any, when: Sequence[Stretch]) -> None:
    """Rows of other times in the files concerned stay as they are."""
    table = recipe.table
    old = _files(lake, table, when)
    kept = [_outside(_contents(lake, table, file), recipe.time, when) for file in old]
    rows = pa.concat_tables([*kept, made]).sort_by([(name, "ascending") for name in table.schema.names[:3]])
    swap(open_table(lake, table), table.name, write(table, rows, lake), old, data_change=True)


def _outside(rows: Any, column: str, when: Sequence[Stretch]) -> Any:
    times = rows.column(column)
    for stretch in when:
        first, end = (pa.scalar(us, TIME) for us in (stretch.from_us, stretch.until_us))
        rows = rows.filter(pc.or_(pc.less(times, first), pc.greater_equal(times, end)))
        times = rows.column(column)
    return rows


def _contents(lake: Path, table: Table, file: FileAction) -> Any:
    """A small file, with the columns that only its place says, and those it is too old to have."""
    found = pq.ParquetFile(lake / table.folder / file.path).read()
    columns = []
    for field in table.schema:
        if field.name in found.schema.names:
            columns.append(found.column(field.name).cast(field.type))
        else:
            value = pa.scalar(file.groups.get(field.name)).cast(field.type) if field.name in file.groups else None
            columns.append(pa.repeat(value if value is not None else pa.scalar(None, field.type), len(found)))
    return pa.table(columns, schema=table.schema)


def _files(lake: Path, table: Table, when: Sequence[Stretch] | None = None) -> list[FileAction]:
    """All of them, or those of the days that these times touch."""
    if not is_written(lake, table):
        return []
    return live_files(open_table(lake, table), table.name, None if when is None else days(when))


def _read(spark: "SparkSession", lake: Path, table: Table, files: Sequence[FileAction]) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    if not files:
        return spark.createDataFrame(table.schema.empty_table())
    folder = lake / table.folder
    reader = spark.read.schema(from_arrow_schema(table.schema)).option("basePath", str(folder))
    return reader.parquet(*(str(folder / file.path) for file in files))
