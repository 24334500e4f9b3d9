"""Write the state with group commit: one thread writes, and while its fsync runs, the next batch is collected.

The memory that answers reads belongs to the owner, the thread that opened the store (that of the event loop). An
operation changes it at once and is confirmed by the commit of its batch. When a batch fails, so does everything that
waits behind it, because that was decided on memory that is now reloaded from disk. The writer then retries by itself;
until it can write again, new operations are refused.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from wirelake.commit import Commit, running_loop
from wirelake.errors import BusyError, StateError, StorageError
from wirelake.limits import (
    STATE_CLOSE_S,
    STATE_LOG_BEHIND_ROWS,
    STATE_PROBE_BYTES,
    STATE_RETRY_PAUSE_S,
    STATE_WAITING_BYTES_MAX,
    STATE_WAITING_OPERATIONS_MAX,
)
from wirelake.state.batch import (
    AnyStatement,
    Batch,
    LogEnds,
    LogPosition,
    OnBatch,
    Row,
    mark_unlogged,
    unrestorable_tables,
)
from wirelake.state.database import is_corruption, storage_error

_log = logging.getLogger(__name__)
_OPERATION_BYTES: Final = 64  # counted for an operation beyond its content


class StateWriter:
    """Collect operations into batches and write them.

    Every operation of a noun calls `check_writable`, changes memory, and calls `submit`.
    """

    def __init__(self, connection: sqlite3.Connection, reload: Callable[[], None]) -> None:
        self._connection = connection
        self._reload = reload
        self._owner = threading.get_ident()
        self._condition = threading.Condition(threading.RLock())
        self._pending: Batch | None = None
        self._writing: Batch | None = None
        self._error: StorageError | None = None  # why it cannot write now
        self._last_error = StorageError("nothing has failed")
        self._is_stale = False  # memory differs from the disk and must be reloaded
        self._in_transaction = False
        self._is_closing = False
        self._log_ends: LogEnds | None = None  # set if a log is attached
        self._on_batch: OnBatch | None = None
        self._number = 0  # of the newest batch
        self._written_seq = 0  # of the log, in the newest batch that was started
        self._corruption: StorageError | None = None  # found by a batch; it does not go away by itself
        self.batches_written = 0
        self.batches_failed = 0
        self._thread = threading.Thread(target=self._run, name="state writer", daemon=True)
        self._thread.start()

    @property
    def pending_operations(self) -> int:
        """Return how many operations wait for the next batch."""
        batch = self._pending
        return 0 if batch is None else batch.operations

    @property
    def error(self) -> StorageError | None:
        """Return why operations are refused at the moment, or that the file is damaged, or None."""
        return self._error or self._corruption

    def attach_log(self, log_ends: LogEnds, on_batch: OnBatch, position: LogPosition) -> None:
        """Write the position of the log with every batch from now on.

        `on_batch` is called for each durable batch that changed what the log cannot restore, before other callbacks.
        """
        with self._condition:
            self._log_ends, self._on_batch = log_ends, on_batch
            self._number, self._written_seq = position.batch, position.next_seq

    def write_log_position(self, rows_max: int = STATE_LOG_BEHIND_ROWS) -> None:
        """Write the position alone if the log advanced without the state: a start replays the log from there."""
        with self._condition:
            if self._log_ends is None or self._pending is not None or self._is_stale or self._error is not None:
                return
            if self._log_ends()[0] - self._written_seq > rows_max and not self._is_closing:
                self._pending = self._new_batch()
                self._condition.notify()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Put everything that is submitted inside into one transaction. Call `check_writable` before."""
        with self._condition:
            outer, self._in_transaction = self._in_transaction, True
            try:
                yield
            finally:
                self._in_transaction = outer

    def reload_if_stale(self) -> None:
        """Reload memory from disk after a failed commit. Called before memory is read."""
        if self._is_stale:
            self._reload_memory()

    def check_writable(self) -> None:
        """Raise StorageError if work has to be refused. Called before memory is changed."""
        if threading.get_ident() != self._owner:
            raise StateError("only the thread that opened the state store may change it")
        if self._is_stale:
            self._reload_memory()
        if self._error is not None:
            raise StorageError(*self._error.args) from self._error
        if self._is_closing:
            raise StorageError("the state store is closed")
        batch = self._pending
        if batch is None or self._in_transaction:  # a transaction is not refused half way
            return
        if batch.operations >= STATE_WAITING_OPERATIONS_MAX or batch.size_bytes >= STATE_WAITING_BYTES_MAX:
            raise BusyError(
                f"the state is behind: {batch.operations} operations ({batch.size_bytes} bytes) wait for the disk; "
                "try again later"
            )

    def submit(self, statement: AnyStatement, row: Row, key: object = None, content_bytes: int = 0) -> Commit:
        """Add a row to the next batch. A row with a key replaces a pending one with the same key."""
        with self._condition:
            if self._is_stale or self._error is not None:  # it was decided on memory that is wrong
                return Commit.resolved(self._last_error)
            batch = self._pending
            if batch is None:
                batch = self._pending = self._new_batch()
                self._condition.notify()
            batch.add(statement, row, key, content_bytes + _OPERATION_BYTES)
            return batch.commit

    def submit_many(self, statement: AnyStatement, rows: Sequence[Row], content_bytes: int = 0) -> Commit:
        """Add many rows without keys, all to one batch."""
        with self._condition:
            if self._is_stale or self._error is not None:
                return Commit.resolved(self._last_error)
            batch = self._pending
            if batch is None:
                batch = self._pending = self._new_batch()
                self._condition.notify()
            batch.add_many(statement, rows, content_bytes + len(rows) * _OPERATION_BYTES)
            return batch.commit

    def barrier(self) -> Commit:
        """Return a commit that is durable when everything submitted so far is."""
        with self._condition:
            if self._is_stale or self._error is not None:
                return Commit.resolved(self._last_error)
            batch = self._pending or self._writing
            return Commit.resolved() if batch is None else batch.commit

    def close(self) -> None:
        """Write what is pending and end the thread."""
        self.write_log_position(0)
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join(STATE_CLOSE_S)
        if self._thread.is_alive():
            raise StorageError(f"the state could not be written within {STATE_CLOSE_S} s of being closed")

    def _new_batch(self) -> Batch:
        self._number += 1
        batch = Batch(Commit(), self._number)
        if running_loop() is not None:
            batch.commit.add_done_callback(lambda _: self._on_batch_done(batch))
        return batch

    def _on_batch_done(self, batch: Batch) -> None:
        """Run as the first callback of a batch, so that the others find memory consistent with the disk."""
        if batch.commit.error is None:
            if self._on_batch is not None and (tables := unrestorable_tables(set(batch.lanes))):
                self._on_batch(batch.number, tables)
            return
        try:
            self.reload_if_stale()
        except StorageError as error:  # the next operation raises it too
            _log.error("the state cannot be reloaded after a failed transaction: %s", error)

    def _reload_memory(self) -> None:
        # Nothing is pending now: what was has failed, and `submit` accepts nothing while memory is stale.
        self._reload()
        self._is_stale = False

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 (whatever it is, the commit must be resolved)
                self._fail(batch, error)
                self._retry_until_writable()
            else:
                self.batches_written += 1
                batch.commit.resolve(None)

    def _take(self) -> Batch | None:
        with self._condition:
            self._writing = None
            while self._pending is None:
                if self._is_closing:
                    return None
                self._condition.wait()
            batch = self._writing = self._pending
            self._pending = None
            if self._log_ends is not None:
                next_seq, durable_seq = self._log_ends()
                batch.position = LogPosition(batch.number, next_seq, durable_seq)
                self._written_seq = next_seq
            return batch

    def _write(self, batch: Batch) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        batch.execute(self._connection)
        if batch.position is not None:
            batch.position.write(self._connection)
        elif tables := unrestorable_tables(set(batch.lanes)):
            mark_unlogged(self._connection, tables)
        self._connection.execute("COMMIT")

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._roll_back()
        failure = storage_error("the state cannot be written", error)
        with self._condition:
            if is_corruption(error):
                self._corruption = failure
            self._error = self._last_error = failure
            self._is_stale = True
            later, self._pending, self._writing = self._pending, None, None
        self.batches_failed += 1
        _log.error("state: a transaction of %d operations failed: %s", batch.operations, error)
        batch.commit.resolve(failure)
        if later is not None:
            later.commit.resolve(failure)

    def _retry_until_writable(self) -> None:
        """Retry a small write until it succeeds, then accept operations again."""
        while not self._is_closing:
            try:
                self._probe()
            except sqlite3.Error as error:
                self._roll_back()
                _log.debug("state: still cannot be written: %s", error)
            else:
                with self._condition:
                    self._error = None
                _log.info("state: can be written again")
                return
            with self._condition:
                self._condition.wait(STATE_RETRY_PAUSE_S)

    def _probe(self) -> None:
        # Two transactions: pages allocated and freed within one would never reach the disk.
        self._connection.execute("INSERT OR REPLACE INTO probe VALUES (1, zeroblob(?))", (STATE_PROBE_BYTES,))
        self._connection.execute("DELETE FROM probe")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            # SQLite has often rolled back already by the time the error is seen, and then raises.
            with suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK")
