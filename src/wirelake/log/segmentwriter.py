"""Puts blocks into segments: the only place that writes records to disk."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wirelake.log.block import Bytes
from wirelake.log.files import Files
from wirelake.log.segment import FIRST_BLOCK, Place, segment_path, write_footer, write_head
from wirelake.log.settings import LogSettings

_log = logging.getLogger(__name__)
_INDEX_SHARE: Final = 16  # a segment's index, which comes on top of its blocks, is less than this part of them
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class SegmentWriter:
    """One open segment at a time. After an OSError the block is not in the log; the same block may be tried again."""

    def __init__(
        self,
        folder: Path,
        salt: int,
        settings: LogSettings,
        files: Files,
        now_us: Callable[[], int],
        make_room: Callable[[int, int], None] = lambda _size, _now_us: None,
    ) -> None:
        """`make_room` is called with the size of a segment about to be made, and the time; it may raise OSError."""
        self._folder = folder
        self._salt = salt
        self._settings = settings
        self._files = files
        self._now_us = now_us
        self._make_room = make_room
        self._fd: int | None = None
        self._path = folder
        self._first_seq = 0
        self._end_seq = 0
        self._made_at_us = 0
        self._offset = 0
        self._places: list[Place] = []
        self.sealed = 0  # how many segments were ended since the start

    def write(self, block: list[Bytes], seqs: range, at_us: tuple[int, int]) -> int:
        """Return where the block begins, once it is on disk. See `is_over` for when to seal the segment before."""
        size = sum(len(piece) for piece in block)
        if self._fd is None:
            self._begin(seqs.start, size)
        fd = self._fd
        if fd is None:
            raise AssertionError("a segment was begun")
        self._files.write(fd, block, self._offset)  # tried again after a failure, it begins at the same place
        if self._settings.fsync:
            try:
                self._files.fsync_data(fd)
            except OSError:
                # The kernel may now hold the pages as clean though they are not on disk, so that another sync of this
                # file would succeed and mean nothing. What was synced before stays; the block goes into a new file.
                self._abandon()
                raise
        offset = self._offset
        self._places.append(Place(seqs.start, offset, *at_us))
        self._offset += size
        self._end_seq = seqs.stop
        return offset

    def seal(self) -> None:
        """End the open segment with its index. If that fails it stays readable without, and the next start adds it."""
        if self._fd is None:
            return
        try:
            if self._places:
                seal_segment(
                    self._files, self._fd, self._places, self._offset, self._first_seq, self._end_seq, self._salt
                )
        except OSError as error:
            _log.warning("log: %s stays without an index for now: %s", self._path, error)
        self._abandon()

    def close(self) -> None:
        self.seal()

    @property
    def segment(self) -> int | None:
        """The first seq of the open segment."""
        return self._first_seq if self._fd is not None else None

    def is_over(self, block: list[Bytes]) -> bool:
        """Whether the open segment is to be sealed before this block is written."""
        if self._fd is None or not self._places:
            return False
        return self._offset + sum(map(len, block)) > self._settings.segment_bytes or self.is_old

    @property
    def is_old(self) -> bool:
        """Whether the open segment's age is over the setting."""
        age_s = (self._now_us() - self._made_at_us) / 1e6
        return self._fd is not None and bool(self._places) and age_s > self._settings.segment_age_s

    def _begin(self, first_seq: int, size: int) -> None:
        files = self._files
        path = segment_path(self._folder, first_seq)
        if path.exists():
            # From a try that failed before its first block was on disk: nothing in it was ever confirmed.
            files.unlink(path)
        made_at_us = self._now_us()
        room = max(self._settings.segment_bytes, FIRST_BLOCK + size)
        self._make_room(room + room // _INDEX_SHARE, made_at_us)
        fd = files.create(path)
        try:
            self._reserve(fd, FIRST_BLOCK + size)
            files.write(fd, [write_head(first_seq, made_at_us, self._salt)], 0)
            if self._settings.fsync:
                files.fsync(fd)
                files.fsync_dir(self._folder)
        except OSError:
            files.close(fd)
            raise
        self._fd, self._path = fd, path
        self._first_seq = self._end_seq = first_seq
        self._made_at_us = made_at_us
        self._offset = FIRST_BLOCK
        self._places = []

    def _reserve(self, fd: int, least: int) -> None:
        try:
            self._files.allocate(fd, max(self._settings.segment_bytes, least))
        except OSError as error:
            if error.errno not in _NO_ROOM and error.errno != errno.EOPNOTSUPP:
                raise
            self._files.truncate(fd, 0)  # no room for a whole segment: it grows block by block, as far as that goes

    def _abandon(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self.sealed += 1
            self._files.close(fd)


def seal_segment(
    files: Files, fd: int, places: list[Place], offset: int, first_seq: int, end_seq: int, salt: int
) -> None:
    """Write index and trailer at `offset` and cut the file behind them.

    The index is on disk before the cut: a reader that stands at `offset` finds either zeros or the index there.
    """
    footer = write_footer(places, offset, first_seq, end_seq, salt)
    files.write(fd, footer, offset)
    files.fsync(fd)
    files.truncate(fd, offset + sum(len(piece) for piece in footer))
    files.fsync(fd)
