"""Rows to Parquet files of a table, by whoever has the rows. A file counts only once it is committed: see commits.py.

lake/silver/messages/protocol=comet/day=2026-01-31/part-….parquet
"""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.files import TEMP_SUFFIX, FileSystem
from wirelake.lake.tables import Table
from wirelake.limits import PIPELINE_CHUNK_ROWS

# zstd at level 1 takes a quarter longer to write than snappy, and a quarter less room. Dictionaries for text only:
# bytes rarely repeat, and trying costs as much as compressing them.
_COMPRESSION: Final = {"compression": "zstd", "compression_level": 1}
_NOT_IN_A_PATH: Final = re.compile(r"[^A-Za-z0-9_.-]")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class FileAction(Struct, frozen=True, omit_defaults=True):
    """A file that was written. `path` is below the table's folder; the groups' values are as Delta writes them."""

    table: str
    path: str
    bytes: int
    rows: int
    groups: dict[str, str | None] = {}
    worker: str = ""  # who wrote it, as a task reports it to the driver


class GroupFile:
    """A file of rows that have the same values in the columns the table is grouped by. It is named once it is whole."""

    def __init__(self, table: Table, lake: Path, groups: dict[str, str | None], fsync: bool = True) -> None:
        self._table = table
        self._groups = groups
        self._fsync = fsync
        self._rows = 0
        self._path = "/".join([*map(_folder, groups.items()), f"part-{uuid.uuid4()}.parquet"])
        self._final = lake / table.folder / self._path
        self._new = self._final.with_name(self._final.name + TEMP_SUFFIX)
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._schema = pa.schema([field for field in table.schema if field.name not in table.grouped_by])
        texts = [field.name for field in self._schema if field.type == pa.string()]
        self._writer = pq.ParquetWriter(self._new, self._schema, use_dictionary=texts, **_COMPRESSION)

    def write(self, rows: Any) -> None:
        """Columns that are missing are null: the file it comes from is older than the column."""
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=PIPELINE_CHUNK_ROWS)
        self._rows += rows.num_rows

    def close(self) -> FileAction:
        """Durable when this returns."""
        self._writer.close()
        if self._fsync:
            fd = os.open(self._new, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        self._new.replace(self._final)
        if self._fsync:
            FileSystem().fsync_dir(self._final.parent)
        return FileAction(self._table.name, self._path, self._final.stat().st_size, self._rows, self._groups)

    def discard(self) -> None:
        """Nothing is left of it."""
        self._writer.close()
        self._new.unlink(missing_ok=True)


class TableWriter:
    """Takes rows of one table as they come; a file for each group of them."""

    def __init__(self, table: Table, lake: Path, fsync: bool = True) -> None:
        self._table = table
        self._lake = lake
        self._fsync = fsync
        self._open: dict[tuple[str | None, ...], GroupFile] = {}

    def write(self, rows: Any) -> None:
        """A record batch or a table, with columns that the table has."""
        if not rows.num_rows:
            return
        unknown = set(rows.schema.names) - set(self._table.schema.names)
        if unknown:
            raise AssertionError(f"{self._table.name} has no columns {sorted(unknown)}")
        for values, part in self._groups(rows):
            file = self._open.get(values)
            if file is None:
                groups = dict(zip(self._table.grouped_by, values, strict=True))
                file = self._open[values] = GroupFile(self._table, self._lake, groups, self._fsync)
            file.write(part)

    def close(self) -> list[FileAction]:
        """The files, durable."""
        actions = [file.close() for file in self._open.values()]
        self._open.clear()
        return actions

    def discard(self) -> None:
        """Something went wrong: nothing is left of what was written so far."""
        for file in self._open.values():
            file.discard()
        self._open.clear()

    def _groups(self, rows: Any) -> Iterator[tuple[tuple[str | None, ...], Any]]:
        names = self._table.grouped_by
        if not names:
            yield (), rows
            return
        keys, codes = _coded([rows.column(name) for name in names])
        if len(keys) > 1 and (np.diff(codes) < 0).any():  # by time, mostly they lie one after the other already
            order = np.argsort(codes, kind="stable")
            rows, codes = rows.take(pa.array(order)), codes[order]
        starts = np.searchsorted(codes, np.arange(len(keys) + 1))
        for key, start, end in zip(keys, starts, starts[1:], strict=False):
            yield tuple(map(delta_text, key)), rows.slice(start, end - start)


def _coded(columns: list[Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """The combinations of values that there are, in the order in which they come, and the number of each row's."""
    keys: list[tuple[Any, ...]] = [()]
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        values = whole.dictionary_encode("encode")
        pairs = codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False)
        found, first, codes = np.unique(pairs, return_index=True, return_inverse=True)
        listed, before = values.dictionary.to_pylist(), keys
        keys = [(*before[pair // len(listed)], listed[pair % len(listed)]) for pair in found.tolist()]
        come = np.argsort(first)
        codes, keys = np.argsort(come)[codes], [keys[number] for number in come.tolist()]
    return keys, codes


def write(table: Table, rows: Any, lake: Path, fsync: bool = True) -> list[FileAction]:
    """All of these rows, in as few files as the table's groups allow."""
    writer = TableWriter(table, lake, fsync)
    try:
        writer.write(rows)
    except BaseException:
        writer.discard()
        raise
    return writer.close()


def _folder(group: tuple[str, str | None]) -> str:
    name, value = group
    return f"{name}={_NO_VALUE if value is None else _NOT_IN_A_PATH.sub('_', value)}"


def delta_text(value: Any) -> str | None:
    """A value as Delta writes it where it names a group."""
    if value is None or value == "":  # Delta has one word for both
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
