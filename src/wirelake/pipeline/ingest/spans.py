"""Cut the log into batches and spans, and read a span as record batches."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import pyarrow as pa
from msgspec import Struct, json
from msgspec.structs import fields

from wirelake.errors import MissingRecordsError
from wirelake.lake.store import Store
from wirelake.limits import (
    PIPELINE_CHUNK_BYTES,
    PIPELINE_CHUNK_ROWS,
    PIPELINE_HANDED_ROWS,
    PIPELINE_PARTITION_BYTES,
    PIPELINE_PARTITION_ROWS,
    PIPELINE_VIEW_WAIT_S,
)
from wirelake.log.segments.block_index import BlockRange
from wirelake.log.segments.mapped_segment import BlockHint
from wirelake.log.segments.reader import Gap, RangeReader
from wirelake.pipeline.ingest.segment_parts import SegmentPart, fetch_parts


class Span(Struct, frozen=True):
    """Describe what one task reads: the records of the log from one seq on, before another."""

    from_seq: int
    until_seq: int
    now_us: int = 0  # the latest `at` of the whole batch: its clock
    # A block at or before the first record, which saves the task a search (see `BlockHint`); -1 is none.
    near_segment: int = -1
    near_offset: int = -1
    near_seq: int = -1
    salt: int = -1  # of the log, so that a task does not read another one; -1 is unknown
    parts: str = ""  # where executors without the log read it: a list of `SegmentPart`, as JSON

    @property
    def near(self) -> BlockHint | None:
        return None if self.near_segment < 0 else BlockHint(self.near_segment, self.near_offset, self.near_seq)

    @property
    def rows(self) -> int:
        return self.until_seq - self.from_seq


SPAN_SCHEMA: Final = pa.schema(
    [(field.name, pa.string() if field.type is str else pa.int64()) for field in fields(Span)]
)


class LogIndex(Protocol):
    """List the blocks of a log, in a folder (`BlockIndex`) or in a store (`StoredIndex`)."""

    @property
    def folder(self) -> Path | str: ...

    @property
    def next_seq(self) -> int: ...

    @property
    def oldest_seq(self) -> int: ...

    @property
    def salt(self) -> int | None: ...

    def ranges(self, from_seq: int, until_seq: int) -> Iterator[BlockRange]: ...


def batch_end(index: LogIndex, from_seq: int, until_seq: int, rows_max: int | None, bytes_max: int | None) -> int:
    """Return the end of a batch that begins at `from_seq`: whole blocks that fit, and at least one record."""
    end, size = from_seq, 0
    for block in index.ranges(from_seq, until_seq):
        size += block.bytes
        if rows_max is not None and block.end_seq - from_seq > rows_max:
            return end if end > from_seq else from_seq + rows_max
        if bytes_max is not None and size > bytes_max and end > from_seq:
            return end
        end = block.end_seq
    return end


def plan_spans(index: LogIndex, from_seq: int, until_seq: int, rows: int | None = None) -> list[Span]:
    """Return few, large spans: none has much more than `rows` records or PIPELINE_PARTITION_BYTES. Cut between blocks.

    Raise MissingRecordsError if they do not cover every record: after a power failure, and before the gateway has
    recovered the log, the log may end before a batch that was planned earlier.
    """
    if until_seq <= from_seq:
        return []
    rows = PIPELINE_PARTITION_ROWS if rows is None else rows
    blocks = list(index.ranges(from_seq, until_seq))
    now_us = max((block.at_max_us for block in blocks), default=0)
    size = sum(block.bytes for block in blocks)
    count = max(1, round((until_seq - from_seq) / rows), round(size / PIPELINE_PARTITION_BYTES))
    weight = sum(map(_weight, blocks)) / count
    spans: list[Span] = []
    start, first, filled = from_seq, None, 0.0
    for number, block in enumerate(blocks):
        first = first or block
        filled += _weight(block)
        if filled >= weight * (len(spans) + 1) or number == len(blocks) - 1:
            spans.append(_span(start, block.end_seq, now_us, first, index.salt))
            start, first = block.end_seq, None
    if start < until_seq:
        raise MissingRecordsError(
            f"records {start} to {until_seq - 1} of a batch that begins with {from_seq} are not in {index.folder}, "
            f"which ends before record {index.next_seq}: start the gateway, which recovers the log, or restore it"
        )
    return spans


def _span(from_seq: int, until_seq: int, now_us: int, first: BlockRange, salt: int | None) -> Span:
    return Span(from_seq, until_seq, now_us, *(first.hint or (-1, -1, -1)), -1 if salt is None else salt)


def _weight(block: BlockRange) -> float:
    return block.rows / PIPELINE_PARTITION_ROWS + block.bytes / PIPELINE_PARTITION_BYTES


class SpanReader:
    """Read a span to its last record, or raise. Afterwards `gaps` says which of its records are lost, and why."""

    def __init__(
        self,
        folder: Path,
        span: Span,
        *,
        copies: Store | None = None,
        wait_s: float = PIPELINE_VIEW_WAIT_S,
        damaged: Sequence[Gap] = (),
        skip_damaged: bool = False,
    ) -> None:
        """Read from `folder` or, if the span says so, from `copies` of the log in a store."""
        self._folder = folder
        self._span = span
        self._copies = copies
        self._salt = None if span.salt < 0 else span.salt
        self._options: dict[str, Any] = {"wait_s": wait_s, "damaged": damaged, "skip_damaged": skip_damaged}
        self.gaps: list[Gap] = []

    def batches(self) -> Iterator[Any]:
        """Yield large blocks as they are, and small ones joined: those of a quiet gateway have one record each."""
        return coalesce(self._read())

    def columns(self, columns: list[str]) -> Iterator[Any]:
        """Yield blocks to be passed on as they are: only these columns, and joined only if they are very small."""
        batches = self._read()
        return coalesce((batch.select(columns) for batch in batches) if columns else batches, PIPELINE_HANDED_ROWS)

    def _read(self) -> Iterator[Any]:
        if not self._span.parts:
            yield from self._read_folder(self._folder, self._options)
            return
        if self._copies is None:
            raise AssertionError("a span that was copied to a store is read from there")
        with TemporaryDirectory(prefix="wirelake-log-") as name:
            folder = Path(name)
            parts = json.decode(self._span.parts, type=list[SegmentPart])
            fetch_parts(self._copies, parts, folder, self._salt)
            yield from self._read_folder(folder, {**self._options, "wait_s": 0.0})  # what is not there will not come

    def _read_folder(self, folder: Path, options: dict[str, Any]) -> Iterator[Any]:
        log = RangeReader(folder, salt=self._salt, **options)
        self.gaps = log.gaps
        return log.read(self._span.from_seq, self._span.until_seq, self._span.near)


def coalesce(batches: Iterable[Any], rows_max: int = PIPELINE_CHUNK_ROWS) -> Iterator[Any]:
    """Yield the same rows in the same order, in batches of about `rows_max` rows or PIPELINE_CHUNK_BYTES."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= rows_max or size >= PIPELINE_CHUNK_BYTES:
            yield _concat(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _concat(waiting)


def _concat(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return pa.concat_batches(batches)
    # Files of different versions differ in their columns; missing ones are null.
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
