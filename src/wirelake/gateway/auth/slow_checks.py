"""Run the slow checks of tokens in threads: a few at a time, in turn between the addresses that they came from.

One address that sends many wrong tokens fills its own queue and no other: each address has the same share of the
checks, and a bound on how many of its own may wait. A check that nobody waits for any more is not computed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from wirelake.errors import BusyError
from wirelake.limits import (
    GATEWAY_LOGINS_CHECKED_MAX,
    GATEWAY_LOGINS_WAITING_MAX,
    GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX,
)

Check = Callable[[], bool]


class SlowChecks:
    """Belongs to the event loop that calls `run`."""

    def __init__(self) -> None:
        self.computed = 0
        self.waiting = 0
        self._running = 0
        self._queues: OrderedDict[str, dict[asyncio.Future[bool], Check]] = OrderedDict()  # by address; the next first

    async def run(self, host: str, check: Check) -> bool:
        """Return what the check returns. Raise BusyError if too many wait. Cancel to take it back."""
        queue = self._queues.get(host, {})
        if len(queue) >= GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX or self.waiting >= GATEWAY_LOGINS_WAITING_MAX:
            raise BusyError(f"{len(queue)} logins from {host} are waiting to be checked, {self.waiting} in total")
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        queue[outcome] = check
        self._queues[host] = queue
        self.waiting += 1
        self._start()
        try:
            return await outcome
        finally:
            self._drop(host, outcome)

    def _drop(self, host: str, outcome: asyncio.Future[bool]) -> Check | None:
        """Take a check out of the queue, if it is still there."""
        queue = self._queues.get(host)
        check = None if queue is None else queue.pop(outcome, None)
        if check is not None:
            self.waiting -= 1
        if queue is not None and not queue:
            del self._queues[host]
        return check

    def _start(self) -> None:
        while self._running < GATEWAY_LOGINS_CHECKED_MAX and self._queues:
            host, queue = next(iter(self._queues.items()))
            outcome = next(iter(queue))
            check = self._drop(host, outcome)
            if host in self._queues:
                self._queues.move_to_end(host)
            if check is not None:
                self._running += 1
                work = asyncio.ensure_future(asyncio.to_thread(check))
                work.add_done_callback(lambda done, outcome=outcome: self._finished(done, outcome))  # type: ignore[misc]

    def _finished(self, done: asyncio.Future[bool], outcome: asyncio.Future[bool]) -> None:
        """A thread cannot be stopped: its place is free when it ends, whether or not somebody still waits for it."""
        self._running -= 1
        self.computed += 1
        if done.cancelled():
            outcome.cancel()
        elif not outcome.done():
            error = done.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())
        else:
            done.exception()  # nobody waits for it
        self._start()
