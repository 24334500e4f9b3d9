"""Start, maintain and stop a gateway: join the log and the state, run periodic work, close sessions in order."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from wirelake.cleanup import clean_up
from wirelake.clock import SteadyClock
from wirelake.errors import StorageError
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.stores import Stores
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import GATEWAY_COUNTERS_EVERY_S, GATEWAY_STOP_S
from wirelake.log.segments.log import SegmentLog
from wirelake.protocols.session import Closing
from wirelake.state.store import StateStore, Sweeper
from wirelake.state.subscriptions import SweepResult


class Closable(Protocol):
    def close(self) -> None: ...


def attach_log_to_state(stores: Stores, recorder: Recorder) -> None:
    """From now on, store in the state how far the log is, and in the log which changes of the state it cannot restore.

    Record losses that were accepted at the start, and changes that were made while no gateway ran.
    """
    log, batch = stores.log, stores.position.batch
    stores.state.writer.attach_log(lambda: (log.next_seq, log.committed_seq), recorder.state, stores.position)
    if stores.accepted:
        note = {"batch": batch, "tables": [], "lost": stores.accepted, "epoch": stores.epoch}
        recorder.topic("state", "", b"", note)
    if stores.unlogged:
        recorder.state(batch, stores.unlogged)


class PeriodicWork:
    """Remove what has expired, and write the counters to the log."""

    def __init__(
        self,
        sweeper: Sweeper,
        recorder: Recorder,
        log: SegmentLog,
        state: StateStore,
        clock: SteadyClock,
        folder: Path,
        is_log_behind: Callable[[], bool],
    ) -> None:
        """`folder` is the data folder, where the clock is saved for the next start."""
        self._sweeper = sweeper
        self._recorder = recorder
        self._log = log
        self._state = state
        self._clock = clock
        self._folder = folder
        self._is_log_behind = is_log_behind

    async def sweep(self) -> None:
        """Remove expired data step by step, until cancelled."""
        await self._sweeper.run(self._clock.now_ms, self.on_swept, self._can_sweep)

    async def record_counters(self) -> None:
        """Write the counters to the log, so that they can be compared with the tables, until cancelled."""
        while True:
            await asyncio.sleep(GATEWAY_COUNTERS_EVERY_S)
            with contextlib.suppress(StorageError):
                self._recorder.counters()
                self._clock.save(self._folder)
            self._state.writer.write_log_position()

    def on_swept(self, swept: SweepResult) -> None:
        """Record the notifications that expired."""
        for expired in swept.expired:
            with contextlib.suppress(StorageError):  # the recorder counts it; the others have their own records
                self._recorder.topic("expire", expired.topic, b"", {"first": expired.first, "last": expired.last})

    async def finish(self) -> None:
        """Write the last counters, and save the clock. The state then stores where the log ends."""
        with contextlib.suppress(StorageError):  # the log itself reports that it cannot be written
            if not self._log.refusal:
                await self._recorder.counters()
            self._clock.save(self._folder)

    def _can_sweep(self) -> bool:
        """Return whether the log takes records: every removal has to be recorded."""
        return not (self._log.refusal or self._is_log_behind())


async def close_sessions(listeners: Iterable[Closable], connections: Mapping[str, Connection]) -> None:
    """Stop listening, and close all connections. Abort those that are still open after half of `GATEWAY_STOP_S`."""
    for listener in listeners:
        listener.close()
    for connection in list(connections.values()):
        closing = Closing("shutdown", "the gateway is shutting down")
        clean_up(f"session {connection.id}", partial(connection.close, closing))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GATEWAY_STOP_S / 2):
            while connections:
                await asyncio.sleep(0.01)
    for connection in list(connections.values()):
        connection.abort()
