"""The last durable notifications of all topics, in memory: a subscriber a little behind needs no read from disk."""

from collections import deque
from itertools import islice
from typing import Final

from wirelake.commit import Commit
from wirelake.limits import STATE_RECENT_BYTES_MAX, STATE_RECENT_NOTIFICATIONS_MAX
from wirelake.state.notification import Notification, key_of

_ROOM_PARTS: Final = 16


class Recent:
    """Bounded by number and bytes; the oldest make room."""

    __slots__ = ("_by_key", "_bytes", "_unsettled")

    def __init__(self) -> None:
        self._by_key: dict[int, Notification] = {}  # oldest first
        self._bytes = 0
        self._unsettled: deque[tuple[Commit, dict[int, Notification]]] = deque()  # as many as wait for the disk

    def add_many(self, commit: Commit, by_key: dict[int, Notification]) -> None:
        """They can be read once they are durable, no earlier: what fails has never been."""
        self._settle()
        if self._unsettled and self._unsettled[-1][0] is commit:
            self._unsettled[-1][1].update(by_key)
        else:
            self._unsettled.append((commit, by_key))

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

    def at(self, topic: int, position: int) -> Notification | None:
        """The one at this place, also when it was settled and removed from disk since."""
        self._settle()
        return self._by_key.get(key_of(topic, position))

    def clear(self) -> None:
        self._by_key.clear()
        self._unsettled.clear()
        self._bytes = 0

    def _settle(self) -> None:
        unsettled = self._unsettled
        while unsettled and unsettled[0][0].is_done:
            commit, by_key = unsettled.popleft()
            if commit.is_durable:
                self._by_key.update(by_key)
                self._bytes += sum([len(notification.content) for notification in by_key.values()])
                self._make_room()

    def _make_room(self) -> None:
        """A part of them at once: to find the oldest costs more than to remove it."""
        while self._bytes > STATE_RECENT_BYTES_MAX or len(self._by_key) > STATE_RECENT_NOTIFICATIONS_MAX:
            for key in list(islice(self._by_key, 1 + len(self._by_key) // _ROOM_PARTS)):
                self._bytes -= len(self._by_key.pop(key).content)
