"""Write blocks to segments: the only place that writes records to disk."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wirelake.files import Buffer, FileSystem
from wirelake.log.segments.format import FIRST_BLOCK_OFFSET, IndexEntry, encode_footer, encode_head, segment_path
from wirelake.log.segments.lookup_index import index_path
from wirelake.log.segments.settings import LogSettings

_log = logging.getLogger(__name__)
_INDEX_SHARE: Final = 16  # the index of a segment takes less than this part of the size of its blocks
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class SegmentWriter:
    """Write one segment at a time. After an OSError the block is not in the log, and may be tried again."""

    def __init__(
        self,
        folder: Path,
        salt: int,
        settings: LogSettings,
        files: FileSystem,
        now_us: Callable[[], int],
        ensure_space: Callable[[int, int], None] = lambda _size, _now_us: None,
        on_seal: Callable[[], None] = lambda: None,
    ) -> None:
        """`ensure_space` is called with the size of a segment to be created, and the time; it may raise OSError.

        `on_seal` is called when a segment has been sealed.
        """
        self._folder = folder
        self._salt = salt
        self._settings = settings
        self._files = files
        self._now_us = now_us
        self._ensure_space = ensure_space
        self._on_seal = on_seal
        self._fd: int | None = None
        self._path = folder
        self._first_seq = 0
        self._end_seq = 0
        self._made_at_us = 0
        self._offset = 0
        self._entries: list[IndexEntry] = []
        self.segments_ended = 0  # since the start

    def write(self, block: list[Buffer], seqs: range, at_us: tuple[int, int]) -> int:
        """Write the block durably and return its offset. Check `must_seal_before` first."""
        size = sum(len(part) for part in block)
        if self._fd is None:
            self._start_segment(seqs.start, size)
        fd = self._fd
        if fd is None:
            raise AssertionError("a segment was started")
        self._files.write(fd, block, self._offset)  # a retry after a failure writes to the same offset
        if self._settings.fsync:
            try:
                self._files.fsync_data(fd)
            except OSError:
                # The kernel may now hold the pages as clean although they are not on disk, so that another sync of
                # this file would succeed without effect. What was synced before stays; the block goes to a new file.
                self._end_segment()
                raise
        offset = self._offset
        self._entries.append(IndexEntry(seqs.start, offset, *at_us))
        self._offset += size
        self._end_seq = seqs.stop
        return offset

    def seal(self) -> None:
        """Write the index and end the open segment.

        If that fails, the segment is readable without an index, and the next start adds it.
        """
        if self._fd is None:
            return
        try:
            if self._entries:
                seal_segment(
                    self._files, self._fd, self._entries, self._offset, self._first_seq, self._end_seq, self._salt
                )
        except OSError as error:
            _log.warning("log: cannot write the index of %s, the next start will: %s", self._path, error)
        self._end_segment()
        self._on_seal()

    def close(self) -> None:
        """Seal the open segment."""
        self.seal()

    @property
    def open_segment(self) -> int | None:
        """Return the first seq of the open segment."""
        return self._first_seq if self._fd is not None else None

    def must_seal_before(self, block: list[Buffer]) -> bool:
        """Tell whether the open segment is full or too old to take this block."""
        if self._fd is None or not self._entries:
            return False
        return self._offset + sum(map(len, block)) > self._settings.segment_bytes or self.is_too_old

    @property
    def is_too_old(self) -> bool:
        """Tell whether the open segment has reached its maximum age."""
        age_s = (self._now_us() - self._made_at_us) / 1e6
        return self._fd is not None and bool(self._entries) and age_s > self._settings.segment_age_s

    def _start_segment(self, first_seq: int, size: int) -> None:
        files = self._files
        path = segment_path(self._folder, first_seq)
        if path.exists():
            # From an attempt that failed before its first block was on disk: nothing in it was ever confirmed.
            files.unlink(path)
        index_path(self._folder, first_seq).unlink(missing_ok=True)  # of a segment that a power failure took
        made_at_us = self._now_us()
        reserved = max(self._settings.segment_bytes, FIRST_BLOCK_OFFSET + size)
        self._ensure_space(reserved + reserved // _INDEX_SHARE, made_at_us)
        fd = files.create(path)
        try:
            self._reserve(fd, FIRST_BLOCK_OFFSET + size)
            files.write(fd, [encode_head(first_seq, made_at_us, self._salt)], 0)
            if self._settings.fsync:
                files.fsync(fd)
                files.fsync_dir(self._folder)
        except OSError:
            files.close(fd)
            raise
        self._fd, self._path = fd, path
        self._first_seq = self._end_seq = first_seq
        self._made_at_us = made_at_us
        self._offset = FIRST_BLOCK_OFFSET
        self._entries = []

    def _reserve(self, fd: int, size_min: int) -> None:
        try:
            self._files.allocate(fd, max(self._settings.segment_bytes, size_min))
        except OSError as error:
            if error.errno not in _NO_SPACE and error.errno != errno.EOPNOTSUPP:
                raise
            self._files.truncate(fd, 0)  # no space for a whole segment: it grows block by block, as far as possible

    def _end_segment(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self.segments_ended += 1
            self._files.close(fd)


def seal_segment(
    files: FileSystem, fd: int, entries: list[IndexEntry], offset: int, first_seq: int, end_seq: int, salt: int
) -> None:
    """Write index and trailer at `offset` and truncate the file behind them.

    The index is on disk before the file is truncated: a reader at `offset` finds either zeros or the index there.
    """
    footer = encode_footer(entries, offset, first_seq, end_seq, salt)
    files.write(fd, footer, offset)
    files.fsync(fd)
    files.truncate(fd, offset + sum(len(part) for part in footer))
    files.fsync(fd)
