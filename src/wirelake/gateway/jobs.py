"""Run long requests of sessions and of HTTP in slices of time, in turn with other work."""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from time import monotonic
from typing import TypeVar

from msgspec import Struct

from wirelake.broker.peer import Job, Peer
from wirelake.broker.services import REQUEST_ERRORS, failed, failed_with
from wirelake.commit import Commit
from wirelake.errors import BusyError
from wirelake.gateway.scheduling import Later
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_JOB_INLINE_S,
    GATEWAY_JOBS_MAX,
    GATEWAY_JOBS_PER_SHARE_MAX,
)
from wirelake.message import FailureCode, Message

T = TypeVar("T")


class _Entry(Struct, eq=False):
    """A job under way."""

    job: Job
    share: str
    peer_id: str
    on_end: Callable[[], object]
    waits_for: Commit | None = None
    is_over: bool = False


class SlicedJobRunner:
    """Run jobs. It also observes the broker's peers: the jobs of a peer end when it disconnects."""

    def __init__(
        self,
        connections: Mapping[str, Connection],
        queue: FairQueue,
        later: Later,
        is_log_behind: Callable[[], bool],
    ) -> None:
        """`connections` are the open ones by id. While `is_log_behind` returns True, jobs pause."""
        self._connections = connections
        self._queue = queue
        self._later = later
        self._is_log_behind = is_log_behind
        self._of_peer: dict[str, dict[_Entry, None]] = {}
        self._of_share: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_share.total()

    def share_of(self, peer: Peer) -> str:
        """Return whose share of the event loop's time a peer uses."""
        connection = self._connections.get(peer.id)
        return peer.identity if connection is None else connection.share

    def start(self, peer: Peer, message: Message, job: Job) -> None:
        """Run a job of a session: at once if it is short, else in turn with the others."""
        connection = self._connections.get(peer.id)
        share = self.share_of(peer)
        if not self._has_room(share):
            peer.send(failed(message.correlation, "too many long requests are open; try again", FailureCode.BUSY))
            return
        on_end = _do_nothing if connection is None else connection.end_job
        entry = _Entry(_guarded(peer, message, job), share, peer.id, on_end)
        if self._is_short(entry):
            return
        if connection is not None:
            connection.begin_job()
        self._add(entry)

    async def result(self, share: str, job: Generator[None, None, T]) -> T:
        """Run a job of an HTTP request and return its result."""
        if not self._has_room(share):
            job.close()
            raise BusyError("too many long requests are open; try again")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry = _Entry(_resolving(job, done), share, "", _do_nothing)
        if self._is_short(entry):
            return await done
        self._add(entry)
        try:
            return await done
        finally:
            self._end(entry)

    def on_close(self, peer: Peer) -> None:
        for entry in list(self._of_peer.get(peer.id, ())):
            self._end(entry)

    def on_drain(self, peer: Peer) -> None:
        """Do nothing: a job sends its answer at once, however slowly the peer reads."""

    def _is_short(self, entry: _Entry) -> bool:
        """Run a job for a moment, and return whether that finished it.

        A share with jobs under way starts no other one here, because each may use memory.
        """
        if self._of_share[entry.share] or self._is_log_behind():
            return False
        ends_s = monotonic() + GATEWAY_JOB_INLINE_S
        for waits_for in entry.job:
            entry.waits_for = waits_for
            if (waits_for is not None and not waits_for.is_done) or monotonic() >= ends_s:
                return False
        return True

    def _has_room(self, share: str) -> bool:
        return len(self) < GATEWAY_JOBS_MAX and self._of_share[share] < GATEWAY_JOBS_PER_SHARE_MAX

    def _add(self, entry: _Entry) -> None:
        self._of_share[entry.share] += 1
        self._of_peer.setdefault(entry.peer_id, {})[entry] = None
        self._enqueue(entry)

    def _enqueue(self, entry: _Entry) -> None:
        """Queue a job, once the commit that it waits for is done."""
        if entry.waits_for is not None and not entry.waits_for.is_done:
            entry.waits_for.add_done_callback(lambda _: self._enqueue(entry))
            return
        self._queue.add_job(entry.share, self._steps(entry))

    def _steps(self, entry: _Entry) -> Iterator[None]:
        """Run a job step by step, as the queue asks for it. A job that has to wait leaves and is queued again."""
        while not entry.is_over:
            if self._is_log_behind():
                self._later(GATEWAY_BUSY_PAUSE_S, lambda: self._enqueue(entry))
                return
            try:
                entry.waits_for = next(entry.job)
            except StopIteration:
                self._end(entry)
                return
            except BaseException:
                self._end(entry)
                raise
            if entry.waits_for is not None and not entry.waits_for.is_done:
                self._enqueue(entry)
                return
            yield

    def _end(self, entry: _Entry) -> None:
        if entry.is_over:
            return
        entry.is_over = True
        self._of_share[entry.share] -= 1
        if not self._of_share[entry.share]:
            del self._of_share[entry.share]
        entries = self._of_peer[entry.peer_id]
        del entries[entry]
        if not entries:
            del self._of_peer[entry.peer_id]
        entry.on_end()


def _guarded(peer: Peer, message: Message, job: Job) -> Generator[Commit | None, None, None]:
    """Answer the peer with the error that the job raises, as the broker does for short requests."""
    try:
        yield from job
    except REQUEST_ERRORS as error:
        peer.send(failed_with(error, message.correlation))


def _resolving(job: Generator[None, None, T], done: "asyncio.Future[T]") -> Generator[None, None, None]:
    try:
        result = yield from job
    except Exception as error:  # noqa: BLE001 (whoever awaits the result gets it)
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


def _do_nothing() -> None:
    """End a job that no connection waits for."""
