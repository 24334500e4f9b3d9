"""Keep the event log in a folder: one process writes it, any process may read it.

log/00000000000000000000.seg …   segments, see format.py
log/00000000000000000000.idx …   their lookup indexes, see lookup_index.py
log/committed                    high watermark, see high_watermark.py
log/id                           id of the data folder
log/positions/NAME.json          consumer offsets
log/quarantine/                  damaged bytes, each with a report
log/removed.json                 what retention removed
log/lock                         locked by the process that writes
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wirelake.errors import StorageError
from wirelake.files import FileSystem
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.deduplication import FrameDeduplicator
from wirelake.log.segments.flusher import Flusher
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.indexer import SegmentIndexer
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.recovery import RecoveryReport, lock_log, recover
from wirelake.log.segments.retention import DiskUsage, RemovedTotals, Retention, read_usage
from wirelake.log.segments.settings import LogSettings, RetentionLimits
from wirelake.log.segments.writer import SegmentWriter


def clock_us() -> int:
    return time.time_ns() // 1000


class SegmentLog:
    """Open a log for writing. Implements `EventLog`; `recovery` reports in which state the log was."""

    def __init__(
        self,
        folder: Path,
        settings: LogSettings = LogSettings(),  # noqa: B008 (frozen)
        files: FileSystem | None = None,
        now_us: Callable[[], int] = clock_us,
    ) -> None:
        files = FileSystem() if files is None else files
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_log(folder)
        except OSError as error:
            raise StorageError(f"cannot open the log in {folder} for writing: {error}") from error
        try:
            self.recovery: RecoveryReport = recover(folder, files, now_us())
            watermark = self._watermark = HighWatermark(folder, writable=True)
        except OSError as error:
            self._lock.release()
            raise StorageError(f"cannot open the log in {folder} for writing: {error}") from error
        except BaseException:
            self._lock.release()
            raise
        self.folder = folder
        self._now_us = now_us
        self._offsets = ConsumerOffsets(folder, files)
        limits = RetentionLimits(settings.keep_days, settings.keep_bytes, settings.disk_bytes_max)
        self._retention = Retention(folder, limits, self._offsets, files)
        salt = self.recovery.salt
        self._indexer = SegmentIndexer(folder, salt)
        segments = SegmentWriter(
            folder, salt, settings, files, now_us, self._retention.ensure_space, self._indexer.wake
        )
        self._flusher = Flusher(
            segments, watermark, self._retention, FrameDeduplicator(folder, salt), settings, salt, now_us
        )
        # Bound directly, because these are called for every frame.
        self._accumulator = self._flusher.accumulator
        self.append = self._accumulator.append
        self.append_many = self._accumulator.append_many
        self.append_rows = self._accumulator.append_rows

    @property
    def next_seq(self) -> int:
        return self._accumulator.next_seq

    @property
    def committed_seq(self) -> int:
        """Return the seq before which every record is on disk. May be called from any thread."""
        return self._watermark.seq

    @property
    def oldest_seq(self) -> int:
        """Return the seq of the oldest record that retention has left; `next_seq` if there is none."""
        return LogReader(self.folder).oldest_seq

    @property
    def refusal(self) -> str:
        """Return why appends are refused at the moment, or an empty string."""
        return self._accumulator.refusal

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes wait for the disk."""
        return self._accumulator.buffered_bytes

    @property
    def blocks(self) -> int:
        """Return how many blocks were written since the start."""
        return self._flusher.blocks

    @property
    def failures(self) -> int:
        """Return how many attempts to write a block failed since the start."""
        return self._flusher.failures

    @property
    def removed(self) -> RemovedTotals:
        return self._retention.removed

    @property
    def usage(self) -> DiskUsage:
        """Return the current size of the segments."""
        return read_usage(self.folder)

    @property
    def retention_limits(self) -> RetentionLimits:
        return self._retention.limits

    def set_retention_limits(self, limits: RetentionLimits) -> None:
        """Apply these limits from now on."""
        self._retention.limits = limits
        self._flusher.run_retention_soon()

    def read(self, from_seq: int | None = None, until_seq: int | None = None, wait_s: float = 0.0) -> Iterator[Any]:
        return LogReader(self.folder).read(from_seq, until_seq, wait_s)

    def commit_offset(self, consumer: str, seq: int) -> None:
        self._offsets.commit(consumer, seq, self._now_us())

    def committed_offset(self, consumer: str) -> int | None:
        return self._offsets.get(consumer)

    def close(self) -> None:
        try:
            self._flusher.close()
        finally:
            self._indexer.close()
            if not self._flusher.is_running:  # or the disk hangs, and nobody else may write until that is over
                self._lock.release()
