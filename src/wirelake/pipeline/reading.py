"""Record batches of a span of the log, large enough to be worth a call."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from wirelake.limits import PIPELINE_CHUNK_BYTES, PIPELINE_CHUNK_ROWS, PIPELINE_HANDED_ROWS
from wirelake.log.reader import Reader
from wirelake.pipeline.spans import Span


def read_span(folder: Path, span: Span) -> Iterator[Any]:
    """As they lie on disk where they are large; small ones joined. A quiet gateway's blocks have one record each."""
    return gathered(Reader(folder).read(span.from_seq, span.until_seq, near=span.near))


def read_columns(folder: Path, span: Span, columns: list[str]) -> Iterator[Any]:
    """To be handed over as they are: no column is joined that is not asked for, and no block that is large enough."""
    batches = Reader(folder).read(span.from_seq, span.until_seq, near=span.near)
    return gathered((batch.select(columns) for batch in batches) if columns else batches, PIPELINE_HANDED_ROWS)


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
