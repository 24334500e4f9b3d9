from collections.abc import Iterator

import pytest

from state.conftest import Reopen
from wirelake.errors import FullError, InputError
from wirelake.limits import STATE_ACK_RANGES_MAX, STATE_CONTENT_BYTES_MAX, STATE_RECENT_NOTIFICATIONS_MAX
from wirelake.state.notifications import StoredNotification
from wirelake.state.store import StateStore
from wirelake.state.subscriptions import DeliveryCounts

WAIT_S = 30
DAY_MS = 24 * 3600 * 1000


def publish(store: StateStore, topic: str, *contents: bytes, now_ms: int = 1) -> list[StoredNotification]:
    """Published and durable."""
    made = [store.topics.publish(topic, content, now_ms) for content in contents]
    store.barrier().wait(WAIT_S)
    return [notification for notification, _ in made]


def each_of(store: StateStore, reopen: Reopen) -> Iterator[StateStore]:
    """As it is in memory, then as it is on disk."""
    yield store
    yield reopen()


def waiting(store: StateStore, identity: str, *topics: str) -> list[bytes]:
    return [notification.content for notification in store.topics.backlog(identity, topics or None)]


def test_a_subscription_starts_at_the_end_and_waits_for_its_acks(store: StateStore) -> None:
    publish(store, "@news", b"before")
    store.topics.subscribe("ann", "@news")
    one, two, three = publish(store, "@news", b"1", b"2", b"3")
    assert waiting(store, "ann") == [b"1", b"2", b"3"]
    store.topics.ack("ann", [two.id])
    assert waiting(store, "ann") == [b"1", b"3"]
    store.topics.ack("ann", [one.id])
    assert waiting(store, "ann") == [b"3"]
    assert store.topics.delivery_counts("ann", "@news") == DeliveryCounts(acked=2, expired=0, pending=1)
    store.topics.ack("ann", [three.id, three.id])
    assert waiting(store, "ann") == []


def test_all_of_it_is_there_after_reopening(store: StateStore, reopen: Reopen) -> None:
    store.topics.subscribe("ann", "@news")
    first, second, third = publish(store, "@news", b"1", b"2", b"3")
    store.topics.ack("ann", [second.id]).wait(WAIT_S)
    store = reopen()
    assert store.topics.backlog("ann") == [first, third]
    assert store.topics.topics_of("ann") == ["@news"]
    assert list(store.topics.subscribers("@news")) == ["ann"]
    (fourth,) = publish(store, "@news", b"4")
    assert fourth.position == 4
    assert store.topics.find(first.id) == first


def test_acks_that_mean_nothing_are_fine(store: StateStore) -> None:
    (seen,) = publish(store, "@news", b"1")
    store.topics.subscribe("ann", "@news")
    epoch = seen.id.split("-")[0]
    strange = ["", "x", seen.id, f"{epoch}-1-9", f"{epoch}-9-1", f"{epoch}-0-1", f"{epoch}-1-0", f"{epoch}-1-+2"]
    publish(store, "@news", b"2")
    store.topics.ack("ann", [*strange, "00000000-1-2", f"{epoch}-1-02", f"{epoch}- 1-2"]).wait(WAIT_S)
    store.topics.ack("nobody", [seen.id]).wait(WAIT_S)
    assert waiting(store, "ann") == [b"2"]


def test_ids_of_two_databases_differ(store: StateStore, reopen: Reopen) -> None:
    (here,) = publish(store, "@news", b"1")
    store.close()
    for file in store.database.path.parent.glob("state.db*"):
        file.unlink()
    other = StateStore(store.database.path)
    (there,) = publish(other, "@news", b"1")
    other.close()
    reopen()
    assert here.id != there.id


def test_a_backlog_of_several_topics_is_oldest_first_and_bounded(store: StateStore) -> None:
    for topic in ("@a", "@b", "@c"):
        store.topics.subscribe("ann", topic)
    for now_ms, topic in enumerate(["@b", "@a", "@a", "@c", "@b"]):
        publish(store, topic, b"%d" % now_ms, now_ms=now_ms)
    assert waiting(store, "ann") == [b"0", b"1", b"2", b"3", b"4"]
    assert waiting(store, "ann", "@a", "@c", "@unknown") == [b"1", b"2", b"3"]
    assert [waiting.content for waiting in store.topics.backlog("ann", rows_max=2)] == [b"0", b"1"]
    assert [waiting.content for waiting in store.topics.backlog("ann", bytes_max=3)] == [b"0", b"1", b"2"]
    assert [waiting.content for waiting in store.topics.backlog("ann", bytes_max=0)] == [b"0"]


def test_reading_on_from_a_position_is_the_same_from_memory_and_disk(store: StateStore, reopen: Reopen) -> None:
    made = publish(store, "@news", *[b"%d" % number for number in range(STATE_RECENT_NOTIFICATIONS_MAX + 10)])
    from_disk = store.topics.read_after("@news", 0, rows_max=3)
    from_memory = store.topics.read_after("@news", 100, rows_max=3)
    assert from_disk == made[:3]
    assert from_memory == made[100:103]
    assert store.topics.read_after("@news", made[-1].position) == []
    assert reopen().topics.read_after("@news", 100, rows_max=3) == from_memory


def test_the_newest_come_first_from_memory_and_disk_and_within_bounds(store: StateStore, reopen: Reopen) -> None:
    publish(store, "@a", *[str(number).encode() for number in range(10)])
    for each in each_of(store, reopen):
        found = each.topics.read_newest("@a", 0, 4, 100)
        assert [row.content for row in found] == [b"9", b"8", b"7", b"6"]
        assert [row.position for row in each.topics.read_newest("@a", 8, 4, 100)] == [10, 9]
        assert len(each.topics.read_newest("@a", 0, 10, 3)) == 3
        assert len(each.topics.read_newest("@a", 0, 10, 0)) == 1, "at least one"
        assert each.topics.read_newest("@nobody", 0, 4, 100) == []


def test_what_is_not_durable_cannot_be_read(store: StateStore) -> None:
    store.topics.subscribe("ann", "@news")
    with store.writer.transaction():  # the writer cannot take up anything in here
        store.topics.publish("@news", b"1", 1)
        assert store.topics.head("@news") == 1
        assert store.topics.read_after("@news", 0) == []
        assert waiting(store, "ann") == []
    store.barrier().wait(WAIT_S)
    assert len(store.topics.read_after("@news", 0)) == 1


def test_ack_through_passes_everything_up_to_a_position(store: StateStore) -> None:
    store.topics.subscribe("ann", "@news")
    made = publish(store, "@news", b"1", b"2", b"3", b"4")
    store.topics.ack("ann", [made[2].id])
    store.topics.ack_through("ann", "@news", 2)
    assert waiting(store, "ann") == [b"4"]
    store.topics.ack_through("ann", "@news", 99)
    assert store.topics.delivery_counts("ann", "@news") == DeliveryCounts(acked=4, expired=0, pending=0)
    publish(store, "@news", b"5")
    assert waiting(store, "ann") == [b"5"]


def test_more_gaps_than_the_limit_are_refused_and_nothing_is_acked(store: StateStore) -> None:
    store.topics.subscribe("ann", "@news")
    made = publish(store, "@news", *[b"x"] * (2 * STATE_ACK_RANGES_MAX + 4))
    with pytest.raises(FullError, match="gaps"):
        store.topics.ack("ann", [notification.id for notification in made[1::2]])
    assert store.topics.delivery_counts("ann", "@news") == DeliveryCounts(acked=0, expired=0, pending=len(made))


def test_what_all_have_acked_is_removed_and_the_rest_is_not(store: StateStore, reopen: Reopen) -> None:
    for name in ("ann", "bob"):
        store.topics.subscribe(name, "@news")
    made = publish(store, "@news", b"1", b"2", b"3")
    store.topics.ack("ann", [notification.id for notification in made])
    store.topics.ack("bob", [made[0].id])
    assert store.topics.sweep(2, DAY_MS, 100).removed == 1
    store.barrier().wait(WAIT_S)
    assert store.topics.find(made[0].id) is None
    assert waiting(store, "bob") == [b"2", b"3"]
    store.topics.unsubscribe("bob", "@news")
    assert store.topics.sweep(2, DAY_MS, 100).removed == 2
    store = reopen()
    assert (store.topics.head("@news"), store.topics.floor("@news")) == (3, 3)
    assert publish(store, "@news", b"4")[0].position == 4


def test_expiry_runs_in_slices_and_is_told_and_counted(store: StateStore, reopen: Reopen) -> None:
    store.topics.subscribe("ann", "@news")
    old = publish(store, "@news", *[b"old"] * 25, now_ms=0)
    publish(store, "@news", b"new", now_ms=DAY_MS)
    store.topics.ack("ann", [old[3].id, old[24].id])
    slices = [store.topics.sweep(2 * DAY_MS - 1, DAY_MS, 10) for _ in range(4)]
    assert [swept.removed for swept in slices] == [10, 10, 5, 0]
    assert [(part.first, part.last) for swept in slices for part in swept.expired] == [(1, 10), (11, 20), (21, 25)]
    store.barrier().wait(WAIT_S)
    for current in each_of(store, reopen):
        assert waiting(current, "ann") == [b"new"]
        assert current.topics.delivery_counts("ann", "@news") == DeliveryCounts(acked=2, expired=23, pending=1)


def test_the_last_retained_value_outlives_its_notification(store: StateStore, reopen: Reopen) -> None:
    store.topics.publish("@news", b"1", 1, retain=True)
    kept, _ = store.topics.publish("@news", b"2", 2, retain=True, type=7, publisher="bob")
    publish(store, "@news", b"3")
    assert store.topics.sweep(5, DAY_MS, 100).removed == 3
    store = reopen()
    assert store.topics.retained("@news") == kept
    assert store.topics.retained("@other") is None
    assert store.topics.find(kept.id) is None


@pytest.mark.parametrize("topic", ["", "@" + "x" * 2000, "@\ud800", "@a\0b"])
def test_a_name_that_cannot_be_stored_is_refused_alone(store: StateStore, topic: str) -> None:
    with pytest.raises(InputError):
        store.topics.publish(topic, b"x", 1)
    with pytest.raises(InputError):
        store.topics.subscribe("ann", topic)
    publish(store, "@news", b"fine")


def test_content_and_type_have_bounds(store: StateStore) -> None:
    with pytest.raises(InputError, match="over the limit"):
        store.topics.publish("@news", bytes(STATE_CONTENT_BYTES_MAX + 1), 1)
    with pytest.raises(InputError, match="64 bits"):
        store.topics.publish("@news", b"", 1, type=2**63)
    assert store.topics.head("@news") == 0


def test_forgetting_an_identity_ends_its_subscriptions_only(store: StateStore, reopen: Reopen) -> None:
    for name in ("ann", "bob"):
        store.topics.subscribe(name, "@a")
        store.topics.subscribe(name, "@b")
    store.topics.unsubscribe_all("ann").wait(WAIT_S)
    for current in each_of(store, reopen):
        assert current.topics.topics_of("ann") == []
        assert current.topics.topics_of("bob") == ["@a", "@b"]
        assert list(current.topics.subscribers("@a")) == ["bob"]


def test_lag_is_that_of_the_slowest_subscriber(store: StateStore) -> None:
    topics = store.topics
    assert topics.lag("@t") == 0
    topics.subscribe("slow", "@t")
    for _ in range(3):
        topics.publish("@t", b"", 1)
    topics.subscribe("late", "@t")
    assert topics.lag("@t") == 3
    topics.ack_through("slow", "@t", 2)
    assert topics.lag("@t") == 1
    topics.unsubscribe("slow", "@t")
    assert topics.lag("@t") == 0


def test_who_acked_one_notification(store: StateStore) -> None:
    topics = store.topics
    topics.subscribe("a", "@t")
    ids = [topics.publish("@t", b"", 1)[0].id for _ in range(3)]
    topics.subscribe("late", "@t")
    topics.ack("a", [ids[0], ids[2]])
    assert [topics.is_acked("a", "@t", position) for position in (1, 2, 3)] == [True, False, True]
    assert topics.is_acked("late", "@t", 3) is None
    assert topics.is_acked("nobody", "@t", 1) is None
    assert topics.is_acked("a", "@other", 1) is None
