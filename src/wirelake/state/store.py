"""Open the state of the gateway: everything that it keeps beyond the event log, by noun, in one database.

Operations change memory at once and return the `Commit` of the batch that they are part of; the answer to a client
waits for it. All methods belong to the thread that opened the store; commits can be waited for in any thread.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.key_source import KeySource
from wirelake.limits import (
    STATE_KEEP_S,
    STATE_SWEEP_IDLE_S,
    STATE_SWEEP_PAUSE_S,
    STATE_SWEEP_ROWS,
    STATE_VALUES_BYTES_MAX,
)
from wirelake.state.database import Database
from wirelake.state.devices import DeviceRegistry
from wirelake.state.identities import Identities
from wirelake.state.records import SeriesStore
from wirelake.state.sessions import Sessions
from wirelake.state.subscriptions import SweepResult
from wirelake.state.topics import TopicStore
from wirelake.state.values import Values
from wirelake.state.writer import StateWriter

_log = logging.getLogger(__name__)


class StateStore:
    """Open the database and load memory.

    Raise InUseError if another process has it open, VersionError if another program or a later version wrote it.
    """

    def __init__(
        self, place: Path | Database, *, key: KeySource | None = None, values_bytes_max: int = STATE_VALUES_BYTES_MAX
    ) -> None:
        """`place` is the file, or the database if it is open already; `key` as in `Database`."""
        self.database = Database(place, key) if isinstance(place, Path) else place
        self.writer = StateWriter(self.database.write_connection, self._load)
        try:
            reader = self.database.reader
            self.identities = Identities(self.writer, reader)
            self.devices = DeviceRegistry(self.writer, reader, self.database.cipher)
            self.topics = TopicStore(self.writer, reader, self.database.meta("epoch"))
            self.records = SeriesStore(self.writer, reader, self.database.meta("opened"))
            self.values = Values(self.writer, reader, values_bytes_max)
            self.sessions = Sessions(self.writer, reader, self.database.cipher)
            self._load()
        except BaseException:
            self.close()
            raise

    @property
    def error(self) -> StorageError | None:
        """Return why the state cannot be written or read at the moment, or None."""
        return self.writer.error or self.database.reader.error

    def barrier(self) -> Commit:
        """Return a commit that is durable when everything submitted so far is."""
        return self.writer.barrier()

    def remove_identity(self, name: str) -> Commit | None:
        """Remove an identity with its subscriptions and sessions, all or nothing. Return None if there is none."""
        self.writer.check_writable()
        with self.writer.transaction():
            if self.identities.find(name) is None:
                return None
            self.topics.unsubscribe_all(name)
            self.sessions.remove_all(name)
            return self.identities.remove(name)

    def close(self) -> None:
        """Write what is pending, then close the files. All commits are resolved by then."""
        self.writer.close()
        self.database.close()

    def _load(self) -> None:
        for noun in (self.identities, self.devices, self.topics, self.records, self.values, self.sessions):
            noun.load()


class Sweeper:
    """Remove what is acked by all, expired or dropped: notifications, values, sessions, records and tokens, bit by bit.

    A step is a few hundred rows that join the current batch, so that the writer never waits for more than that.
    """

    def __init__(self, store: StateStore, keep_s: float = STATE_KEEP_S, rows_max: int = STATE_SWEEP_ROWS) -> None:
        self._store = store
        self.keep_ms = int(keep_s * 1000)
        self._rows_max = rows_max

    def step(self, now_ms: int) -> SweepResult:
        """Take one step for each noun. Unless nothing was removed and the round is done, there may be more to do."""
        result = self._store.topics.sweep(now_ms, self.keep_ms, self._rows_max)
        result.removed += self._store.values.sweep(now_ms, self._rows_max)
        result.removed += self._store.sessions.sweep(now_ms, self._rows_max)
        result.removed += self._store.records.sweep(self._rows_max)
        result.removed += self._store.identities.sweep(now_ms, self._rows_max)
        return result

    async def run(
        self,
        now_ms: Callable[[], int],
        on_removed: Callable[[SweepResult], None],
        may_run: Callable[[], bool] = lambda: True,
    ) -> None:
        """Sweep until cancelled. `on_removed` is called after every step that removed something, once it is durable.

        Nothing is removed while `may_run` returns False, so that every removal can be recorded.
        """
        while True:
            pause_s = STATE_SWEEP_IDLE_S
            if not may_run():
                await asyncio.sleep(pause_s)
                continue
            try:
                result = self.step(now_ms())
                if result.removed:
                    await self._store.barrier()
                    on_removed(result)
                if result.removed or not result.round_done:
                    pause_s = STATE_SWEEP_PAUSE_S
            except StorageError as error:
                _log.warning("sweep skipped, because the state cannot be written: %s", error)
            await asyncio.sleep(pause_s)
