import pytest

from broker.peers import COMET, REDIS, SEALED_COMET, UNSAYABLE, FakePeer, Told, notification
from wirelake.broker.delivery import SlowConsumers
from wirelake.broker.topics_live import LiveTopics
from wirelake.errors import FullError
from wirelake.limits import BROKER_MISSED_TOPICS_MAX, BROKER_PATTERNS_PER_PEER_MAX, BROKER_TURN_NOTIFICATIONS_MAX


def publish(live: LiveTopics, name: str, content: bytes) -> int:
    return live.publish(name, notification(name, content))


def test_one_write_for_all_of_a_turn_and_the_same_bytes_for_an_audience() -> None:
    live = LiveTopics()
    one, other, sealed = FakePeer("1", REDIS), FakePeer("2", REDIS), FakePeer("3", SEALED_COMET)
    for peer in (one, other, sealed):
        live.subscribe(peer, "x")
    assert [publish(live, "x", content) for content in (b"a", b"b", b"c")] == [3, 3, 3]
    assert not one.writes
    live.flush()
    assert one.contents() == other.contents() == sealed.contents() == [b"a", b"b", b"c"]
    assert len(one.writes) == 1
    assert one.writes[0] is other.writes[0]
    assert live.delivered == 9
    assert not live.waiting


def test_only_those_subscribed_when_it_is_published_get_it() -> None:
    live = LiveTopics()
    early, late, gone = FakePeer("1", REDIS), FakePeer("2", REDIS), FakePeer("3", REDIS)
    live.subscribe(early, "x")
    live.subscribe(gone, "x")
    publish(live, "x", b"first")
    live.leave(gone)
    live.subscribe(late, "x")
    live.unsubscribe(early, "x")
    publish(live, "x", b"second")
    live.flush()
    assert early.contents() == [b"first"]
    assert late.contents() == [b"second"]
    assert gone.contents() == []


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("y.*", "y.1", True),
        ("y.*", "x.y.1", False),
        ("h?llo", "hello", True),
        ("h[^e]llo", "hello", False),
        ("h[^e]llo", "hallo", True),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("*", "ünïcode", True),
    ],
)
def test_patterns_are_those_of_redis(glob: str, name: str, matches: bool) -> None:
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    live.subscribe_pattern(peer, glob)
    assert publish(live, name, b"v") == matches
    live.flush()
    assert peer.told == ([Told(name, "", b"v", glob)] if matches else [])
    live.unsubscribe_pattern(peer, glob)
    assert publish(live, name, b"v") == 0


def test_a_name_and_a_pattern_each_bring_their_own() -> None:
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    live.subscribe(peer, "y.1")
    live.subscribe(peer, "y.1")
    live.subscribe_pattern(peer, "y.*")
    assert publish(live, "y.1", b"v") == 2
    live.flush()
    assert sorted(told.pattern for told in peer.told) == ["", "y.*"]


def test_the_bytes_are_those_of_the_form_agreed_on_last() -> None:
    live, peer = LiveTopics(), FakePeer("1", COMET)
    live.subscribe(peer, "x")
    peer.encoding_key = None
    publish(live, "x", b"a")
    publish(live, "x", b"b")
    live.flush()
    assert len(peer.writes) == 2, "each is sealed for this peer"


def test_a_slow_reader_is_cut_off_once_and_the_others_are_not_disturbed() -> None:
    live = LiveTopics()
    slow, fast = FakePeer("1", REDIS), FakePeer("2", REDIS)
    for name in ("x", "y"):
        live.subscribe(slow, name)
        live.subscribe(fast, name)
    slow.is_congested = True
    publish(live, "x", b"a")
    publish(live, "y", b"b")
    live.flush()
    assert slow.ended is not None
    assert slow.ended.code == "slow_consumer"
    assert live.cut == 1
    assert fast.contents() == [b"a", b"b"]
    assert live.names() == {"x": 1, "y": 1}


def test_a_slow_reader_gets_the_newest_of_each_name_later() -> None:
    live, peer = LiveTopics(slow_consumers=SlowConsumers(conflate=True)), FakePeer("1", REDIS)
    for name in ("x", "y", "z"):
        live.subscribe(peer, name)
    peer.is_congested = True
    for name, content in (("x", b"1"), ("y", b"2"), ("z", b"3"), ("x", b"4")):
        publish(live, name, content)
        live.flush()
    live.unsubscribe(peer, "z")
    assert peer.told == []
    peer.is_congested = False
    live.on_drain(peer)
    assert peer.contents() == [b"2", b"4"]
    assert live.conflated == 1
    live.on_drain(peer)
    assert len(peer.told) == 2


def test_a_pattern_does_not_keep_any_number_of_names_for_a_slow_reader() -> None:
    live, peer = LiveTopics(slow_consumers=SlowConsumers(conflate=True)), FakePeer("1", REDIS)
    live.subscribe_pattern(peer, "*")
    peer.is_congested = True
    for number in range(BROKER_MISSED_TOPICS_MAX + 10):
        publish(live, f"n{number}", b"%d" % number)
    live.flush()
    peer.is_congested = False
    live.on_drain(peer)
    assert len(peer.told) == BROKER_MISSED_TOPICS_MAX
    assert peer.contents()[-1] == b"%d" % (BROKER_MISSED_TOPICS_MAX + 9)


def test_too_much_in_one_turn_is_written_before_its_end() -> None:
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    live.subscribe(peer, "x")
    for number in range(BROKER_TURN_NOTIFICATIONS_MAX + 1):
        publish(live, "x", b"%d" % number)
    assert len(peer.writes) == 1
    live.flush()
    assert peer.contents() == [b"%d" % number for number in range(BROKER_TURN_NOTIFICATIONS_MAX + 1)]


@pytest.mark.parametrize("habits", [REDIS, SEALED_COMET])
def test_what_a_protocol_cannot_carry_does_not_hold_up_the_rest(habits: object) -> None:
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    peer.encoding_key = None if habits is SEALED_COMET else peer.encoding_key
    live.subscribe(peer, "x")
    for content in (b"a", UNSAYABLE, b"b"):
        publish(live, "x", content)
    live.flush()
    publish(live, "x", UNSAYABLE)
    live.flush()
    assert peer.contents() == [b"a", b"b"]


def test_names_without_subscribers_are_forgotten() -> None:
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    live.subscribe(peer, "x")
    live.subscribe_pattern(peer, "*")
    publish(live, "x", b"a")
    live.leave(peer)
    live.leave(peer)
    live.flush()
    assert live.names() == {}
    assert publish(live, "x", b"b") == 0
    assert not live.waiting


def test_a_session_has_so_many_patterns_and_no_more() -> None:
    """Each publish is held against all of them."""
    live, peer = LiveTopics(), FakePeer("1", REDIS)
    for number in range(BROKER_PATTERNS_PER_PEER_MAX):
        live.subscribe_pattern(peer, f"{number}*")
    live.subscribe_pattern(peer, "0*")  # which it has
    with pytest.raises(FullError):
        live.subscribe_pattern(peer, "more*")
    live.unsubscribe_pattern(peer, "0*")
    live.subscribe_pattern(peer, "more*")
    live.leave(peer)
    live.subscribe_pattern(peer, "again*")


def test_what_only_some_may_receive_reaches_them_in_order_and_nobody_else() -> None:
    live = LiveTopics()
    one, other, matching, outsider = (FakePeer(number, REDIS) for number in "1234")
    for peer in (one, other):
        live.subscribe(peer, "x")
    for peer in (matching, outsider):
        live.subscribe_pattern(peer, "*")
    publish(live, "x", b"first")
    live.publish_for("x", notification("x", b"secret"), lambda peer: peer in (one, matching))
    publish(live, "x", b"last")
    live.publish_for("x", notification("x", b"for all"), lambda _: True)
    live.publish_for("y", notification("y", b"for nobody"), lambda _: False)
    live.flush()
    assert one.contents() == matching.contents() == [b"first", b"secret", b"last", b"for all"]
    assert other.contents() == outsider.contents() == [b"first", b"last", b"for all"]
    assert [told.pattern for told in matching.told] == ["*"] * 4
    assert live.delivered == 14
