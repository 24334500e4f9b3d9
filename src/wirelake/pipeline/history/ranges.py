"""Files of tables by the seqs of their rows: what lies in a range of them, and ranges of about the same size."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.lake.tables import Table
from wirelake.limits import PIPELINE_PARTITION_BYTES, PIPELINE_PARTITION_ROWS
from wirelake.pipeline.parquet import FileAction

SEQ_END: Final = 2**62  # no record has this seq, or a later one


class Piece(Struct, frozen=True):
    """A file's rows that lie together, or all of them."""

    file: FileAction
    from_seq: int
    until_seq: int
    at_max_us: int
    rows: int
    bytes: int  # not compressed


class Range(Struct, frozen=True):
    from_seq: int
    until_seq: int


EVERYTHING: Final = Range(0, SEQ_END)


def pieces_of(lake: Path, table: Table, files: Iterable[FileAction]) -> list[Piece]:
    """By the files' own words, which stand at their ends."""
    found = []
    for file in files:
        metadata = pq.read_metadata(lake / table.folder / file.path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                seqs, ats = _bounds(group, "seq"), _bounds(group, "at")
                from_seq, until_seq = (seqs[0], seqs[1] + 1) if seqs is not None else (0, SEQ_END)
                at_us = _us(ats[1]) if ats is not None else SEQ_END
                found.append(Piece(file, from_seq, until_seq, at_us, group.num_rows, group.total_byte_size))
    return found


def cut(pieces: Iterable[Piece], at_least: int = 1) -> list[Range]:
    """Ranges that together are everything, each with about as many rows of these as a task should have."""
    ordered = sorted(pieces, key=lambda piece: (piece.from_seq, piece.until_seq))
    rows_max = min(PIPELINE_PARTITION_ROWS, max(1, sum(piece.rows for piece in ordered) // at_least))
    ranges: list[Range] = []
    start = rows = size = 0
    for piece in ordered:
        is_full = rows + piece.rows > rows_max or size + piece.bytes > PIPELINE_PARTITION_BYTES
        if rows and is_full and piece.from_seq > start:
            ranges.append(Range(start, piece.from_seq))
            start, rows, size = piece.from_seq, 0, 0
        rows += piece.rows
        size += piece.bytes
    return [*ranges, Range(start, SEQ_END)]


def placed(pieces: Iterable[Piece], ranges: Sequence[Range]) -> list[list[Piece]]:
    """For each of the ranges, which follow one another, the pieces that have rows in it."""
    starts = [part.from_seq for part in ranges]
    found: list[list[Piece]] = [[] for _ in ranges]
    for piece in pieces:
        first = max(0, bisect_right(starts, piece.from_seq) - 1)
        for number in range(first, bisect_left(starts, piece.until_seq)):
            found[number].append(piece)
    return found


def files_of(pieces: Iterable[Piece]) -> list[FileAction]:
    return list({piece.file.path: piece.file for piece in pieces}.values())


def read_range(
    lake: Path,
    table: Table,
    files: Sequence[FileAction],
    part: Range,
    wanted: Callable[[Any], Any] = lambda rows: rows,
) -> Any:
    """The rows of this range, with all of the table's columns of today, those its files are grouped by among them."""
    found = [table.schema.empty_table()]
    for file in files:
        with pq.ParquetFile(lake / table.folder / file.path) as opened:
            groups = [number for number in range(opened.num_row_groups) if _overlaps(opened, number, part)]
            if groups:
                found.append(wanted(_in_range(_whole(table, file, opened.read_row_groups(groups)), part)))
    return pa.concat_tables(found)


def _in_range(rows: Any, part: Range) -> Any:
    """A copy only where it must be: mostly the range has all that was read for it."""
    seq = rows["seq"]
    inside = pc.and_(pc.greater_equal(seq, part.from_seq), pc.less(seq, part.until_seq))
    return rows if pc.all(inside).as_py() else rows.filter(inside)


def _overlaps(opened: pq.ParquetFile, number: int, part: Range) -> bool:
    seqs = _bounds(opened.metadata.row_group(number), "seq")
    return seqs is None or (seqs[0] < part.until_seq and seqs[1] >= part.from_seq)


def _whole(table: Table, file: FileAction, rows: Any) -> Any:
    """With the columns that only its place says, and those that it is too old to have."""
    columns = []
    for field in table.schema:
        if field.name in rows.schema.names:
            columns.append(rows[field.name].cast(field.type))
        elif file.groups.get(field.name) is not None:
            columns.append(pa.repeat(_read(file.groups[field.name], field.type), len(rows)))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.table(columns, schema=table.schema)


def _read(text: str | None, kind: Any) -> Any:
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
