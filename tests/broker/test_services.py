import pytest

from broker.peers import COMET, ESNP, UNSAYABLE, FakePeer, request, response
from wirelake.broker import services as services_module
from wirelake.broker.services import Services
from wirelake.errors import FullError, StateError
from wirelake.limits import BROKER_CALLS_OVER_MAX, BROKER_SERVICES_PER_PEER_MAX, BROKER_TIMEOUTS_AT_ONCE
from wirelake.message import Failure, FailureCode, Kind, Message, Op, Operation, Topic, control_op


def failure_code(asker: FakePeer, correlation: str) -> int:
    (answer,) = asker.answers(correlation)
    assert answer.failure is not None
    return answer.failure.code


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def asker() -> FakePeer:
    return FakePeer("asker", ESNP, "ann")


@pytest.fixture
def provider(services: Services) -> FakePeer:
    peer = FakePeer("provider", ESNP, "bob")
    services.register(peer, "sums")
    return peer


def test_an_answer_comes_back_under_the_askers_own_name(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    services.request(asker, request("sums", "mine", fields={"a": 1}), 0.0)
    (asked,) = provider.asked()
    assert asked.fields == {"a": 1}
    assert asked.correlation != "mine"
    assert services.open == 1
    assert services.on_answer(provider, response(asked, fields={"sum": 1}))
    assert [answer.fields for answer in asker.answers("mine")] == [{"sum": 1}]
    assert services.open == 0
    assert not services.on_answer(provider, response(asked)), "there is one final answer"
    assert len(asker.answers("mine")) == 1


def test_several_providers_take_turns(services: Services, asker: FakePeer) -> None:
    providers = [FakePeer(str(number), ESNP) for number in range(3)]
    for peer in providers:
        services.register(peer, "sums")
        services.register(peer, "sums")
    assert services.names() == {"sums": 3}
    for number in range(9):
        services.request(asker, request("sums", str(number)), 0.0)
    assert [len(peer.asked()) for peer in providers] == [3, 3, 3]
    services.unregister(providers[0], "sums")
    services.unregister(providers[0], "sums")
    for number in range(4):
        services.request(asker, request("sums", f"more {number}"), 0.0)
    assert [len(peer.asked()) for peer in providers] == [3, 5, 5]


def test_nobody_there_is_said_at_once(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("other", "q"), 0.0)
    (answer,) = asker.answers("q")
    assert answer.failure is not None
    assert answer.failure.text == "Address[20=do,30=other] not found ServiceHandler"
    assert answer.failure.code == FailureCode.NOT_FOUND
    assert not provider.heard


def test_time_is_over_when_it_is(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("sums", "short"), 100.0, 1.0)
    services.request(asker, request("sums", "long"), 100.0, 9.0)
    assert services.due_s == 101.0
    services.tick(100.9)
    assert not asker.heard
    services.tick(101.0)
    assert failure_code(asker, "short") == FailureCode.TIMEOUT
    assert services.due_s == 109.0
    short, long = provider.asked()
    assert not services.on_answer(provider, response(short)), "too late"
    services.on_answer(provider, response(long))
    assert services.open == 0
    services.tick(200.0)
    assert len(asker.heard) == 2
    assert services.timeouts == 1


def test_a_provider_that_goes_away_fails_its_calls(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    other = FakePeer("other", ESNP)
    services.register(other, "sums")
    for number in range(2):
        services.request(asker, request("sums", str(number)), 0.0)
    services.leave(provider)
    assert failure_code(asker, "0") == FailureCode.PROVIDER_LOST
    assert not asker.answers("1")
    assert services.names() == {"sums": 1}


def test_an_asker_that_goes_away_is_not_answered(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("sums", "q"), 0.0)
    services.leave(asker)
    assert services.open == 0
    assert not services.on_answer(provider, response(provider.asked()[0]))
    services.tick(100.0)
    assert not asker.heard


def test_only_the_one_that_was_asked_may_answer(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("sums", "q"), 0.0)
    (asked,) = provider.asked()
    assert not services.on_answer(asker, response(asked))
    assert not services.on_answer(provider, Message(kind=asked.kind, correlation="²"))
    assert services.open == 1


def test_an_answer_in_parts_ends_with_the_last(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("sums", "q"), 0.0)
    (asked,) = provider.asked()
    for left in (2, 1, 0):
        assert services.on_answer(provider, response(asked, more=left))
    assert [answer.more for answer in asker.answers("q")] == [2, 1, 0]
    assert services.open == 0


@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_that_the_asker_cannot_be_told_is_a_failure(
    services: Services, asker: FakePeer, provider: FakePeer, more: int
) -> None:
    services.request(asker, request("sums", "q"), 0.0)
    assert services.on_answer(provider, response(provider.asked()[0], payload=UNSAYABLE, more=more))
    assert failure_code(asker, "q") == FailureCode.UNENCODABLE
    assert services.open == 0


def test_a_request_that_the_provider_cannot_be_told_is_a_failure(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    services.request(asker, request("sums", "q", payload=UNSAYABLE), 0.0)
    assert failure_code(asker, "q") == FailureCode.UNENCODABLE
    assert not provider.heard


def test_answered_calls_do_not_gather(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    for number in range(3 * BROKER_CALLS_OVER_MAX):
        services.request(asker, request("sums", str(number)), 0.0, 300.0)
        services.on_answer(provider, response(provider.heard.pop()))
    assert services.timers <= BROKER_CALLS_OVER_MAX + 2


def test_limits(services: Services) -> None:
    peer = FakePeer("1", COMET)
    for number in range(BROKER_SERVICES_PER_PEER_MAX):
        services.register(peer, str(number))
    with pytest.raises(FullError):
        services.register(peer, "one more")
    with pytest.raises(StateError):
        services.request(peer, Message(kind=request("s", "q").kind, target=Topic("@x")), 0.0)


def test_whoever_wants_a_trace_is_told_of_each_hop_before_the_answer(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    hops: list[tuple[str, str, str, str]] = []
    services.hop = lambda peer, correlation, hop, who: hops.append((peer.id, correlation, hop, who))
    services.request(asker, request("sums", "plain"), 0.0)
    services.request(asker, request("sums", "mine", traced=True), 0.0)
    assert hops == [("asker", "mine", "routed to", "bob")]
    asked = provider.asked()[1]
    for more in (1, 0):
        services.on_answer(provider, response(asked, more=more))
    assert hops[1:] == [("asker", "mine", "answered by", "bob")]
    services.request(asker, request("nothing", "lost", traced=True), 0.0)
    assert len(hops) == 2


def test_what_wants_no_answer_is_told_to_providers_in_turn_and_opens_no_call(services: Services) -> None:
    providers = [FakePeer(str(number), ESNP) for number in range(2)]
    message = request("sums", "ignored", fields={"a": 1})
    assert not services.send_one_way(message), "nobody is there"
    for peer in providers:
        services.register(peer, "sums")
    assert [services.send_one_way(message) for _ in range(4)] == [True] * 4
    for peer in providers:
        assert [(told.kind, told.correlation, told.fields) for told in peer.heard] == [(Kind.EVENT, "", {"a": 1})] * 2
    assert services.open == 0
    assert not services.send_one_way(request("sums", "", payload=UNSAYABLE))


def test_many_whose_time_is_over_are_answered_for_in_several_goes(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    for number in range(BROKER_TIMEOUTS_AT_ONCE + 1):
        services.request(asker, request("sums", str(number)), 0.0, 5.0)
    services.tick(9.0)
    assert (services.open, services.due_s) == (1, 5.0)
    services.tick(9.0)
    assert (services.open, services.due_s, services.timeouts) == (0, None, BROKER_TIMEOUTS_AT_ONCE + 1)


def test_each_packet_gives_the_next_one_time(services: Services, asker: FakePeer, provider: FakePeer) -> None:
    services.request(asker, request("sums", "mine"), 0.0, timeout_s=5.0)
    (asked,) = provider.asked()
    assert services.on_answer(provider, response(asked, more=1), 4.0)
    assert services.due_s == 9.0
    services.tick(5.0)
    assert services.open == 1
    services.tick(9.0)
    assert [answer.failure and answer.failure.code for answer in asker.answers("mine")] == [None, FailureCode.TIMEOUT]


def test_why_nobody_is_there_is_told_where_it_is_known(services: Services, asker: FakePeer) -> None:
    services.absent["far"] = "the line is cut"
    services.request(asker, request("far", "mine"), 0.0)
    (answer,) = asker.answers("mine")
    assert answer.failure is not None
    assert (answer.failure.text, answer.failure.code) == ("the line is cut", FailureCode.PROVIDER_LOST)


def subscribe(services: Services, asker: FakePeer, provider: FakePeer, correlation: str) -> Message:
    """Return the request as the provider got it; its answer continues."""
    asked = Message(kind=Kind.REQUEST, target=Operation("sums", "sub"), correlation=correlation, fields={"key": "k"})
    services.request(asker, asked, 0.0)
    got = provider.asked()[-1]
    assert services.on_answer(provider, response(got, continues=True))
    return got


def test_an_answer_that_continues_is_pushed_to_until_either_side_is_gone(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    got = subscribe(services, asker, provider, "mine")
    assert services.on_answer(provider, response(got, payload=b"1"))
    assert [(told.topic, told.content) for told in asker.told] == [("k", b"1")]
    assert not services.on_answer(asker, response(got, payload=b"2")), "nobody else pushes to it"
    assert len(services.subscriptions) == 1
    services.leave(provider)
    assert [answer.failure for answer in asker.answers("mine")] == [
        None,
        Failure("the provider went away", FailureCode.GONE),
    ]
    assert not services.on_answer(provider, response(got, payload=b"3"))
    assert len(services.subscriptions) == 0


def test_an_answer_that_continues_for_nobody_is_stopped(
    services: Services, asker: FakePeer, provider: FakePeer
) -> None:
    asked = Message(kind=Kind.REQUEST, target=Operation("sums", "sub"), correlation="mine")
    services.request(asker, asked, 0.0, 1.0)
    services.tick(2.0)
    got = provider.asked()[-1]
    assert not services.on_answer(provider, response(got, continues=True))
    assert control_op(provider.heard[-1]) is Op.UNSUBSCRIBE
    assert provider.heard[-1].correlation == got.correlation


def test_subscriptions_to_services_are_bounded(
    services: Services, asker: FakePeer, provider: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_module, "BROKER_SUBSCRIPTIONS_PER_PEER_MAX", 2)
    monkeypatch.setattr(services_module, "BROKER_SUBSCRIPTIONS_MAX", 3)
    other = FakePeer("other", ESNP, "eve")
    for number in range(2):
        subscribe(services, asker, provider, str(number))
    with pytest.raises(FullError, match="a session has at most 2"):
        subscribe(services, asker, provider, "one more")
    subscribe(services, other, provider, "a")
    with pytest.raises(FullError, match="there are 3"):
        subscribe(services, other, provider, "b")
    services.leave(asker)
    subscribe(services, other, provider, "c")
