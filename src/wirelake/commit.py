"""When something is on disk: one promise, shared by everything that was written together."""

import asyncio
import logging
from collections.abc import Callable, Generator
from threading import Event, Lock
from typing import Any

from wirelake.errors import StateError, StorageError

_log = logging.getLogger(__name__)

Callback = Callable[["Commit"], object]


class Commit:
    """`await commit`, `commit.wait(timeout_s)` or `commit.add_done_callback(…)`: all give the same outcome, once.

    The outcome is the seqs now on disk (the log's records have some, the state's operations none), or the error that
    kept it from the disk. Callbacks added where an event loop runs are called on that loop, all those of one commit in
    one turn of it; others are called by the thread that writes, and must be quick.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_lock", "_seqs", "_wanted")

    def __init__(self, wanted: Callable[[], None] | None = None) -> None:
        """`wanted` is called when somebody begins to wait for it."""
        self._wanted = wanted
        self._lock = Lock()
        self._done = False
        self._seqs = range(0)
        self._error: StorageError | None = None
        self._callbacks: list[tuple[asyncio.AbstractEventLoop | None, Callback]] = []

    @classmethod
    def resolved(cls, error: StorageError | None = None) -> "Commit":
        """One that is already decided."""
        commit = cls()
        commit.resolve(error)
        return commit

    @classmethod
    def joint(cls, one: "Commit", other: "Commit") -> "Commit":
        """Return one that is durable when both are, and fails as soon as either does."""
        if one.durable or other.error is not None or one is other:
            return other
        if other.durable or one.error is not None:
            return one
        commit = cls()
        lock, left = Lock(), [2]

        def decided(part: Commit) -> None:
            with lock:
                left[0] = 0 if part.error is not None else left[0] - 1
                last = left[0] == 0 and not commit.done
            if last:
                commit.resolve(part.error)

        one.add_done_callback(decided)
        other.add_done_callback(decided)
        return commit

    @property
    def done(self) -> bool:
        """Whether it is decided: on disk, or failed."""
        return self._done

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._callbacks)

    @property
    def durable(self) -> bool:
        """Whether it is on disk."""
        return self._done and self._error is None

    @property
    def error(self) -> StorageError | None:
        """Why it failed, if it did."""
        return self._error

    def result(self) -> range:
        """The seqs on disk; raises what went wrong, or StateError if nothing is known yet."""
        if self._error is not None:
            # A new exception for each who hears it: a shared one would gather all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error
        if not self._done:
            raise StateError("it is not known yet whether this is on disk")
        return self._seqs

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(commit)` once the outcome is known: soon, if it is known already."""
        loop = asyncio._get_running_loop()
        if self._add(loop, callback):
            return
        if loop is None:
            self._call([callback])
        else:
            loop.call_soon(self._call, [callback])

    def wait(self, timeout_s: float | None = None) -> range:
        """For threads: blocks until the outcome is known. TimeoutError after `timeout_s`."""
        if not self._done:
            known = Event()
            if self._add(None, lambda _: known.set()) and not known.wait(timeout_s):
                raise TimeoutError(f"not on disk after {timeout_s} s")
        return self.result()

    def __await__(self) -> Generator[Any, None, range]:
        if not self._done:
            # A future for each who waits: a shared one would be cancelled for all when one of them is.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()

    def _add(self, loop: asyncio.AbstractEventLoop | None, callback: Callback) -> bool:
        """Whether there is something to wait for."""
        with self._lock:
            if self._done:
                return False
            self._callbacks.append((loop, callback))
        if self._wanted is not None:
            self._wanted()
        return True

    def resolve(self, error: StorageError | None = None, seqs: range = range(0)) -> None:
        """The writer's word, given once."""
        with self._lock:
            if self._done:
                raise StateError("a commit has one outcome")
            self._seqs, self._error, self._done = seqs, error, True
            callbacks, self._callbacks = self._callbacks, []
        by_loop: dict[asyncio.AbstractEventLoop | None, list[Callback]] = {}
        for loop, callback in callbacks:
            by_loop.setdefault(loop, []).append(callback)
        for loop, ready in by_loop.items():
            if loop is None:
                self._call(ready)
            else:
                self._call_on(loop, ready)

    def _call_on(self, loop: asyncio.AbstractEventLoop, ready: list[Callback]) -> None:
        try:
            loop.call_soon_threadsafe(self._call, ready)
        except RuntimeError:  # the loop was closed while this was on its way to the disk
            _log.warning("%d who waited for the disk have no event loop any more", len(ready))

    def _call(self, ready: list[Callback]) -> None:
        for callback in ready:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 (whatever it is)
                # One caller's fault must neither reach the others nor the thread that writes.
                _log.exception("a callback of a commit failed")
