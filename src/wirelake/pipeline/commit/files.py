"""Write the Parquet files of tables in tasks, and check them in the driver before anything refers to them.

    lake/silver/messages/protocol=NAME/day=2026-01-31/part-….parquet

A worker with a different lake folder writes files that no other process sees; committing them would make the tables
unreadable. So the driver checks each file itself, and waits a little for files of other machines to appear.
"""

import os
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, TIME, LakeTable
from wirelake.limits import LOG_VIEW_POLL_S, PIPELINE_CHUNK_ROWS
from wirelake.pipeline.commit.statistics import ColumnStatistics, footer_statistics

# zstd at level 1 takes a quarter longer to write than snappy, and a quarter less space. Dictionaries for text only:
# bytes rarely repeat, and trying costs as much as compressing them.
_COMPRESSION: Final = {"compression": "zstd", "compression_level": 1}
_RISING: Final = (pa.int64(), TIME)  # seqs, times and counts differ little from row to row
_NOT_IN_A_PATH: Final = re.compile(r"[^A-Za-z0-9_.-]")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_name_prefix: Final = ContextVar("name_prefix", default="")


class FileAction(Struct, frozen=True, omit_defaults=True):
    """Describe a written file. `path` is relative to the table's folder; partition values are as Delta writes them."""

    table: str
    path: str
    bytes: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict, name="groups")  # the name in manifests
    seqs: tuple[int, int] | None = None  # of open rows: the first and the last
    worker: str = ""  # which process wrote it, in a report to the driver
    statistics: dict[str, ColumnStatistics] = {}  # by column

    @property
    def lake_path(self) -> str:
        """Return the path of the file in the lake."""
        return f"{TABLES[self.table].folder}/{self.path}"


@contextmanager
def file_names(prefix: str) -> Iterator[None]:
    """Begin the names of new files with a prefix, by which the files of a batch that fails are found."""
    _name_prefix.set(prefix)
    try:
        yield
    finally:
        _name_prefix.set("")


def find_files(lake: Store, prefix: str) -> Iterator[str]:
    """Yield the paths of all files whose names begin with a prefix."""
    for table in TABLES.values():
        for path in lake.list(table.folder):
            if path.rpartition("/")[2].startswith(f"part-{prefix}"):
                yield path


class PartitionFile:
    """Write a file of one partition. It gets its name once it is complete."""

    def __init__(
        self,
        table: LakeTable,
        lake: Store,
        partition: dict[str, str | None],
        fsync: bool = True,
        label: str = "",
        name: str = "",
    ) -> None:
        """Begin a file. A label becomes part of its name, which is a new one unless it is given."""
        self._table = table
        self._partition = partition
        self._rows = 0
        name = f"part-{_name_prefix.get()}{label}{name or uuid.uuid4()}.parquet"
        self.path = "/".join([*map(_folder, partition.items()), name])
        self._schema = pa.schema([column for column in table.schema if column.name not in table.partition_by])
        texts = [column.name for column in self._schema if column.type == pa.string()]
        numbers = [column.name for column in self._schema if column.type in _RISING]
        self._output = lake.open_output(f"{table.folder}/{self.path}", sync=fsync)
        self._footer: list[Any] = []  # filled when the writer is closed
        self._writer = pq.ParquetWriter(
            self._output.sink,
            self._schema,
            use_dictionary=texts,
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
            write_statistics=list(table.statistics) or True,
            metadata_collector=self._footer,
            **_COMPRESSION,
        )

    def write(self, rows: Any) -> None:
        """Write rows. Missing columns are null: rows of an old file lack newer columns."""
        columns = [
            rows.column(column.name).cast(column.type)
            if column.name in rows.schema.names
            else pa.nulls(rows.num_rows, column.type)
            for column in self._schema
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=PIPELINE_CHUNK_ROWS)
        self._rows += rows.num_rows

    def close(self) -> FileAction:
        """Finish the file. It is durable when this returns."""
        self._writer.close()
        return FileAction(
            self._table.name,
            self.path,
            self._output.close(),
            self._rows,
            self._partition,
            statistics=footer_statistics(self._footer[0], self.statistics_columns),
        )

    @property
    def statistics_columns(self) -> dict[str, int]:
        """Return the columns with statistics, and their indices in the file."""
        return {name: self._schema.get_field_index(name) for name in self._table.statistics}

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._writer.close()
        self._output.discard()


class TableWriter:
    """Write the rows of one table, with a file for each partition."""

    def __init__(self, table: LakeTable, lake: Store, fsync: bool = True) -> None:
        self._table = table
        self._lake = lake
        self._fsync = fsync
        self._open: dict[tuple[str | None, ...], PartitionFile] = {}

    def write(self, rows: Any) -> None:
        """Write a record batch or a table."""
        if not rows.num_rows:
            return
        unknown = set(rows.schema.names) - set(self._table.schema.names)
        if unknown:
            raise AssertionError(f"{self._table.name} has no columns {sorted(unknown)}")
        for values, part in self._split(rows):
            file = self._open.get(values)
            if file is None:
                partition = dict(zip(self._table.partition_by, values, strict=True))
                file = self._open[values] = PartitionFile(self._table, self._lake, partition, self._fsync)
            file.write(part)

    def close(self) -> list[FileAction]:
        """Finish the files. They are durable when this returns."""
        actions = [file.close() for file in self._open.values()]
        self._open.clear()
        return actions

    def discard(self) -> None:
        """Remove what was written so far."""
        for file in self._open.values():
            file.discard()
        self._open.clear()

    def _split(self, rows: Any) -> Iterator[tuple[tuple[str | None, ...], Any]]:
        names = self._table.partition_by
        if not names:
            yield (), rows
            return
        keys, codes = _encode_keys([rows.column(name) for name in names])
        if len(keys) > 1 and (np.diff(codes) < 0).any():  # mostly they are in order of time already
            order = np.argsort(codes, kind="stable")
            rows, codes = rows.take(pa.array(order)), codes[order]
        starts = np.searchsorted(codes, np.arange(len(keys) + 1))
        for key, start, end in zip(keys, starts, starts[1:], strict=False):
            yield tuple(map(delta_text, key)), rows.slice(start, end - start)


def _encode_keys(columns: list[Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """Return the distinct keys in order of appearance, and the index of each row's key."""
    keys: list[tuple[Any, ...]] = [()]
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        values = array.dictionary_encode("encode")
        if len(values.dictionary) == 1 or len(keys) == 1:  # mostly: one day, and as many keys as protocols
            distinct, indices = values.dictionary.to_pylist(), values.indices.to_numpy(zero_copy_only=False)
            codes = codes if len(distinct) == 1 else indices.astype(np.int64)
            keys = [(*key, value) for key in keys for value in distinct]
            continue
        pairs = codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False)
        found, first, codes = np.unique(pairs, return_index=True, return_inverse=True)
        distinct, before = values.dictionary.to_pylist(), keys
        keys = [(*before[pair // len(distinct)], distinct[pair % len(distinct)]) for pair in found.tolist()]
        order = np.argsort(first)
        codes, keys = np.argsort(order)[codes], [keys[number] for number in order.tolist()]
    return keys, codes


def write_rows(table: LakeTable, rows: Any, lake: Store, fsync: bool = True) -> list[FileAction]:
    """Write these rows, in one file for each partition."""
    writer = TableWriter(table, lake, fsync)
    try:
        writer.write(rows)
    except BaseException:
        writer.discard()
        raise
    return writer.close()


def _folder(column: tuple[str, str | None]) -> str:
    name, value = column
    return f"{name}={_NO_VALUE if value is None else _NOT_IN_A_PATH.sub('_', value)}"


def delta_text(value: Any) -> str | None:
    """Return a partition value as Delta writes it."""
    if value is None or value == "":  # Delta does not distinguish them
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def worker_name() -> str:
    """Return the name of this process for the driver's errors."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def mark_worker(files: Iterable[FileAction]) -> list[FileAction]:
    """Mark files as written by this process."""
    worker = worker_name()
    return [replace(file, worker=worker) for file in files]


class FileChecks:
    """Check files, and wait up to `wait_s` in total for those that do not exist yet."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self._wait_s = wait_s

    def check_tables(self, lake: Store, files: Iterable[FileAction], source: str = "") -> None:
        """Refuse files that are missing or of another size. `source` names what refers to them, if no task."""
        for file in files:
            self.check(lake, file.lake_path, file.bytes, file.worker, source)

    def check(self, store: Store, path: str, size: int, worker: str, source: str = "") -> None:
        """Refuse a file that is missing or of another size."""
        found = store.size(path)
        while found != size and self._wait_s > 0:
            step_s = min(LOG_VIEW_POLL_S, self._wait_s)
            self._wait_s -= step_s
            time.sleep(step_s)
            found = store.size(path)
        if found == size:
            return
        problem = "is missing" if found is None else f"has {found} bytes"
        by = f", reported by the worker on {worker}" if worker else ""
        raise StorageError(
            f"{store.name(path)}, which {source or 'a task'} says was written, {problem} (expected: {size} bytes{by}); "
            "no table refers to it yet: make sure that every worker sees the same data folder as this process"
        )
