"""Decide which files of a gold table to write again: a file holds the rows of some minutes of a day, and says so in its
name (`part-1210-1219-….parquet`).

The minutes of today are in files of a few minutes each, so that a merge costs what these minutes cost, not the day.
Files of a day that is over are joined.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.limits import GOLD_FILE_BYTES, GOLD_FILE_MINUTES
from wirelake.pipeline.commit.files import FileAction, PartitionFile
from wirelake.pipeline.time_ranges import DAY_US, HOUR_US, MINUTE_US

_NAME: Final = re.compile(r"part-(\d\d)(\d\d)-(\d\d)(\d\d)-[^/]*\Z")
_DAY_MINUTES: Final = DAY_US // MINUTE_US
_HOUR_MINUTES: Final = HOUR_US // MINUTE_US


class Minutes(Struct, frozen=True, order=True):
    """Describe a range of minutes of a day, with its last one."""

    first: int
    last: int

    def overlaps(self, other: "Minutes") -> bool:
        return self.first <= other.last and other.first <= self.last

    def join(self, other: "Minutes") -> "Minutes":
        return Minutes(min(self.first, other.first), max(self.last, other.last))

    @property
    def label(self) -> str:
        return "-".join(f"{each // 60:02d}{each % 60:02d}" for each in (self.first, self.last))


WHOLE_DAY: Final = Minutes(0, _DAY_MINUTES - 1)


def minutes_of_file(file: FileAction) -> Minutes:
    """Return which minutes a file may hold: those of its name, or else the whole day."""
    found = _NAME.search(file.path)
    if found is None:
        return WHOLE_DAY
    first_h, first_m, last_h, last_m = map(int, found.groups())
    return Minutes(first_h * 60 + first_m, last_h * 60 + last_m)


def plan_files(
    files: Sequence[FileAction], touched: Iterable[int], file_minutes: int
) -> tuple[list[Minutes], list[FileAction]]:
    """Return the ranges to write for these minutes of a day, and the files that they replace."""
    starts = {minute // file_minutes * file_minutes for minute in touched}
    ranges = {Minutes(start, start + file_minutes - 1) for start in starts}
    replaced: dict[str, FileAction] = {}
    known = [(minutes_of_file(file), file) for file in files]
    while True:
        found = [(minutes, file) for minutes, file in known if any(minutes.overlaps(each) for each in ranges)]
        joined = _join([*ranges, *(minutes for minutes, _ in found)])
        if joined == sorted(ranges) and len(found) == len(replaced):
            return joined, list(replaced.values())
        ranges, replaced = set(joined), {file.path: file for _, file in found}


def _join(ranges: Iterable[Minutes]) -> list[Minutes]:
    """Join ranges that overlap."""
    joined: list[Minutes] = []
    for each in sorted(ranges):
        if joined and joined[-1].overlaps(each):
            joined[-1] = joined[-1].join(each)
        else:
            joined.append(each)
    return joined


def plan_joins(files: Sequence[FileAction]) -> Iterator[tuple[Minutes, list[FileAction]]]:
    """Yield files of a day that is over, to be joined."""
    some: list[FileAction] = []
    for file in sorted(files, key=minutes_of_file):
        if some and sum(each.bytes for each in some) + file.bytes > GOLD_FILE_BYTES:
            if len(some) > 1:
                yield _range_of(some), some
            some = []
        some.append(file)
    if len(some) > 1:
        yield _range_of(some), some


def _range_of(files: Sequence[FileAction]) -> Minutes:
    found = minutes_of_file(files[0])
    for file in files[1:]:
        found = found.join(minutes_of_file(file))
    return found


def file_minutes(day: date, today: date) -> int:
    """Return how many minutes a new file is for: fewer while they still change."""
    return GOLD_FILE_MINUTES if day >= today else _HOUR_MINUTES


def minute_of_day(times: Any) -> Any:
    return pc.divide(pc.subtract(times.cast(pa.int64()), _midnight_us(times)), MINUTE_US)


def _midnight_us(times: Any) -> Any:
    return pc.multiply(pc.divide(times.cast(pa.int64()), DAY_US), DAY_US)


def within(rows: Any, time: str, day: date, minutes: Minutes) -> Any:
    """Return the rows of these minutes of a day."""
    start_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    times = rows[time].cast(pa.int64())
    is_late = pc.greater_equal(times, start_us + minutes.first * MINUTE_US)
    return rows.filter(pc.and_(is_late, pc.less(times, start_us + (minutes.last + 1) * MINUTE_US)))


def read_file(lake: Store, table: LakeTable, file: FileAction) -> Any:
    """Return the rows of a small file, with its partition columns, and with nulls for columns that it lacks."""
    with lake.open_input(file.lake_path) as source:
        found = pq.ParquetFile(source).read()
    columns = []
    for field in table.schema:
        if field.name in found.schema.names:
            columns.append(found.column(field.name).cast(field.type))
        else:
            value = pa.scalar(file.partition.get(field.name)).cast(field.type) if field.name in file.partition else None
            columns.append(pa.repeat(value if value is not None else pa.scalar(None, field.type), len(found)))
    return pa.table(columns, schema=table.schema)


def read_files(lake: Store, table: LakeTable, files: Iterable[FileAction]) -> Any:
    return pa.concat_tables([table.schema.empty_table(), *(read_file(lake, table, file) for file in files)])


def write_file(lake: Store, table: LakeTable, partition: dict[str, str | None], label: str, rows: Any) -> FileAction:
    """Write a file that has a label in its name."""
    file = PartitionFile(table, lake, partition, label=f"{label}-" if label else "")
    try:
        file.write(rows)
    except BaseException:
        file.discard()
        raise
    return file.close()
