"""The thread that puts records on disk, a block at a time.

While a block is being synced the next one gathers, so one sync covers all that came during the one before: the busier
the log, the larger the blocks, up to a size. What somebody waits for is never delayed on purpose; what nobody waits for
may linger a moment (by setting), and then goes with the next block that somebody does wait for.
"""

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from wirelake.commit import Commit
from wirelake.errors import LogWriteError, StorageError
from wirelake.limits import LOG_CLOSE_S
from wirelake.log.block import Bytes, Kind, whole_block
from wirelake.log.columns import Columns, Rows
from wirelake.log.gathering import CLOSED, Gathering
from wirelake.log.mark import Mark
from wirelake.log.repeat_index import Found, RepeatIndex
from wirelake.log.repeats import write_body
from wirelake.log.retention import Retention
from wirelake.log.segmentwriter import SegmentWriter
from wirelake.log.settings import LogSettings

_log = logging.getLogger(__name__)


class Appender:
    """Records go in through `gathering`."""

    def __init__(
        self,
        segments: SegmentWriter,
        mark: Mark,
        retention: Retention,
        repeats: RepeatIndex,
        settings: LogSettings,
        salt: int,
        now_us: Callable[[], int],
    ) -> None:
        self.gathering = Gathering(mark.seq, settings.gathered_bytes_max, self._wake, self._hurry)
        self.failures = 0  # writes and syncs that failed since the start
        self.blocks = 0  # put on disk since the start
        self._segments = segments
        self._mark = mark
        self._retention = retention
        self._settings = settings
        self._salt = salt
        self._now_us = now_us
        self._columns = Columns(settings.node)
        self._repeats = repeats
        self._seq = mark.seq  # of the first record not yet in a block
        self._writing = Commit()  # of the block on its way
        self._kept: list[Rows] = []  # what could not be written and is tried again
        self._trouble = ""  # why nothing can be written at the moment
        self._retained_us = 0
        self._closing = False
        self._asleep = False
        self._lingered = not settings.linger_s  # what has gathered has waited long enough for others to join it
        self._signal: SimpleQueue[None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="wirelake-log", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = LOG_CLOSE_S) -> None:
        """Put what has gathered on disk, seal the segment, end the thread. LogWriteError if that cannot be done."""
        if self.gathering.refusal == CLOSED:
            return
        self.gathering.refuse(CLOSED)
        self._closing = True
        self._wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LogWriteError(f"the log did not reach the disk within {timeout_s} s of being closed")
        if self._trouble:
            rows = self.gathering.next_seq - self._mark.seq
            raise LogWriteError(f"closed with {rows} records that are not on disk: {self._trouble}")

    def retain_soon(self) -> None:
        """Let retention run at the next opportunity, not only when it is due."""
        self._retained_us = 0
        self._wake()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _wake(self) -> None:
        self.gathering.resting = False
        self._signal.put(None)

    def _hurry(self) -> None:
        if self._asleep:
            self._signal.put(None)

    # From here on: the writer's thread.

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as error:
            # A fault of ours, not the disk's. Nothing more is accepted, and nobody waits for ever.
            self._trouble = f"the log's writer failed: {error!r}"
            self.gathering.refuse(self._trouble)
            self._fail([self._writing])
            cells = True
            while cells:
                commit, left = self.gathering.take()
                self._fail([commit])
                cells = bool(left)
            raise

    def _write_until_closed(self) -> None:
        while not self._kept:  # there is something left here only if closing had to give up
            closing = self._closing
            if closing or self._lingered or self.gathering.awaited:
                self._lingered = not self._settings.linger_s
                rows = self._take()
                if rows is not None:
                    self._store(rows)
                    continue
                self._writing.resolve(None, range(self._seq, self._seq))
            if closing:
                self._segments.close()
                self._mark.flush()
                return
            if self._segments.is_old:
                self._segments.seal()
            self._retain()
            self._rest()
        self._fail(self._keep_gathered())
        self._segments.close()

    def _rest(self) -> None:
        gathering = self.gathering
        gathering.resting = self._asleep = True
        if not self._closing and not gathering.awaited:  # looked at again, now that whoever waits would wake us
            if not gathering.waiting:
                self._pause(self._settings.retention_every_s)
            elif not self._lingered:
                gathering.resting = False
                self._pause(self._settings.linger_s)
                self._lingered = True
        gathering.resting = self._asleep = False

    def _pause(self, timeout_s: float) -> None:
        try:
            self._signal.get(timeout=timeout_s)
            while True:
                self._signal.get_nowait()
        except Empty:
            return

    def _take(self) -> Rows | None:
        """The next block; `_writing` is then the commit of those who wait for it."""
        self._writing, cells = self.gathering.take()
        if not cells:
            return None
        rows = self._columns.build(cells, self._seq)
        self._seq = rows.end_seq
        return rows

    def _store(self, rows: Rows) -> None:
        try:
            self._write(rows)
        except OSError as error:
            self._kept.append(rows)
            self._outlast(error)
        else:
            self._writing.resolve(None, range(rows.first_seq, rows.end_seq))

    def _write(self, rows: Rows) -> None:
        segments, repeats = self._segments, self._repeats
        sealed = segments.sealed
        found = repeats.find(rows.batch, segments.segment)
        block = self._block(rows, found)
        if segments.is_over(block):
            segments.seal()
            if found.references:
                found = repeats.find(rows.batch, segments.segment)  # what was found is in another segment now
                block = self._block(rows, found)
        offset = segments.write(block, range(rows.first_seq, rows.end_seq), rows.at_us)
        repeats.remember(found, segments.segment, offset)
        self._mark.move(rows.end_seq)
        self.blocks += 1
        if self._segments.sealed != sealed:
            self._retain(due=True)

    def _block(self, rows: Rows, found: Found) -> list[Bytes]:
        if not found.references:
            body = memoryview(rows.batch.serialize())
            return whole_block(Kind.DATA, rows.first_seq, rows.count, rows.at_us, body, self._salt)
        body = memoryview(write_body(rows.batch, found.references))
        repeated = found.repeated_bytes
        return whole_block(Kind.REFERENCES, rows.first_seq, rows.count, rows.at_us, body, self._salt, repeated)

    def _outlast(self, error: OSError) -> None:
        """Refuse, tell those who wait, and try again until the disk takes blocks or the log is closed.

        The records are kept, in their order: they were on the wire, and their seqs are given out.
        """
        pause_s = self._settings.retry_first_s
        commits = [self._writing]
        while True:
            self.failures += 1
            self._trouble = f"the log cannot be written: {error.strerror or error}"
            self.gathering.refuse(self._trouble)
            _log.error("log: a block could not be written, next try in %.1f s: %s", pause_s, error)
            self._fail(commits + self._keep_gathered())
            if self._closing:
                return
            self._pause(pause_s)
            pause_s = min(pause_s * 2, self._settings.retry_max_s)
            self._retain(due=True)  # may make the room that is missing
            commits = self._keep_gathered()  # of those who came in the moment before the refusal
            try:
                while self._kept:
                    self._write(self._kept[0])
                    del self._kept[0]
            except OSError as again:
                error = again
            else:
                break
        self._trouble = ""
        self.gathering.accept()
        _log.warning("log: blocks are written again, up to record %d", self._seq)
        for commit in commits:
            commit.resolve(None, range(self._seq, self._seq))

    def _keep_gathered(self) -> list[Commit]:
        """Put all that has gathered behind what is kept already; the commits of those who wait for it."""
        commits: list[Commit] = []
        while (rows := self._take()) is not None:
            self._kept.append(rows)
            commits.append(self._writing)
        return [*commits, self._writing]

    def _fail(self, commits: list[Commit]) -> None:
        for commit in commits:
            if not commit.done:
                commit.resolve(LogWriteError(self._trouble))

    def _retain(self, due: bool = False) -> None:
        now_us = self._now_us()
        if not due and now_us - self._retained_us < self._settings.retention_every_s * 1e6:
            return
        self._retained_us = now_us
        try:
            self._retention.run(now_us)
        except (OSError, StorageError) as error:
            _log.error("log: old segments could not be removed: %s", error)
