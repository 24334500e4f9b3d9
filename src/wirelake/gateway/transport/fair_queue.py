"""Divide the event loop's time fairly among peers.

Work that does not fit one turn of the event loop (the rest of a long read, a list that is built in steps) is queued
under the share of the peer that caused it: its identity, or its address before the login. Each turn runs queued work
for at most `GATEWAY_TURN_S`, one share after the other. So the latency of a peer depends on the number of busy shares,
not on how much work or how many connections another share has.
"""

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from msgspec import Struct, field

from wirelake.limits import GATEWAY_SHARE_S, GATEWAY_SHARE_WINDOW_S, GATEWAY_TURN_S

Read = Callable[[], object]  # one turn of a connection; ends in time by itself
Job = Iterator[None]  # yields where it can be interrupted
Soon = Callable[[Callable[[], object]], object]  # calls a function in the next turn of the event loop


class _Share(Struct, eq=False):
    reads: deque[Read] = field(default_factory=deque)
    jobs: deque[Job] = field(default_factory=deque)
    is_jobs_turn: bool = False


class FairQueue:
    """Serve the queued work of all shares in round-robin order."""

    def __init__(self, soon: Soon) -> None:
        self._soon = soon
        self._shares: dict[str, _Share] = {}  # in the order of service
        self._spent_s: dict[str, float] = {}  # since `_window_s`, on reads that did not queue
        self._window_s = 0.0
        self._scheduled = False

    def must_wait(self, share: str, now_s: float) -> bool:
        """Return whether a read has to queue: its share has queued reads, or has used up its time in this window."""
        if now_s - self._window_s > GATEWAY_SHARE_WINDOW_S:
            self._window_s = now_s
            self._spent_s.clear()
        elif self._spent_s.get(share, 0.0) >= GATEWAY_SHARE_S:
            return True
        queued = self._shares.get(share)
        return queued is not None and bool(queued.reads)

    def charge(self, share: str, spent_s: float) -> None:
        """Charge a share for the time of a read that did not queue."""
        self._spent_s[share] = self._spent_s.get(share, 0.0) + spent_s

    def add_read(self, share: str, read: Read) -> None:
        """Queue a turn of a connection."""
        self._shares.setdefault(share, _Share()).reads.append(read)
        self._schedule()

    def add_job(self, share: str, job: Job) -> None:
        """Queue a long request. The jobs of a share run one at a time, so that only one of them uses memory."""
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
            added = self._shares.pop(name, None)  # by the work just done
            if added is not None:
                share.reads += added.reads
                share.jobs += added.jobs
            if share.reads or share.jobs:
                self._shares[name] = share

    def _serve(self, share: _Share, ends_s: float) -> None:
        """Serve a read or run a job until the time is over, alternating between the two."""
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
