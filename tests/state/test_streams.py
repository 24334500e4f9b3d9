"""Durable topics that are kept as streams: what all subscribers acked stays, until it expires."""

from pathlib import Path

from wirelake.state.store import StateStore

WAIT_S = 30
KEEP_MS = 1000


def contents(store: StateStore, name: str) -> list[bytes]:
    return [each.content for each in store.topics.read_after(name, store.topics.floor(name))]


def test_a_stream_keeps_what_everyone_acked_until_it_expires(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    topics = store.topics
    for name in ("@plain", "@stream"):
        topics.subscribe("ann", name)
    topics.make_stream("@stream")
    for name in ("@plain", "@stream"):
        for number in range(3):
            topics.publish(name, b"%d" % number, 100 * number)
        topics.ack_through("ann", name, 3)
    store.barrier().wait(WAIT_S)
    topics.sweep(1000, KEEP_MS, 500)
    assert (topics.floor("@plain"), topics.floor("@stream")) == (3, 1)
    swept = topics.sweep(1150, KEEP_MS, 500)
    assert topics.floor("@stream") == 2
    assert not swept.expired, "it was acked: nobody missed anything"
    store.barrier().wait(WAIT_S)
    assert contents(store, "@stream") == [b"2"]
    store.close()


def test_what_was_not_acked_when_it_expired_is_told(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.topics.make_stream("@stream")
    store.topics.subscribe("ann", "@stream")
    for number in range(4):
        store.topics.publish("@stream", b"%d" % number, 0)
    store.topics.ack_through("ann", "@stream", 2)
    store.barrier().wait(WAIT_S)
    (expired,) = store.topics.sweep(2000, KEEP_MS, 500).expired
    assert (expired.first, expired.last) == (3, 4)
    store.close()


def test_a_stream_stays_one_over_restarts_and_without_subscribers(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.topics.make_stream("@stream")
    store.topics.publish("@stream", b"one", 0)
    store.close()
    store = StateStore(tmp_path / "state.db")
    store.topics.sweep(500, KEEP_MS, 500)
    store.barrier().wait(WAIT_S)
    assert contents(store, "@stream") == [b"one"]
    store.close()
