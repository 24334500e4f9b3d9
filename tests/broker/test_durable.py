import asyncio
import threading
from typing import Any

import pytest

from broker.conftest import Records
from broker.peers import COMET, ESNP, MAGLINE, SEALED_COMET, UNSAYABLE, FakePeer
from wirelake.broker.delivery import Record
from wirelake.broker.topics_durable import DurableTopics
from wirelake.errors import BusyError, StorageError
from wirelake.limits import BROKER_CATCH_UP_ROWS, BROKER_IMPLICIT_ACK_TICK_S, BROKER_RUNS_PER_PAUSE
from wirelake.state.batch import Batch
from wirelake.state.store import StateStore

RESEND_S = 30.0
IMPLICIT_ACK_S = 20.0


@pytest.fixture
def released() -> list[bool]:
    """One entry for each call of `on_release`."""
    return []


@pytest.fixture
def topics(store: StateStore, record: Record, released: list[bool]) -> DurableTopics:
    return DurableTopics(
        store.topics,
        record,
        resend_s=RESEND_S,
        implicit_ack_s=IMPLICIT_ACK_S,
        on_release=lambda: released.append(True),
    )


def subscribe(topics: DurableTopics, peer: FakePeer, name: str = "@a") -> None:
    topics.topics.subscribe(peer.identity, name)
    topics.attach(peer, name)


def publish(topics: DurableTopics, *contents: bytes, name: str = "@a") -> list[str]:
    return [topics.publish(name, content, 1, 0, "erp")[0].id for content in contents]


async def decided(topics: DurableTopics) -> None:
    """The event loop has heard of what is on disk."""
    await topics.topics.ack("", [])  # nothing to do: durable when everything before is
    for _ in range(3):
        await asyncio.sleep(0)


async def flushed(topics: DurableTopics, now_s: float = 0.0) -> None:
    await decided(topics)
    while topics.waiting:
        topics.flush(now_s)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def test_one_write_for_what_was_released_together(
    topics: DurableTopics, records: Records, released: list[bool]
) -> None:
    one, other = FakePeer("1", COMET, "ann"), FakePeer("2", COMET, "bob")
    for peer in (one, other):
        subscribe(topics, peer)
    publish(topics, b"a", b"b", b"c")
    topics.flush(0.0)
    assert not one.told, "nothing is sent before it is durable"
    await decided(topics)
    assert released
    topics.flush(0.0)
    assert one.contents() == [b"a", b"b", b"c"]
    assert len(one.writes) == 1
    assert one.writes[0] is other.writes[0]
    assert topics.delivered == 6
    ((event, topic, to, note),) = records
    assert (event, topic, to) == ("deliver", "@a", b'[["1","ann","comet"],["2","bob","comet"]]')
    assert note == {"ids": topics.topics.id_prefix("@a"), "first": 1, "last": 3, "attempt": 1}


async def test_who_comes_between_release_and_flush_gets_it_once(topics: DurableTopics) -> None:
    fetching, other = FakePeer("1", COMET, "ann"), FakePeer("2", MAGLINE, "bob")
    for identity in ("ann", "bob"):
        topics.topics.subscribe(identity, "@a")
    publish(topics, b"old")
    await flushed(topics)
    publish(topics, b"new")
    await decided(topics)
    topics.attach(fetching, "@a")
    topics.attach(other, "@a")
    await flushed(topics)
    assert fetching.contents() == [b"new"], "it fetches what it missed"
    assert other.contents() == [b"old", b"new"]


async def test_a_slow_reader_catches_up_from_disk_in_slices(topics: DurableTopics) -> None:
    slow, fast = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "bob")
    for peer in (slow, fast):
        subscribe(topics, peer)
    slow.is_congested = True
    total = 2 * BROKER_CATCH_UP_ROWS + 10
    for first in range(1, total, 100):
        publish(topics, *numbers(first, min(first + 99, total)))
        await flushed(topics)
    assert fast.contents() == numbers(1, total)
    assert not slow.told
    assert topics.lag(slow) == {"@a": total}
    slow.is_congested = False
    topics.on_drain(slow)
    topics.flush(0.0)
    assert slow.contents() == numbers(1, BROKER_CATCH_UP_ROWS)
    assert len(slow.writes) == 1
    publish(topics, b"more")
    await flushed(topics)
    assert slow.contents() == [*numbers(1, total), b"more"]
    assert topics.lag(slow) == {"@a": 0}


async def test_what_was_acked_out_of_order_is_not_offered_again(topics: DurableTopics) -> None:
    peer = FakePeer("1", MAGLINE, "ann")
    subscribe(topics, peer)
    ids = publish(topics, *numbers(1, 6))
    await flushed(topics)
    topics.topics.ack("ann", [ids[1], ids[2], ids[4]])
    topics.leave(peer)
    again = FakePeer("2", MAGLINE, "ann")
    topics.attach(again, "@a")
    publish(topics, b"7")
    await flushed(topics)
    assert again.contents() == [b"1", b"4", b"6", b"7"]


def pending(topics: DurableTopics, identity: str = "ann") -> list[bytes]:
    return [notification.content for notification in topics.topics.backlog(identity)]


async def test_who_sends_something_after_the_bytes_drained_has_them(topics: DurableTopics, records: Records) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    publish(topics, b"a", b"b")
    await flushed(topics, 100.0)
    peer.bytes_in += 1  # on its way while we wrote: says nothing about what was written
    assert topics.due_s == 100.0 + BROKER_IMPLICIT_ACK_TICK_S
    topics.tick(101.0)
    topics.tick(102.0)
    assert pending(topics) == [b"a", b"b"]
    peer.bytes_in += 1
    topics.tick(103.0)
    assert pending(topics) == []
    acks = [note for event, _, _, note in records if event == "ack"]
    assert acks == [{"ids": topics.topics.id_prefix("@a"), "identity": "ann", "through": 2}]


async def test_who_stays_without_a_word_has_them_after_a_while(topics: DurableTopics) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    topics.tick(1.0)
    publish(topics, b"b")
    await flushed(topics, 10.0)
    topics.tick(10.0)
    topics.tick(IMPLICIT_ACK_S)
    assert pending(topics) == [b"a", b"b"]
    topics.tick(1.0 + IMPLICIT_ACK_S)
    assert pending(topics) == [b"b"]
    topics.tick(10.0 + IMPLICIT_ACK_S)
    assert pending(topics) == []


async def test_what_stays_in_our_buffers_is_never_acked(topics: DurableTopics) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    peer.stalled = True
    publish(topics, b"a")
    await flushed(topics, 0.0)
    for now_s in range(1, 1000):
        peer.bytes_in += 1
        topics.tick(float(now_s))
    assert pending(topics) == [b"a"]


async def test_a_steady_flow_is_acked_all_along(topics: DurableTopics) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    for second in range(100):
        publish(topics, b"%d" % second)
        await flushed(topics, float(second))
        topics.tick(second + 0.5)
        assert len(pending(topics)) <= IMPLICIT_ACK_S * (1 + 1 / BROKER_RUNS_PER_PAUSE) + 2
    assert topics.implicit_acks.runs <= BROKER_RUNS_PER_PAUSE + 2


@pytest.mark.parametrize("drained", [True, False])
async def test_who_goes_away_gets_it_again(topics: DurableTopics, *, drained: bool) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    peer.stalled = not drained
    publish(topics, b"a")
    await flushed(topics, 0.0)
    topics.tick(1.0)
    topics.leave(peer)
    publish(topics, b"b")
    await flushed(topics, 2.0)
    assert topics.due_s is None, "nobody is there whose acks could be waited for"
    again = FakePeer("2", ESNP, "ann")
    topics.attach(again, "@a")
    await flushed(topics, 3.0)
    assert again.contents() == [b"a", b"b"]


async def test_the_last_word_of_who_goes_away_counts(topics: DurableTopics) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    topics.tick(1.0)
    publish(topics, b"b")
    await flushed(topics, 1.0)
    peer.bytes_in += 1
    topics.leave(peer)
    assert pending(topics) == [b"b"], "nobody saw this one drain"


async def test_of_an_identitys_sessions_one_is_enough(topics: DurableTopics) -> None:
    fast, slow = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "ann")
    subscribe(topics, fast)
    subscribe(topics, slow)
    slow.is_congested = True
    publish(topics, *numbers(1, BROKER_CATCH_UP_ROWS + 5))
    await flushed(topics)
    slow.is_congested = False
    topics.on_drain(slow)
    topics.flush(0.0)
    topics.tick(1.0)
    fast.bytes_in += 1
    topics.tick(2.0)
    assert pending(topics) == [], "the ack of one counts for all"
    await flushed(topics)
    assert slow.contents() == fast.contents(), "and yet each session gets everything"


async def test_who_unsubscribes_acks_nothing_any_more(topics: DurableTopics, records: Records) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer, "@a")
    subscribe(topics, peer, "@b")
    publish(topics, b"a", name="@a")
    publish(topics, b"b", name="@b")
    await flushed(topics, 0.0)
    topics.tick(1.0)
    topics.topics.unsubscribe("ann", "@a")
    topics.on_unsubscribe("ann", "@a")
    peer.bytes_in += 1
    topics.tick(2.0)
    assert [topic for event, topic, _, _ in records if event == "ack"] == ["@b"]


async def test_only_so_many_peers_are_looked_at_in_one_tick(
    topics: DurableTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirelake.broker.implicit_acks.BROKER_IMPLICIT_ACK_PEERS", 3)
    peers = [FakePeer(str(number), ESNP, f"p{number}") for number in range(10)]
    for peer in peers:
        subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    for tick in range(1, 5):  # all have drained by then
        topics.tick(float(tick))
    for peer in peers:
        peer.bytes_in += 1
    topics.tick(5.0)
    assert sum(not pending(topics, peer.identity) for peer in peers) == 3
    for tick in range(6, 10):
        topics.tick(float(tick))
    assert not any(pending(topics, peer.identity) for peer in peers)


@pytest.mark.parametrize("habits", [COMET, SEALED_COMET, MAGLINE])
async def test_what_is_not_acked_is_sent_again(topics: DurableTopics, records: Records, habits: Any) -> None:
    peer = FakePeer("1", habits, "ann")
    subscribe(topics, peer)
    ids = publish(topics, *numbers(1, 5))
    await flushed(topics, 0.0)
    topics.topics.ack("ann", [ids[0], ids[2]])
    assert topics.due_s == RESEND_S
    topics.tick(RESEND_S - 0.1)
    assert len(peer.told) == 5
    topics.tick(RESEND_S)
    assert peer.contents()[5:] == [b"2", b"4", b"5"]
    assert topics.resent == 3
    again = [note for event, _, _, note in records if event == "deliver" and note["attempt"] == 2]
    assert [(note["first"], note["last"]) for note in again] == [(2, 2), (4, 5)]
    topics.topics.ack("ann", ids)
    topics.tick(2 * RESEND_S)
    assert len(peer.told) == 8
    assert topics.due_s is None


async def test_more_than_one_slice_is_sent_again_bit_by_bit(topics: DurableTopics) -> None:
    peer = FakePeer("1", COMET, "ann")
    subscribe(topics, peer)
    total = 3 * BROKER_CATCH_UP_ROWS - 1
    publish(topics, *numbers(1, total))
    await flushed(topics, 0.0)
    for ticks in (1, 2, 3):
        topics.tick(RESEND_S)
        assert len(peer.told) == total + min(ticks * BROKER_CATCH_UP_ROWS, total)
    assert peer.contents() == 2 * numbers(1, total)
    assert topics.due_s == 2 * RESEND_S


async def test_a_slow_reader_is_sent_it_again_once_it_reads(topics: DurableTopics) -> None:
    peer = FakePeer("1", COMET, "ann")
    subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    peer.is_congested = True
    topics.tick(RESEND_S)
    peer.is_congested = False
    topics.on_drain(peer)
    topics.tick(2 * RESEND_S)
    assert peer.contents() == [b"a", b"a"]


async def test_unsubscribing_holds_for_every_session_of_the_identity(topics: DurableTopics) -> None:
    one, other, bob = FakePeer("1", ESNP, "ann"), FakePeer("2", MAGLINE, "ann"), FakePeer("3", ESNP, "bob")
    for peer in (one, other, bob):
        subscribe(topics, peer)
    assert topics.sessions("ann", "@a") == 2
    topics.topics.unsubscribe("ann", "@a")
    topics.on_unsubscribe("ann", "@a")
    publish(topics, b"a")
    await flushed(topics)
    assert (one.told, other.told, bob.contents()) == ([], [], [b"a"])
    assert topics.sessions("ann", "@a") == 0
    topics.attach(one, "@a")
    assert topics.connected("@a") == 1, "who is not subscribed is not fed"


@pytest.mark.parametrize("habits", [COMET, SEALED_COMET, MAGLINE, ESNP])
async def test_what_a_protocol_cannot_carry_does_not_hold_up_the_rest(
    topics: DurableTopics, records: Records, habits: Any
) -> None:
    peer = FakePeer("1", habits, "ann")
    subscribe(topics, peer)
    publish(topics, b"a", UNSAYABLE, b"b")
    await flushed(topics)
    publish(topics, UNSAYABLE)
    await flushed(topics)
    publish(topics, b"c")
    await flushed(topics)
    assert peer.contents() == [b"a", b"b", b"c"]
    assert not topics.waiting
    noted = [(event, note["first"], note["last"]) for event, _, _, note in records if event != "ack"]
    assert noted == [
        ("deliver", 1, 1),
        ("deliver", 3, 3),
        ("unsayable", 2, 2),
        ("unsayable", 4, 4),
        ("deliver", 5, 5),
    ]
    topics.tick(RESEND_S + 1)
    again = [b"a", b"b", b"c"] if habits.sends_acks else []
    assert peer.contents() == [b"a", b"b", b"c", *again]
    assert sum(event == "unsayable" for event, *_ in records) == 2, "told once"


async def test_what_has_expired_is_passed_over(topics: DurableTopics, records: Records) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    peer.is_congested = True
    publish(topics, *numbers(1, 3))
    await flushed(topics)
    topics.topics.sweep(1_000_000, 1, 2)
    peer.is_congested = False
    topics.on_drain(peer)
    await flushed(topics)
    assert peer.contents() == [b"3"]
    assert [note["first"] for event, _, _, note in records if event == "deliver"] == [3]


async def test_a_failed_commit_is_told_to_nobody_and_its_positions_are_given_again(
    topics: DurableTopics, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, other = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "bob")
    subscribe(topics, peer)
    publish(topics, b"kept")
    await flushed(topics)
    execute = Batch.execute
    fail = threading.Event()

    def failing(*_: object) -> None:
        fail.wait(10)
        raise BusyError("no room")

    monkeypatch.setattr(Batch, "execute", failing)
    subscribe(topics, other)
    publish(topics, b"lost")
    waiting = asyncio.ensure_future(decided(topics))
    await asyncio.sleep(0)  # it waits for the batch that fails, not for what comes after
    fail.set()
    with pytest.raises(StorageError):
        await waiting
    for _ in range(3):
        await asyncio.sleep(0)
    assert topics.connected("@a") == 1, "bob's subscription is not there either"
    monkeypatch.setattr(Batch, "execute", execute)
    async with asyncio.timeout(10):
        while store.writer.error is not None:
            await asyncio.sleep(0.01)
    late = FakePeer("3", MAGLINE, "ann")
    topics.attach(late, "@a")
    publish(topics, b"after")
    await flushed(topics)
    assert peer.contents() == [b"kept", b"after"]
    assert late.contents() == [b"kept", b"after"], "the other session has not answered for the first"
    assert other.contents() == []


async def test_acks_wait_while_the_state_cannot_be_written(
    topics: DurableTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    topics.tick(1.0)
    peer.bytes_in += 1
    with monkeypatch.context() as trouble:
        trouble.setattr(topics.topics, "ack_through", _full)
        topics.tick(2.0)
    assert topics.due_s == 2.0 + BROKER_IMPLICIT_ACK_TICK_S
    topics.tick(3.0)
    assert topics.topics.backlog("ann") == []


async def test_a_peer_whose_backlog_cannot_be_read_is_let_go_alone(
    topics: DurableTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = FakePeer("1", COMET, "ann"), FakePeer("2", COMET, "bob")
    for peer in (slow, fast):
        subscribe(topics, peer)
    slow.is_congested = True
    publish(topics, b"a")
    await flushed(topics)
    slow.is_congested = False
    topics.on_drain(slow)
    monkeypatch.setattr(topics.topics, "read_after", _full)
    topics.flush(0.0)
    assert slow.ended is not None
    assert slow.ended.code == "storage"
    assert fast.ended is None


async def test_deliveries_go_on_while_the_log_has_no_room(store: StateStore) -> None:
    topics = DurableTopics(store.topics, _full)
    peer = FakePeer("1", ESNP, "ann")
    subscribe(topics, peer)
    publish(topics, b"a")
    await flushed(topics, 0.0)
    assert peer.contents() == [b"a"]
    assert topics.unrecorded == 1


def _full(*_: object) -> None:
    raise BusyError("no room")
