"""Redact files of bronze, in the executors."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import FRAMES, TIME
from wirelake.limits import PIPELINE_CHUNK_ROWS
from wirelake.pipeline.commit.files import FileAction, PartitionFile, mark_worker
from wirelake.pipeline.reports import driver_reports
from wirelake.protocols.record_redaction import RecordRedactor


class RedactReport(Struct, frozen=True):
    """Report what became of a file."""

    path: str
    examined: dict[str, int]
    changed: dict[str, int]
    unknown: dict[str, int]
    new: FileAction | None = None  # None: nothing changes, or is to be changed


class RedactTask(Struct, frozen=True):
    """Describe how to redact files of bronze. This is sent to the executors."""

    lake: Store
    protocol: str
    since_us: int
    files: list[FileAction]
    dry: bool

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over the numbers of files."""

        def redact(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield driver_reports([self.redact(self.files[number])])

        return redact

    def redact(self, file: FileAction) -> RedactReport:
        """Redact a file. It is written again only if something in it changes."""
        redactor = RecordRedactor(self.protocol)
        changes = [redact_rows(redactor, batch, self.since_us) for batch in _batches(self.lake, file)]
        new = None
        if any(changes) and not self.dry:
            new = self._write(file, changes)
        return RedactReport(file.path, dict(redactor.examined), dict(redactor.changed), dict(redactor.unknown), new)

    def _write(self, file: FileAction, changes: list[dict[int, bytes]]) -> FileAction:
        written = PartitionFile(FRAMES, self.lake, file.partition)
        try:
            for batch, changed in zip(_batches(self.lake, file), changes, strict=True):
                written.write(with_frames(batch, changed))
        except BaseException:
            written.discard()
            raise
        return mark_worker([written.close()])[0]


def redact_rows(redactor: RecordRedactor, rows: Any, since_us: int = 0) -> dict[int, bytes]:
    """Return the frames to be changed of rows from this time on, by row."""
    if not since_us:
        return redactor.redact(rows)
    late = pc.greater_equal(rows.column("received_at"), pa.scalar(since_us, TIME)).to_numpy(zero_copy_only=False)
    numbers = np.flatnonzero(late)
    return {int(numbers[row]): new for row, new in redactor.redact(rows.take(pa.array(numbers))).items()}


def with_frames(rows: Any, changed: dict[int, bytes]) -> Any:
    """Return the rows with other frames."""
    if not changed:
        return rows
    place = rows.schema.get_field_index("frame")
    frames = rows.column(place).to_pylist()
    for row, new in changed.items():
        frames[row] = new
    return rows.set_column(place, rows.schema.field(place), pa.array(frames, rows.schema.field(place).type))


def _batches(lake: Store, file: FileAction) -> Iterator[Any]:
    with lake.open_input(file.lake_path) as source, pq.ParquetFile(source) as opened:
        yield from opened.iter_batches(PIPELINE_CHUNK_ROWS)
