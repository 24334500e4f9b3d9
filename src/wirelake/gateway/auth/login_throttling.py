"""Slow down and bound the checks of tokens.

`LoginFailures` delays the next answer to a client that failed often. It counts by address and name, so that a client
with an old token does not delay the others behind the same address, and guessing a name's token elsewhere does not
delay its owner.

`SlowChecks` runs the slow checks in threads, a few at a time and in turn between the addresses that they came from. One
address that sends many wrong tokens fills its own queue and no other. A check that nobody waits for is not computed.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from wirelake.errors import BusyError
from wirelake.limits import (
    GATEWAY_FAILED_LOGINS_KEPT_MAX,
    GATEWAY_FAILED_LOGINS_MAX,
    GATEWAY_LOGIN_DELAY_MAX_S,
    GATEWAY_LOGIN_DELAY_S,
    GATEWAY_LOGIN_FORGET_S,
    GATEWAY_LOGINS_CHECKED_MAX,
    GATEWAY_LOGINS_WAITING_MAX,
    GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX,
)

_DIGEST_BYTES = 16  # of memory for each name, whatever its length
_DOUBLINGS_MAX = 16

T = TypeVar("T")

Check = Callable[[], T]


class _Failures(Struct):
    count: int
    last_s: float


class LoginFailures:
    """Remember failed logins by address and name, and compute the delay of the next answer."""

    def __init__(self, now_s: Callable[[], float], failed_max: int = GATEWAY_FAILED_LOGINS_MAX) -> None:
        self.failed_max = failed_max
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._failures: OrderedDict[bytes, _Failures] = OrderedDict()  # the longest without a failure first

    def __len__(self) -> int:
        return len(self._failures)

    def key(self, host: str, name: str) -> bytes:
        """Return the key under which failures of this address and name are counted."""
        both = f"{host}\0{name}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(both, key=self._key, digest_size=_DIGEST_BYTES).digest()

    def add(self, key: bytes) -> None:
        failures = self._failures.setdefault(key, _Failures(0, 0.0))
        failures.count += 1
        failures.last_s = self._now_s()
        self._failures.move_to_end(key)
        if len(self._failures) > GATEWAY_FAILED_LOGINS_KEPT_MAX:
            self._failures.popitem(last=False)

    def clear(self, key: bytes) -> None:
        self._failures.pop(key, None)

    def delay_s(self, key: bytes, under_way: int = 0, delay_max_s: float = GATEWAY_LOGIN_DELAY_MAX_S) -> float:
        """Return how long to wait before the next check. Checks under way count as failures until they are done."""
        failures = self._failures.get(key)
        if failures is not None and self._now_s() - failures.last_s > GATEWAY_LOGIN_FORGET_S:
            del self._failures[key]
            failures = None
        count = under_way + (0 if failures is None else failures.count)
        if count < self.failed_max:
            return 0.0
        doublings = min(count - self.failed_max, _DOUBLINGS_MAX)
        return float(min(GATEWAY_LOGIN_DELAY_S * 2**doublings, GATEWAY_LOGIN_DELAY_MAX_S, delay_max_s))


class SlowChecks:
    """Run slow checks in threads. An instance belongs to the event loop that calls `run`."""

    def __init__(self) -> None:
        self.computed = 0
        self.waiting = 0
        self._running = 0
        # By address; the next first.
        self._queues: OrderedDict[str, dict[asyncio.Future[Any], Check[Any]]] = OrderedDict()

    async def run(self, host: str, check: Check[T]) -> T:
        """Return what the check returns. Raise BusyError if too many wait. Cancel to withdraw it."""
        queue = self._queues.get(host, {})
        if len(queue) >= GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX or self.waiting >= GATEWAY_LOGINS_WAITING_MAX:
            raise BusyError(f"{len(queue)} logins from {host} are waiting to be checked, {self.waiting} in total")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue[outcome] = check
        self._queues[host] = queue
        self.waiting += 1
        self._start()
        try:
            return await outcome
        finally:
            self._drop(host, outcome)

    def _drop(self, host: str, outcome: asyncio.Future[Any]) -> Check[Any] | None:
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

    def _finished(self, done: asyncio.Future[Any], outcome: asyncio.Future[Any]) -> None:
        """Free the thread, whether or not somebody still waits for its result: a thread cannot be stopped earlier."""
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
            done.exception()  # retrieve it, or asyncio logs it as lost
        self._start()
