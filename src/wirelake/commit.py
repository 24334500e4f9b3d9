"""Promise that something will be on disk, shared by everything that is written together."""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import Event, Lock
from typing import Any, Generic, TypeVar

from wirelake.errors import StateError, StorageError

_log = logging.getLogger(__name__)

T = TypeVar("T")
Callback = Callable[["Commit"], object]


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Commit:
    """Wait for an outcome with `await commit`, `commit.wait(timeout_s)` or `commit.add_done_callback(…)`.

    The outcome is the seqs now on disk (records of the log have some, operations of the state none), or the error that
    prevented it. Callbacks added while an event loop runs are called on that loop, all those of one commit in one
    iteration; others are called by the thread that writes, and must be quick.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_lock", "_on_wait", "_seqs")

    def __init__(self, on_wait: Callable[[], None] | None = None) -> None:
        """`on_wait` is called whenever somebody starts to wait for it."""
        self._on_wait = on_wait
        self._lock = Lock()
        self._done = False
        self._seqs = range(0)
        self._error: StorageError | None = None
        self._callbacks: list[tuple[asyncio.AbstractEventLoop | None, Callback]] = []

    @classmethod
    def resolved(cls, error: StorageError | None = None) -> "Commit":
        """Return a commit whose outcome is known already."""
        commit = cls()
        commit.resolve(error)
        return commit

    @classmethod
    def combine(cls, one: "Commit", other: "Commit") -> "Commit":
        """Return a commit that is durable when both are, and fails as soon as either does."""
        if one.is_durable or other.error is not None or one is other:
            return other
        if other.is_durable or one.error is not None:
            return one
        commit = cls()
        lock, left = Lock(), [2]

        def on_done(part: Commit) -> None:
            with lock:
                left[0] = 0 if part.error is not None else left[0] - 1
                is_last = left[0] == 0 and not commit.is_done
            if is_last:
                commit.resolve(part.error)

        one.add_done_callback(on_done)
        other.add_done_callback(on_done)
        return commit

    @property
    def is_done(self) -> bool:
        """Tell whether the outcome is known: on disk, or failed."""
        return self._done

    @property
    def has_waiters(self) -> bool:
        """Tell whether somebody waits for the outcome."""
        return bool(self._callbacks)

    @property
    def is_durable(self) -> bool:
        """Tell whether it is on disk."""
        return self._done and self._error is None

    @property
    def error(self) -> StorageError | None:
        """Return the error if it failed."""
        return self._error

    def result(self) -> range:
        """Return the seqs on disk. Raise the error if it failed, or StateError if the outcome is not known yet."""
        if self._error is not None:
            # A new exception for each caller: a shared one would collect all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error
        if not self._done:
            raise StateError("the commit has no outcome yet")
        return self._seqs

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(commit)` once the outcome is known: soon, if it is known already."""
        loop = running_loop()
        if self._add(loop, callback):
            return
        if loop is None:
            self._call([callback])
        else:
            loop.call_soon(self._call, [callback])

    def wait(self, timeout_s: float | None = None) -> range:
        """Block the thread until the outcome is known. Raise TimeoutError after `timeout_s`."""
        if not self._done:
            done = Event()
            if self._add(None, lambda _: done.set()) and not done.wait(timeout_s):
                raise TimeoutError(f"not on disk after {timeout_s} s")
        return self.result()

    def __await__(self) -> Generator[Any, None, range]:
        if not self._done:
            # A future for each waiter: if a shared one were cancelled, all of them would be.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()

    def _add(self, loop: asyncio.AbstractEventLoop | None, callback: Callback) -> bool:
        """Register the callback, unless the outcome is known already. Return whether it is registered."""
        with self._lock:
            if self._done:
                return False
            self._callbacks.append((loop, callback))
        if self._on_wait is not None:
            self._on_wait()
        return True

    def resolve(self, error: StorageError | None = None, seqs: range = range(0)) -> None:
        """Set the outcome. Only the writer calls this, once."""
        with self._lock:
            if self._done:
                raise StateError("the commit has an outcome already")
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
        except RuntimeError:  # the loop was closed while this was being written
            _log.warning("%d callbacks of a commit were dropped: their event loop is closed", len(ready))

    def _call(self, ready: list[Callback]) -> None:
        for callback in ready:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 (one caller's error must reach neither the others nor the writing thread)
                _log.exception("a callback of a commit failed")


class CommitQueue(Generic[T]):
    """Hold items until the commit that they wait for has an outcome, with one callback for each commit.

    `on_done(commit, items)` gets them in the order in which they were added.
    """

    __slots__ = ("_items", "_on_done")

    def __init__(self, on_done: Callable[[Commit, list[T]], None]) -> None:
        self._on_done = on_done
        self._items: dict[Commit, list[T]] = {}

    def __iter__(self) -> Iterator[T]:
        """Iterate over all items that wait."""
        return (item for items in self._items.values() for item in items)

    def add(self, commit: Commit, item: T) -> None:
        items = self._items.get(commit)
        if items is not None:
            items.append(item)
        else:
            self._items[commit] = [item]
            commit.add_done_callback(self._release)  # at once, if the outcome is known and no event loop runs

    def extend(self, commit: Commit, items: Sequence[T]) -> None:
        waiting = self._items.get(commit)
        if waiting is not None:
            waiting += items
        else:
            self._items[commit] = list(items)
            commit.add_done_callback(self._release)

    def _release(self, commit: Commit) -> None:
        self._on_done(commit, self._items.pop(commit))
