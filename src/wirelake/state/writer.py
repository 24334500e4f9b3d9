"""Group commit: one thread writes; while its fsync runs, the next batch gathers.

The memory that answers reads belongs to the owner, the thread that opened the store (the event loop's). An operation
changes it at once and is confirmed by the commit of its batch. When a batch fails, so does everything that waits
behind it, because that was decided on memory that will now be read anew from disk. Then the writer tries by itself
until it can write again; until then new operations are refused.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from wirelake.commit import Commit
from wirelake.errors import BusyError, StateError, StorageError
from wirelake.limits import (
    STATE_CLOSE_S,
    STATE_LOG_BEHIND_ROWS,
    STATE_PROBE_BYTES,
    STATE_RETRY_PAUSE_S,
    STATE_WAITING_BYTES_MAX,
    STATE_WAITING_OPERATIONS_MAX,
)
from wirelake.state.batch import AnyStatement, Batch, Row
from wirelake.state.damage import is_damage, trouble_of
from wirelake.state.log_position import LogEnds, LogPosition, TellBatch, note_unlogged, unrestorable

_log = logging.getLogger(__name__)
_OPERATION_BYTES: Final = 64  # what an operation is counted with beyond its content


class Writer:
    """`ready`, change memory, `submit`: every operation of the nouns goes this way."""

    def __init__(self, connection: sqlite3.Connection, reload: Callable[[], None]) -> None:
        self._connection = connection
        self._reload = reload
        self._owner = threading.get_ident()
        self._gate = threading.Condition(threading.RLock())
        self._gathering: Batch | None = None
        self._writing: Batch | None = None
        self._trouble: StorageError | None = None  # why it cannot write now
        self._failure = StorageError("nothing has failed")  # the last trouble, over or not
        self._stale = False  # memory is ahead of the disk for good and must be read anew
        self._within_whole = False
        self._closing = False
        self._log_ends: LogEnds | None = None  # where a log is followed
        self._tell: TellBatch | None = None
        self._number = 0  # of the newest batch
        self._marked_seq = 0  # of the log, in the newest batch that was taken up
        self.damage: StorageError | None = None  # found by a batch; it does not go away by itself
        self.batches_written = 0
        self.batches_failed = 0
        self._thread = threading.Thread(target=self._run, name="state writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Operations gathered and not yet taken up."""
        gathering = self._gathering
        return 0 if gathering is None else gathering.operations

    @property
    def trouble(self) -> StorageError | None:
        """Why operations are refused at the moment, if they are; or that the file was found damaged."""
        return self._trouble or self.damage

    def follow(self, log_ends: LogEnds, tell: TellBatch, position: LogPosition) -> None:
        """From here on every batch keeps how far the log is.

        `tell` hears of each durable batch that changed what the log cannot restore, before those who wait for it do.
        """
        with self._gate:
            self._log_ends, self._tell = log_ends, tell
            self._number, self._marked_seq = position.batch, position.next_seq

    def keep_up(self, rows_max: int = STATE_LOG_BEHIND_ROWS) -> None:
        """Write the position alone where the log went on and the state did not: a start reads the log from there."""
        with self._gate:
            if self._log_ends is None or self._gathering is not None or self._stale or self._trouble is not None:
                return
            if self._log_ends()[0] - self._marked_seq > rows_max and not self._closing:
                self._gathering = self._new_batch()
                self._gate.notify()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is submitted inside goes into one transaction. Ask whether it is `ready` before."""
        with self._gate:
            outer, self._within_whole = self._within_whole, True
            try:
                yield
            finally:
                self._within_whole = outer

    def fresh(self) -> None:
        """Before memory is read: after a failed commit it is taken from disk again."""
        if self._stale:
            self._freshen()

    def ready(self) -> None:
        """Before memory is changed. Raises StorageError when work has to be refused."""
        if threading.get_ident() != self._owner:
            raise StateError("the state store is changed from the thread that opened it, and from no other")
        if self._stale:
            self._freshen()
        if self._trouble is not None:
            raise StorageError(*self._trouble.args) from self._trouble
        if self._closing:
            raise StorageError("the state store is closed")
        batch = self._gathering
        if batch is None or self._within_whole:  # one that is begun as a whole is not refused half way
            return
        if batch.operations >= STATE_WAITING_OPERATIONS_MAX or batch.size_bytes >= STATE_WAITING_BYTES_MAX:
            raise BusyError(f"{batch.operations} operations ({batch.size_bytes} bytes) wait for the disk already")

    def submit(self, statement: AnyStatement, row: Row, key: object = None, content_bytes: int = 0) -> Commit:
        """Add a row to the gathering batch. A row with a key replaces one that waits under the same key."""
        with self._gate:
            if self._stale or self._trouble is not None:  # it was decided on memory that turned out wrong
                return Commit.resolved(self._failure)
            batch = self._gathering
            if batch is None:
                batch = self._gathering = self._new_batch()
                self._gate.notify()
            batch.add(statement, row, key, content_bytes + _OPERATION_BYTES)
            return batch.commit

    def submit_many(self, statement: AnyStatement, rows: Sequence[Row], content_bytes: int = 0) -> Commit:
        """The same for many rows without keys, all in one batch."""
        with self._gate:
            if self._stale or self._trouble is not None:
                return Commit.resolved(self._failure)
            batch = self._gathering
            if batch is None:
                batch = self._gathering = self._new_batch()
                self._gate.notify()
            batch.add_many(statement, rows, content_bytes + len(rows) * _OPERATION_BYTES)
            return batch.commit

    def barrier(self) -> Commit:
        """Durable when everything submitted so far is."""
        with self._gate:
            if self._stale or self._trouble is not None:
                return Commit.resolved(self._failure)
            batch = self._gathering or self._writing
            return Commit.resolved() if batch is None else batch.commit

    def close(self) -> None:
        """Write what waits and end the thread."""
        self.keep_up(0)
        with self._gate:
            self._closing = True
            self._gate.notify()
        self._thread.join(STATE_CLOSE_S)
        if self._thread.is_alive():
            raise StorageError(f"the state writer did not end within {STATE_CLOSE_S} s")

    def _new_batch(self) -> Batch:
        self._number += 1
        batch = Batch(Commit(), self._number)
        if asyncio._get_running_loop() is not None:
            batch.commit.add_done_callback(lambda _: self._after(batch))
        return batch

    def _after(self, batch: Batch) -> None:
        """First of a batch's callbacks: whoever hears of a failure finds memory in step with the disk."""
        if batch.commit.error is None:
            if self._tell is not None and (tables := unrestorable(set(batch.lanes))):
                self._tell(batch.number, tables)
            return
        try:
            self.fresh()
        except StorageError as error:  # whoever asks for something hears it too
            _log.error("the state cannot be read again after a failure: %s", error)

    def _freshen(self) -> None:
        # Nothing is under way now: what waited has failed, and `submit` takes nothing while memory is stale.
        self._reload()
        self._stale = False

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 whatever it is, those who wait must hear of it
                self._fail(batch, error)
                self._recover()
            else:
                self.batches_written += 1
                batch.commit.resolve(None)

    def _take(self) -> Batch | None:
        with self._gate:
            self._writing = None
            while self._gathering is None:
                if self._closing:
                    return None
                self._gate.wait()
            batch = self._writing = self._gathering
            self._gathering = None
            if self._log_ends is not None:
                next_seq, durable_seq = self._log_ends()
                batch.position = LogPosition(batch.number, next_seq, durable_seq)
                self._marked_seq = next_seq
            return batch

    def _write(self, batch: Batch) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        batch.execute(self._connection)
        if batch.position is not None:
            batch.position.write(self._connection)
        elif tables := unrestorable(set(batch.lanes)):
            note_unlogged(self._connection, tables)
        self._connection.execute("COMMIT")

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._roll_back()
        trouble = trouble_of("the state cannot be written", error)
        with self._gate:
            if is_damage(error):
                self.damage = trouble
            self._trouble = self._failure = trouble
            self._stale = True
            later, self._gathering, self._writing = self._gathering, None, None
        self.batches_failed += 1
        _log.error("a batch of %d operations failed: %s", batch.operations, error)
        batch.commit.resolve(trouble)
        if later is not None:
            later.commit.resolve(trouble)

    def _recover(self) -> None:
        """Write something small until it succeeds; then there is no trouble any more."""
        while not self._closing:
            try:
                self._probe()
            except sqlite3.Error as error:
                self._roll_back()
                _log.debug("still cannot write: %s", error)
            else:
                with self._gate:
                    self._trouble = None
                _log.info("the state can be written again")
                return
            with self._gate:
                self._gate.wait(STATE_RETRY_PAUSE_S)

    def _probe(self) -> None:
        # Two transactions: pages taken and given back within one would never reach the disk.
        self._connection.execute("INSERT OR REPLACE INTO probe VALUES (1, zeroblob(?))", (STATE_PROBE_BYTES,))
        self._connection.execute("DELETE FROM probe")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            # SQLite has often done it already by the time the error is seen, and then says so.
            with suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK")
