"""Record batches of a span of the log, large enough to be worth a call."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from wirelake.limits import PIPELINE_CHUNK_BYTES, PIPELINE_CHUNK_ROWS
from wirelake.log.reader import Reader


def read_span(folder: Path, from_seq: int, until_seq: int) -> Iterator[Any]:
    """As they lie on disk where they are large; small ones joined. A quiet gateway's blocks have one record each."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in Reader(folder).read(from_seq, until_seq):
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PIPELINE_CHUNK_ROWS or size >= PIPELINE_CHUNK_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
