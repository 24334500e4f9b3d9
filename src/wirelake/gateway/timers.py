"""One timer of the event loop for all deadlines: a quiet connection costs a heap entry and no wake-up of its own."""

import asyncio
import heapq
import logging
from typing import Protocol

from wirelake.limits import GATEWAY_RETRY_S, GATEWAY_TIMER_GRAIN_S

_log = logging.getLogger(__name__)


class Timed(Protocol):
    def tick(self, now_s: float) -> float | None:
        """Its time has come; answers when it next has something to do."""
        ...


class Timers:
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
