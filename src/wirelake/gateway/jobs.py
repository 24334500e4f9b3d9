"""Run long requests in slices of time: those of peers' sessions, and those of HTTP."""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from wirelake.broker.jobs import Job
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.commit import Commit
from wirelake.errors import BusyError, EncodeError, InputError, StateError, StorageError, TranslationError
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_JOB_INLINE_S,
    GATEWAY_JOBS_MAX,
    GATEWAY_JOBS_PER_SHARE_MAX,
)
from wirelake.message import FailureCode, Message

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

T = TypeVar("T")


class _Entry(Struct, eq=False):
    """A job under way."""

    job: Job
    share: str
    peer_id: str
    on_end: Callable[[], object]
    waits_for: Commit | None = None
    is_over: bool = False


class Jobs:
    """Also a watcher of the broker's: a peer that goes away takes its jobs with it."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._of_peer: dict[str, dict[_Entry, None]] = {}
        self._of_share: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_share.total()

    def start(self, peer: Peer, message: Message, job: Job) -> None:
        """Run a job of a session: at once where it is short, else in turn with the others."""
        connection = self._gateway.connections.get(peer.id)
        share = self._gateway.share_of(peer)
        if not self._has_room(share):
            peer.send(failed(message.correlation, "too many long requests are open; try again", FailureCode.BUSY))
            return
        on_end = _nothing if connection is None else connection.end_job
        entry = _Entry(_guarded(peer, message, job), share, peer.id, on_end)
        if self._is_short(entry):
            return
        if connection is not None:
            connection.begin_job()
        self._add(entry)

    async def result(self, share: str, job: Generator[None, None, T]) -> T:
        """Run a job of an HTTP request, and return what it returns."""
        if not self._has_room(share):
            job.close()
            raise BusyError("too many long requests are open; try again")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry = _Entry(_resolving(job, done), share, "", _nothing)
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
        """A job says its answer in one piece."""

    def _is_short(self, entry: _Entry) -> bool:
        """Run it to its end, if that is near. A share with jobs under way begins no other: each may hold memory."""
        if self._of_share[entry.share] or self._gateway.log_behind:
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
        self._queue(entry)

    def _queue(self, entry: _Entry) -> None:
        """What has to wait for the disk is queued when that is done."""
        if entry.waits_for is not None and not entry.waits_for.is_done:
            entry.waits_for.add_done_callback(lambda _: self._queue(entry))
            return
        self._gateway.queue.add_job(entry.share, self._steps(entry))

    def _steps(self, entry: _Entry) -> Iterator[None]:
        """As the queue runs them. What has to wait gives up its place, and is queued again."""
        gateway = self._gateway
        while not entry.is_over:
            if gateway.log_behind:
                gateway.later(GATEWAY_BUSY_PAUSE_S, lambda: self._queue(entry))
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
                self._queue(entry)
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
    """Answer with what went wrong, as the broker does for what is answered at once."""
    try:
        yield from job
    except (InputError, EncodeError, TranslationError, StateError) as error:
        peer.send(failed(message.correlation, str(error), FailureCode.BAD_REQUEST))
    except StorageError as error:
        peer.send(failed(message.correlation, str(error), FailureCode.STORAGE))


def _resolving(job: Generator[None, None, T], done: "asyncio.Future[T]") -> Generator[None, None, None]:
    try:
        result = yield from job
    except Exception as error:  # noqa: BLE001 whoever awaits it gets it
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


def _nothing() -> Any:
    """Nobody waits."""
