"""Hold notifications of durable topics: their ids and keys, what waits for an identity, and a cache of recent ones.

    id    "<epoch>-<topic number>-<position>", the numbers in hex: what an ack refers to
    key   topic number << 40 | position: the primary key on disk

The epoch is drawn at random when a database is created, so that no two databases ever use the same id.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from wirelake.commit import Commit
from wirelake.limits import (
    STATE_OVERSIZED_MAX,
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
    STATE_RECENT_BYTES_MAX,
    STATE_RECENT_NOTIFICATIONS_MAX,
)

POSITION_BITS: Final = 40
POSITION_MAX: Final = (1 << POSITION_BITS) - 1
_EVICTED_SHARE: Final = 16  # of the cache, evicted at once

_Count = Annotated[int, Meta(ge=0)]


class StoredNotification(Struct, frozen=True, gc=False):
    id: str
    topic: str
    position: int  # 1 is a topic's first
    at_ms: int
    type: int
    publisher: str  # the identity that published it; empty if there is none
    content: bytes


def notification_key(topic: int, position: int) -> int:
    return topic << POSITION_BITS | position


def notification_id(epoch: str, topic: int, position: int) -> str:
    return f"{epoch}-{topic:x}-{position:x}"


def parse_id(epoch: str, text: str) -> tuple[int, int] | None:
    """Return topic number and position; None for an id that is not from this database."""
    parts = text.split("-")
    if len(parts) != 3 or parts[0] != epoch:
        return None
    try:
        topic, position = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    return (topic, position) if notification_id(epoch, topic, position) == text else None  # one spelling only


def parse_id_runs(epoch: str, texts: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield topic number, first and last position of runs of consecutive ids, which acks mostly are; skip other ids.

    The next id of a run is predictable, and comparing it is far cheaper than parsing it.
    """
    number = first = last = 0
    prefix = ""
    expected: str | None = None
    for text in texts:
        if text == expected:
            last += 1
        else:
            if last:
                yield number, first, last
            number, first = parse_id(epoch, text) or (0, 0)
            last, prefix = first, text[: text.rfind("-") + 1]
        expected = f"{prefix}{last + 1:x}" if last else None
    if last:
        yield number, first, last


class BacklogLimits(Struct, frozen=True, kw_only=True):
    """Limit how much of a backlog one answer contains."""

    rows_max: _Count = STATE_READ_ROWS_MAX
    bytes_max: _Count = STATE_READ_BYTES_MAX
    each_bytes: _Count = 0  # overhead of a notification beside its id and its content
    content_bytes_max: _Count | None = None  # a longer content fits no answer


class OversizedNotification(Struct, frozen=True):
    """Describe a notification that is too long for any answer. Its content is not read."""

    id: str
    topic: str
    position: int
    at_ms: int
    content_bytes: int


class Backlog(NamedTuple):
    rows: list[StoredNotification]  # oldest first
    oversized: list[OversizedNotification]  # those between them


def fit_backlog(pending: Iterable[StoredNotification | OversizedNotification], limits: BacklogLimits) -> Backlog:
    """Take as many as the limits allow, but at least one that is not oversized, if there is one."""
    backlog = Backlog([], [])
    size = 0
    for each in pending:
        if isinstance(each, OversizedNotification):
            if len(backlog.oversized) >= STATE_OVERSIZED_MAX:
                break
            backlog.oversized.append(each)
            continue
        size += len(each.content) + (limits.each_bytes and len(each.id) + limits.each_bytes)
        if len(backlog.rows) >= limits.rows_max or (backlog.rows and size > limits.bytes_max):
            break
        backlog.rows.append(each)
    return backlog


class RecentNotifications:
    """Cache the last durable notifications of all topics: a subscriber a little behind needs no read from disk.

    The cache is limited by number and bytes; the oldest are evicted.
    """

    __slots__ = ("_by_key", "_bytes", "_uncommitted")

    def __init__(self) -> None:
        self._by_key: dict[int, StoredNotification] = {}  # oldest first
        self._bytes = 0
        self._uncommitted: deque[tuple[Commit, dict[int, StoredNotification]]] = deque()

    def add_many(self, commit: Commit, by_key: dict[int, StoredNotification]) -> None:
        """Add notifications that can be read once the commit is durable, and never if it fails."""
        self._take_committed()
        if self._uncommitted and self._uncommitted[-1][0] is commit:
            self._uncommitted[-1][1].update(by_key)
        else:
            self._uncommitted.append((commit, by_key))

    def read_after(self, topic: int, position: int, rows_max: int, bytes_max: int) -> list[StoredNotification]:
        """Return those that follow the position; empty also if they are not cached any more."""
        self._take_committed()
        found: list[StoredNotification] = []
        size = 0
        key = notification_key(topic, position + 1)
        while len(found) < rows_max and (notification := self._by_key.get(key)) is not None:
            size += len(notification.content)
            if size > bytes_max and found:
                break
            found.append(notification)
            key += 1
        return found

    def get(self, topic: int, position: int) -> StoredNotification | None:
        """Return the one at this position, even if it was removed from disk since."""
        self._take_committed()
        return self._by_key.get(notification_key(topic, position))

    def clear(self) -> None:
        self._by_key.clear()
        self._uncommitted.clear()
        self._bytes = 0

    def _take_committed(self) -> None:
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0].is_done:
            commit, by_key = uncommitted.popleft()
            if commit.is_durable:
                self._by_key.update(by_key)
                self._bytes += sum([len(notification.content) for notification in by_key.values()])
                self._evict()

    def _evict(self) -> None:
        """Evict a part of the cache at once: finding the oldest costs more than removing it."""
        while self._bytes > STATE_RECENT_BYTES_MAX or len(self._by_key) > STATE_RECENT_NOTIFICATIONS_MAX:
            for key in list(islice(self._by_key, 1 + len(self._by_key) // _EVICTED_SHARE)):
                self._bytes -= len(self._by_key.pop(key).content)
