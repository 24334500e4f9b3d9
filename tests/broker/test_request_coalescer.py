"""Who asks an upstream what, without an upstream: time is passed in, and what is sent is looked at."""

from typing import Any

import pytest
from msgspec.structs import replace

from broker.peers import FakePeer, Habits
from wirelake.broker import request_coalescer as module
from wirelake.broker.delivery import Notifier
from wirelake.broker.request_coalescer import RequestCoalescer
from wirelake.broker.services import Call, Services
from wirelake.errors import StateError
from wirelake.limits import UPSTREAM_KEPT_BYTES_MAX, UPSTREAM_REQUESTS_OPEN_MAX
from wirelake.message import Failure, FailureCode, Kind, Message, Operation, Topic
from wirelake.protocols.translation import Interest

SISNET = Habits("sisnet", sends_acks=False, pulls_backlog=False, shared=False)
ESNP = Habits("esnp", sends_acks=False, pulls_backlog=False)
SERIES = {"key": "k", "sdb": "s"}
INTEREST = Interest("quotes", "k", "s")


class Asker(FakePeer):
    """Hears pushes too, as they are."""

    def send(self, message: Message) -> None:
        self.heard.append(message)

    def said(self, correlation: str) -> list[Any]:
        return [each.failure or each.fields for each in self.heard if each.correlation == correlation]


class Desk:
    """A sharing, the services before it, and what goes upstream."""

    def __init__(self, keep_s: float = 10.0) -> None:
        self.services = Services()
        self.provider = FakePeer("upstream", SISNET)
        self.services.register(self.provider, "quotes")
        self.sent: list[Message] = []
        self.away = False
        self.is_congested = False
        self.sharing = RequestCoalescer(self._send, self._answer, lambda: self.is_congested, Notifier(), keep_s)

    def _send(self, message: Message) -> None:
        if self.away:
            raise StateError("away")
        self.sent.append(message)

    def _answer(self, call: Call, answer: Message) -> bool:
        return self.services.on_answer(self.provider, replace(answer, correlation=str(call.number)))

    def ask(self, asker: FakePeer, correlation: str, op: str = "get", now_s: float = 0.0, **rest: Any) -> None:
        message = Message(kind=Kind.REQUEST, target=Operation("quotes", op), correlation=correlation, **rest)
        self.services.request(asker, message, now_s)
        asked = self.provider.asked()[-1]
        call = self.services.find(asked.correlation)
        assert call is not None
        self.sharing.request(call, asked, now_s)

    def sub(self, asker: FakePeer, correlation: str, now_s: float = 0.0, **rest: Any) -> None:
        self.ask(asker, correlation, "sub", now_s, **({"fields": SERIES} | rest))

    def answer(self, place: int = -1, now_s: float = 0.0, **rest: Any) -> None:
        answered = Message(kind=Kind.RESPONSE, correlation=self.sent[place].correlation, **rest)
        self.sharing.on_answer(answered, now_s)

    def push(self, value: Any, place: int = 0, now_s: float = 0.0) -> None:
        told = Message(kind=Kind.NOTIFICATION, correlation=self.sent[place].correlation, fields={"msg": value})
        self.sharing.on_answer(told, now_s)

    def ops(self) -> list[str]:
        return [each.target.op for each in self.sent if isinstance(each.target, Operation)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def ann() -> Asker:
    return Asker("1", SISNET, "ann")


@pytest.fixture
def bob() -> Asker:
    return Asker("2", SISNET, "bob")


def test_identical_requests_are_one(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.ask(ann, "a", fields={"x": 1, "y": 2})
    desk.ask(bob, "b", fields={"y": 2, "x": 1})
    desk.ask(bob, "c", fields={"x": 1, "y": 2}, headers={"lnk": "elsewhere"})
    assert len(desk.sent) == 1
    desk.answer(fields={"price": 7})
    assert ann.said("a") == bob.said("b") == bob.said("c") == [{"price": 7}]
    assert (desk.sharing.open, desk.sharing.joined, desk.services.open) == (0, 2, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"fields": {"x": 2}},
        {"fields": {"x": 1.0}},
        {"payload": b"x"},
        {"headers": {"fmt": "bytes"}},
        {"op": "put"},
        {"fields": {"x": 1, "y": None}},
    ],
)
def test_requests_that_differ_are_not(desk: Desk, ann: Asker, other: dict[str, Any]) -> None:
    desk.ask(ann, "a", fields={"x": 1})
    desk.ask(ann, "b", **({"fields": {"x": 1}} | other))
    assert len(desk.sent) == 2


def test_what_cannot_be_compared_is_asked_for_itself(desk: Desk, ann: Asker) -> None:
    for correlation in "ab":
        desk.ask(ann, correlation, fields={"x": object()})
    assert len(desk.sent) == 2


def test_packets_that_came_before_are_given_first(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.ask(ann, "a")
    desk.answer(fields={"part": 1}, more=2)
    desk.ask(bob, "b", now_s=9.0)
    assert bob.said("b") == [{"part": 1}]
    desk.answer(fields={"part": 2}, more=1, now_s=9.0)
    desk.answer(fields={"part": 3}, now_s=9.0)
    assert ann.said("a") == bob.said("b") == [{"part": 1}, {"part": 2}, {"part": 3}]
    assert len(desk.sent) == 1


def test_half_an_answer_cannot_be_joined(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.ask(ann, "a")
    desk.answer(fields={"part": 1}, more=1)
    desk.ask(bob, "b", now_s=10.0)
    assert len(desk.sent) == 2
    desk.answer(0, fields={"part": 2}, now_s=10.0)
    assert ann.said("a") == [{"part": 1}, {"part": 2}]
    assert bob.said("b") == []
    desk.ask(bob, "c", now_s=10.0)
    assert len(desk.sent) == 2, "the newer one can be joined, though the older one is over"


def test_no_more_is_kept_than_the_limit(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.answer()
    for number in range(40):
        told = Message(kind=Kind.NOTIFICATION, correlation=desk.sent[0].correlation, payload=bytes(1024 * 1024))
        desk.sharing.on_answer(replace(told, fields={"msg": number}), 0.0)
    desk.sub(bob, "b")
    given = [said["msg"] for said in bob.said("b")[1:]]
    assert len(given) * 1024 * 1024 <= UPSTREAM_KEPT_BYTES_MAX
    assert given == list(range(40))[-len(given) :]
    assert 0 < len(given) < 16


def test_subscribers_share_whatever_their_format(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a", headers={"fmt": "bytes"})
    desk.sub(bob, "b")
    assert desk.ops() == ["sub"]
    desk.answer()
    desk.push(1)
    desk.sub(bob, "c", now_s=5.0)
    desk.push(2, now_s=5.0)
    assert ann.said("a") == [{}, {"msg": 1}, {"msg": 2}]
    assert bob.said("b") == bob.said("c") == ann.said("a")
    desk.sub(bob, "d", now_s=11.0)
    assert bob.said("d") == [{}, {"msg": 2}], "what is ten seconds old is not given again"


def test_the_last_subscriber_turns_off_the_light(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.sub(bob, "b")
    desk.answer()
    desk.sharing.unsubscribe(ann, INTEREST)
    desk.push(1)
    assert (ann.said("a"), bob.said("b")) == ([{}], [{}, {"msg": 1}])
    assert desk.ops() == ["sub"]
    desk.sharing.on_close(bob)
    assert desk.ops() == ["sub", "unsub"]
    assert desk.sent[1].fields == SERIES
    desk.push(2)
    assert len(bob.heard) == 2
    desk.answer(1)
    desk.sub(ann, "c")
    assert desk.ops() == ["sub", "unsub", "sub"]


def test_subscriptions_to_one_series_end_together(desk: Desk, ann: Asker, bob: Asker) -> None:
    """The upstream knows them by key and sdb, whatever else was asked."""
    desk.sub(ann, "a")
    desk.sub(bob, "b", fields=SERIES | {"fields": ["x"]})
    desk.answer(0)
    desk.answer(1)
    desk.sharing.on_close(ann)
    assert desk.ops() == ["sub", "sub"]
    desk.push(1, 1)
    assert bob.said("b") == [{}, {"msg": 1}]
    desk.sharing.on_close(bob)
    assert desk.ops() == ["sub", "sub", "unsub"]
    assert desk.sharing.subscriptions == 0


def test_who_left_or_gave_up_before_the_answer_is_not_subscribed(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.sub(bob, "b")
    desk.services.leave(ann)
    desk.sharing.unsubscribe(bob, INTEREST)
    assert bob.said("b") == [Failure("unsubscribed before it was subscribed")]
    desk.answer()
    desk.push(1)
    assert (ann.heard, len(bob.heard)) == ([], 1)
    assert desk.ops() == ["sub", "unsub"]


def test_a_failure_ends_a_subscription_for_all(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.sub(bob, "b")
    desk.answer()
    desk.answer(0, failure=Failure("over", -100))
    assert ann.said("a") == bob.said("b") == [{}, Failure("over", FailureCode.GONE)]
    desk.sharing.on_close(ann)
    assert desk.ops() == ["sub"]
    assert desk.sharing.subscriptions == 0


def test_subscriptions_are_made_anew_and_requests_are_not(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.answer()
    desk.sub(bob, "b", fields={"key": "other", "sdb": "s"})
    desk.ask(bob, "c")
    desk.services.leave(desk.provider)
    desk.sharing.on_connection_lost()
    assert [failure.text for (failure,) in (bob.said("b"), bob.said("c"))] == ["the provider went away"] * 2
    assert ann.said("a") == [{}], "a subscriber is not told"
    desk.sent.clear()
    desk.services.register(desk.provider, "quotes")
    desk.sharing.on_connected()
    assert [(each.target, each.fields) for each in desk.sent] == [(Operation("quotes", "sub"), SERIES)]
    desk.push(1)
    desk.answer()
    desk.push(2)
    assert ann.said("a") == [{}, {"msg": 1}, {"msg": 2}]


def test_a_subscription_that_cannot_be_made_anew_ends(desk: Desk, ann: Asker) -> None:
    desk.sub(ann, "a")
    desk.answer()
    desk.sharing.on_connection_lost()
    desk.sharing.on_connected()
    desk.answer(failure=Failure("not any more"))
    assert ann.said("a") == [{}, Failure("not any more", FailureCode.GONE)]


def test_who_leaves_while_the_upstream_is_away_is_forgotten(desk: Desk, ann: Asker) -> None:
    desk.sub(ann, "a")
    desk.answer()
    desk.sharing.on_connection_lost()
    desk.away = True
    desk.sharing.on_close(ann)
    desk.away = False
    desk.sharing.on_connected()
    assert desk.ops() == ["sub"]


def test_only_so_many_are_asked_at_once(desk: Desk, ann: Asker) -> None:
    for number in range(UPSTREAM_REQUESTS_OPEN_MAX + 5):
        desk.ask(ann, str(number), fields={"number": number})
    assert len(desk.sent) == UPSTREAM_REQUESTS_OPEN_MAX
    desk.answer(0)
    assert len(desk.sent) == UPSTREAM_REQUESTS_OPEN_MAX + 1
    desk.services.leave(ann)
    desk.answer(1)
    assert len(desk.sent) == UPSTREAM_REQUESTS_OPEN_MAX + 1, "what nobody waits for any more is not asked"
    assert desk.sharing.open == UPSTREAM_REQUESTS_OPEN_MAX - 1


def test_what_waits_and_who_subscribes_is_bounded(desk: Desk, ann: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPSTREAM_REQUESTS_WAITING_MAX", 1)
    monkeypatch.setattr(module, "UPSTREAM_REQUESTS_OPEN_MAX", 1)
    for correlation in "abc":
        desk.ask(ann, correlation, fields={"x": correlation})
    (refused,) = ann.said("c")
    assert "too many requests wait" in refused.text
    monkeypatch.setattr(module, "UPSTREAM_SUBSCRIBERS_MAX", 0)
    desk.sub(ann, "d")
    (refused,) = ann.said("d")
    assert "too many subscribers" in refused.text


def test_an_upstream_that_takes_in_no_more_is_asked_later(
    desk: Desk, ann: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.is_congested = True
    desk.ask(ann, "a")
    monkeypatch.setattr(module, "UPSTREAM_WAITING_BYTES_MAX", 1000)
    desk.ask(ann, "b", payload=bytes(1000))
    (refused,) = ann.said("b")
    assert "too many requests wait" in refused.text
    assert desk.sent == []
    desk.is_congested = False
    desk.sharing.on_drain()
    assert len(desk.sent) == 1
    desk.ask(ann, "c", payload=bytes(900))
    assert len(desk.sent) == 2


def test_what_the_upstream_cannot_be_asked_is_told(desk: Desk, ann: Asker) -> None:
    desk.away = True
    desk.ask(ann, "a")
    (refused,) = ann.said("a")
    assert refused.text == "the request cannot be sent to the upstream: away"
    assert desk.sharing.open == 0


def test_a_slow_subscriber_is_cut_off(desk: Desk, ann: Asker, bob: Asker) -> None:
    desk.sub(ann, "a")
    desk.sub(bob, "b")
    desk.answer()
    ann.is_congested = True
    desk.push(1)
    desk.push(2)
    assert ann.ended is not None
    assert ann.ended.code == "slow_consumer"
    assert ann.said("a") == [{}]
    assert bob.said("b") == [{}, {"msg": 1}, {"msg": 2}]
    assert desk.sharing.cut == 1


def test_a_push_is_of_a_topic_where_that_is_all_a_protocol_has(desk: Desk) -> None:
    station = Asker("3", ESNP, "station")
    desk.sub(station, "a")
    desk.answer()
    desk.push(1)
    assert station.heard[-1].target == Topic("k.s")


def test_answers_to_nothing_are_nothing(desk: Desk, ann: Asker) -> None:
    desk.sharing.on_answer(Message(kind=Kind.RESPONSE, correlation="99"), 0.0)
    desk.sharing.on_answer(Message(kind=Kind.RESPONSE), 0.0)
    assert ann.heard == []


def test_an_upstream_that_is_no_longer_used_ends_everything(desk: Desk, ann: Asker) -> None:
    desk.sub(ann, "a")
    desk.answer()
    desk.ask(ann, "b")
    desk.sharing.close()
    assert ann.said("a")[-1].text == ann.said("b")[-1].text == "this upstream is no longer used"
    assert (desk.sharing.open, desk.sharing.subscriptions) == (0, 0)
