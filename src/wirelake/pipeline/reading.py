"""Record batches of a span of the log, large enough to be worth a call."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from wirelake.limits import PIPELINE_CHUNK_BYTES, PIPELINE_CHUNK_ROWS, PIPELINE_HANDED_ROWS, PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.range_reader import Gap, RangeReader
from wirelake.pipeline.spans import Span


class SpanReader:
    """Reads a span to its last record, or raises. `gaps` then says which of its records are lost, and why."""

    def __init__(
        self,
        folder: Path,
        span: Span,
        *,
        wait_s: float = PIPELINE_VIEW_WAIT_S,
        damaged: Sequence[Gap] = (),
        skip_damaged: bool = False,
    ) -> None:
        salt = None if span.salt < 0 else span.salt
        self._span = span
        self._log = RangeReader(folder, wait_s=wait_s, salt=salt, damaged=damaged, skip_damaged=skip_damaged)

    @property
    def gaps(self) -> list[Gap]:
        return self._log.gaps

    def batches(self) -> Iterator[Any]:
        """As they lie on disk where they are large; small ones joined: a quiet gateway's have one record each."""
        return gathered(self._read())

    def columns(self, columns: list[str]) -> Iterator[Any]:
        """To be handed over as they are: nothing is joined that is not asked for, and no block that is large enough."""
        batches = self._read()
        return gathered((batch.select(columns) for batch in batches) if columns else batches, PIPELINE_HANDED_ROWS)

    def _read(self) -> Iterator[Any]:
        return self._log.read(self._span.from_seq, self._span.until_seq, self._span.near)


def gathered(batches: Iterable[Any], rows_max: int = PIPELINE_CHUNK_ROWS) -> Iterator[Any]:
    """The same rows in the same order, in batches of about so many rows or PIPELINE_CHUNK_BYTES."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= rows_max or size >= PIPELINE_CHUNK_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    # Files of an age differ in the columns they have; what is not there is null.
    same = all(batch.schema.equals(batches[0].schema) for batch in batches)
    if same:
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
