"""Store the open rows of a bucket in files of limited size, of which a batch replaces those whose rows it changes.

New rows go to a file of their own, joined with the smallest files that are there. Each file has a range of seqs, by
which the file of a row is found.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.limits import PIPELINE_OPEN_FILE_ROWS, PIPELINE_OPEN_FILE_ROWS_MIN, PIPELINE_OPEN_FILES
from wirelake.pipeline.commit.files import FileAction, PartitionFile, delta_text, worker_name

# Which row it is; tables have those of these columns that identify their rows.
_SEQS: Final = ("seq", "from_seq")
_KEY: Final = ("node", *_SEQS, "identity", "position", "hour", "protocol")
_Partition = tuple[tuple[str, str | None], ...]


class OpenRowsError(StorageError):
    """Raised if files lack open rows that they should have."""


class OpenFiles(Struct, frozen=True):
    """Hold the files of one bucket's open rows in one table."""

    lake: Store
    table: LakeTable
    files: Sequence[FileAction]

    def update(self, closed: Any, opened: Any) -> list[FileAction]:
        """Replace the files with rows that were closed or changed, and add what is new. Return the files from now on.

        `closed` are rows as they are in the files, `opened` those that take their place, and new ones.
        """
        untouched, rows = self._remove(closed)
        for partition, part in self._split(opened):
            rows.setdefault(partition, []).append(part)
        limit = max(PIPELINE_OPEN_FILE_ROWS, sum(file.rows for file in self.files) // PIPELINE_OPEN_FILES)
        written: list[FileAction] = []
        for partition, parts in rows.items():
            small = sorted((file for file in untouched if _partition(file) == partition), key=lambda file: file.rows)
            size = sum(map(len, parts))
            for file in small:
                if not size or file.rows > max(PIPELINE_OPEN_FILE_ROWS_MIN, size) or size + file.rows > limit:
                    break
                parts.append(self._read(file))
                untouched.remove(file)
                size += file.rows
            written += self._write(partition, parts, limit)
        return [*untouched, *written]

    def _remove(self, closed: Any) -> tuple[list[FileAction], dict[_Partition, list[Any]]]:
        """Return the files without any of these rows, and the rows that are left of the others, by partition."""
        seqs = np.unique(closed[self._seq].to_numpy())
        keys = set(self._keys(closed))
        untouched: list[FileAction] = []
        rows: dict[_Partition, list[Any]] = {}
        found = 0
        for file in self.files:
            if not _overlaps(file, seqs):
                untouched.append(file)
                continue
            part = self._read(file)
            near = pc.is_in(part[self._seq], value_set=pa.array(seqs)).to_numpy()
            places = np.flatnonzero(near)
            is_left = np.ones(len(part), np.bool_)
            is_left[places] = [key not in keys for key in self._keys(part.take(pa.array(places)))]
            if is_left.all():
                untouched.append(file)
                continue
            found += int(np.count_nonzero(~is_left))
            rows.setdefault(_partition(file), []).append(part.filter(pa.array(is_left)))
        if found != len(closed):
            raise OpenRowsError(f"the files of {self.table.name} have {found} of {len(closed)} rows that were open")
        return untouched, rows

    @property
    def _seq(self) -> str:
        return next(name for name in _SEQS if name in self.table.schema.names)

    def _keys(self, rows: Any) -> Iterator[tuple[Any, ...]]:
        names = [name for name in _KEY if name in self.table.schema.names]
        return zip(*(rows[name].to_pylist() for name in names), strict=True)

    def _split(self, rows: Any) -> Iterator[tuple[_Partition, Any]]:
        """Yield the rows of each partition, without the columns that partition the table."""
        names = list(self.table.partition_by)
        for values in rows.group_by(names, use_threads=False).aggregate([]).to_pylist() if names else [{}]:
            part = rows
            for name, value in values.items():
                part = part.filter(pc.equal(part[name], pa.scalar(value, part.schema.field(name).type)))
            if len(part):
                yield tuple((name, delta_text(value)) for name, value in values.items()), part.drop_columns(names)

    def _read(self, file: FileAction) -> Any:
        try:
            source = self.lake.open_input(file.lake_path)
        except FileNotFoundError as error:
            raise StorageError(
                f"{self.lake.name(file.lake_path)}, whose rows may change, is missing (expected: {file.bytes} bytes, "
                f"reported by the worker on {worker_name()}): make sure that every worker sees the same data folder as "
                "the driver"
            ) from error
        with source:
            return pq.ParquetFile(source).read()

    def _write(self, partition: _Partition, parts: list[Any], limit: int) -> list[FileAction]:
        rows = pa.concat_tables(parts, promote_options="default").sort_by(self._seq)
        written = []
        for start in range(0, len(rows), limit):
            part = rows.slice(start, limit)
            file = PartitionFile(self.table, self.lake, dict(partition))
            try:
                file.write(part)
            except BaseException:
                file.discard()
                raise
            seqs = (part[self._seq][0].as_py(), part[self._seq][len(part) - 1].as_py())
            written.append(replace(file.close(), seqs=seqs))
        return written


def _partition(file: FileAction) -> _Partition:
    return tuple(file.partition.items())


def _overlaps(file: FileAction, seqs: np.ndarray) -> bool:
    """Return whether a file may have rows with these seqs."""
    if file.seqs is None:  # of an earlier version
        return bool(len(seqs))
    first, last = file.seqs
    return bool(np.searchsorted(seqs, first) < np.searchsorted(seqs, last, side="right"))
