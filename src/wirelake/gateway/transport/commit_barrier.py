"""Hold confirmations until their commit is durable."""

import logging
import time
from typing import Final, Protocol

from wirelake.commit import Commit, CommitQueue
from wirelake.errors import StorageError
from wirelake.gateway.metrics import Histogram

_log = logging.getLogger(__name__)
_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CommitWaiter(Protocol):
    """Receive the outcome of a commit."""

    def on_durable(self) -> None:
        """Send what waited for the commit: it is durable."""
        ...

    def on_failed(self, error: StorageError) -> None:
        """Drop what waited for the commit: it will never be durable."""
        ...


class CommitBarrier:
    """Notify waiters in the order in which they were added, once their commit has an outcome."""

    def __init__(self) -> None:
        self.commit_s = Histogram(_BOUNDS_S)  # duration of each commit since its first waiter
        self._queue: CommitQueue[CommitWaiter] = CommitQueue(self._on_commit)
        self._since_s: dict[Commit, float] = {}

    def wait(self, commit: Commit, waiter: CommitWaiter) -> None:
        """Add a waiter. Add it once for each commit that it waits for."""
        if commit not in self._since_s:
            self._since_s[commit] = time.monotonic()
        self._queue.add(commit, waiter)

    def _on_commit(self, commit: Commit, waiters: list[CommitWaiter]) -> None:
        error = commit.error
        self.commit_s.observe(time.monotonic() - self._since_s.pop(commit))
        for waiter in waiters:
            try:
                if error is None:
                    waiter.on_durable()
                else:
                    waiter.on_failed(error)
            except Exception:  # noqa: BLE001 (a waiter that fails must not block the others)
                _log.exception("cannot send what waited for a commit")
