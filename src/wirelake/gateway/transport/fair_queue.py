"""Share the event loop's time between those who use it.

Work that does not fit one turn of the event loop (the rest of a long read, a list that is put together bit by bit) is
queued under the share of whoever caused it: an identity, or an address before the login. Each turn of the loop runs
queued work for `GATEWAY_TURN_S` at most, one share after the other. So what a peer waits for depends on the number of
shares with work to do, and not on how much work, or how many connections, another share has.
"""

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from msgspec import Struct, field

from wirelake.limits import GATEWAY_SHARE_S, GATEWAY_SHARE_WINDOW_S, GATEWAY_TURN_S

Read = Callable[[], object]  # one turn of a connection, which ends in time by itself
Job = Iterator[None]  # yields whenever it may be interrupted
Soon = Callable[[Callable[[], object]], object]  # call this in the next turn of the event loop


class _Share(Struct, eq=False):
    reads: deque[Read] = field(default_factory=deque)
    jobs: deque[Job] = field(default_factory=deque)
    is_jobs_turn: bool = False


class FairQueue:
    def __init__(self, soon: Soon) -> None:
        self._soon = soon
        self._shares: dict[str, _Share] = {}  # in the order in which they are served
        self._spent_s: dict[str, float] = {}  # since `_window_s`, on reads that did not have to queue
        self._window_s = 0.0
        self._scheduled = False

    def must_wait(self, share: str, now_s: float) -> bool:
        """Return whether a read has to queue: others of its share do, or the share had its part of the last moment."""
        if now_s - self._window_s > GATEWAY_SHARE_WINDOW_S:
            self._window_s = now_s
            self._spent_s.clear()
        elif self._spent_s.get(share, 0.0) >= GATEWAY_SHARE_S:
            return True
        queued = self._shares.get(share)
        return queued is not None and bool(queued.reads)

    def charge(self, share: str, spent_s: float) -> None:
        """Count the time of a read that did not have to queue."""
        self._spent_s[share] = self._spent_s.get(share, 0.0) + spent_s

    def add_read(self, share: str, read: Read) -> None:
        """Queue the next part of what a connection sent."""
        self._shares.setdefault(share, _Share()).reads.append(read)
        self._schedule()

    def add_job(self, share: str, job: Job) -> None:
        """Queue a long request. Jobs of one share run one after the other: one of them holds memory at a time."""
        self._shares.setdefault(share, _Share()).jobs.append(job)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        ends_s = monotonic() + GATEWAY_TURN_S
        try:
            while self._shares:
                self._serve_next(ends_s)
                if monotonic() >= ends_s:
                    break
        finally:
            if self._shares:
                self._schedule()

    def _serve_next(self, ends_s: float) -> None:
        name = next(iter(self._shares))
        share = self._shares.pop(name)
        try:
            self._serve(share, ends_s)
        finally:
            added = self._shares.pop(name, None)  # by its own work
            if added is not None:
                share.reads += added.reads
                share.jobs += added.jobs
            if share.reads or share.jobs:
                self._shares[name] = share

    def _serve(self, share: _Share, ends_s: float) -> None:
        """Reads and jobs in turn, until one of each was served or the time is over."""
        if share.jobs and (share.is_jobs_turn or not share.reads):
            share.is_jobs_turn = False
            job = share.jobs.popleft()
            for _ in job:
                if monotonic() >= ends_s:
                    share.jobs.appendleft(job)
                    return
        elif share.reads:
            share.is_jobs_turn = True
            share.reads.popleft()()
