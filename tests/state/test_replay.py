"""What records of the log bring back, one kind at a time; `tests/gateway/test_stores.py` has all of them together."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from wirelake.state.database import Database
from wirelake.state.replay import LogReplay, ReplayReport
from wirelake.state.store import StateStore
from wirelake.state.subscriptions import DeliveryCounts

WAIT_S = 30


class Restorable:
    """A database with topic @a of number 1, at position 2, to which ann is subscribed from the beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        store = StateStore(path)
        store.topics.subscribe("ann", "@a")
        for content in (b"1", b"2"):
            store.topics.publish("@a", content, 1)
        store.barrier().wait(WAIT_S)
        self.epoch = str(store.database.meta("epoch"))
        store.close()

    def publish(self, topic: str, number: int, position: int, content: str = "", **more: Any) -> tuple[Any, ...]:
        note = {
            "topic": topic,
            "id": f"{self.epoch}-{number:x}-{position:x}",
            "position": position,
            "type": 0,
            "by": "",
        }
        return "publish", note | more, (content or str(position)).encode()

    def ids(self, number: int) -> str:
        return f"{self.epoch}-{number:x}-"

    def restore(self, *records: tuple[Any, ...], new_ids: bool = False) -> ReplayReport:
        database = Database(self.path)
        try:
            database.write_connection.execute("BEGIN IMMEDIATE")
            restoring = LogReplay(database.write_connection, self.epoch, new_ids=new_ids)
            for event, note, *content in records:
                restoring.apply(event, note, content[0] if content else b"", 5)
            restored = restoring.finish()
            database.write_connection.execute("COMMIT")
        finally:
            database.close()
        return restored

    def waiting(self, identity: str = "ann") -> list[tuple[str, int, bytes]]:
        store = StateStore(self.path)
        try:
            return [(row.topic, row.position, row.content) for row in store.topics.backlog(identity)]
        finally:
            store.close()

    def deliveries(self, identity: str, topic: str) -> DeliveryCounts | None:
        store = StateStore(self.path)
        try:
            return store.topics.delivery_counts(identity, topic)
        finally:
            store.close()


@pytest.fixture
def place(tmp_path: Path) -> Restorable:
    return Restorable(tmp_path / "state.db")


def test_what_is_there_already_is_left_alone(place: Restorable) -> None:
    found = place.restore(place.publish("@a", 1, 1, "other"), place.publish("@a", 1, 2, "other"))
    assert found == ReplayReport()
    assert place.waiting() == [("@a", 1, b"1"), ("@a", 2, b"2")]


def test_a_position_that_was_given_twice_belongs_to_its_last_publication(place: Restorable) -> None:
    records = [place.publish("@a", 1, position) for position in (3, 4, 5)]
    found = place.restore(*records, place.publish("@a", 1, 3, "again"), place.publish("@a", 1, 4, "more"))
    assert found.publications == 2
    assert place.waiting()[2:] == [("@a", 3, b"again"), ("@a", 4, b"more")]


def test_positions_of_which_no_record_tells_keep_nobody_waiting(place: Restorable) -> None:
    found = place.restore(place.publish("@a", 1, 6))
    assert (found.publications, found.missing) == (1, 3)
    assert [position for _, position, _ in place.waiting()] == [1, 2, 6]
    assert place.deliveries("ann", "@a") == DeliveryCounts(acked=3, expired=0, pending=3)


def test_acks_by_id_and_by_position(place: Restorable) -> None:
    ids = place.ids(1)
    place.restore(place.publish("@a", 1, 3), ("ack", {"identity": "ann", "acked": [f"{ids}3", "nonsense", "a-b-zz"]}))
    assert [position for _, position, _ in place.waiting()] == [1, 2]
    through = {"identity": "ann", "topic": "@a", "ids": ids, "through": 1}
    found = place.restore(("ack", through), ("ack", {"identity": "bob", "acked": [f"{ids}2"]}))
    assert found.acks == 1
    assert [position for _, position, _ in place.waiting()] == [2]


def test_what_expired_is_gone(place: Restorable) -> None:
    found = place.restore(place.publish("@a", 1, 3), ("expire", {"topic": "@a", "first": 1, "last": 2}))
    assert found.expired == 2
    assert [position for _, position, _ in place.waiting()] == [3]
    assert place.deliveries("ann", "@a") == DeliveryCounts(acked=0, expired=2, pending=1)
    assert place.restore(place.publish("@a", 1, 2)) == ReplayReport()


def test_a_topic_and_its_subscribers_come_back_under_the_same_number(place: Restorable) -> None:
    subscribe = {"topic": "@b", "identity": "bob", "ids": place.ids(2), "start": 0}
    gone = {"topic": "@a", "identity": "ann"}
    place.restore(("subscribe", subscribe), place.publish("@b", 2, 1), ("unsubscribe", gone))
    assert place.waiting("bob") == [("@b", 1, b"1")]
    assert place.waiting("ann") == []


def test_a_last_value_comes_back(place: Restorable) -> None:
    place.restore(place.publish("@a", 1, 3, "kept", retain=True), place.publish("@a", 1, 4))
    store = StateStore(place.path)
    retained = store.topics.retained("@a")
    store.close()
    assert retained is not None
    assert (retained.position, retained.content) == (3, b"kept")


def test_a_topic_with_another_number_is_restored_only_under_new_ids(place: Restorable) -> None:
    found = place.restore(place.publish("@c", 3, 1))
    assert (found.unplaced, found.publications) == (1, 0)
    subscribe = {"topic": "@c", "identity": "ann", "ids": place.ids(3), "start": 0}
    found = place.restore(("subscribe", subscribe), place.publish("@c", 3, 1), new_ids=True)
    assert found.publications == 1
    assert ("@c", 1, b"1") in place.waiting()


def test_nothing_is_kept_of_a_restoration_that_is_given_up(place: Restorable) -> None:
    database = Database(place.path)
    database.write_connection.execute("BEGIN IMMEDIATE")
    restoring = LogReplay(database.write_connection, place.epoch)
    event, note, content = place.publish("@a", 1, 3)
    restoring.apply(event, note, content, 5)
    restoring.finish()
    database.close()
    with sqlite3.connect(place.path) as looking:
        assert looking.execute("SELECT count(*) FROM notifications").fetchone() == (2,)
