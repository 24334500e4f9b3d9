"""Which segments go: whole ones, oldest first, never the newest.

Age and size remove only what every consumer has read. `disk_bytes_max` removes the rest too, because a full disk would
end the taking of new frames; that is logged, counted, and kept beside the log for `wirelake log stats`.
"""

import logging
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, json, structs

from wirelake.log.files import Files
from wirelake.log.positions import Positions
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import SegmentMap
from wirelake.log.settings import LogSettings

NAME: Final = "removed.json"
_DAY_US: Final = 24 * 3600 * 1_000_000
_log = logging.getLogger(__name__)


class Removed(Struct, frozen=True):
    """Everything retention ever removed from this log."""

    segments: int = 0
    rows: int = 0
    forced_segments: int = 0  # before some consumer had read them
    forced_rows: int = 0  # of these, the ones that a consumer still needed
    forced_at_us: int = 0  # the last time


class _Segment(NamedTuple):
    first_seq: int
    end_seq: int
    bytes: int
    at_max_us: int


class Retention:
    def __init__(self, folder: Path, settings: LogSettings, positions: Positions, files: Files) -> None:
        self._folder = folder
        self._settings = settings
        self._positions = positions
        self._files = files
        self.removed = read_removed(folder)
        self._known: dict[int, _Segment] = {}  # sealed segments do not change

    def run(self, now_us: int) -> int:
        """Remove what may go; how many segments went."""
        segments, newest_bytes = self._segments()
        total = newest_bytes + sum(segment.bytes for segment in segments)
        needed = [position.seq for position in self._positions.all().values()]
        needed_seq = min(needed, default=None)
        gone: list[_Segment] = []
        removed = self.removed
        for segment in segments:
            unread = needed_seq is not None and segment.end_seq > needed_seq
            if not self._must_go(segment, total, now_us, unread):
                break
            rows = segment.end_seq - segment.first_seq
            if unread and needed_seq is not None:
                rows_unread = segment.end_seq - max(segment.first_seq, needed_seq)
                _log.error(
                    "log: over %s bytes: removed segment %d with %d records that a consumer has not read",
                    self._settings.disk_bytes_max,
                    segment.first_seq,
                    rows_unread,
                )
                removed = structs.replace(
                    removed,
                    forced_segments=removed.forced_segments + 1,
                    forced_rows=removed.forced_rows + rows_unread,
                    forced_at_us=now_us,
                )
            removed = structs.replace(removed, segments=removed.segments + 1, rows=removed.rows + rows)
            total -= segment.bytes
            gone.append(segment)
        if gone:
            self._remove(gone, removed)
        return len(gone)

    def _must_go(self, segment: _Segment, total: int, now_us: int, unread: bool) -> bool:
        settings = self._settings
        if settings.disk_bytes_max is not None and total > settings.disk_bytes_max:
            return True
        if unread:
            return False
        if settings.keep_bytes is not None and total > settings.keep_bytes:
            return True
        return settings.keep_days is not None and segment.at_max_us < now_us - settings.keep_days * _DAY_US

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
