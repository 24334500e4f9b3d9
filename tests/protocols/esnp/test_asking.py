"""What a client asks, and how it is answered."""

import pytest

from protocols.esnp.talking import (
    ADD,
    ASK,
    OK,
    answer_to,
    data,
    errors,
    gateway,
    last_from,
    logged_in,
    ready_server,
    request,
)
from wirelake.errors import TranslationError
from wirelake.message import Failure, Kind, Message, Op, Topic, control, control_op
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import ESNP_FRAME_BYTES_MAX
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Step


@pytest.mark.parametrize(
    ("message", "op", "fields"),
    [
        (control(Op.SUBSCRIBE, fields={"topics": ["@a", "b"]}), Op.SUBSCRIBE, {"topics": ["@a", "b"]}),
        (control(Op.UNSUBSCRIBE, fields={"topics": ["@a"]}), Op.UNSUBSCRIBE, {"topics": ["@a"]}),
        (control(Op.REGISTER, fields={"service": "calc"}), Op.REGISTER, {"service": "calc"}),
        (control(Op.UNREGISTER, fields={"service": "calc"}), Op.UNREGISTER, {"service": "calc"}),
    ],
)
def test_requests_to_the_gateway_go_up_and_their_answers_come_back(
    message: Message, op: Op, fields: dict[str, object]
) -> None:
    talking = logged_in()
    (question,) = talking.client_says(message)
    assert (question.kind, control_op(question), question.fields) == (Kind.CONTROL, op, fields)
    (answer,) = talking.server_says(answer_to(question))
    assert answer.failure is None


def test_a_publication_goes_up_as_a_notification() -> None:
    talking = logged_in()
    news = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=b"hi", type=3, correlation="p")
    (question,) = talking.client_says(news)
    assert (question.kind, question.target, question.payload, question.type) == (
        Kind.NOTIFICATION,
        Topic("@a"),
        b"hi",
        3,
    )
    (answer,) = talking.server_says(answer_to(question, fields={"id": "n1"}))
    assert (answer.correlation, answer.fields) == ("p", {"id": "n1"})


def test_a_request_to_a_service_goes_up_and_its_answer_comes_back() -> None:
    talking = logged_in()
    (question,) = talking.client_says(ASK)
    assert (question.kind, question.target, question.fields) == (Kind.REQUEST, ADD, {"a": 1})
    (answer,) = talking.server_says(answer_to(question, fields={"c": -1}, payload=b"p", headers={"h": 1}))
    assert (answer.correlation, answer.fields, answer.payload, answer.headers) == ("q", {"c": -1}, b"p", {"h": 1})
    assert talking.server_says(answer_to(question)) == []


def test_an_error_is_told_in_its_text() -> None:
    talking = logged_in()
    (question,) = talking.client_says(ASK)
    (answer,) = talking.server_says(answer_to(question, failure=Failure("no luck", 7)))
    assert answer.failure == Failure("no luck")


def test_a_reply_copies_what_it_must_in_the_order_of_the_document() -> None:
    server = ready_server()
    session_info = lines.session_info_line("s", var_of(1))
    asked = EsnpMessage(
        (
            lines.message_id_line(88888888),
            lines.source_address_line(40, "here"),
            lines.flag_line(1),
            lines.flag_line(4),
            *request().lines[1:],
            session_info,
        )
    )
    (question,) = server.receive(asked, 0.0).messages
    (reply,) = server.send(answer_to(question, fields={"c": -1}, failure=Failure("x")), 0.0).frames
    assert reply == EsnpMessage(
        (
            lines.flag_line(3),
            lines.flag_line(4),
            lines.address_line(40, "here"),
            lines.source_message_id_line(88888888),
            lines.error_line("x"),
            session_info,
            data("c", -1),
        )
    )


def test_lines_that_nobody_knows_go_through_the_gateway_untouched() -> None:
    asker, service = logged_in(), logged_in()
    own = [[0x20, b"?"], [0x80, b"app"]]
    (question,) = asker.client_says(
        Message(kind=Kind.REQUEST, target=ADD, correlation="q", headers={"esnp.lines": own, "esnp.flags": [1, 7, 130]})
    )
    (arrived,) = service.server_says(question)
    assert arrived.headers == {"esnp.lines": own, "esnp.flags": [130]}
    (answer,) = service.client_says(answer_to(arrived, headers={"esnp.lines": own}))
    assert answer.correlation == question.correlation
    (done,) = asker.client_messages  # asked with the flag async, so answered at once
    assert done.headers == {}
    (question,) = asker.client_says(ASK)
    (arrived,) = service.server_says(question)
    (answer,) = service.client_says(answer_to(arrived, headers={"esnp.lines": own}))
    (done,) = asker.server_says(answer)
    assert (done.correlation, done.headers) == ("q", {"esnp.lines": own})


def test_answers_to_numbered_requests_come_in_any_order() -> None:
    talking = logged_in()
    (first,) = talking.client_says(control(Op.REGISTER, fields={"service": "a"}, correlation="1st"))
    (second,) = talking.client_says(control(Op.REGISTER, fields={"service": "b"}, correlation="2nd"))
    assert [each.correlation for each in talking.server_says(answer_to(second))] == ["2nd"]
    assert [each.correlation for each in talking.server_says(answer_to(first))] == ["1st"]


def test_answers_to_requests_without_a_number_keep_the_order() -> None:
    server = ready_server()
    (first,) = server.receive(request(), 0.0).messages
    (second,) = server.receive(request(flag=4), 0.0).messages
    assert server.receive(gateway("ping"), 0.0).frames == []
    assert server.receive(request(Line(0x15)), 0.0).frames == []
    (numbered,) = server.receive(request(lines.message_id_line(9)), 0.0).messages
    assert server.send(answer_to(second, fields={"n": 2}), 0.0).frames == []
    assert len(server.send(answer_to(numbered), 0.0).frames) == 1
    assert len(server.receive(gateway("ping", lines.message_id_line(10)), 0.0).frames) == 1
    frames = server.send(answer_to(first, fields={"n": 1}), 0.0).frames
    assert [frame.data[0][1].value for frame in frames[:2] if isinstance(frame, EsnpMessage)] == [1, 2]
    assert errors(frames)[2:] == [None, "malformed: the bytes end inside a number (byte 28, short)"]
    assert len(server.receive(gateway("ping"), 0.0).frames) == 1


def test_an_answer_in_parts_is_numbered() -> None:
    talking = logged_in()
    (question,) = talking.client_says(ASK)
    parts = [talking.server_says(answer_to(question, more=more, fields={"n": more}))[0] for more in (2, 1, 0)]
    assert [(part.correlation, part.more) for part in parts] == [("q", 2), ("q", 1), ("q", 0)]
    assert last_from(talking, Sender.SERVER).seq_no == SeqNo(3, 3)
    assert talking.server_says(answer_to(question)) == []


def test_a_service_that_does_not_know_how_many_parts_there_will_be_is_passed_on_so() -> None:
    server = ready_server()
    (question,) = server.receive(request(lines.message_id_line(4)), 0.0).messages
    numbers = []
    for more, seq_no in ((1, [1, 0]), (1, [2, 0]), (0, [3, 3])):
        step = server.send(answer_to(question, more=more, headers={"esnp.seq_no": seq_no}), 0.0)
        numbers += [frame.seq_no for frame in step.frames if isinstance(frame, EsnpMessage)]
    assert numbers == [SeqNo(1, 0), SeqNo(2, 0), SeqNo(3, 3)]


def test_parts_behind_an_unanswered_request_wait() -> None:
    server = ready_server()
    (first,) = server.receive(request(), 0.0).messages
    (second,) = server.receive(request(), 0.0).messages
    assert server.send(answer_to(second, more=1), 0.0).frames == []
    assert len(server.send(answer_to(first, more=1), 0.0).frames) == 1
    assert len(server.send(answer_to(first), 0.0).frames) == 2  # its last, and what the second had ready
    assert len(server.send(answer_to(second), 0.0).frames) == 1


def test_an_async_request_is_answered_at_once_and_then_worked_on() -> None:
    server = ready_server()
    step = server.receive(request(lines.flag_line(7), lines.message_id_line(4)), 0.0)
    assert errors(step.frames) == [None]
    (message,) = step.messages
    assert message.target == ADD
    assert server.send(answer_to(message), 0.0) == Step()


@pytest.mark.parametrize("flag", [5, 6])
def test_a_one_way_message_is_handed_up_and_not_answered(flag: int) -> None:
    server = ready_server()
    number = [lines.message_id_line(4)] if flag == 6 else []
    step = server.receive(request(*number, data("a", 1), flag=flag), 0.0)
    assert step.frames == []
    (message,) = step.messages
    assert (message.kind, message.target, message.fields, message.correlation) == (Kind.EVENT, ADD, {"a": 1}, "")
    assert server.receive(gateway("ping", flag=flag), 0.0) == Step()
    (published,) = server.receive(gateway("publish", data("topic", "@a"), flag=flag), 0.0).messages
    assert (published.kind, published.target, published.correlation) == (Kind.NOTIFICATION, Topic("@a"), "")


def test_an_info_with_a_number_is_answered() -> None:
    """FLAG 5 with a MESSAGE_ID: the answer has FLAG 3, and the flag of what it answers."""
    server = ready_server()
    (message,) = server.receive(request(lines.message_id_line(4), data("a", 1), flag=5), 0.0).messages
    assert (message.kind, message.name, message.target) == (Kind.REQUEST, "info", ADD)
    (answer,) = server.send(answer_to(message, fields={"b": 2}), 0.0).frames
    assert isinstance(answer, EsnpMessage)
    assert (answer.flags, answer.source_message_id) == ((3, 5), 4)


def test_our_own_answers_count_as_the_peer_does() -> None:
    """Zigzag, until a Map or List of the peer's can only be read with a plain count."""
    server = ready_server()
    (first,) = server.receive(request(lines.message_id_line(1), data("a", [1])), 0.0).messages
    (answer,) = server.send(answer_to(first, fields={"l": [1, 2]}), 0.0).frames
    assert isinstance(answer, EsnpMessage)
    assert answer.lines[-1].data.hex() == "026c170405020504"
    plain = Line(0x15, bytes.fromhex("026d1501026b0502"))
    (second,) = server.receive(request(lines.message_id_line(2), plain), 0.0).messages
    assert second.fields == {"m": {"k": 1}}
    (answer,) = server.send(answer_to(second, fields={"l": [1, 2], "m": {"k": 1}}), 0.0).frames
    assert isinstance(answer, EsnpMessage)
    assert [line.data.hex() for line in answer.lines[-2:]] == ["026c170205020504", "026d1501026b0502"]


def test_a_timeout_may_be_text() -> None:
    server = ready_server()
    (message,) = server.receive(request(lines.header_line("to", var_of("250")), data("a", 1)), 0.0).messages
    assert message.headers["timeout_ms"] == 250


def test_our_client_can_tell_without_asking() -> None:
    talking = logged_in()
    (told,) = talking.client_says(Message(kind=Kind.EVENT, name="info", target=ADD, fields={"a": 1}))
    assert (told.name, told.fields) == ("info", {"a": 1})
    (told,) = talking.server_says(Message(kind=Kind.EVENT, target=ADD))
    assert (told.kind, told.name, told.target) == (Kind.EVENT, "event", ADD)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (gateway("publish", lines.payload_line(b"x")), "publish needs DATA topic"),
        (gateway("publish", lines.payload_line(b"x"), flag=6), "publish needs DATA topic"),
        (gateway("subscribe"), "subscribe needs DATA topic"),
        (gateway("unsubscribe", data("topic", "@a"), data("topic", "")), "unsubscribe needs DATA topic"),
        (gateway("register"), "register needs DATA service, not our own"),
        (gateway("unregister", data("service", "wirelake")), "unregister needs DATA service, not our own"),
        (gateway("ack"), "Address[20=ack,30=wirelake] not found ServiceHandler"),
        (gateway("dance"), "Address[20=dance,30=wirelake] not found ServiceHandler"),
        (EsnpMessage((lines.address_line(20, "add"),)), "Address[20=add] not found ServiceHandler"),
        (EsnpMessage(()), "Address[] not found ServiceHandler"),
        (
            EsnpMessage((lines.payload_line(b""), *request().lines)),
            "a head line behind a body line (byte 4)",
        ),
        (request(Line(0x1E)), "malformed: the bytes end inside a number (byte 28, short)"),
        (request(Line(0x1E), flag=5), "malformed: the bytes end inside a number (byte 28, short)"),
    ],
)
def test_a_request_that_cannot_be_served_gets_an_error_and_the_connection_goes_on(
    frame: EsnpMessage, text: str
) -> None:
    server = ready_server()
    step = server.receive(frame, 0.0)
    assert errors(step.frames) == [text]
    assert step.messages == []
    assert step.closing is None


def test_a_trace_tells_of_every_hop_before_the_answer() -> None:
    talking = logged_in()
    (question,) = talking.client_says(
        Message(kind=Kind.REQUEST, target=ADD, correlation="q", headers={"esnp.flags": [1]})
    )
    assert question.traced
    hop = {"hop": "received", "at_ms": 1_700_000_000_000, "node": "n1"}
    (told,) = talking.server_says(Message(kind=Kind.EVENT, name="trace", correlation=question.correlation, fields=hop))
    assert (told.kind, told.name, told.correlation, told.fields) == (Kind.EVENT, "trace", "q", hop)
    assert last_from(talking, Sender.SERVER).flags == (2,)
    (answer,) = talking.server_says(answer_to(question))
    assert answer.correlation == "q"
    late = Message(kind=Kind.EVENT, name="trace", correlation=question.correlation)
    assert talking.server_says(late) == []


def test_hops_of_a_request_without_a_number_wait_their_turn() -> None:
    server = ready_server()
    (first,) = server.receive(request(), 0.0).messages
    (second,) = server.receive(request(lines.flag_line(1)), 0.0).messages
    hop = Message(kind=Kind.EVENT, name="trace", correlation=second.correlation, fields={"hop": "received"})
    assert server.send(hop, 0.0).frames == []
    frames = server.send(answer_to(first), 0.0).frames
    assert [frame.flags for frame in frames if isinstance(frame, EsnpMessage)] == [(3, 4), (2,)]


def test_nobody_is_told_of_hops_who_did_not_ask() -> None:
    talking = logged_in()
    (question,) = talking.client_says(ASK)
    assert talking.server_says(Message(kind=Kind.EVENT, name="trace", correlation=question.correlation)) == []
    unasked = EsnpMessage((lines.flag_line(2), lines.source_message_id_line(77)))
    assert talking.inject(Sender.SERVER, unasked.encode()) == Step()
    assert talking.inject(Sender.CLIENT, unasked.encode()) == Step()


def test_a_hop_that_cannot_be_written_is_an_error_of_ours() -> None:
    server = ready_server()
    (question,) = server.receive(request(lines.flag_line(1)), 0.0).messages
    hop = Message(kind=Kind.EVENT, name="trace", correlation=question.correlation, fields={"node": "\ud800"})
    with pytest.raises(TranslationError):
        server.send(hop, 0.0)


@pytest.mark.parametrize(
    "rest", [{"parts": (OK,)}, {"fields": {"a": "\ud800"}}, {"payload": bytes(ESNP_FRAME_BYTES_MAX)}]
)
def test_an_answer_that_cannot_be_written_leaves_the_question_open(rest: dict[str, object]) -> None:
    talking = logged_in()
    (question,) = talking.client_says(ASK)
    with pytest.raises(TranslationError):
        talking.server_says(answer_to(question, **rest))
    assert len(talking.server_says(answer_to(question, failure=Failure("too long")))) == 1
