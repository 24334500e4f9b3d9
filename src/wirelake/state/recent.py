"""The last durable notifications of all topics, in memory: a subscriber a little behind needs no read from disk."""

from collections import deque

from wirelake.commit import Commit
from wirelake.limits import STATE_RECENT_BYTES_MAX, STATE_RECENT_NOTIFICATIONS_MAX
from wirelake.state.notification import Notification, key_of


class Recent:
    """Bounded by number and bytes; the oldest make room."""

    __slots__ = ("_by_key", "_bytes", "_unsettled")

    def __init__(self) -> None:
        self._by_key: dict[int, Notification] = {}  # oldest first
        self._bytes = 0
        self._unsettled: deque[tuple[Commit, int, Notification]] = deque()  # as many as wait for the disk

    def add(self, commit: Commit, topic: int, notification: Notification) -> None:
        """It can be read once it is durable, no earlier: what fails has never been."""
        self._settle()
        self._unsettled.append((commit, key_of(topic, notification.position), notification))

    def after(self, topic: int, position: int, rows_max: int, bytes_max: int) -> list[Notification]:
        """Those that follow the position; empty also when they are no longer here."""
        self._settle()
        found: list[Notification] = []
        size = 0
        key = key_of(topic, position + 1)
        while len(found) < rows_max and (notification := self._by_key.get(key)) is not None:
            size += len(notification.content)
            if size > bytes_max and found:
                break
            found.append(notification)
            key += 1
        return found

    def clear(self) -> None:
        self._by_key.clear()
        self._unsettled.clear()
        self._bytes = 0

    def _settle(self) -> None:
        unsettled = self._unsettled
        while unsettled and unsettled[0][0].done:
            commit, key, notification = unsettled.popleft()
            if not commit.durable:
                continue
            self._by_key[key] = notification
            self._bytes += len(notification.content)
            while self._bytes > STATE_RECENT_BYTES_MAX or len(self._by_key) > STATE_RECENT_NOTIFICATIONS_MAX:
                oldest = self._by_key.pop(next(iter(self._by_key)))
                self._bytes -= len(oldest.content)
