"""Read and write the table `notifications`, where notifications published together on one topic share a row.

The row has the key of the first one; `content` is the concatenation of all contents, `sizes` the size of each (u32,
little endian). A row without sizes is a single notification. If a topic's floor is inside a row, the row stays until
the floor has passed its end.
"""

import heapq
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import accumulate, chain, pairwise
from struct import pack, unpack
from typing import Any, Final

from wirelake.limits import STATE_CONTENT_BYTES_MAX, STATE_ROW_BYTES_MAX, STATE_ROW_NOTIFICATIONS_MAX
from wirelake.state.batch import SingleRowStatement, Statement
from wirelake.state.database import StateReader
from wirelake.state.notifications import (
    POSITION_MAX,
    Backlog,
    BacklogLimits,
    OversizedNotification,
    RecentNotifications,
    StoredNotification,
    fit_backlog,
    notification_id,
    notification_key,
)
from wirelake.state.subscriptions import Subscription, TopicState

NotificationRow = tuple[int, int, int, str, bytes, bytes | None]  # key, at_ms, type, publisher, content, sizes

INSERT_ROWS: Final = Statement(
    "notifications",
    "INSERT INTO notifications (key, at_ms, type, publisher, content, sizes) VALUES ",
    "(?,?,?,?,?,?)",
)
_LAST_KEY_OF_ROW: Final = "key + coalesce(length(sizes) / 4, 1) - 1"
DELETE_ROWS: Final = SingleRowStatement(
    "notifications",
    f"DELETE FROM notifications WHERE key BETWEEN ? AND ? AND {_LAST_KEY_OF_ROW} <= ?",  # noqa: S608 (constants only)
)
# The last key of the topic `number` of an enclosing query.
LAST_KEY: Final = (
    f"SELECT {_LAST_KEY_OF_ROW} FROM notifications"  # noqa: S608 (constants only)
    " WHERE key > number << 40 AND key < number + 1 << 40 ORDER BY key DESC LIMIT 1"
)
# Starts with the row that contains the first key, which may start before it.
_KEY_RANGE: Final = (
    "FROM notifications WHERE key <= ? AND key >="
    " coalesce((SELECT key FROM notifications WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), ?) ORDER BY key"
)
_CONTENT_IF_SHORT: Final = "CASE WHEN sizes IS NOT NULL OR length(content) <= ? THEN content END"
_READ_ROWS: Final = f"SELECT key, at_ms, type, publisher, {_CONTENT_IF_SHORT}, length(content), sizes {_KEY_RANGE}"
_READ_TIMES: Final = f"SELECT {_LAST_KEY_OF_ROW}, at_ms {_KEY_RANGE}"


def build_rows(first_key: int, at_ms: int, publisher: str, contents: Sequence[bytes]) -> list[NotificationRow]:
    """Return the rows for notifications published together, each row within the limits."""
    if not contents:
        return []
    rows: list[NotificationRow] = []
    start, size = 0, 0
    for index, content in enumerate(contents):
        size += len(content)
        if index > start and (size > STATE_ROW_BYTES_MAX or index - start >= STATE_ROW_NOTIFICATIONS_MAX):
            rows.append(_build_row(first_key + start, at_ms, publisher, contents[start:index]))
            start, size = index, len(content)
    rows.append(_build_row(first_key + start, at_ms, publisher, contents[start:]))
    return rows


def read_rows(
    reader: StateReader, topic: int, after: int, last: int, content_bytes_max: int = STATE_CONTENT_BYTES_MAX
) -> Generator[tuple[int, int, int, str, Any, int], None, None]:
    """Yield each notification after position `after` up to `last`: key, at_ms, type, publisher, content and its size.

    A content that is too long is None; if it has a row to itself it is not even read.
    """
    after_key, last_key = notification_key(topic, after), notification_key(topic, last)
    with closing(reader.rows(_READ_ROWS, (content_bytes_max, *_key_range(topic, after, last)))) as rows:
        for key, at_ms, kind, publisher, content, size, sizes in rows:
            if sizes is None:
                if after_key < key:
                    yield key, at_ms, kind, publisher, content, size
                continue
            for each_key, each in enumerate(_split_content(content, sizes), key):
                if after_key < each_key <= last_key:
                    short = each if len(each) <= content_bytes_max else None
                    yield each_key, at_ms, kind, publisher, short, len(each)


def read_row_times(reader: StateReader, topic: int, after: int, last: int) -> Generator[tuple[int, int], None, None]:
    """Yield the last key and the time of each row that contains some of the positions after `after` up to `last`."""
    return reader.rows(_READ_TIMES, _key_range(topic, after, last))


def _key_range(topic: int, after: int, last: int) -> tuple[int, int, int, int]:
    first_key = notification_key(topic, after + 1)
    return notification_key(topic, last), notification_key(topic, 1), first_key, first_key


def _build_row(key: int, at_ms: int, publisher: str, contents: Sequence[bytes]) -> NotificationRow:
    if len(contents) == 1:
        return key, at_ms, 0, publisher, contents[0], None
    return key, at_ms, 0, publisher, b"".join(contents), pack(f"<{len(contents)}I", *map(len, contents))


def _split_content(content: bytes, sizes: bytes) -> list[bytes]:
    ends = accumulate(unpack(f"<{len(sizes) // 4}I", sizes), initial=0)
    return [content[start:end] for start, end in pairwise(ends)]


class NotificationReader:
    """Read notifications of topics from disk, or from a cache of the last ones that were published."""

    def __init__(self, reader: StateReader, epoch: str) -> None:
        self._reader = reader
        self._epoch = epoch
        self._cache = RecentNotifications()
        self.add_to_cache = self._cache.add_many
        self.clear_cache = self._cache.clear

    def read_one(self, topic: TopicState, position: int) -> StoredNotification | None:
        """Return the notification at this position from disk."""
        with closing(self._read(topic, position - 1, position)) as rows:
            return next(rows, None)

    def read_after(self, topic: TopicState, position: int, rows_max: int, bytes_max: int) -> list[StoredNotification]:
        """Return what follows the position, oldest first; at least one, if there is one."""
        position = max(position, topic.floor)
        found = self._cache.read_after(topic.number, position, rows_max, bytes_max)
        if found:
            return found
        with closing(self._read(topic, position, topic.head)) as rows:
            return fit_backlog(rows, BacklogLimits(rows_max=rows_max, bytes_max=bytes_max)).rows

    def read_newest(self, topic: TopicState, after: int, rows_max: int, bytes_max: int) -> list[StoredNotification]:
        """Return the newest after a position, newest first; at least one, if there is one.

        It reads from the head downwards, so that a few large ones do not hide the newest.
        """
        found: list[StoredNotification] = []
        size = 0
        for position in range(topic.head, max(after, topic.head - rows_max), -1):
            notification = self._cache.get(topic.number, position)
            if notification is None and position > topic.floor:
                notification = self.read_one(topic, position)
            if notification is None:
                continue  # not on disk yet, or removed
            size += len(notification.content)
            if found and size > bytes_max:
                break
            found.append(notification)
        return found

    def read_backlog_in_steps(
        self, topics: Iterable[TopicState], identity: str, limits: BacklogLimits
    ) -> Generator[None, None, Backlog]:
        """Return what waits for the identity in these topics, oldest first, and yield between two topics."""
        with ExitStack() as stack:
            sources = []
            for topic in topics:
                subscription = topic.subscriptions.get(identity)
                if subscription is None or subscription.catch_up(topic.floor).cursor >= topic.head:
                    continue  # the usual case: nothing to read
                rows = stack.enter_context(closing(self._read_pending(topic, subscription, limits.content_bytes_max)))
                first = next(rows, None)
                if first is not None:
                    sources.append(chain((first,), rows))
                yield
            return fit_backlog(heapq.merge(*sources, key=lambda pending: pending.at_ms), limits)

    def read_retained(self, topic: TopicState) -> StoredNotification | None:
        """Return the last one published with `retain`."""
        query = "SELECT position, at_ms, type, publisher, content FROM retained WHERE topic = ?"
        row = self._reader.row(query, (topic.number,))
        if row is None:
            return None
        return StoredNotification(notification_id(self._epoch, topic.number, row[0]), topic.name, *row)

    def _read_pending(
        self, topic: TopicState, subscription: Subscription, content_bytes_max: int | None
    ) -> Generator[StoredNotification | OversizedNotification, None, None]:
        """Read the gaps between ranges of acks, so that what is acked is not read."""
        current = subscription.catch_up(topic.floor)
        bounds = (current.cursor + 1, *current.acks, topic.head + 1)
        for first, end in zip(bounds[::2], bounds[1::2], strict=True):
            if content_bytes_max is None:
                yield from self._read(topic, first - 1, end - 1)
            else:
                yield from self._read_short(topic, first - 1, end - 1, content_bytes_max)

    def _read(self, topic: TopicState, after: int, last: int) -> Generator[StoredNotification, None, None]:
        with closing(read_rows(self._reader, topic.number, max(after, topic.floor), last)) as rows:
            for row in rows:
                position = row[0] & POSITION_MAX
                id_ = notification_id(self._epoch, topic.number, position)
                yield StoredNotification(id_, topic.name, position, *row[1:5])

    def _read_short(
        self, topic: TopicState, after: int, last: int, content_bytes_max: int
    ) -> Generator[StoredNotification | OversizedNotification, None, None]:
        """Read without the contents of those that are too long."""
        after = max(after, topic.floor)
        with closing(read_rows(self._reader, topic.number, after, last, content_bytes_max)) as rows:
            for key, at_ms, kind, publisher, content, content_bytes in rows:
                position = key & POSITION_MAX
                id_ = notification_id(self._epoch, topic.number, position)
                if content is None:
                    yield OversizedNotification(id_, topic.name, position, at_ms, content_bytes)
                else:
                    yield StoredNotification(id_, topic.name, position, at_ms, kind, publisher, content)
