"""Store the state of buckets in files: a large one, and smaller ones with what later batches changed.

    0001-of-0004-000000000042.arrow     what batch 42 wrote for bucket 1 of 4

A file is an Arrow file with the rows that were added; its metadata has the numbers of the earlier rows that it removes.
Files never change. A batch writes one file: its own changes, joined with those files before it that are not much
larger. So a bucket has few files, and each row is rewritten only a few times, however many batches there are.

The name depends on the bucket and the batch only, and the content on what the batch reads: a task that is run again
writes the same file again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from msgspec import json

from wirelake.errors import StorageError
from wirelake.lake.store import Store
from wirelake.limits import (
    PIPELINE_STATE_CACHE_BYTES,
    PIPELINE_STATE_CACHE_FILES,
    PIPELINE_STATE_FILE_BYTES,
    PIPELINE_STATE_FILES_MAX,
    PIPELINE_STATE_JOIN_FACTOR,
)
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.stateful.bucket_state import STATE_SCHEMA, BucketState, StateChange, StatePart

_METADATA: Final = b"wirelake.state"


def state_name(bucket: int, buckets: int, batch: str) -> str:
    return f"{bucket:04d}-of-{buckets:04d}-{batch}.arrow"


def read_state(folder: Store, files: Sequence[StateFile]) -> BucketState:
    """Return the state of a bucket. Files that this process read or wrote lately are not read again."""
    return BucketState([_cache.read(folder, file) for file in files])


def write_state(
    folder: Store, name: str, before: BucketState, files: Sequence[StateFile], change: StateChange
) -> list[StateFile]:
    """Write what a batch changes as a file of this name. Return the files of the bucket from now on."""
    after = before.apply(change)
    kept = _files_kept(after, files)
    part = after.joined(kept)
    data = _encode(part)
    folder.write(name, data)
    return [*files[:kept], StateFile(name, len(data), crc32(data))]


def _files_kept(after: BucketState, files: Sequence[StateFile]) -> int:
    """Return how many files stay as they are. The others are joined with the new one."""
    if after.rows_live * 2 < after.rows_stored:  # most of the large files was removed
        return 0
    kept, size = min(len(files), PIPELINE_STATE_FILES_MAX - 1), after.parts[-1].rows.nbytes
    size += sum(file.bytes for file in files[kept:])
    while kept and files[kept - 1].bytes <= max(PIPELINE_STATE_FILE_BYTES, PIPELINE_STATE_JOIN_FACTOR * size):
        kept -= 1
        size += files[kept].bytes
    return kept


def _encode(part: StatePart) -> bytes:
    metadata = json.encode(_runs(part.removed))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, STATE_SCHEMA.with_metadata({_METADATA: metadata})) as writer:
        writer.write_batch(part.rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _runs(numbers: np.ndarray) -> list[list[int]]:
    """Return numbers in order as runs: the first, and how many."""
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    return [list(run) for run in zip(numbers[starts].tolist(), np.diff([*starts, len(numbers)]).tolist(), strict=True)]


def _read(folder: Store, file: StateFile) -> StatePart:
    with folder.open_input(file.name) as source:
        data = source.read_buffer()
    if file.crc >= 0 and (len(data) != file.bytes or crc32(data) != file.crc):
        raise StorageError(
            f"{folder.name(file.name)} is damaged: restore the checkpoint and the tables from a backup, or move both "
            "away to fill the tables again"
        )
    table = pa.ipc.open_file(data).read_all()
    runs = json.decode((table.schema.metadata or {}).get(_METADATA, b"[]"))
    removed = np.concatenate([np.zeros(0, np.int64), *(np.arange(first, first + count) for first, count in runs)])
    return StatePart(_one_batch(table), removed)


def _one_batch(table: pa.Table) -> Any:
    if not table.schema.equals(STATE_SCHEMA):  # of an earlier version
        table = table.cast(STATE_SCHEMA)
    batches = table.replace_schema_metadata().combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], STATE_SCHEMA)


class _FileCache:
    """Hold the files that this process read lately. A worker often gets the same buckets again."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[str, StateFile], StatePart] = OrderedDict()
        self._bytes = 0

    def read(self, folder: Store, file: StateFile) -> StatePart:
        key = (folder.url, file)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _read(folder, file)
            self._bytes += file.bytes
        self._parts.move_to_end(key)
        while len(self._parts) > PIPELINE_STATE_CACHE_FILES or (
            self._bytes > PIPELINE_STATE_CACHE_BYTES and len(self._parts) > 1
        ):
            (_, oldest), _ = self._parts.popitem(last=False)
            self._bytes -= oldest.bytes
        return part


_cache: Final = _FileCache()
