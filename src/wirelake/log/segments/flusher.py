"""Flush buffered records to disk from a thread of its own, a block at a time.

While a block is being synced the next one fills, so one sync covers everything that arrived during the one before: the
busier the log, the larger the blocks, up to a limit. Records that somebody waits for are never delayed on purpose.
Others may linger for a moment (a setting), and then go with the next block.
"""

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from wirelake.commit import Commit
from wirelake.errors import LogWriteError, StorageError
from wirelake.files import Buffer
from wirelake.limits import LOG_CLOSE_S
from wirelake.log.accumulator import CLOSED, RecordAccumulator
from wirelake.log.batch_builder import BatchBuilder, BlockRecords
from wirelake.log.segments.deduplication import DuplicateScan, FrameDeduplicator
from wirelake.log.segments.format import BlockKind, encode_block, encode_references
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.retention import Retention
from wirelake.log.segments.settings import LogSettings
from wirelake.log.segments.writer import SegmentWriter

_log = logging.getLogger(__name__)


class Flusher:
    """Drain `accumulator`, to which the event loop appends, and write its records to segments."""

    def __init__(
        self,
        segments: SegmentWriter,
        watermark: HighWatermark,
        retention: Retention,
        deduplicator: FrameDeduplicator,
        settings: LogSettings,
        salt: int,
        now_us: Callable[[], int],
    ) -> None:
        self.accumulator = RecordAccumulator(
            watermark.seq, settings.buffered_bytes_max, self._wake, self._wake_if_asleep
        )
        self.failures = 0  # writes and syncs that failed since the start
        self.blocks = 0  # written since the start
        self._segments = segments
        self._watermark = watermark
        self._retention = retention
        self._settings = settings
        self._salt = salt
        self._now_us = now_us
        self._builder = BatchBuilder(settings.node)
        self._deduplicator = deduplicator
        self._seq = watermark.seq  # of the first record that is not in a block yet
        self._commit = Commit()  # of the block being written
        self._unwritten: list[BlockRecords] = []  # failed to be written and will be tried again
        self._failure = ""  # why nothing can be written at the moment
        self._retention_ran_us = 0
        self._is_closing = False
        self._is_asleep = False
        self._has_lingered = not settings.linger_s  # the buffered records have waited long enough for others
        self._signal: SimpleQueue[None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="wirelake-log", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = LOG_CLOSE_S) -> None:
        """Write what is buffered, seal the segment, end the thread. Raise LogWriteError if that fails."""
        if self.accumulator.refusal == CLOSED:
            return
        self.accumulator.refuse(CLOSED)
        self._is_closing = True
        self._wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LogWriteError(f"the log could not be written within {timeout_s} s of being closed")
        if self._failure:
            rows = self.accumulator.next_seq - self._watermark.seq
            raise LogWriteError(f"the log was closed with {rows} records that are not on disk: {self._failure}")

    def run_retention_soon(self) -> None:
        """Run retention at the next opportunity, even if it is not due."""
        self._retention_ran_us = 0
        self._wake()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _wake(self) -> None:
        self.accumulator.is_writer_idle = False
        self._signal.put(None)

    def _wake_if_asleep(self) -> None:
        if self._is_asleep:
            self._signal.put(None)

    # From here on: the thread that writes.

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as error:
            # A bug of ours, not a disk failure. Accept nothing more, and let nobody wait for ever.
            self._failure = f"the log's writer thread failed: {error!r}"
            self.accumulator.refuse(self._failure)
            self._fail([self._commit])
            has_cells = True
            while has_cells:
                commit, cells = self.accumulator.drain()
                self._fail([commit])
                has_cells = bool(cells)
            raise

    def _write_until_closed(self) -> None:
        while not self._unwritten:  # is filled here only if closing had to give up
            is_closing = self._is_closing
            if is_closing or self._has_lingered or self.accumulator.is_urgent:
                self._has_lingered = not self._settings.linger_s
                records = self._drain()
                if records is not None:
                    self._store(records)
                    continue
                self._commit.resolve(None, range(self._seq, self._seq))
            if is_closing:
                self._segments.close()
                self._watermark.flush()
                return
            if self._segments.is_too_old:
                self._segments.seal()
            self._run_retention()
            self._idle()
        self._fail(self._drain_to_unwritten())
        self._segments.close()

    def _idle(self) -> None:
        accumulator = self.accumulator
        accumulator.is_writer_idle = self._is_asleep = True
        if not self._is_closing and not accumulator.is_urgent:  # checked again, now that a waiter would wake us
            if not accumulator.has_records:
                self._sleep(self._settings.retention_every_s)
            elif not self._has_lingered:
                accumulator.is_writer_idle = False
                self._sleep(self._settings.linger_s)
                self._has_lingered = True
        accumulator.is_writer_idle = self._is_asleep = False

    def _sleep(self, timeout_s: float) -> None:
        try:
            self._signal.get(timeout=timeout_s)
            while True:
                self._signal.get_nowait()
        except Empty:
            return

    def _drain(self) -> BlockRecords | None:
        """Return the records of the next block; `_commit` is then the commit of those who wait for them."""
        self._commit, cells = self.accumulator.drain()
        if not cells:
            return None
        records = self._builder.build(cells, self._seq)
        self._seq = records.end_seq
        return records

    def _store(self, records: BlockRecords) -> None:
        try:
            self._write(records)
        except OSError as error:
            self._unwritten.append(records)
            self._retry_until_written(error)
        else:
            self._commit.resolve(None, range(records.first_seq, records.end_seq))

    def _write(self, records: BlockRecords) -> None:
        segments, deduplicator = self._segments, self._deduplicator
        segments_ended = segments.segments_ended
        scan = deduplicator.scan(records.batch, segments.open_segment)
        block = self._encode(records, scan)
        if segments.must_seal_before(block):
            segments.seal()
            if scan.references:
                scan = deduplicator.scan(records.batch, segments.open_segment)  # references stay inside a segment
                block = self._encode(records, scan)
        offset = segments.write(block, range(records.first_seq, records.end_seq), records.at_us)
        deduplicator.remember(scan, segments.open_segment, offset)
        self._watermark.advance(records.end_seq)
        self.blocks += 1
        if segments.segments_ended != segments_ended:
            self._run_retention(is_due=True)

    def _encode(self, records: BlockRecords, scan: DuplicateScan) -> list[Buffer]:
        first_seq, count, at_us = records.first_seq, records.count, records.at_us
        if not scan.references:
            body = memoryview(records.batch.serialize())
            return encode_block(BlockKind.DATA, first_seq, count, at_us, body, self._salt)
        body = memoryview(encode_references(records.batch, scan.references))
        return encode_block(BlockKind.REFERENCES, first_seq, count, at_us, body, self._salt, scan.repeated_bytes)

    def _retry_until_written(self, error: OSError) -> None:
        """Refuse appends, fail those who wait, and retry until the disk accepts blocks or the log is closed.

        The records stay, in order: they were on the wire, and their seqs are assigned.
        """
        pause_s = self._settings.retry_first_s
        commits = [self._commit]
        while True:
            self.failures += 1
            self._failure = f"the log cannot be written: {error.strerror or error}"
            self.accumulator.refuse(self._failure)
            _log.error("log: cannot write a block, retrying in %.1f s: %s", pause_s, error)
            self._fail(commits + self._drain_to_unwritten())
            if self._is_closing:
                return
            self._sleep(pause_s)
            pause_s = min(pause_s * 2, self._settings.retry_max_s)
            self._run_retention(is_due=True)  # may free the space that is missing
            commits = self._drain_to_unwritten()  # of those who appended just before the refusal
            try:
                while self._unwritten:
                    self._write(self._unwritten[0])
                    del self._unwritten[0]
            except OSError as again:
                error = again
            else:
                break
        self._failure = ""
        self.accumulator.accept()
        _log.warning("log: blocks can be written again; written up to record %d", self._seq)
        for commit in commits:
            commit.resolve(None, range(self._seq, self._seq))

    def _drain_to_unwritten(self) -> list[Commit]:
        """Move everything buffered behind what is unwritten already. Return the commits of those who wait for it."""
        commits: list[Commit] = []
        while (records := self._drain()) is not None:
            self._unwritten.append(records)
            commits.append(self._commit)
        return [*commits, self._commit]

    def _fail(self, commits: list[Commit]) -> None:
        for commit in commits:
            if not commit.is_done:
                commit.resolve(LogWriteError(self._failure))

    def _run_retention(self, is_due: bool = False) -> None:
        now_us = self._now_us()
        if not is_due and now_us - self._retention_ran_us < self._settings.retention_every_s * 1e6:
            return
        self._retention_ran_us = now_us
        try:
            self._retention.run(now_us)
        except (OSError, StorageError) as error:
            _log.error("log: cannot remove old segments: %s", error)
