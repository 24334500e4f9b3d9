"""The moment a batch of operations is on disk. Every operation of a batch shares one."""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any

from wirelake.errors import StorageError

_log = logging.getLogger(__name__)


class Commit:
    """Await it in asyncio, `wait` for it in a thread, or leave a callback. It never takes back what it said.

    Callbacks run on the loop that was running when the batch began, one wake-up for all of them; without a loop
    they run in the thread that wrote the batch.
    """

    __slots__ = ("_callbacks", "_error", "_finished", "_guard", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._guard = threading.Lock()
        self._finished = threading.Event()
        self._error: StorageError | None = None
        self._callbacks: list[Callable[[Commit], None]] | None = []  # None once they were called

    @classmethod
    def resolved(cls, error: StorageError | None = None) -> "Commit":
        """One that is already decided."""
        commit = cls()
        commit.resolve(error)
        return commit

    @property
    def done(self) -> bool:
        """Whether it is decided: on disk, or failed."""
        return self._finished.is_set()

    @property
    def durable(self) -> bool:
        """Whether it is on disk."""
        return self._finished.is_set() and self._error is None

    @property
    def error(self) -> StorageError | None:
        """Why it failed, if it did."""
        return self._error

    def wait(self, timeout_s: float) -> None:
        """Block this thread until it is on disk. Raises what went wrong, or TimeoutError."""
        if not self._finished.wait(timeout_s):
            raise TimeoutError(f"not on disk after {timeout_s} s")
        self._raise_failure()

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done:
            loop = asyncio.get_running_loop()
            # One future for each who waits: a shared one would be cancelled for all when one of them is.
            waiter = loop.create_future()

            def wake(_: Commit) -> None:
                if not waiter.done():
                    waiter.set_result(None)

            def wake_from_afar(commit: Commit) -> None:
                loop.call_soon_threadsafe(wake, commit)

            self.add_done_callback(wake if loop is self._loop else wake_from_afar)
            yield from waiter
        self._raise_failure()

    def add_done_callback(self, callback: Callable[["Commit"], None]) -> None:
        """Call this once it is decided; soon, if it already is."""
        with self._guard:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        if self._loop is None:
            self._call(callback)
        else:
            self._loop.call_soon_threadsafe(self._call, callback)

    def resolve(self, error: StorageError | None) -> None:
        """The writer's word, given once."""
        self._error = error
        self._finished.set()
        if self._loop is None:
            self._tell()
            return
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            if not self._loop.is_closed():  # a closed loop has nobody left to tell
                raise

    def _tell(self) -> None:
        with self._guard:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self._call(callback)

    def _call(self, callback: Callable[["Commit"], None]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 one bad callback must not keep the others from hearing
            _log.exception("a callback of a commit failed")

    def _raise_failure(self) -> None:
        if self._error is not None:
            # A new exception for each who hears it: a shared one would gather all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error
