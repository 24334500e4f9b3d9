"""The event log in a folder: one process writes it, any may read it.

log/00000000000000000000.seg …   segments, see segment.py
log/committed                    how far readers may read, see mark.py
log/id                           of the data folder, see identity.py
log/positions/NAME.json          how far each consumer has come
log/quarantine/                  damaged bytes, each with a report
log/removed.json                 what retention removed
log/lock                         held by the process that writes
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wirelake.errors import StorageError
from wirelake.log.appender import Appender
from wirelake.log.files import Files
from wirelake.log.lock import WriterLock
from wirelake.log.mark import Mark
from wirelake.log.positions import Positions
from wirelake.log.reader import Reader
from wirelake.log.recovery import Recovery, recover
from wirelake.log.repeat_index import RepeatIndex
from wirelake.log.retention import Removed, Retention, Usage, read_usage
from wirelake.log.segmentwriter import SegmentWriter
from wirelake.log.settings import LogSettings, RetentionLimits


def clock_us() -> int:
    return time.time_ns() // 1000


class Log:
    """Opened for writing. Implements `EventLog`. `recovery` says how it was found."""

    def __init__(
        self,
        folder: Path,
        settings: LogSettings = LogSettings(),  # noqa: B008 (frozen)
        files: Files | None = None,
        now_us: Callable[[], int] = clock_us,
    ) -> None:
        files = Files() if files is None else files
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(folder)
        except OSError as error:
            raise StorageError(f"the log in {folder} cannot be opened for writing: {error}") from error
        try:
            self.recovery: Recovery = recover(folder, files, now_us())
            mark = self._mark = Mark(folder, writable=True)
        except OSError as error:
            self._lock.release()
            raise StorageError(f"the log in {folder} cannot be opened for writing: {error}") from error
        except BaseException:
            self._lock.release()
            raise
        self.folder = folder
        self._now_us = now_us
        self._positions = Positions(folder, files)
        limits = RetentionLimits(settings.keep_days, settings.keep_bytes, settings.disk_bytes_max)
        self._retention = Retention(folder, limits, self._positions, files)
        salt = self.recovery.salt
        segments = SegmentWriter(folder, salt, settings, files, now_us, self._retention.make_room)
        self._appender = Appender(segments, mark, self._retention, RepeatIndex(folder, salt), settings, salt, now_us)
        # Not wrapped: these are called for every frame.
        self._gathering = self._appender.gathering
        self.append = self._gathering.append
        self.append_many = self._gathering.append_many
        self.append_rows = self._gathering.append_rows

    @property
    def next_seq(self) -> int:
        return self._gathering.next_seq

    @property
    def committed_seq(self) -> int:
        """Every record before this one is on disk. From any thread."""
        return self._mark.seq

    @property
    def oldest_seq(self) -> int:
        """The first record that is still there; `next_seq` if there is none."""
        return Reader(self.folder).oldest_seq

    @property
    def refusal(self) -> str:
        """Why appends are refused at the moment, or nothing."""
        return self._gathering.refusal

    @property
    def gathered_bytes(self) -> int:
        return self._gathering.bytes

    @property
    def blocks(self) -> int:
        """Put on disk since the start."""
        return self._appender.blocks

    @property
    def failures(self) -> int:
        """Tries to put a block on disk that failed since the start."""
        return self._appender.failures

    @property
    def removed(self) -> Removed:
        return self._retention.removed

    @property
    def usage(self) -> Usage:
        """What the segments take on disk now."""
        return read_usage(self.folder)

    @property
    def retention_limits(self) -> RetentionLimits:
        return self._retention.limits

    def set_retention_limits(self, limits: RetentionLimits) -> None:
        """Hold to these from now on."""
        self._retention.limits = limits
        self._appender.retain_soon()

    def read(self, from_seq: int | None = None, until_seq: int | None = None, wait_s: float = 0.0) -> Iterator[Any]:
        return Reader(self.folder).read(from_seq, until_seq, wait_s)

    def commit_position(self, consumer: str, seq: int) -> None:
        self._positions.commit(consumer, seq, self._now_us())

    def position(self, consumer: str) -> int | None:
        return self._positions.get(consumer)

    def close(self) -> None:
        try:
            self._appender.close()
        finally:
            if not self._appender.running:  # a disk that hangs: nobody else may write until it is over
                self._lock.release()
