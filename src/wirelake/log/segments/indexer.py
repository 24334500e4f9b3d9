"""Build the lookup indexes of sealed segments, from a thread of its own.

The writer only wakes the thread when it has sealed a segment. The thread pauses after each part of an index, so that it
takes a limited share of a processor however fast the log grows; what has no index yet, a search reads in full. When the
log is opened, missing and damaged indexes are built, and those of removed segments are removed: a crash, or a log of an
earlier version, needs nothing else.
"""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa

from wirelake.files import replace_file
from wirelake.limits import LOG_INDEX_BUSY_CPU_SHARE, LOG_INDEX_CLOSE_S, LOG_INDEX_CPU_SHARE
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.lookup_index import (
    IndexedRange,
    LookupIndex,
    encode_index,
    index_path,
    list_indexes,
    part_rows,
)
from wirelake.log.segments.lookup_keys import Hashes, KeyCollector
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment

_log = logging.getLogger(__name__)
_EMPTY: Hashes = np.empty(0, np.uint64)


class SegmentIndexer:
    """Run the thread. A failure to build an index makes searches slower, and nothing else."""

    def __init__(self, folder: Path, salt: int) -> None:
        self._folder = folder
        self._salt = salt
        self._resumed_s = 0.0  # processor time of the thread when it last went on
        self._wakeup = Event()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="wirelake-log-index", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for segments without an index. May be called from any thread."""
        self._wakeup.set()

    def close(self, timeout_s: float = LOG_INDEX_CLOSE_S) -> None:
        """End the thread. The next start builds what is missing."""
        self._closing.set()
        self._wakeup.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        checked: set[int] = set()  # segments whose index was found valid, or was attempted
        remove_orphans(self._folder)
        while not self._closing.is_set():
            self._wakeup.clear()
            firsts = list_segments(self._folder)
            checked &= set(firsts)
            for first_seq in reversed([first for first in firsts if first not in checked]):  # newest first
                if self._closing.is_set():
                    return
                self._resumed_s = time.thread_time()
                if self._ensure(first_seq):
                    checked.add(first_seq)
                self._pause()
            self._wakeup.wait()

    def _pause(self) -> bool:
        """Wait in proportion to the processor time used since the last pause. Return whether to stop."""
        is_busy = self._wakeup.is_set()  # another segment was sealed before this one was done
        share = LOG_INDEX_BUSY_CPU_SHARE if is_busy else LOG_INDEX_CPU_SHARE
        is_closing = self._closing.wait((time.thread_time() - self._resumed_s) * (1 / share - 1))
        self._resumed_s = time.thread_time()
        return is_closing

    def _ensure(self, first_seq: int) -> bool:
        """Build the index of a segment unless it has one. Return False if the segment is not sealed yet."""
        try:
            return ensure_index(self._folder, first_seq, self._salt, self._pause) is not None
        except FileNotFoundError:  # removed by retention meanwhile
            return True
        except (OSError, pa.ArrowException) as error:
            _log.warning(
                "log: cannot index %s, searches read it in full: %s", segment_path(self._folder, first_seq).name, error
            )
            return True


def ensure_index(
    folder: Path, first_seq: int, salt: int | None, is_cancelled: Callable[[], bool] = lambda: False
) -> int | None:
    """Build the index of a segment unless it has a valid one. Return its size; None if the segment is not sealed."""
    path = index_path(folder, first_seq)
    index = LookupIndex.open(folder, first_seq, salt)
    if index is not None:
        with index:
            if index.is_valid():
                return path.stat().st_size
    content = build_index(folder, first_seq, salt, is_cancelled)
    if content is None:
        return None
    replace_file(path, content, sync=False)
    if not segment_path(folder, first_seq).exists():  # retention removed it meanwhile
        path.unlink(missing_ok=True)
    return len(content)


def build_index(
    folder: Path, first_seq: int, salt: int | None, is_cancelled: Callable[[], bool] = lambda: False
) -> bytes | None:
    """Return the index of a segment; None if the segment is not sealed, or the work was cancelled."""
    segment = MappedSegment(segment_path(folder, first_seq), first_seq, salt, is_copied=True)
    trailer = segment.trailer
    if trailer is None or segment.salt is None:
        return None
    collector = KeyCollector()
    parts: list[Hashes] = []
    unread_parts = 0
    rows = part_rows(first_seq, trailer.end_seq)
    for number, records in enumerate(_parts(segment, trailer.end_seq)):
        if is_cancelled():
            return None
        parts.append(collector.collect(records) if records.num_rows else _EMPTY)
        if records.num_rows < min(rows, trailer.end_seq - first_seq - number * rows):
            unread_parts |= 1 << number
    covered = IndexedRange(first_seq, trailer.end_seq, trailer.at_min_us, trailer.at_max_us, segment.salt)
    return encode_index(covered, parts, collector.levels, unread_parts)


def _parts(segment: MappedSegment, end_seq: int) -> Iterator[Any]:
    """Yield the records of each part as a table. Records that are damaged are left out."""
    rows = part_rows(segment.first_seq, end_seq)
    part_end = segment.first_seq + rows
    batches: list[Any] = []
    for block in segment.scan():
        if block.state is BlockState.INDEX:
            break
        batch = segment.read_batch(block) if block.state is BlockState.VALID else None
        seq = block.first_seq
        while seq < block.end_seq:
            step = min(block.end_seq, part_end) - seq
            if batch is not None:
                batches.append(batch.slice(seq - block.first_seq, step))
            seq += step
            if seq == part_end:
                yield pa.Table.from_batches(batches, segment.schema)
                part_end, batches = part_end + rows, []
    yield pa.Table.from_batches(batches, segment.schema)


def remove_orphans(folder: Path) -> None:
    """Remove the indexes of segments that do not exist."""
    for first_seq in set(list_indexes(folder)) - set(list_segments(folder)):
        index_path(folder, first_seq).unlink(missing_ok=True)
