"""Remove old segments: the oldest first, never the newest, and only what every consumer has read.

`disk_bytes_max` is a hard limit: if a new segment does not fit and nothing may be removed, the log refuses records
until a consumer has read more or the limit is raised.
"""

import contextlib
import errno
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, json, structs

from wirelake.files import FileSystem
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.lookup_index import index_path
from wirelake.log.segments.mapped_segment import MappedSegment
from wirelake.log.segments.settings import RetentionLimits

_REMOVED_FILE: Final = "removed.json"
_DAY_US: Final = 24 * 3600 * 1_000_000


class RemovedTotals(Struct, frozen=True):
    """Count everything that retention ever removed from this log."""

    segments: int = 0
    rows: int = 0


class _Segment(NamedTuple):
    first_seq: int
    end_seq: int
    bytes: int
    at_max_us: int


class Retention:
    """Apply the limits. `run` and `ensure_space` belong to the writer's thread; any thread may replace `limits`."""

    def __init__(self, folder: Path, limits: RetentionLimits, offsets: ConsumerOffsets, files: FileSystem) -> None:
        self.limits = limits
        self._folder = folder
        self._offsets = offsets
        self._files = files
        self.removed = read_removed(folder)
        self._sealed: dict[int, _Segment] = {}  # sealed segments do not change

    def run(self, now_us: int, more_bytes: int = 0) -> int:
        """Remove what may be removed, so that `more_bytes` fit too. Return how many bytes remain."""
        segments, newest_bytes = self._segments()
        total = newest_bytes + sum(segment.bytes for segment in segments)
        needed_seq = min((offset.seq for offset in self._offsets.all().values()), default=None)
        removable: list[_Segment] = []
        removed = self.removed
        for segment in segments:
            is_unread = needed_seq is not None and segment.end_seq > needed_seq
            if is_unread or not self._exceeds_limits(segment, total, now_us, more_bytes):
                break
            rows = segment.end_seq - segment.first_seq
            removed = structs.replace(removed, segments=removed.segments + 1, rows=removed.rows + rows)
            total -= segment.bytes
            removable.append(segment)
        if removable:
            self._remove(removable, removed)
        return total

    def ensure_space(self, size: int, now_us: int) -> None:
        """Remove segments to fit a new one of this size. Raise OSError if that is not enough."""
        limit = self.limits.disk_bytes_max
        if limit is None:
            return
        total = self.run(now_us, size)
        if total + size > limit:
            text = f"{total} bytes of segments and {size} for the next one exceed log.disk_bytes_max = {limit}"
            raise OSError(errno.EDQUOT, f"{text}; {self._advice()}")

    def _advice(self) -> str:
        offsets = self._offsets.all()
        if not offsets:
            return "raise the limit"
        name, offset = min(offsets.items(), key=lambda item: item[1].seq)
        return f"consumer {name} has read only up to record {offset.seq}: let it catch up, or raise the limit"

    def _exceeds_limits(self, segment: _Segment, total: int, now_us: int, more_bytes: int) -> bool:
        limits = self.limits
        if limits.disk_bytes_max is not None and total + more_bytes > limits.disk_bytes_max:
            return True
        if limits.keep_bytes is not None and total > limits.keep_bytes:
            return True
        return limits.keep_days is not None and segment.at_max_us < now_us - limits.keep_days * _DAY_US

    def _remove(self, removable: list[_Segment], removed: RemovedTotals) -> None:
        # The totals first: after a crash in between, a segment is counted that is removed a little later.
        self._files.replace_file(self._folder / _REMOVED_FILE, json.encode(removed))
        self.removed = removed
        for segment in removable:
            self._files.unlink(segment_path(self._folder, segment.first_seq))
            index_path(self._folder, segment.first_seq).unlink(missing_ok=True)
            del self._sealed[segment.first_seq]
        self._files.fsync_dir(self._folder)

    def _segments(self) -> tuple[list[_Segment], int]:
        """Return all segments but the newest, and the size of that."""
        firsts = list_segments(self._folder)
        if not firsts:
            return [], 0
        older = [self._segment(first, end) for first, end in pairwise(firsts)]
        return older, segment_path(self._folder, firsts[-1]).stat().st_size

    def _segment(self, first_seq: int, end_seq: int) -> _Segment:
        sealed = self._sealed.get(first_seq)
        if sealed is None:
            path = segment_path(self._folder, first_seq)
            segment = MappedSegment(path, first_seq, None)
            trailer, head = segment.trailer, segment.head
            at_max_us = int(path.stat().st_mtime * 1e6) if trailer is None else trailer.at_max_us
            # Imported records are older than the segment: they are kept from when they were written on.
            at_max_us = max(at_max_us, head.made_at_us if head is not None else 0)
            sealed = self._sealed[first_seq] = _Segment(first_seq, end_seq, segment.size_bytes, at_max_us)
        return sealed


def read_removed(folder: Path) -> RemovedTotals:
    """Return what retention has removed from the log in this folder."""
    path = folder / _REMOVED_FILE
    return json.decode(path.read_bytes(), type=RemovedTotals) if path.exists() else RemovedTotals()


class DiskUsage(NamedTuple):
    bytes: int  # of all segments, including the space reserved for the newest
    oldest_seq: int | None  # None if there is no segment


def read_usage(folder: Path) -> DiskUsage:
    """Sum up the sizes of the existing segments."""
    total, firsts = 0, list_segments(folder)
    for first in firsts:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            total += segment_path(folder, first).stat().st_size
    return DiskUsage(total, firsts[0] if firsts else None)
