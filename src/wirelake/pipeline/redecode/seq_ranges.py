"""Split history into ranges of seqs of about the same size, and read the rows of a range."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.limits import PIPELINE_PARTITION_BYTES, PIPELINE_PARTITION_ROWS
from wirelake.pipeline.commit.files import FileAction

SEQ_END: Final = 2**62  # no record has this seq, or a later one


class RowGroup(Struct, frozen=True):
    """Describe a row group of a Parquet file."""

    file: FileAction
    from_seq: int
    until_seq: int
    at_max_us: int
    rows: int
    bytes: int  # uncompressed


class SeqRange(Struct, frozen=True):
    """Describe the records from one seq on, before another."""

    from_seq: int
    until_seq: int


EVERYTHING: Final = SeqRange(0, SEQ_END)


def row_groups(lake: Store, files: Iterable[FileAction]) -> list[RowGroup]:
    """Return the row groups of these files, from their footers."""
    found = []
    for file in files:
        with lake.open_input(file.lake_path) as source:
            metadata = pq.read_metadata(source)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                seqs, ats = _bounds(group, "seq"), _bounds(group, "received_at")
                from_seq, until_seq = (seqs[0], seqs[1] + 1) if seqs is not None else (0, SEQ_END)
                at_us = _us(ats[1]) if ats is not None else SEQ_END
                found.append(RowGroup(file, from_seq, until_seq, at_us, group.num_rows, group.total_byte_size))
    return found


def split_range(groups: Iterable[RowGroup], at_least: int = 1) -> list[SeqRange]:
    """Return ranges that cover everything, each with about as many of these rows as a task should have."""
    ordered = sorted(groups, key=lambda group: (group.from_seq, group.until_seq))
    rows_max = min(PIPELINE_PARTITION_ROWS, max(1, sum(group.rows for group in ordered) // at_least))
    ranges: list[SeqRange] = []
    start = rows = size = 0
    for group in ordered:
        is_full = rows + group.rows > rows_max or size + group.bytes > PIPELINE_PARTITION_BYTES
        if rows and is_full and group.from_seq > start:
            ranges.append(SeqRange(start, group.from_seq))
            start, rows, size = group.from_seq, 0, 0
        rows += group.rows
        size += group.bytes
    return [*ranges, SeqRange(start, SEQ_END)]


def in_ranges(groups: Iterable[RowGroup], ranges: Sequence[SeqRange]) -> list[list[RowGroup]]:
    """Return for each of the ranges, which follow one another, the row groups that overlap it."""
    starts = [part.from_seq for part in ranges]
    found: list[list[RowGroup]] = [[] for _ in ranges]
    for group in groups:
        first = max(0, bisect_right(starts, group.from_seq) - 1)
        for number in range(first, bisect_left(starts, group.until_seq)):
            found[number].append(group)
    return found


def files_of(groups: Iterable[RowGroup]) -> list[FileAction]:
    return list({group.file.path: group.file for group in groups}.values())


def read_range(
    lake: Store,
    table: LakeTable,
    files: Sequence[FileAction],
    part: SeqRange,
    select: Callable[[Any], Any] = lambda rows: rows,
) -> Any:
    """Return the rows of this range, with all columns of the table in this version, partition columns included."""
    found = [table.schema.empty_table()]
    for file in files:
        with lake.open_input(file.lake_path) as source, pq.ParquetFile(source) as opened:
            groups = [number for number in range(opened.num_row_groups) if _overlaps(opened, number, part)]
            if groups:
                found.append(select(_in_range(_complete(table, file, opened.read_row_groups(groups)), part)))
    return pa.concat_tables(found)


def _in_range(rows: Any, part: SeqRange) -> Any:
    """Return the rows in a range. Mostly these are all of them, which avoids a copy."""
    seq = rows["seq"]
    inside = pc.and_(pc.greater_equal(seq, part.from_seq), pc.less(seq, part.until_seq))
    return rows if pc.all(inside).as_py() else rows.filter(inside)


def _overlaps(opened: pq.ParquetFile, number: int, part: SeqRange) -> bool:
    seqs = _bounds(opened.metadata.row_group(number), "seq")
    return seqs is None or (seqs[0] < part.until_seq and seqs[1] >= part.from_seq)


def _complete(table: LakeTable, file: FileAction, rows: Any) -> Any:
    """Return the rows of a file with its partition columns, and with nulls for columns that it lacks."""
    columns = []
    for field in table.schema:
        if field.name in rows.schema.names:
            columns.append(rows[field.name].cast(field.type))
        elif file.partition.get(field.name) is not None:
            columns.append(pa.repeat(_partition_value(file.partition[field.name], field.type), len(rows)))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.table(columns, schema=table.schema)


def _partition_value(text: str | None, kind: Any) -> Any:
    return pa.scalar(text, pa.string()).cast(kind)


def _bounds(group: Any, column: str) -> tuple[Any, Any] | None:
    for number in range(group.num_columns):
        found = group.column(number)
        if found.path_in_schema == column:
            stats = found.statistics
            return (stats.min, stats.max) if stats is not None and stats.has_min_max else None
    return None


def _us(at: Any) -> int:
    return int(pa.scalar(at, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())
