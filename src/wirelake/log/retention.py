"""Which segments go: whole ones, oldest first, never the newest, and only what every consumer has read.

`disk_bytes_max` is a hard limit: when a new segment does not fit below it, and nothing may be removed to make room, the
log refuses records until a consumer has read more or the limit is raised.
"""

import contextlib
import errno
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, json, structs

from wirelake.log.files import Files
from wirelake.log.positions import Positions
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import SegmentMap
from wirelake.log.settings import RetentionLimits

NAME: Final = "removed.json"
_DAY_US: Final = 24 * 3600 * 1_000_000


class Removed(Struct, frozen=True):
    """Everything retention ever removed from this log."""

    segments: int = 0
    rows: int = 0


class _Segment(NamedTuple):
    first_seq: int
    end_seq: int
    bytes: int
    at_max_us: int


class Retention:
    """`run` and `make_room` belong to the writer's thread; `limits` may be replaced by any."""

    def __init__(self, folder: Path, limits: RetentionLimits, positions: Positions, files: Files) -> None:
        self.limits = limits
        self._folder = folder
        self._positions = positions
        self._files = files
        self.removed = read_removed(folder)
        self._known: dict[int, _Segment] = {}  # sealed segments do not change

    def run(self, now_us: int, more_bytes: int = 0) -> int:
        """Remove what may go, also so that `more_bytes` fit; return how many bytes remain."""
        segments, newest_bytes = self._segments()
        total = newest_bytes + sum(segment.bytes for segment in segments)
        needed_seq = min((position.seq for position in self._positions.all().values()), default=None)
        gone: list[_Segment] = []
        removed = self.removed
        for segment in segments:
            is_unread = needed_seq is not None and segment.end_seq > needed_seq
            if is_unread or not self._is_due(segment, total, now_us, more_bytes):
                break
            rows = segment.end_seq - segment.first_seq
            removed = structs.replace(removed, segments=removed.segments + 1, rows=removed.rows + rows)
            total -= segment.bytes
            gone.append(segment)
        if gone:
            self._remove(gone, removed)
        return total

    def make_room(self, size: int, now_us: int) -> None:
        """Raise OSError if a new segment of this size does not fit below the limit, whatever may be removed."""
        limit = self.limits.disk_bytes_max
        if limit is None:
            return
        total = self.run(now_us, size)
        if total + size > limit:
            text = f"{total} bytes of segments and {size} for the next one exceed log.disk_bytes_max = {limit}"
            raise OSError(errno.EDQUOT, f"{text}; {self._obstacle()}")

    def _obstacle(self) -> str:
        positions = self._positions.all()
        if not positions:
            return "raise the limit"
        name, position = min(positions.items(), key=lambda item: item[1].seq)
        return f"the consumer {name} has read only up to record {position.seq}: let it catch up, or raise the limit"

    def _is_due(self, segment: _Segment, total: int, now_us: int, more_bytes: int) -> bool:
        limits = self.limits
        if limits.disk_bytes_max is not None and total + more_bytes > limits.disk_bytes_max:
            return True
        if limits.keep_bytes is not None and total > limits.keep_bytes:
            return True
        return limits.keep_days is not None and segment.at_max_us < now_us - limits.keep_days * _DAY_US

    def _remove(self, gone: list[_Segment], removed: Removed) -> None:
        # The account first: a crash between the two counts a segment that is removed a little later, never the reverse.
        self._files.replace_file(self._folder / NAME, json.encode(removed))
        self.removed = removed
        for segment in gone:
            self._files.unlink(segment_path(self._folder, segment.first_seq))
            del self._known[segment.first_seq]
        self._files.fsync_dir(self._folder)

    def _segments(self) -> tuple[list[_Segment], int]:
        """All but the newest, and the size of that."""
        firsts = segment_firsts(self._folder)
        if not firsts:
            return [], 0
        older = [self._segment(first, end) for first, end in pairwise(firsts)]
        return older, segment_path(self._folder, firsts[-1]).stat().st_size

    def _segment(self, first_seq: int, end_seq: int) -> _Segment:
        known = self._known.get(first_seq)
        if known is None:
            path = segment_path(self._folder, first_seq)
            trailer = (segment := SegmentMap(path, first_seq, None)).trailer
            at_max_us = int(path.stat().st_mtime * 1e6) if trailer is None else trailer.at_max_us
            known = self._known[first_seq] = _Segment(first_seq, end_seq, segment.bytes, at_max_us)
        return known


def read_removed(folder: Path) -> Removed:
    path = folder / NAME
    return json.decode(path.read_bytes(), type=Removed) if path.exists() else Removed()


class Usage(NamedTuple):
    bytes: int  # of all segments, with the room that is reserved for the newest
    oldest_seq: int | None  # None without a segment


def read_usage(folder: Path) -> Usage:
    """Add up the sizes of the segments that are there now."""
    total, firsts = 0, segment_firsts(folder)
    for first in firsts:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            total += segment_path(folder, first).stat().st_size
    return Usage(total, firsts[0] if firsts else None)
