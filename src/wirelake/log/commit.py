"""When a block is on disk: one promise shared by all records in it."""

import asyncio
import logging
from collections.abc import Callable, Generator
from threading import Event, Lock
from typing import Any

from wirelake.errors import StateError, StorageError

_log = logging.getLogger(__name__)

Callback = Callable[["Commit"], object]


class Commit:
    """`await commit`, `commit.wait(timeout_s)` or `commit.add_done_callback(…)`: all give the same outcome.

    The outcome is the range of seqs now on disk, which holds those of the caller's records, or the error that kept them
    from it. Callbacks added where an event loop runs are called on that loop, all those of a block in one turn of it;
    others are called by the thread that writes, and must be quick.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_seqs")

    def __init__(self) -> None:
        self._lock = Lock()
        self._seqs: range | None = None
        self._error: StorageError | None = None
        self._callbacks: list[tuple[asyncio.AbstractEventLoop | None, Callback]] = []

    @property
    def done(self) -> bool:
        return self._seqs is not None or self._error is not None

    @property
    def error(self) -> StorageError | None:
        """Why it failed, if it did."""
        return self._error

    def result(self) -> range:
        """The seqs on disk; raises what went wrong, or StateError if nothing is known yet."""
        if self._error is not None:
            raise self._error
        if self._seqs is None:
            raise StateError("the block is not on disk yet")
        return self._seqs

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(commit)` once the outcome is known: at once, if it is known already."""
        loop = asyncio._get_running_loop()
        with self._lock:
            if not self.done:
                self._callbacks.append((loop, callback))
                return
        if loop is None:
            callback(self)
        else:
            loop.call_soon(callback, self)

    def wait(self, timeout_s: float | None = None) -> range:
        """For threads: blocks until the outcome is known. TimeoutError after `timeout_s`."""
        if not self.done:
            known = Event()
            with self._lock:
                pending = not self.done
                if pending:
                    self._callbacks.append((None, lambda _: known.set()))
            if pending and not known.wait(timeout_s):
                raise TimeoutError(f"the block is not on disk after {timeout_s} s")
        return self.result()

    def __await__(self) -> Generator[Any, None, range]:
        if not self.done:
            # A future for each waiter: the cancelling of one must not touch the others.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()

    def _resolve(self, seqs: range | None, error: StorageError | None) -> None:
        """Called once, by the thread that writes."""
        with self._lock:
            if self.done:
                raise StateError("a commit has one outcome")
            self._seqs, self._error = seqs, error
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
        except RuntimeError:  # the loop was closed while its records were on their way to the disk
            _log.warning("log: %d callbacks for a block have no event loop any more", len(ready))

    def _call(self, ready: list[Callback]) -> None:
        for callback in ready:
            try:
                callback(self)
            except Exception:  # noqa: BLE001
                # One caller's fault must neither reach the others of the block nor the thread that writes.
                _log.exception("log: a callback for a block failed")
