from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, encoded, frame, numbered, record, reduced_rows
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.pipeline.stateful import calls
from wirelake.protocols import registry
from wirelake.protocols.esnp.constants import Flag
from wirelake.protocols.frame import Sender

CALLS = "silver.calls"
PING = control(Op.PING)
OK = Message(kind=Kind.RESPONSE)
FAILED = Message(kind=Kind.RESPONSE, failure=Failure("nobody serves this", 4))


def when(us: int) -> datetime:
    return datetime.fromtimestamp(us / SECOND, UTC)


def request(protocol: str, message: Message, at: int = T0, session: str = "s1", **columns: Any) -> Record:
    return frame(protocol, "in", encoded(protocol, message, Sender.CLIENT), at, session, **columns)


def response(protocol: str, message: Message, at: int = T0, session: str = "s1", **columns: Any) -> Record:
    return frame(protocol, "out", encoded(protocol, message, Sender.SERVER), at, session, **columns)


def numbered_ok(number: str, more: int = 0, failure: Failure | None = None) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=number, more=more, failure=failure)


def service(number: str) -> Message:
    return Message(kind=Kind.REQUEST, correlation=number, target=Operation("clock", "now"))


def outcomes(steps: list[Record]) -> list[tuple[Any, ...]]:
    rows = sorted(reduced_rows(steps, CALLS), key=lambda row: row["seq"])
    return [tuple(row[name] for name in ("seq", "service", "op", "answers", "status", "settled")) for row in rows]


def test_in_order_where_nothing_else_tells_them_apart() -> None:
    login = control(Op.LOGIN, credentials=Credentials("ann", "t"))
    steps = [
        request("comet", login, T0),
        request("comet", PING, T0 + 1000),
        response("comet", Message(kind=Kind.RESPONSE, name="auth_success", payload=b"k"), T0 + 2500, identity="ann"),
        request("comet", control(Op.SUBSCRIBE, fields={"topics": ["@a"]}), T0 + 3000, identity="ann"),
        response("comet", OK, T0 + 4000, identity="ann"),
    ]
    common: dict[str, Any] = {
        "node": NODE,
        "protocol": "comet",
        "session": "s1",
        "service": "wirelake",
        "correlation": None,
    }
    common |= {"day": when(T0).date()}
    rows = sorted(reduced_rows(steps, CALLS), key=lambda row: row["seq"])
    assert rows[0] == {
        **common,
        "seq": 1,
        "received_at": when(T0),
        "requester": "ann",
        "op": "login",
        "asked_at": when(T0),
        "answered_at": when(T0 + 2500),
        "latency_ms": 2.5,
        "answers": 1,
        "status": "ok",
        "settled": True,
    }
    assert rows[2] == {
        **common,
        "seq": 4,
        "received_at": when(T0 + 3000),
        "requester": "ann",
        "op": "subscribe",
        "asked_at": when(T0 + 3000),
        "answered_at": None,
        "latency_ms": None,
        "answers": 0,
        "status": "open",
        "settled": False,
    }
    assert [row["status"] for row in rows] == ["ok", "ok", "open"]


def test_a_failure_is_the_status() -> None:
    assert outcomes([request("comet", PING), response("comet", FAILED)]) == [
        (1, "wirelake", "ping", 1, "nobody serves this", True)
    ]


@pytest.mark.parametrize("protocol", ["esnp", "sisnet", "magline"])
def test_by_correlation_in_any_order(protocol: str) -> None:
    target = Operation("magline/17", "call") if protocol == "magline" else Operation("clock", "now")
    asks = [Message(kind=Kind.REQUEST, correlation=number, target=target) for number in ("1", "2")]
    steps = [request(protocol, each) for each in asks]
    steps += [
        response(protocol, numbered_ok("2")),
        response(protocol, numbered_ok("9")),
        response(protocol, numbered_ok("1")),
    ]
    rows = sorted(reduced_rows(steps, CALLS), key=lambda row: row["seq"])
    assert [(row["correlation"], row["status"], row["answers"]) for row in rows] == [("1", "ok", 1), ("2", "ok", 1)]


@pytest.mark.parametrize("protocol", ["esnp", "sisnet"])
def test_answers_in_several_packets(protocol: str) -> None:
    steps = [request(protocol, service("1"))]
    steps += [response(protocol, numbered_ok("1", more)) for more in (2, 1)]
    assert outcomes(steps) == [(1, "clock", "now", 2, "open", False)]
    assert outcomes([*steps, response(protocol, numbered_ok("1"))]) == [(1, "clock", "now", 3, "ok", True)]


def test_what_wants_no_answer_is_no_call() -> None:
    publish = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=b"x")
    one_way = Message(kind=Kind.EVENT, target=Operation("clock", "tick"))
    plain = registry.get("esnp").from_message(publish, Sender.CLIENT).encode()
    assert bytes([0x1E, 0, 0, 1, Flag.REQUEST * 2]) in plain
    quiet = plain.replace(bytes([0x1E, 0, 0, 1, Flag.REQUEST * 2]), bytes([0x1E, 0, 0, 1, Flag.EVENT * 2]))
    steps = [request("esnp", one_way), frame("esnp", "in", quiet), frame("esnp", "in", plain)]
    assert outcomes(steps) == [(3, "wirelake", "publish", 0, "open", False)]


def test_redis_subscriptions_are_answered_once_for_each_name() -> None:
    def line(data: bytes, direction: str = "in") -> Record:
        return frame("redis", direction, data)

    steps = [
        line(b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n"),
        line(b"*1\r\n$4\r\nPING\r\n"),
        line(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", "out"),
        line(b"+PONG\r\n", "out"),
        line(b">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n", "out"),
        line(b">2\r\n$4\r\nnews\r\n$1\r\nb\r\n", "out"),
        line(b"*0\r\n"),
        line(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        line(b"-ERR no\r\n", "out"),
    ]
    assert outcomes(steps) == [
        (1, "wirelake", "subscribe", 2, "ok", True),
        (2, "wirelake", "ping", 1, "ok", True),
        (8, "redis", "get", 1, "ERR no", True),
    ]


def test_http() -> None:
    note = {"method": "POST", "path": "/api/services/clock/now"}
    stream = {"method": "GET", "path": "/api/subscribe"}
    steps = [
        frame("http", "in", b"{}", T0, "h1", identity="ann", note=note),
        frame("http", "in", b'{"topics": []}', T0, "h2", note=stream),
        frame("http", "out", b'{"error": {"message": "busy"}}', T0 + 500, "h1", note=note | {"status": 503}),
    ]
    assert outcomes(steps) == [(1, "clock", "now", 1, "busy", True)]


def test_what_is_open_when_the_session_or_the_gateway_ends_is_unanswered() -> None:
    start = record("counters", T0 + 9, note={"start": True, "hours": {}})
    for ending in (record("close", T0 + 9, protocol="comet", session="s1", note={"reason": "lost"}), start):
        bucketed = BucketRun(3)
        bucketed.batch(numbered([request("comet", PING), request("comet", PING, session="s2")]))
        bucketed.batch(numbered([ending, request("comet", PING, T0 + 10, "s3")], 3))
        found = {row["session"]: (row["status"], row["settled"]) for row in bucketed.rows(CALLS)}
        other = ("unanswered", True) if ending is start else ("open", False)
        assert found == {"s1": ("unanswered", True), "s2": other, "s3": ("open", False)}
        bucketed.batch(numbered([response("comet", OK, T0 + 11)], 5))
        assert bucketed.counts["answers_without_question"] == 1


def test_too_many_and_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PIPELINE_CALLS_OPEN_MAX", 2)
    bucketed = BucketRun()
    for seq in range(1, 4):
        bucketed.batch(numbered([request("comet", PING, T0 + seq, f"s{seq}")], seq))
    found = {row["session"]: row["status"] for row in bucketed.rows(CALLS)}
    assert found == {"s1": "unanswered", "s2": "open", "s3": "open"}
    bucketed.batch(numbered([response("comet", OK, T0 + 3700 * SECOND, "s2")], 4))
    found = {row["session"]: row["status"] for row in bucketed.rows(CALLS)}
    assert found == {"s1": "unanswered", "s2": "unanswered", "s3": "unanswered"}
    assert bucketed.counts == {"calls_given_up": 3, "answers_without_question": 1}
