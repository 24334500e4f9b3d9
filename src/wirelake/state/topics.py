"""Store durable topics: each is a log with cursors.

Publishing writes one row, whatever the number of subscribers. An absent subscriber is a cursor that lags: it costs no
memory and no write. Topics, subscriptions and heads are in memory, notifications are on disk (the last few in memory
too). Only what is durable can be read.
"""

from collections.abc import Generator, Iterable, KeysView, Sequence
from contextlib import closing
from typing import Final

from wirelake.commit import Commit
from wirelake.errors import FullError
from wirelake.limits import (
    STATE_ACK_RANGES_MAX,
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
    STATE_SWEEP_TOPICS,
    STATE_TOPICS_MAX,
    STATE_TOPICS_PER_IDENTITY_MAX,
)
from wirelake.state.batch import Statement
from wirelake.state.database import StateReader
from wirelake.state.notification_rows import (
    DELETE_ROWS,
    INSERT_ROWS,
    LAST_KEY,
    NotificationReader,
    NotificationRow,
    build_rows,
    read_row_times,
)
from wirelake.state.notifications import (
    POSITION_MAX,
    Backlog,
    BacklogLimits,
    StoredNotification,
    notification_id,
    notification_key,
    parse_id,
    parse_id_runs,
)
from wirelake.state.schema import check_content, check_integer, check_name
from wirelake.state.subscriptions import (
    DeliveryCounts,
    ExpiredRange,
    Subscription,
    SweepResult,
    TopicState,
    acks_contain,
    unpack_acks,
)
from wirelake.state.writer import StateWriter

_RETAIN: Final = Statement(
    "retained",
    "INSERT OR REPLACE INTO retained (topic, position, at_ms, type, publisher, content) VALUES ",
    "(?,?,?,?,?,?)",
)
_TOPIC: Final = Statement(
    "topics",
    "INSERT INTO topics (number, name, floor, is_stream) VALUES ",
    "(?,?,?,?)",
    " ON CONFLICT (number) DO UPDATE SET floor = excluded.floor, is_stream = excluded.is_stream",
)
_SUBSCRIBE: Final = Statement(
    "subscriptions",
    "INSERT INTO subscriptions (topic, identity, start, cursor, expired, acks) VALUES ",
    "(?,?,?,?,?,?)",
    " ON CONFLICT (topic, identity) DO UPDATE"
    " SET cursor = excluded.cursor, expired = excluded.expired, acks = excluded.acks",
)
_UNSUBSCRIBE: Final = Statement(
    "subscriptions", "DELETE FROM subscriptions WHERE (topic, identity) IN (VALUES ", "(?,?)", ")"
)

PublishRequest = tuple[str, Sequence[bytes], str]  # a topic, contents, and their publisher


class TopicStore:
    """Publish to durable topics, and track what their subscribers have acked."""

    def __init__(self, writer: StateWriter, reader: StateReader, epoch: str) -> None:
        self._writer = writer
        self._reader = reader
        self._epoch = epoch
        self._by_name: dict[str, TopicState] = {}
        self._by_number: list[TopicState] = []  # in the order of their numbers, from 1
        self._of_identity: dict[str, tuple[TopicState, ...]] = {}
        self._notifications = NotificationReader(reader, epoch)
        self._next_swept = 0

    def load(self) -> None:
        self._notifications.clear_cache()
        self._by_name = {}
        self._by_number = []
        self._of_identity = {}
        self._next_swept = 0
        query = f"SELECT number, name, floor, is_stream, ({LAST_KEY}) FROM topics ORDER BY number"  # noqa: S608 (constants only)
        for number, name, floor, is_stream, key in self._reader.rows(query):
            self._add(TopicState(number, name, max(floor, (key or 0) & POSITION_MAX), floor, bool(is_stream)))
        query = "SELECT topic, identity, start, cursor, expired, acks FROM subscriptions"
        for number, identity, start, cursor, expired, packed in self._reader.rows(query):
            topic = self._by_number[number - 1]
            self._add_subscription(topic, identity, Subscription(start, cursor, expired, unpack_acks(packed, cursor)))

    # Read from memory

    def names(self) -> KeysView[str]:
        self._writer.reload_if_stale()
        return self._by_name.keys()

    def head(self, name: str) -> int:
        """Return the last position in use, 0 for none."""
        topic = self._find(name)
        return 0 if topic is None else topic.head

    def floor(self, name: str) -> int:
        """Return the position up to which everything is removed."""
        topic = self._find(name)
        return 0 if topic is None else topic.floor

    def subscribers(self, name: str) -> KeysView[str]:
        """Return the identities that subscribed, connected or not."""
        topic = self._find(name)
        return {}.keys() if topic is None else topic.subscriptions.keys()

    def topics_of(self, identity: str) -> list[str]:
        """Return the topics of an identity, in the order it subscribed."""
        self._writer.reload_if_stale()
        return [topic.name for topic in self._of_identity.get(identity, ())]

    def delivery_counts(self, identity: str, name: str) -> DeliveryCounts | None:
        """Return None if the identity is not subscribed."""
        subscription = self.subscription(identity, name)
        return None if subscription is None else subscription.delivery_counts(self._by_name[name].head)

    def subscription(self, identity: str, name: str) -> Subscription | None:
        """Return the progress of the identity; None if it is not subscribed."""
        topic = self._find(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        return None if topic is None or subscription is None else subscription.catch_up(topic.floor)

    def lag(self, name: str) -> int:
        """Return how far the slowest subscriber is behind the head."""
        topic = self._find(name)
        return 0 if topic is None else topic.head - min(topic.cursors, default=topic.head)

    def is_acked(self, identity: str, name: str, position: int) -> bool | None:
        """Tell whether the identity acked a stored position; None if it subscribed later, or never."""
        topic = self._find(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        if subscription is None or position <= subscription.start:
            return None
        return position <= subscription.cursor or acks_contain(subscription.acks, position)

    # Change

    def publish(
        self,
        name: str,
        content: bytes,
        now_ms: int,
        *,
        type: int = 0,  # noqa: A002 (the field's name)
        publisher: str = "",
        retain: bool = False,
    ) -> tuple[StoredNotification, Commit]:
        """Store a notification at the topic's next position. It can be read, and sent, once the commit is durable."""
        self._writer.check_writable()
        check_content(content, "a notification")
        check_integer(type, "a notification's type")
        if publisher:
            check_name(publisher, "a publisher")
        topic = self._by_name.get(name) or self._create(name)
        number = topic.number
        position = topic.head = topic.head + 1
        notification = StoredNotification(
            notification_id(self._epoch, number, position), name, position, now_ms, type, publisher, content
        )
        row = (notification_key(number, position), now_ms, type, publisher, content, None)
        if retain:
            with self._writer.transaction():
                self._writer.submit(_RETAIN, (number, position, *row[1:5]), key=name, content_bytes=len(content))
                commit = self._writer.submit(INSERT_ROWS, row, content_bytes=len(content))
        else:
            commit = self._writer.submit(INSERT_ROWS, row, content_bytes=len(content))
        self._notifications.add_to_cache(commit, {row[0]: notification})
        return notification, commit

    def publish_many(self, requests: Sequence[PublishRequest], now_ms: int) -> tuple[list[StoredNotification], Commit]:
        """Publish many notifications at once: all of them, or none."""
        self._writer.check_writable()
        for _, contents, publisher in requests:
            check_content(max(contents, key=len, default=b""), "a notification")
            if publisher:
                check_name(publisher, "a publisher")
        with self._writer.transaction():
            for name in {request[0] for request in requests} - self._by_name.keys():
                self._create(name)  # before any position is used, because it may fail
            by_key: dict[int, StoredNotification] = {}
            rows: list[NotificationRow] = []
            for name, contents, publisher in requests:
                topic = self._by_name[name]
                prefix, first = notification_id(self._epoch, topic.number, 0)[:-1], topic.head + 1
                stored = [
                    StoredNotification(f"{prefix}{position:x}", name, position, now_ms, 0, publisher, content)
                    for position, content in enumerate(contents, first)
                ]
                topic.head += len(stored)
                first_key = notification_key(topic.number, first)
                by_key.update(zip(range(first_key, first_key + len(stored)), stored, strict=True))
                rows += build_rows(first_key, now_ms, publisher, contents)
            commit = self._writer.submit_many(INSERT_ROWS, rows, sum([len(row[4]) for row in rows]))
        self._notifications.add_to_cache(commit, by_key)
        return list(by_key.values()), commit

    def make_stream(self, name: str) -> Commit:
        """Keep what is published from now on until it expires, even if all subscribers acked it or there are none."""
        self._writer.check_writable()
        topic = self._by_name.get(name)
        if topic is not None and topic.is_stream:
            return self._writer.barrier()
        with self._writer.transaction():
            topic = topic or self._create(name)
            topic.is_stream = True
            return self._write_topic(topic)

    def subscribe(self, identity: str, name: str) -> Commit:
        """Subscribe from the end of the topic on. Nothing changes if the identity is subscribed already."""
        self._writer.check_writable()
        topic = self._by_name.get(name)
        if topic is not None and identity in topic.subscriptions:
            return self._writer.barrier()
        check_name(identity, "an identity's name")
        if len(self._of_identity.get(identity, ())) >= STATE_TOPICS_PER_IDENTITY_MAX:
            raise FullError(f"an identity can subscribe to at most {STATE_TOPICS_PER_IDENTITY_MAX} topics")
        topic = topic or self._create(name)
        subscription = Subscription(topic.head, topic.head)
        self._add_subscription(topic, identity, subscription)
        return self._write_subscription(topic, identity, subscription)

    def unsubscribe(self, identity: str, name: str) -> Commit:
        """Unsubscribe. What the identity had not acked no longer waits for it."""
        self._writer.check_writable()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.pop(identity, None)
        if topic is None or subscription is None:
            return self._writer.barrier()
        topic.remove_cursor(subscription.cursor)
        left = tuple(other for other in self._of_identity[identity] if other is not topic)
        if left:
            self._of_identity[identity] = left
        else:
            del self._of_identity[identity]
        return self._writer.submit(_UNSUBSCRIBE, (topic.number, identity))

    def unsubscribe_all(self, identity: str) -> Commit:
        """Unsubscribe from all topics."""
        for name in self.topics_of(identity):
            self.unsubscribe(identity, name)
        return self._writer.barrier()

    def ack(self, identity: str, ids: Iterable[str]) -> Commit:
        """Ack notifications. Ids that are unknown, acked already or not for this identity are ignored."""
        self._writer.check_writable()
        changed: dict[int, Subscription] = {}
        for number, first, last in parse_id_runs(self._epoch, ids):
            if not 0 < number <= len(self._by_number):
                continue
            topic = self._by_number[number - 1]
            subscription = changed.get(number) or topic.subscriptions.get(identity)
            first_stored, last_stored = max(first, topic.floor + 1), min(last, topic.head)
            if subscription is not None and first_stored <= last_stored:
                changed[number] = subscription.catch_up(topic.floor).ack(first_stored, last_stored)
        return self._apply_acks(identity, changed)

    def ack_through(self, identity: str, name: str, position: int) -> Commit:
        """Ack everything up to the position, for protocols without acks."""
        self._writer.check_writable()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        if topic is None or subscription is None:
            return self._writer.barrier()
        subscription = subscription.catch_up(topic.floor)
        last = min(position, topic.head)
        return self._apply_acks(identity, {topic.number: subscription.ack(subscription.cursor + 1, last)})

    def id_prefix(self, name: str) -> str:
        """Return the prefix of the ids of a topic's notifications; the position in hex follows."""
        topic = self._by_name.get(name)
        return "" if topic is None else notification_id(self._epoch, topic.number, 0)[:-1]

    # Read from disk

    def find(self, id: str) -> StoredNotification | None:  # noqa: A002 (the field's name)
        """Return the notification with this id, while it is stored."""
        self._writer.reload_if_stale()
        parsed = parse_id(self._epoch, id)
        if parsed is None or not 0 < parsed[0] <= len(self._by_number):
            return None
        return self._notifications.read_one(self._by_number[parsed[0] - 1], parsed[1])

    def read_after(
        self, name: str, position: int, rows_max: int = STATE_READ_ROWS_MAX, bytes_max: int = STATE_READ_BYTES_MAX
    ) -> list[StoredNotification]:
        """Return what follows the position, oldest first; at least one, if there is one."""
        topic = self._find(name)
        return [] if topic is None else self._notifications.read_after(topic, position, rows_max, bytes_max)

    def read_newest(self, name: str, after: int, rows_max: int, bytes_max: int) -> list[StoredNotification]:
        """Return the newest after a position, newest first, from disk or memory; at least one, if there is one."""
        topic = self._find(name)
        return [] if topic is None else self._notifications.read_newest(topic, after, rows_max, bytes_max)

    def backlog(
        self,
        identity: str,
        names: Iterable[str] | None = None,
        rows_max: int = STATE_READ_ROWS_MAX,
        bytes_max: int = STATE_READ_BYTES_MAX,
    ) -> list[StoredNotification]:
        """Return what waits for the identity, in these topics or in all, oldest first; at least one, if any."""
        return self.read_backlog(identity, BacklogLimits(rows_max=rows_max, bytes_max=bytes_max), names).rows

    def read_backlog(self, identity: str, limits: BacklogLimits, names: Iterable[str] | None = None) -> Backlog:
        """Return what waits for the identity within the limits, and what is skipped because it fits no answer."""
        steps = self.read_backlog_in_steps(identity, limits, names)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                backlog: Backlog = done.value
                return backlog

    def read_backlog_in_steps(
        self, identity: str, limits: BacklogLimits, names: Iterable[str] | None = None
    ) -> Generator[None, None, Backlog]:
        """Read the backlog as it is at the start, and yield between two topics so that others get their turn."""
        self._writer.reload_if_stale()
        wanted = None if names is None else set(names)
        topics = [topic for topic in self._of_identity.get(identity, ()) if wanted is None or topic.name in wanted]
        return (yield from self._notifications.read_backlog_in_steps(topics, identity, limits))

    def retained(self, name: str) -> StoredNotification | None:
        """Return the last one published with `retain`, even if it was acked by all or has expired."""
        topic = self._find(name)
        return None if topic is None else self._notifications.read_retained(topic)

    # Remove

    def sweep(self, now_ms: int, keep_ms: int, rows_max: int) -> SweepResult:
        """Remove some of what is acked by all or older than `keep_ms`, continuing with the topic after the last one."""
        self._writer.check_writable()
        result = SweepResult(round_done=not self._by_number)
        for _ in range(min(STATE_SWEEP_TOPICS, len(self._by_number))):
            if result.removed >= rows_max:
                break
            topic = self._by_number[self._next_swept]
            if topic.floor < topic.head:
                self._sweep_topic(topic, now_ms, keep_ms, rows_max - result.removed, result)
            if result.removed < rows_max:  # or there is more to remove from this one
                self._next_swept = (self._next_swept + 1) % len(self._by_number)
                result.round_done |= self._next_swept == 0
        return result

    def _sweep_topic(self, topic: TopicState, now_ms: int, keep_ms: int, rows_max: int, result: SweepResult) -> None:
        last = min(topic.head, topic.floor + rows_max)
        acked_by_all = topic.floor
        while acked_by_all < last and acked_by_all not in topic.cursors:
            acked_by_all += 1
        floor = topic.floor if topic.is_stream else acked_by_all
        with closing(read_row_times(self._reader, topic.number, floor, last)) as rows:
            for end_key, at_ms in rows:
                if at_ms > now_ms:
                    continue  # from a clock that was ahead: it expires with the next one that was published later
                if at_ms > now_ms - keep_ms:
                    break
                floor = max(floor, min(end_key & POSITION_MAX, last))
        if floor == topic.floor:
            return
        if floor > acked_by_all:
            result.expired.append(ExpiredRange(topic.name, acked_by_all + 1, floor))
        result.removed += floor - topic.floor
        with self._writer.transaction():
            last_key = notification_key(topic.number, floor)
            self._writer.submit(DELETE_ROWS, (notification_key(topic.number, 1), last_key, last_key))
            topic.raise_floor(floor)
            self._write_topic(topic)

    def _find(self, name: str) -> TopicState | None:
        self._writer.reload_if_stale()
        return self._by_name.get(name)

    def _create(self, name: str) -> TopicState:
        check_name(name, "a topic")
        if len(self._by_number) >= STATE_TOPICS_MAX:
            raise FullError(f"cannot create topic {name!r}: the limit is {STATE_TOPICS_MAX} topics")
        topic = TopicState(len(self._by_number) + 1, name, 0, 0)
        self._add(topic)
        self._write_topic(topic)
        return topic

    def _write_topic(self, topic: TopicState) -> Commit:
        return self._writer.submit(_TOPIC, (topic.number, topic.name, topic.floor, topic.is_stream), key=topic.name)

    def _add(self, topic: TopicState) -> None:
        assert topic.number == len(self._by_number) + 1, "topics are numbered without gaps and never removed"  # noqa: S101
        self._by_name[topic.name] = topic
        self._by_number.append(topic)

    def _add_subscription(self, topic: TopicState, identity: str, subscription: Subscription) -> None:
        topic.subscriptions[identity] = subscription
        topic.add_cursor(subscription.cursor)
        self._of_identity[identity] = (*self._of_identity.get(identity, ()), topic)

    def _apply_acks(self, identity: str, changed: dict[int, Subscription]) -> Commit:
        if any(len(subscription.acks) > 2 * STATE_ACK_RANGES_MAX for subscription in changed.values()):
            raise FullError(f"acks of {identity!r} leave more than {STATE_ACK_RANGES_MAX} gaps: ack in order")
        for number, subscription in changed.items():
            topic = self._by_number[number - 1]
            before = topic.subscriptions[identity]
            if subscription is not before:
                topic.remove_cursor(before.cursor)
                topic.add_cursor(subscription.cursor)
                topic.subscriptions[identity] = subscription
                self._write_subscription(topic, identity, subscription)
        return self._writer.barrier()

    def _write_subscription(self, topic: TopicState, identity: str, subscription: Subscription) -> Commit:
        row = subscription.to_row(topic.number, identity)
        return self._writer.submit(_SUBSCRIBE, row, key=(topic.number, identity), content_bytes=len(row[-1]))
