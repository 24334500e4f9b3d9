"""Durable topics: each a log with cursors.

Publishing writes one row, whatever the number of subscribers. A subscriber that is away is a cursor that lags: it
costs no memory and no write. Topics, subscriptions and heads are in memory, notifications are on disk (the last few
in memory too). Only what is durable can be read back.
"""

import heapq
from collections.abc import Generator, Iterable, KeysView, Sequence
from contextlib import ExitStack, closing
from itertools import chain
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
from wirelake.state import acks, stretch
from wirelake.state.backlog import Backlog, Room, TooLong, within
from wirelake.state.batch import Statement
from wirelake.state.bounds import check_content, check_integer, check_name
from wirelake.state.notification import (
    POSITION_MAX,
    Notification,
    id_of,
    id_runs,
    key_of,
    parse_id,
)
from wirelake.state.reader import Reader
from wirelake.state.recent import Recent
from wirelake.state.subscription import Deliveries, Subscription
from wirelake.state.topic import Expired, Swept, Topic
from wirelake.state.writer import Writer

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

Run = tuple[str, Sequence[bytes], str]  # a topic, contents, and who publishes them


class Topics:
    def __init__(self, writer: Writer, reader: Reader, epoch: str) -> None:
        self._writer = writer
        self._reader = reader
        self._epoch = epoch
        self._by_name: dict[str, Topic] = {}
        self._by_number: list[Topic] = []  # the number is the place, from 1
        self._of_identity: dict[str, tuple[Topic, ...]] = {}
        self._recent = Recent()
        self._sweep_next = 0

    def load(self) -> None:
        self._recent.clear()
        self._by_name = {}
        self._by_number = []
        self._of_identity = {}
        self._sweep_next = 0
        query = f"SELECT number, name, floor, is_stream, ({stretch.LAST}) FROM topics ORDER BY number"  # noqa: S608 all ours
        for number, name, floor, is_stream, key in self._reader.rows(query):
            self._enter(Topic(number, name, max(floor, (key or 0) & POSITION_MAX), floor, bool(is_stream)))
        query = "SELECT topic, identity, start, cursor, expired, acks FROM subscriptions"
        for number, identity, start, cursor, expired, packed in self._reader.rows(query):
            topic = self._by_number[number - 1]
            self._place(topic, identity, Subscription(start, cursor, expired, acks.unpack(packed, cursor)))

    # Looking, in memory

    def names(self) -> KeysView[str]:
        self._writer.fresh()
        return self._by_name.keys()

    def head(self, name: str) -> int:
        """The last position given in the topic, 0 for none."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        return 0 if topic is None else topic.head

    def floor(self, name: str) -> int:
        """Everything up to this position is removed."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        return 0 if topic is None else topic.floor

    def subscribers(self, name: str) -> KeysView[str]:
        """Identities, present or not."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        return {}.keys() if topic is None else topic.subscriptions.keys()

    def subscribed(self, identity: str) -> list[str]:
        """The topics of an identity, in the order it subscribed."""
        self._writer.fresh()
        return [topic.name for topic in self._of_identity.get(identity, ())]

    def deliveries(self, identity: str, name: str) -> Deliveries | None:
        """None where it is not subscribed."""
        subscription = self.subscription(identity, name)
        return None if subscription is None else subscription.deliveries(self._by_name[name].head)

    def subscription(self, identity: str, name: str) -> Subscription | None:
        """Where it stands; None where it is not subscribed."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        return None if topic is None or subscription is None else subscription.caught_up(topic.floor)

    def lag(self, name: str) -> int:
        """How far the last of its subscribers stands behind the head."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        return 0 if topic is None else topic.head - min(topic.standing, default=topic.head)

    def acked(self, identity: str, name: str, position: int) -> bool | None:
        """Whether it acked one that is kept; None where that is not for it: it subscribed later, or never."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        if subscription is None or position <= subscription.start:
            return None
        return position <= subscription.cursor or acks.holds(subscription.acks, position)

    # Changing

    def publish(
        self,
        name: str,
        content: bytes,
        now_ms: int,
        *,
        type: int = 0,  # noqa: A002 the field's name
        publisher: str = "",
        retain: bool = False,
    ) -> tuple[Notification, Commit]:
        """Give it the topic's next position. It can be read, and should be sent, once the commit is durable."""
        self._writer.ready()
        check_content(content, "a notification")
        check_integer(type, "a notification's type")
        if publisher:
            check_name(publisher, "a publisher")
        topic = self._by_name.get(name) or self._make(name)
        number = topic.number
        position = topic.head = topic.head + 1
        notification = Notification(
            id_of(self._epoch, number, position), name, position, now_ms, type, publisher, content
        )
        row = (key_of(number, position), now_ms, type, publisher, content, None)
        if retain:
            with self._writer.whole():
                self._writer.submit(_RETAIN, (number, position, *row[1:5]), key=name, content_bytes=len(content))
                commit = self._writer.submit(stretch.PUBLISH, row, content_bytes=len(content))
        else:
            commit = self._writer.submit(stretch.PUBLISH, row, content_bytes=len(content))
        self._recent.add_many(commit, {row[0]: notification})
        return notification, commit

    def publish_many(self, runs: Sequence[Run], now_ms: int) -> tuple[list[Notification], Commit]:
        """The same for many at once: all of them, or none."""
        self._writer.ready()
        for _, contents, publisher in runs:
            check_content(max(contents, key=len, default=b""), "a notification")
            if publisher:
                check_name(publisher, "a publisher")
        with self._writer.whole():
            for name in {run[0] for run in runs} - self._by_name.keys():
                self._make(name)  # before any position is given: it may fail
            by_key: dict[int, Notification] = {}
            rows: list[stretch.Row] = []
            for name, contents, publisher in runs:
                topic = self._by_name[name]
                prefix, first = id_of(self._epoch, topic.number, 0)[:-1], topic.head + 1
                kept = [
                    Notification(f"{prefix}{position:x}", name, position, now_ms, 0, publisher, content)
                    for position, content in enumerate(contents, first)
                ]
                topic.head += len(kept)
                first_key = key_of(topic.number, first)
                by_key.update(zip(range(first_key, first_key + len(kept)), kept, strict=True))
                rows += stretch.stretches(first_key, now_ms, publisher, contents)
            commit = self._writer.submit_many(stretch.PUBLISH, rows, sum([len(row[4]) for row in rows]))
        self._recent.add_many(commit, by_key)
        return list(by_key.values()), commit

    def keep_as_stream(self, name: str) -> Commit:
        """Keep what is published from here on until it expires, also when all subscribers have acked it, or none is."""
        self._writer.ready()
        topic = self._by_name.get(name)
        if topic is not None and topic.is_stream:
            return self._writer.barrier()
        with self._writer.whole():
            topic = topic or self._make(name)
            topic.is_stream = True
            return self._write_topic(topic)

    def subscribe(self, identity: str, name: str) -> Commit:
        """From the topic's end on. Nothing changes for one who is subscribed."""
        self._writer.ready()
        topic = self._by_name.get(name)
        if topic is not None and identity in topic.subscriptions:
            return self._writer.barrier()
        check_name(identity, "an identity's name")
        if len(self._of_identity.get(identity, ())) >= STATE_TOPICS_PER_IDENTITY_MAX:
            raise FullError(f"an identity subscribes to at most {STATE_TOPICS_PER_IDENTITY_MAX} topics")
        topic = topic or self._make(name)
        subscription = Subscription(topic.head, topic.head)
        self._place(topic, identity, subscription)
        return self._write(topic, identity, subscription)

    def unsubscribe(self, identity: str, name: str) -> Commit:
        """What it had not acked is settled with it."""
        self._writer.ready()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.pop(identity, None)
        if topic is None or subscription is None:
            return self._writer.barrier()
        topic.leave(subscription.cursor)
        left = tuple(other for other in self._of_identity[identity] if other is not topic)
        if left:
            self._of_identity[identity] = left
        else:
            del self._of_identity[identity]
        return self._writer.submit(_UNSUBSCRIBE, (topic.number, identity))

    def forget(self, identity: str) -> Commit:
        """Unsubscribe from everything."""
        for name in self.subscribed(identity):
            self.unsubscribe(identity, name)
        return self._writer.barrier()

    def ack(self, identity: str, ids: Iterable[str]) -> Commit:
        """Ids that are unknown, acked already or not for this identity are fine."""
        self._writer.ready()
        changed: dict[int, Subscription] = {}
        for number, first, last in id_runs(self._epoch, ids):
            if not 0 < number <= len(self._by_number):
                continue
            topic = self._by_number[number - 1]
            subscription = changed.get(number) or topic.subscriptions.get(identity)
            first_kept, last_given = max(first, topic.floor + 1), min(last, topic.head)
            if subscription is not None and first_kept <= last_given:
                changed[number] = subscription.caught_up(topic.floor).acked(first_kept, last_given)
        return self._acked(identity, changed)

    def ack_through(self, identity: str, name: str, position: int) -> Commit:
        """Everything up to the position: for protocols without acks."""
        self._writer.ready()
        topic = self._by_name.get(name)
        subscription = None if topic is None else topic.subscriptions.get(identity)
        if topic is None or subscription is None:
            return self._writer.barrier()
        subscription = subscription.caught_up(topic.floor)
        last = min(position, topic.head)
        return self._acked(identity, {topic.number: subscription.acked(subscription.cursor + 1, last)})

    def ids(self, name: str) -> str:
        """What the ids of a topic's notifications begin with; the position, in hex, follows."""
        topic = self._by_name.get(name)
        return "" if topic is None else id_of(self._epoch, topic.number, 0)[:-1]

    # Reading from disk

    def find(self, id: str) -> Notification | None:  # noqa: A002 the field's name
        """By its id, while it is kept."""
        self._writer.fresh()
        place = parse_id(self._epoch, id)
        if place is None or not 0 < place[0] <= len(self._by_number):
            return None
        topic = self._by_number[place[0] - 1]
        with closing(self._read(topic, place[1] - 1, place[1])) as rows:
            return next(rows, None)

    def after(
        self, name: str, position: int, rows_max: int = STATE_READ_ROWS_MAX, bytes_max: int = STATE_READ_BYTES_MAX
    ) -> list[Notification]:
        """What follows the position, oldest first; at least one, if there is one."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        if topic is None:
            return []
        position = max(position, topic.floor)
        found = self._recent.after(topic.number, position, rows_max, bytes_max)
        if found:
            return found
        with closing(self._read(topic, position, topic.head)) as rows:
            return within(rows, Room(rows_max=rows_max, bytes_max=bytes_max)).rows

    def newest(self, name: str, after: int, rows_max: int, bytes_max: int) -> list[Notification]:
        """The last ones behind a position, newest first, as far as they are known: kept, or still in memory.

        From the head downwards, so that a few large ones do not hide the newest. At least one, if there is one.
        """
        self._writer.fresh()
        topic = self._by_name.get(name)
        if topic is None:
            return []
        found: list[Notification] = []
        size = 0
        for position in range(topic.head, max(after, topic.head - rows_max), -1):
            notification = self._recent.at(topic.number, position)
            if notification is None and position > topic.floor:
                with closing(self._read(topic, position - 1, position)) as rows:
                    notification = next(rows, None)
            if notification is None:
                continue  # not on disk yet, or no longer
            size += len(notification.content)
            if found and size > bytes_max:
                break
            found.append(notification)
        return found

    def backlog(
        self,
        identity: str,
        names: Iterable[str] | None = None,
        rows_max: int = STATE_READ_ROWS_MAX,
        bytes_max: int = STATE_READ_BYTES_MAX,
    ) -> list[Notification]:
        """What waits for this identity in these topics (or all of its own), oldest first; at least one, if any."""
        return self.fitting(identity, Room(rows_max=rows_max, bytes_max=bytes_max), names).rows

    def fitting(self, identity: str, room: Room, names: Iterable[str] | None = None) -> Backlog:
        """The same, of those that fit an answer; and what is passed over because it fits none."""
        slices = self.fitting_slices(identity, room, names)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                found: Backlog = done.value
                return found

    def fitting_slices(
        self, identity: str, room: Room, names: Iterable[str] | None = None
    ) -> Generator[None, None, Backlog]:
        """The same, with others having their turns between two topics. It sees what is durable when it begins."""
        self._writer.fresh()
        wanted = None if names is None else set(names)
        with ExitStack() as stack:
            sources = []
            for topic in self._of_identity.get(identity, ()):
                subscription = topic.subscriptions.get(identity)
                if subscription is None or (wanted is not None and topic.name not in wanted):
                    continue
                if subscription.caught_up(topic.floor).cursor >= topic.head:
                    continue  # most are, and need not be read
                rows = stack.enter_context(closing(self._pending(topic, subscription, room.content_bytes_max)))
                first = next(rows, None)
                if first is not None:
                    sources.append(chain((first,), rows))
                yield
            return within(heapq.merge(*sources, key=lambda waiting: waiting.at_ms), room)

    def retained(self, name: str) -> Notification | None:
        """The last one published with `retain`, also when it was acked by all or has expired."""
        self._writer.fresh()
        topic = self._by_name.get(name)
        if topic is None:
            return None
        query = "SELECT position, at_ms, type, publisher, content FROM retained WHERE topic = ?"
        row = self._reader.row(query, (topic.number,))
        return None if row is None else Notification(id_of(self._epoch, topic.number, row[0]), name, *row)

    # Removing

    def sweep(self, now_ms: int, keep_ms: int, rows_max: int) -> Swept:
        """Remove one slice of what is acked by all or older than `keep_ms`, going round the topics."""
        self._writer.ready()
        swept = Swept(round_done=not self._by_number)
        for _ in range(min(STATE_SWEEP_TOPICS, len(self._by_number))):
            if swept.removed >= rows_max:
                break
            topic = self._by_number[self._sweep_next]
            if topic.floor < topic.head:
                self._sweep_topic(topic, now_ms, keep_ms, rows_max - swept.removed, swept)
            if swept.removed < rows_max:  # or there is more to do at this one
                self._sweep_next = (self._sweep_next + 1) % len(self._by_number)
                swept.round_done |= self._sweep_next == 0
        return swept

    def _sweep_topic(self, topic: Topic, now_ms: int, keep_ms: int, rows_max: int, swept: Swept) -> None:
        last = min(topic.head, topic.floor + rows_max)
        settled = topic.floor
        while settled < last and settled not in topic.standing:
            settled += 1
        floor = topic.floor if topic.is_stream else settled
        with closing(stretch.times(self._reader, topic.number, floor, last)) as rows:
            for end_key, at_ms in rows:
                if at_ms > now_ms:
                    continue  # of a clock that was ahead: it has expired when one that was published later has
                if at_ms > now_ms - keep_ms:
                    break
                floor = max(floor, min(end_key & POSITION_MAX, last))
        if floor == topic.floor:
            return
        if floor > settled:
            swept.expired.append(Expired(topic.name, settled + 1, floor))
        swept.removed += floor - topic.floor
        with self._writer.whole():
            last_key = key_of(topic.number, floor)
            self._writer.submit(stretch.REMOVE, (key_of(topic.number, 1), last_key, last_key))
            topic.rise(floor)
            self._write_topic(topic)

    # Inside

    def _make(self, name: str) -> Topic:
        check_name(name, "a topic")
        if len(self._by_number) >= STATE_TOPICS_MAX:
            raise FullError(f"there are {STATE_TOPICS_MAX} topics already")
        topic = Topic(len(self._by_number) + 1, name, 0, 0)
        self._enter(topic)
        self._write_topic(topic)
        return topic

    def _write_topic(self, topic: Topic) -> Commit:
        return self._writer.submit(_TOPIC, (topic.number, topic.name, topic.floor, topic.is_stream), key=topic.name)

    def _enter(self, topic: Topic) -> None:
        assert topic.number == len(self._by_number) + 1, "topics are numbered without gaps and never removed"  # noqa: S101
        self._by_name[topic.name] = topic
        self._by_number.append(topic)

    def _place(self, topic: Topic, identity: str, subscription: Subscription) -> None:
        topic.subscriptions[identity] = subscription
        topic.enter(subscription.cursor)
        self._of_identity[identity] = (*self._of_identity.get(identity, ()), topic)

    def _acked(self, identity: str, changed: dict[int, Subscription]) -> Commit:
        if any(len(subscription.acks) > 2 * STATE_ACK_RANGES_MAX for subscription in changed.values()):
            raise FullError(f"acks of {identity!r} leave more than {STATE_ACK_RANGES_MAX} gaps")
        for number, subscription in changed.items():
            topic = self._by_number[number - 1]
            before = topic.subscriptions[identity]
            if subscription is not before:
                topic.leave(before.cursor)
                topic.enter(subscription.cursor)
                topic.subscriptions[identity] = subscription
                self._write(topic, identity, subscription)
        return self._writer.barrier()

    def _write(self, topic: Topic, identity: str, subscription: Subscription) -> Commit:
        row = subscription.row(topic.number, identity)
        return self._writer.submit(_SUBSCRIBE, row, key=(topic.number, identity), content_bytes=len(row[-1]))

    def _pending(
        self, topic: Topic, subscription: Subscription, content_bytes_max: int | None
    ) -> Generator[Notification | TooLong, None, None]:
        """The gaps between runs of acks, so that what is acked is not even read."""
        current = subscription.caught_up(topic.floor)
        bounds = (current.cursor + 1, *current.acks, topic.head + 1)
        for first, end in zip(bounds[::2], bounds[1::2], strict=True):
            if content_bytes_max is None:
                yield from self._read(topic, first - 1, end - 1)
            else:
                yield from self._read_short(topic, first - 1, end - 1, content_bytes_max)

    def _read(self, topic: Topic, after: int, last: int) -> Generator[Notification, None, None]:
        with closing(stretch.read(self._reader, topic.number, max(after, topic.floor), last)) as rows:
            for row in rows:
                position = row[0] & POSITION_MAX
                yield Notification(id_of(self._epoch, topic.number, position), topic.name, position, *row[1:5])

    def _read_short(
        self, topic: Topic, after: int, last: int, content_bytes_max: int
    ) -> Generator[Notification | TooLong, None, None]:
        """Without the contents of those that are too long."""
        after = max(after, topic.floor)
        with closing(stretch.read(self._reader, topic.number, after, last, content_bytes_max)) as rows:
            for key, at_ms, kind, publisher, content, content_bytes in rows:
                position = key & POSITION_MAX
                id_ = id_of(self._epoch, topic.number, position)
                if content is None:
                    yield TooLong(id_, topic.name, position, at_ms, content_bytes)
                else:
                    yield Notification(id_, topic.name, position, at_ms, kind, publisher, content)
