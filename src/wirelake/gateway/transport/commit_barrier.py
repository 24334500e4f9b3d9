"""Nothing is answered before it is on disk: what was caused by a record waits here for the record's block.

One callback for each block opens the gate for all who wait for it, in the order in which they came.
"""

import logging
import time
from typing import Final, Protocol

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.histogram import Histogram

_log = logging.getLogger(__name__)
_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CommitWaiter(Protocol):
    def released(self) -> None:
        """The oldest thing it holds is on disk, and may go out."""
        ...

    def refused(self, error: StorageError) -> None:
        """It will never be: nothing of it may go out."""
        ...


class CommitBarrier:
    def __init__(self) -> None:
        self.commit_s = Histogram(_BOUNDS_S)  # of each block, from the first who waits for it
        self._waiting: dict[Commit, list[CommitWaiter]] = {}
        self._since_s: dict[Commit, float] = {}

    def wait(self, commit: Commit, waiting: CommitWaiter) -> None:
        """Once for each block and each who waits."""
        others = self._waiting.get(commit)
        if others is None:
            others = self._waiting[commit] = []
            self._since_s[commit] = time.monotonic()
            commit.add_done_callback(self._open)
        others.append(waiting)

    def _open(self, commit: Commit) -> None:
        error = commit.error
        self.commit_s.observe(time.monotonic() - self._since_s.pop(commit))
        for waiting in self._waiting.pop(commit):
            try:
                if error is None:
                    waiting.released()
                else:
                    waiting.refused(error)
            except Exception:  # noqa: BLE001 (one of them must not keep the others waiting)
                _log.exception("sending confirmations after a commit failed")
