"""Removes what is over, a slice at a time: settled and expired notifications, values, sessions, dropped records.

A slice is a few hundred rows that join whatever batch is gathering; the writer never waits for more than that.
"""

import asyncio
import logging
from collections.abc import Callable

from wirelake.errors import StorageError
from wirelake.limits import STATE_KEEP_S, STATE_SWEEP_IDLE_S, STATE_SWEEP_PAUSE_S, STATE_SWEEP_ROWS
from wirelake.state.store import StateStore
from wirelake.state.topic import Swept

_log = logging.getLogger(__name__)


class Sweep:
    def __init__(self, store: StateStore, keep_s: float = STATE_KEEP_S, rows_max: int = STATE_SWEEP_ROWS) -> None:
        self._store = store
        self.keep_ms = int(keep_s * 1000)
        self._rows_max = rows_max

    def step(self, now_ms: int) -> Swept:
        """One slice of each kind. Unless nothing was removed and the round is done, there may be more to do."""
        swept = self._store.topics.sweep(now_ms, self.keep_ms, self._rows_max)
        swept.removed += self._store.values.sweep(now_ms, self._rows_max)
        swept.removed += self._store.sessions.sweep(now_ms, self._rows_max)
        swept.removed += self._store.records.sweep(self._rows_max)
        return swept

    async def run(
        self, now_ms: Callable[[], int], tell: Callable[[Swept], None], may_run: Callable[[], bool] = lambda: True
    ) -> None:
        """Until cancelled. `tell` hears of every slice that removed something, once that is durable.

        Nothing is removed while `may_run` says no: what could not be told of would be missing without a trace.
        """
        while True:
            pause_s = STATE_SWEEP_IDLE_S
            if not may_run():
                await asyncio.sleep(pause_s)
                continue
            try:
                swept = self.step(now_ms())
                if swept.removed:
                    await self._store.barrier()
                    tell(swept)
                if swept.removed or not swept.round_done:
                    pause_s = STATE_SWEEP_PAUSE_S
            except StorageError as error:
                _log.warning("nothing is swept while the state cannot be written: %s", error)
            await asyncio.sleep(pause_s)
