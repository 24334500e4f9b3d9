"""Restore from the log what the database lacks of topics: publications, subscriptions, acks and expiries.

Records are applied in the order of the log, starting at a point before which all are in the database. Those that are in
it already change nothing, so an earlier start is as good as the exact one. A position that was used twice (because a
batch failed, and memory went back to what was on disk) belongs to its last publication.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field

from wirelake.state.notification_rows import DELETE_ROWS, LAST_KEY
from wirelake.state.notifications import POSITION_MAX, notification_id, notification_key
from wirelake.state.subscriptions import Subscription, unpack_acks

REPLAYED_EVENTS: Final = ("publish", "subscribe", "unsubscribe", "ack", "expire")
_ROWS_BUFFERED_MAX: Final = 1000  # publications that are inserted together

_PUBLISH: Final = (
    "INSERT OR REPLACE INTO notifications (key, at_ms, type, publisher, content, sizes) VALUES (?,?,?,?,?,NULL)"
)
_TOPIC: Final = (
    "INSERT INTO topics (number, name, floor) VALUES (?,?,?) ON CONFLICT (number) DO UPDATE SET floor = excluded.floor"
)
_RETAIN: Final = (
    "INSERT INTO retained (topic, position, at_ms, type, publisher, content) VALUES (?,?,?,?,?,?) ON CONFLICT (topic)"
    " DO UPDATE SET position = excluded.position, at_ms = excluded.at_ms, type = excluded.type,"
    " publisher = excluded.publisher, content = excluded.content WHERE excluded.position >= position"
)


class _ReplayedTopic(Struct, eq=False):
    number: int
    name: str
    head: int
    floor: int
    initial_head: int  # what is up to here was not lost
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


class ReplayReport(Struct):
    """Count what was missing and has been restored."""

    publications: int = 0
    subscriptions: int = 0  # started or ended
    acks: int = 0  # positions
    expired: int = 0  # positions
    unplaced: int = 0  # records of topics that have other numbers here: their ids would change
    missing: int = 0  # positions that were in use, but have no record


class LogReplay:
    """Replay records in a transaction of the caller: `apply` each of them, then `finish`.

    With `new_ids`, notifications get other ids than before, so that topics may have other numbers too.
    """

    def __init__(self, connection: sqlite3.Connection, epoch: str, *, new_ids: bool = False) -> None:
        self._connection = connection
        self._epoch = epoch
        self._new_ids = new_ids
        self._by_name: dict[str, _ReplayedTopic] = {}
        self._by_id_prefix: dict[str, _ReplayedTopic] = {}  # by the prefix of the ids of its notifications
        self._buffered: list[tuple[int, int, int, str, bytes]] = []
        self._changed_subscriptions: set[tuple[str, str]] = set()  # (topic, identity)
        self._changed_topics: set[str] = set()
        self.report = ReplayReport()
        query = f"SELECT number, name, floor, ({LAST_KEY}) FROM topics ORDER BY number"  # noqa: S608 all ours
        by_number: dict[int, _ReplayedTopic] = {}
        for number, name, floor, key in connection.execute(query):
            head = max(floor, (key or 0) & POSITION_MAX)
            by_number[number] = self._add(_ReplayedTopic(number, name, head, floor, head))
        for number, identity, *rest, packed in connection.execute(
            "SELECT topic, identity, start, cursor, expired, acks FROM subscriptions"
        ):
            start, cursor, expired = rest
            by_number[number].subscriptions[identity] = Subscription(
                start, cursor, expired, unpack_acks(packed, cursor)
            )

    def apply(self, event: str, note: dict[str, Any], content: bytes, at_ms: int) -> None:
        """Apply one record of the log."""
        match event:
            case "publish":
                self._publish(note, content, at_ms)
            case "subscribe":
                self._subscribe(note)
            case "unsubscribe":
                self._unsubscribe(note)
            case "ack":
                self._ack(note)
            case "expire":
                self._expire(note)

    def finish(self) -> ReplayReport:
        """Write what is still buffered."""
        self._write_rows()
        for name in self._changed_topics:
            topic = self._by_name[name]
            self._connection.execute(_TOPIC, (topic.number, name, topic.floor))
        for name, identity in self._changed_subscriptions:
            topic = self._by_name[name]
            subscription = topic.subscriptions.get(identity)
            key = (topic.number, identity)
            self._connection.execute("DELETE FROM subscriptions WHERE topic = ? AND identity = ?", key)
            if subscription is not None:
                row = subscription.to_row(*key)
                self._connection.execute("INSERT INTO subscriptions VALUES (?,?,?,?,?,?)", row)
        return self.report

    def _publish(self, note: dict[str, Any], content: bytes, at_ms: int) -> None:
        position = note["position"]
        topic = self._topic(note["topic"], note["id"][: note["id"].rfind("-") + 1], position - 1)
        if topic is None or position <= max(topic.initial_head, topic.floor):
            return
        key = notification_key(topic.number, position)
        if position <= topic.head:
            self._write_rows()
            self._connection.execute(
                "DELETE FROM notifications WHERE key BETWEEN ? AND ?", (key, notification_key(topic.number, topic.head))
            )
            self.report.publications -= topic.head - position + 1
        elif position > topic.head + 1:  # in use, but lost: nobody waits for these
            self.report.missing += position - 1 - topic.head
            self._skip_missing(topic, topic.head + 1, position - 1)
        topic.head = position
        self._buffered.append((key, at_ms, note["type"], note["by"], content))
        if len(self._buffered) >= _ROWS_BUFFERED_MAX:
            self._write_rows()
        if note.get("retain"):
            self._connection.execute(_RETAIN, (topic.number, position, at_ms, note["type"], note["by"], content))
        self.report.publications += 1

    def _subscribe(self, note: dict[str, Any]) -> None:
        identity, start = note["identity"], note["start"]
        topic = self._topic(note["topic"], note["ids"], start)
        if topic is None or identity in topic.subscriptions:
            return
        start = min(start, topic.head)
        self._set(topic, identity, Subscription(start, start))
        self.report.subscriptions += 1

    def _unsubscribe(self, note: dict[str, Any]) -> None:
        topic = self._by_name.get(note["topic"])
        if topic is not None and topic.subscriptions.pop(note["identity"], None) is not None:
            self._changed_subscriptions.add((topic.name, note["identity"]))
            self.report.subscriptions += 1

    def _ack(self, note: dict[str, Any]) -> None:
        identity = note["identity"]
        if "through" in note:
            topic = self._by_id_prefix.get(note["ids"])
            if topic is not None:
                self._apply_ack(topic, identity, 1, note["through"])
            return
        for ids, first, last in _id_runs(note["acked"]):
            topic = self._by_id_prefix.get(ids)
            if topic is not None:
                self._apply_ack(topic, identity, first, last)

    def _apply_ack(self, topic: _ReplayedTopic, identity: str, first: int, last: int) -> None:
        before = topic.subscriptions.get(identity)
        if before is None:
            return
        current = before.catch_up(topic.floor)
        first, last = max(first, current.cursor + 1), min(last, topic.head)
        if first > last:
            return
        after = current.ack(first, last)
        acked = after.delivery_counts(topic.head).acked - current.delivery_counts(topic.head).acked
        if acked:
            self.report.acks += acked
            self._set(topic, identity, after)

    def _expire(self, note: dict[str, Any]) -> None:
        topic = self._by_name.get(note["topic"])
        last = note["last"]
        if topic is None or last <= topic.floor:
            return
        self._write_rows()
        self.report.expired += last - topic.floor
        topic.floor = last
        topic.head = max(topic.head, last)
        last_key = notification_key(topic.number, last)
        self._connection.execute(DELETE_ROWS.sql, (notification_key(topic.number, 1), last_key, last_key))
        self._changed_topics.add(topic.name)

    def _topic(self, name: str, ids: str, head: int) -> _ReplayedTopic | None:
        """Return the topic, created if needed; None if its notifications would get other ids, but must not."""
        topic = self._by_name.get(name)
        is_new = topic is None
        if topic is None:
            topic = _ReplayedTopic(len(self._by_name) + 1, name, head, head, 0)
        if ids.startswith(f"{self._epoch}-") and ids != notification_id(self._epoch, topic.number, 0)[:-1]:
            self.report.unplaced += 1
            if not self._new_ids:
                return None
        if is_new:
            self._add(topic)
            self._changed_topics.add(name)
        self._by_id_prefix[ids] = topic
        return topic

    def _add(self, topic: _ReplayedTopic) -> _ReplayedTopic:
        self._by_name[topic.name] = topic
        self._by_id_prefix[notification_id(self._epoch, topic.number, 0)[:-1]] = topic
        return topic

    def _skip_missing(self, topic: _ReplayedTopic, first: int, last: int) -> None:
        for identity, subscription in list(topic.subscriptions.items()):
            self._set(topic, identity, subscription.catch_up(topic.floor).ack(first, last))

    def _set(self, topic: _ReplayedTopic, identity: str, subscription: Subscription) -> None:
        topic.subscriptions[identity] = subscription
        self._changed_subscriptions.add((topic.name, identity))

    def _write_rows(self) -> None:
        self._connection.executemany(_PUBLISH, self._buffered)
        self._buffered.clear()


def _id_runs(ids: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield prefix, first and last position of runs of consecutive ids; skip what is not an id."""
    prefix, first, last = "", 0, 0
    for text in ids:
        head, dash, tail = text.rpartition("-")
        try:
            position = int(tail, 16)
        except ValueError:
            continue
        if head + dash == prefix and position == last + 1:
            last = position
            continue
        if prefix:
            yield prefix, first, last
        prefix, first, last = head + dash, position, position
    if prefix:
        yield prefix, first, last
