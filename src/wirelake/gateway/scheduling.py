"""Run work on the event loop: at deadlines, at the end of a turn, and in background tasks."""

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from wirelake.broker.broker import Broker
from wirelake.limits import GATEWAY_RETRY_S, GATEWAY_TIMER_GRAIN_S

_log = logging.getLogger(__name__)

Later = Callable[[float, Callable[[], object]], asyncio.TimerHandle]  # after so many seconds, call this
Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]  # run this in the background


class Timed(Protocol):
    def tick(self, now_s: float) -> float | None:
        """Do what is due, and return the time of the next deadline."""
        ...


class Timers:
    """Call back at deadlines, with one timer of the event loop for all of them.

    A quiet connection costs an entry in a heap, and no wake-up of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Timed]] = []
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        self._wake_s = float("inf")

    def add(self, due_s: float, timed: Timed) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due_s, self._count, timed))
        if due_s < self._wake_s:
            self._schedule()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._heap.clear()

    def _schedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wake_s = max(self._heap[0][0], self._loop.time() + GATEWAY_TIMER_GRAIN_S)
        self._handle = self._loop.call_at(self._wake_s, self._run)

    def _run(self) -> None:
        self._handle, self._wake_s = None, float("inf")
        now_s = self._loop.time()
        while self._heap and self._heap[0][0] <= now_s:
            timed = heapq.heappop(self._heap)[2]
            try:
                due_s = timed.tick(now_s)
            except Exception:  # noqa: BLE001 (the deadlines of the others must still run)
                _log.exception("deadline handler of %r failed", timed)
                due_s = now_s + GATEWAY_RETRY_S
            if due_s is not None:
                self._count += 1
                heapq.heappush(self._heap, (max(due_s, now_s + GATEWAY_TIMER_GRAIN_S), self._count, timed))
        if self._heap:
            self._schedule()


class BrokerScheduler:
    """Flush the broker at the end of a turn of the event loop, and call it at its deadlines."""

    def __init__(
        self,
        broker: Broker,
        timers: Timers,
        call_soon: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._timers = timers
        self._call_soon = call_soon
        self._now_s = now_s
        self._is_scheduled = False
        self._due_s = float("inf")

    def flush_soon(self) -> None:
        """Write at the end of this turn what the broker has collected, and schedule its next deadline."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._flush)

    def tick(self, now_s: float) -> float | None:
        """Run the broker's deadlines; called by the timers."""
        self._broker.tick(now_s)
        self.flush_soon()
        due_s = self._broker.due_s
        self._due_s = float("inf") if due_s is None else due_s
        return due_s

    def _flush(self) -> None:
        self._is_scheduled = False
        self._broker.flush(self._now_s())
        due_s = self._broker.due_s
        if due_s is not None and due_s < self._due_s:
            self._due_s = due_s
            self._timers.add(due_s, self)
        if self._broker.waiting:
            self.flush_soon()


class BackgroundTasks:
    """Own the tasks that run until they end or the gateway closes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel the tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
