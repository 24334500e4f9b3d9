"""Bring back from the log's records what the database lacks of topics: publications, subscriptions, acks, expiries.

Records are applied in the log's order, from a point on before which all are in the database. Those that are in it
already change nothing, so an earlier point is as good as the exact one. A position that was given twice (a batch had
failed, and memory went back to what was on disk) belongs to its last publication.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field

from wirelake.state import acks, stretch
from wirelake.state.notification import POSITION_MAX, id_of, key_of
from wirelake.state.subscription import Subscription

EVENTS: Final = ("publish", "subscribe", "unsubscribe", "ack", "expire")
_ROWS_HELD_MAX: Final = 1000  # publications that wait for one step of SQLite

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


class _Topic(Struct, eq=False):
    number: int
    name: str
    head: int
    floor: int
    found: int  # the head as it was found: what is up to here was not lost
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


class Restored(Struct):
    """What was missing, and is there again."""

    publications: int = 0
    subscriptions: int = 0  # made or ended
    acks: int = 0  # positions
    expired: int = 0  # positions
    unplaced: int = 0  # records of topics that have other numbers here: their ids would change
    missing: int = 0  # positions that were given, and of which no record tells


class Restoring:
    """Within a transaction of the caller's: `apply` the records, then `finish`.

    `new_ids`: notifications will have other ids than before, so that topics may have other numbers too.
    """

    def __init__(self, connection: sqlite3.Connection, epoch: str, *, new_ids: bool = False) -> None:
        self._connection = connection
        self._epoch = epoch
        self._new_ids = new_ids
        self._by_name: dict[str, _Topic] = {}
        self._by_ids: dict[str, _Topic] = {}  # by what the ids of its notifications begin with
        self._rows: list[tuple[int, int, int, str, bytes]] = []
        self._changed: set[tuple[str, str]] = set()  # (topic, identity)
        self._dirty: set[str] = set()
        self.restored = Restored()
        query = f"SELECT number, name, floor, ({stretch.LAST}) FROM topics ORDER BY number"  # noqa: S608 all ours
        numbered: dict[int, _Topic] = {}
        for number, name, floor, key in connection.execute(query):
            head = max(floor, (key or 0) & POSITION_MAX)
            numbered[number] = self._enter(_Topic(number, name, head, floor, head))
        for number, identity, *rest, packed in connection.execute(
            "SELECT topic, identity, start, cursor, expired, acks FROM subscriptions"
        ):
            start, cursor, expired = rest
            numbered[number].subscriptions[identity] = Subscription(start, cursor, expired, acks.unpack(packed, cursor))

    def apply(self, event: str, note: dict[str, Any], content: bytes, at_ms: int) -> None:
        """One record of the log."""
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

    def finish(self) -> Restored:
        """Write what is still held."""
        self._write_rows()
        for name in self._dirty:
            topic = self._by_name[name]
            self._connection.execute(_TOPIC, (topic.number, name, topic.floor))
        for name, identity in self._changed:
            topic = self._by_name[name]
            subscription = topic.subscriptions.get(identity)
            place = (topic.number, identity)
            self._connection.execute("DELETE FROM subscriptions WHERE topic = ? AND identity = ?", place)
            if subscription is not None:
                row = subscription.row(*place)
                self._connection.execute("INSERT INTO subscriptions VALUES (?,?,?,?,?,?)", row)
        return self.restored

    def _publish(self, note: dict[str, Any], content: bytes, at_ms: int) -> None:
        position = note["position"]
        topic = self._topic(note["topic"], note["id"][: note["id"].rfind("-") + 1], position - 1)
        if topic is None or position <= max(topic.found, topic.floor):
            return
        key = key_of(topic.number, position)
        if position <= topic.head:
            self._write_rows()
            self._connection.execute(
                "DELETE FROM notifications WHERE key BETWEEN ? AND ?", (key, key_of(topic.number, topic.head))
            )
            self.restored.publications -= topic.head - position + 1
        elif position > topic.head + 1:  # given out, but not to be found: nobody waits for these
            self.restored.missing += position - 1 - topic.head
            self._settle(topic, topic.head + 1, position - 1)
        topic.head = position
        self._rows.append((key, at_ms, note["type"], note["by"], content))
        if len(self._rows) >= _ROWS_HELD_MAX:
            self._write_rows()
        if note.get("retain"):
            self._connection.execute(_RETAIN, (topic.number, position, at_ms, note["type"], note["by"], content))
        self.restored.publications += 1

    def _subscribe(self, note: dict[str, Any]) -> None:
        identity, start = note["identity"], note["start"]
        topic = self._topic(note["topic"], note["ids"], start)
        if topic is None or identity in topic.subscriptions:
            return
        start = min(start, topic.head)
        self._set(topic, identity, Subscription(start, start))
        self.restored.subscriptions += 1

    def _unsubscribe(self, note: dict[str, Any]) -> None:
        topic = self._by_name.get(note["topic"])
        if topic is not None and topic.subscriptions.pop(note["identity"], None) is not None:
            self._changed.add((topic.name, note["identity"]))
            self.restored.subscriptions += 1

    def _ack(self, note: dict[str, Any]) -> None:
        identity = note["identity"]
        if "through" in note:
            topic = self._by_ids.get(note["ids"])
            if topic is not None:
                self._acked(topic, identity, 1, note["through"])
            return
        for ids, first, last in _runs(note["acked"]):
            topic = self._by_ids.get(ids)
            if topic is not None:
                self._acked(topic, identity, first, last)

    def _acked(self, topic: _Topic, identity: str, first: int, last: int) -> None:
        before = topic.subscriptions.get(identity)
        if before is None:
            return
        current = before.caught_up(topic.floor)
        first, last = max(first, current.cursor + 1), min(last, topic.head)
        if first > last:
            return
        after = current.acked(first, last)
        acked = after.deliveries(topic.head).acked - current.deliveries(topic.head).acked
        if acked:
            self.restored.acks += acked
            self._set(topic, identity, after)

    def _expire(self, note: dict[str, Any]) -> None:
        topic = self._by_name.get(note["topic"])
        last = note["last"]
        if topic is None or last <= topic.floor:
            return
        self._write_rows()
        self.restored.expired += last - topic.floor
        topic.floor = last
        topic.head = max(topic.head, last)
        last_key = key_of(topic.number, last)
        self._connection.execute(stretch.REMOVE.sql, (key_of(topic.number, 1), last_key, last_key))
        self._dirty.add(topic.name)

    def _topic(self, name: str, ids: str, head: int) -> _Topic | None:
        """The topic of that name, made if need be; None where its notifications would have other ids, and may not."""
        topic = self._by_name.get(name)
        new = topic is None
        if topic is None:
            topic = _Topic(len(self._by_name) + 1, name, head, head, 0)
        if ids.startswith(f"{self._epoch}-") and ids != id_of(self._epoch, topic.number, 0)[:-1]:
            self.restored.unplaced += 1
            if not self._new_ids:
                return None
        if new:
            self._enter(topic)
            self._dirty.add(name)
        self._by_ids[ids] = topic
        return topic

    def _enter(self, topic: _Topic) -> _Topic:
        self._by_name[topic.name] = topic
        self._by_ids[id_of(self._epoch, topic.number, 0)[:-1]] = topic
        return topic

    def _settle(self, topic: _Topic, first: int, last: int) -> None:
        for identity, subscription in list(topic.subscriptions.items()):
            self._set(topic, identity, subscription.caught_up(topic.floor).acked(first, last))

    def _set(self, topic: _Topic, identity: str, subscription: Subscription) -> None:
        topic.subscriptions[identity] = subscription
        self._changed.add((topic.name, identity))

    def _write_rows(self) -> None:
        self._connection.executemany(_PUBLISH, self._rows)
        self._rows.clear()


def _runs(ids: list[str]) -> Iterator[tuple[str, int, int]]:
    """What ids begin with, first and last position, of ids that follow each other; what is no id is left out."""
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
