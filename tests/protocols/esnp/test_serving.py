"""What a client is asked, and told."""

from collections.abc import Callable

import pytest

from protocols.esnp.talking import (
    ADD,
    ASK,
    answer_to,
    data,
    errors,
    last_from,
    logged_in,
    ready_client,
    ready_server,
    request,
)
from wirelake.message import Failure, FailureCode, Kind, Message, Topic
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import ESNP_REPLY_S_MAX
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import EsnpSession
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Step


def test_a_registered_client_is_asked_and_answers() -> None:
    talking = logged_in()
    ask = Message(kind=Kind.REQUEST, target=ADD, fields={"a": 1}, correlation="gateway-7")
    (question,) = talking.server_says(ask)
    assert (question.kind, question.target, question.fields) == (Kind.REQUEST, ADD, {"a": 1})
    (part,) = talking.client_says(answer_to(question, fields={"c": 2}, more=1))
    (answer,) = talking.client_says(answer_to(question, fields={"c": 3}))
    assert [(each.kind, each.correlation, each.fields, each.more) for each in (part, answer)] == [
        (Kind.RESPONSE, "gateway-7", {"c": 2}, 1),
        (Kind.RESPONSE, "gateway-7", {"c": 3}, 0),
    ]


def test_an_answer_that_breaks_the_order_of_lines_is_taken_all_the_same() -> None:
    server = ready_server()
    (asked,) = server.send(ASK, 0.0).frames
    assert isinstance(asked, EsnpMessage)
    assert asked.message_id is not None
    reply = (data("c", 1), lines.flag_line(3), lines.source_message_id_line(asked.message_id))
    (answer,) = server.receive(EsnpMessage(reply), 0.0).messages
    assert (answer.correlation, answer.fields) == ("q", {"c": 1})
    client = ready_client()
    (asked,) = client.send(ASK, 0.0).frames
    assert isinstance(asked, EsnpMessage)
    reply = (data("c", 1), lines.flag_line(3), lines.source_message_id_line(asked.message_id or 0))
    (answer,) = client.receive(EsnpMessage(reply), 0.0).messages
    assert answer.fields == {"c": 1}
    (question,) = client.receive(EsnpMessage((data("a", 1), *request().lines)), 0.0).messages
    assert question.fields == {"a": 1}


def test_a_malformed_answer_is_handed_up_as_a_failure() -> None:
    server = ready_server()
    server.send(ASK, 0.0)
    reply = EsnpMessage((lines.flag_line(3), lines.source_message_id_line(1), Line(0x15)))
    (answer,) = server.receive(reply, 0.0).messages
    assert answer.correlation == "q"
    assert answer.failure is not None
    assert answer.failure.text.startswith("malformed: ")
    assert server.receive(reply, 0.0) == Step()


def test_a_malformed_request_is_refused_by_a_client_too() -> None:
    client = ready_client()
    assert errors(client.receive(request(Line(0x15)), 0.0).frames) == [
        "malformed: the bytes end inside a number (byte 28, short)"
    ]


def test_answers_to_nothing_are_dropped() -> None:
    for session in (ready_server(), ready_client()):
        for reply in (
            (lines.flag_line(3), lines.source_message_id_line(99)),
            (lines.flag_line(3), lines.source_message_id_line(99), lines.error_line("late")),
            (lines.flag_line(3),),
        ):
            assert session.receive(EsnpMessage(reply), 0.0) == Step()
    assert ready_server().receive(EsnpMessage((lines.flag_line(3), lines.error_line("x"))), 0.0) == Step()


@pytest.mark.parametrize(
    ("headers", "due_s"),
    [({}, 5.0), ({"timeout_ms": 1500}, 1.5), ({"timeout_ms": "soon"}, 5.0), ({"timeout_ms": 10**12}, ESNP_REPLY_S_MAX)],
)
@pytest.mark.parametrize("session", [ready_server, ready_client])
def test_no_answer_in_time_is_a_failure(
    session: Callable[[], EsnpSession], headers: dict[str, object], due_s: float
) -> None:
    asking = session()
    asking.send(Message(kind=Kind.REQUEST, target=ADD, correlation="q", headers=headers), 0.0)
    asking.send(Message(kind=Kind.REQUEST, target=ADD, correlation="r", headers={"timeout_ms": 700_000}), 1.0)
    assert asking.deadline_s == due_s
    assert asking.tick(due_s - 0.1) == Step()
    step = asking.tick(due_s)
    assert [(each.correlation, each.failure) for each in step.messages] == [
        ("q", Failure("timeout", FailureCode.TIMEOUT))
    ]
    assert asking.deadline_s == ESNP_REPLY_S_MAX + 1.0
    asking.tick(ESNP_REPLY_S_MAX + 1.0)
    assert asking.deadline_s is None


def test_a_notification_is_pushed() -> None:
    talking = logged_in()
    news = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="n1", type=3, payload=b"hi", at_ms=1234)
    (heard,) = talking.server_says(news)
    assert (heard.kind, heard.target, heard.id, heard.type, heard.payload, heard.at_ms) == (
        Kind.NOTIFICATION,
        Topic("@a"),
        "n1",
        3,
        b"hi",
        1234,
    )
    frame = last_from(talking, Sender.SERVER)
    assert (frame.flags, frame.addresses, frame.payload) == ((6,), ((10, "@a"),), b"hi")
    assert [(name, var.value) for name, var in frame.data] == [("id", "n1"), ("type", 3), ("ts", 1234)]


def test_all_ready_clients_are_told_in_the_same_bytes() -> None:
    news = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="n1", payload=b"hi")
    server = ready_server()
    assert server.encoding_key == ready_server().encoding_key == "esnp"
    assert ServerSession(0.0).encoding_key is None
    assert server.encode_notification(news) == server.send(news, 0.0).frames[0].encode()
