"""Track published device reports until they are durable.

A receipt promises that a report is in the log and published. So reports are not accepted while the state refuses
writes, a receipt waits for both commits, and a report is withdrawn if the commit of the state fails: the device gets no
receipt and resends it, and the repeat is published like a new report.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.limits import GATEWAY_TROUBLE_LOG_S
from wirelake.state.store import StateStore

_log = logging.getLogger(__name__)


class DevicePublications:
    """Track publications whose commit is open, and withdraw those that fail."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._open: deque[tuple[Commit, Callable[[], None]]] = deque()  # in the order of their commits
        self._last_pair: tuple[Commit, Commit] | None = None
        self._last_joint = Commit.resolved()
        self._receipts: deque[Commit] = deque()  # that receipts wait for, as far as they are open
        self._logged_s = float("-inf")

    def add(self, commit: Commit, withdraw: Callable[[], None]) -> None:
        """Call `withdraw` if the commit fails, before the next report is handled."""
        self._open.append((commit, withdraw))

    def withdraw_failed(self) -> None:
        """Withdraw reports whose commit failed. Call this before checking whether a report is a repeat."""
        while self._open and self._open[0][0].is_done:
            commit, withdraw = self._open.popleft()
            if commit.error is not None:
                withdraw()

    def publish_error(self) -> StorageError | None:
        """Return the reason why nothing can be published now, or None."""
        try:
            self._state.writer.check_writable()
        except StorageError as error:
            return error
        return None

    def receipt_commit(self, recorded: Commit, published: Commit | None) -> Commit:
        """Return the commit that a receipt waits for.

        A repeat is not published (`published` is None), but the publication of the first report may still be open.
        """
        if published is None:
            if not self._open:
                return recorded
            published = self._state.barrier()
        if self._last_pair != (recorded, published):  # mostly the same pair as the last time
            self._last_pair = (recorded, published)
            self._last_joint = Commit.combine(recorded, published)
            while self._receipts and self._receipts[0].is_done:
                self._receipts.popleft()
            self._receipts.append(self._last_joint)
        return self._last_joint

    def closing_commit(self, recorded: Commit) -> Commit:
        """Return the commit that closing a connection waits for: no receipt of an earlier report comes after it.

        A receipt that waits for two commits is sent one turn of the event loop after the later one.
        """
        commit = self.receipt_commit(recorded, None)
        for receipt in self._receipts:
            commit = Commit.combine(commit, receipt)
        return commit

    def log_error(self, error: StorageError) -> None:
        """Log that devices get no receipts, at most once in `GATEWAY_TROUBLE_LOG_S`."""
        now_s = time.monotonic()
        if now_s - self._logged_s >= GATEWAY_TROUBLE_LOG_S:
            self._logged_s = now_s
            _log.warning("reports not stored, devices will resend them: %s", error)
