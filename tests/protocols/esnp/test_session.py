"""esnp conversations, both sides real, through real bytes."""

from collections.abc import Callable

import pytest

from protocols.conversation import Conversation
from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.limits import (
    ESNP_ANSWERS_WAITING_MAX,
    ESNP_FRAME_BYTES_MAX,
    ESNP_HELD_FRAMES_MAX,
    ESNP_LOGIN_FRAME_BYTES_MAX,
    ESNP_REPLY_S_MAX,
    ESNP_REQUESTS_OPEN_MAX,
)
from wirelake.message import Credentials, Failure, Fault, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.frames import EsnpMessage, decode
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.peer import Peer
from wirelake.protocols.esnp.protocol import PROTOCOL
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import ClientState, ServerState, Settings
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Closing, Step

LOGIN = control(Op.LOGIN, credentials=Credentials("ann", "t0ken"), correlation="in")
OK = Message(kind=Kind.RESPONSE)
ADD = Operation("calc", "add")
ASK = Message(kind=Kind.REQUEST, target=ADD, fields={"a": 1}, correlation="q")


def talk(**settings: float) -> Conversation:
    server = ServerSession(0.0, Settings(**settings))  # type: ignore[arg-type]
    return Conversation(PROTOCOL, ClientSession(0.0), server)


def logged_in(**settings: float) -> Conversation:
    talking = talk(**settings)
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("ann", "t0ken")
    talking.server_says(answer_to(login))
    assert talking.client_messages.pop().failure is None
    return talking


def answer_to(question: Message, **rest: object) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)  # type: ignore[arg-type]


def gateway(op: str, *rest: Line, flag: int = 4) -> EsnpMessage:
    head = (lines.flag_line(flag), lines.address_line(20, op), lines.address_line(30, "wirelake"))
    return EsnpMessage((*head, *rest))


def request(*rest: Line, flag: int = 4) -> EsnpMessage:
    return EsnpMessage((lines.flag_line(flag), lines.address_line(20, "add"), lines.address_line(30, "calc"), *rest))


def data(name: str, value: object) -> Line:
    return lines.data_line(name, var_of(value))


def ready_server() -> ServerSession:
    server = ServerSession(0.0)
    server.receive(gateway("login", data("user", "ann"), data("token", "t")), 0.0)
    server.send(OK, 0.0)
    return server


def ready_client() -> ClientSession:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    client.receive(EsnpMessage((lines.flag_line(3), lines.source_message_id_line(1))), 0.0)
    assert client.state is ClientState.READY
    return client


def errors(frames: list[Frame]) -> list[str | None]:
    found = []
    for frame in frames:
        assert isinstance(frame, EsnpMessage)
        assert frame.flags[0] == 3
        found.append(frame.error)
    return found


def last_from(talking: Conversation, sender: Sender) -> EsnpMessage:
    return [decode(raw, who) for who, raw in talking.wire if who is sender][-1]


# Logging in


def test_a_login_is_answered_and_both_are_ready() -> None:
    talking = talk()
    (login,) = talking.client_says(LOGIN)
    assert control_op(login) is Op.LOGIN
    assert login.fields == {}
    (answer,) = talking.server_says(answer_to(login))
    assert (answer.kind, answer.correlation, answer.failure) == (Kind.RESPONSE, "in", None)
    assert talking.sessions[Sender.CLIENT].state is ClientState.READY
    assert talking.sessions[Sender.SERVER].state is ServerState.READY
    assert talking.sessions[Sender.SERVER].deadline_s is None


def test_a_refused_login_is_told_and_closed() -> None:
    talking = talk()
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login, failure=Failure("wrong token")))
    assert talking.client_messages[0].failure == Failure("wrong token")
    assert {sender: closing.code for sender, closing in talking.closings.items()} == {
        Sender.CLIENT: "login_refused",
        Sender.SERVER: "login_refused",
    }


def test_messages_are_short_before_the_login() -> None:
    server = ServerSession(0.0)
    assert server.frame_bytes_max == ESNP_LOGIN_FRAME_BYTES_MAX
    server.receive(gateway("login"), 0.0)
    assert server.frame_bytes_max == ESNP_LOGIN_FRAME_BYTES_MAX
    server.send(OK, 0.0)
    assert server.frame_bytes_max == ESNP_FRAME_BYTES_MAX
    assert ClientSession(0.0).frame_bytes_max == ESNP_FRAME_BYTES_MAX


def test_before_the_login_only_pings_are_served() -> None:
    server = ServerSession(0.0)
    pong = server.receive(gateway("ping", lines.message_id_line(5)), 1.0).frames
    assert errors(pong) == [None]
    for frame in (request(), gateway("subscribe", data("topic", "@a")), request(flag=5), EsnpMessage(())):
        step = server.receive(frame, 1.0)
        assert errors(step.frames) == ["not logged in"]
        assert step.messages == []
        assert step.closing is None
    assert errors(server.receive(request(Line(0x15)), 1.0).frames) == [
        "malformed: the bytes end inside a number (byte 28, short)"
    ]
    for flag in (2, 3):
        assert server.receive(request(flag=flag), 1.0) == Step()
    assert server.state is ServerState.NEW


def test_a_client_may_ping_before_the_login_and_while_it_is_decided() -> None:
    talking = talk()
    talking.client_says(control(Op.PING, correlation="p1"))
    assert [message.correlation for message in talking.client_messages] == ["p1"]
    client = ClientSession(0.0)
    (ping,) = client.send(control(Op.PING, correlation="p2"), 0.0).frames
    client.send(LOGIN, 0.0)
    assert isinstance(ping, EsnpMessage)
    pong = EsnpMessage((lines.flag_line(3), lines.source_message_id_line(ping.message_id or 0)))
    (answer,) = client.receive(pong, 0.0).messages
    assert answer.correlation == "p2"
    assert client.state is ClientState.LOGGING_IN


def test_messages_sent_before_the_verdict_are_served_after_it() -> None:
    server = ServerSession(0.0)
    server.receive(gateway("login", lines.message_id_line(1)), 0.0)
    held = (gateway("ping", lines.message_id_line(2)), request(lines.message_id_line(3)), request(Line(0x1E)))
    for frame in held:
        assert server.receive(frame, 0.0) == Step()
    step = server.send(OK, 0.0)
    assert [frame.source_message_id for frame in step.frames if isinstance(frame, EsnpMessage)] == [1, 2, None]
    assert [message.target for message in step.messages] == [ADD]


def test_too_many_messages_before_the_verdict_close() -> None:
    server = ServerSession(0.0)
    server.receive(gateway("login"), 0.0)
    for _ in range(ESNP_HELD_FRAMES_MAX):
        assert server.receive(request(), 0.0).closing is None
    step = server.receive(request(), 0.0)
    assert step.closing is not None
    assert step.closing.code == "too_many_requests"
    assert errors(step.frames) == ["too many messages before the login was decided"]


@pytest.mark.parametrize("asked", [False, True])
def test_no_decided_login_in_time_closes(asked: bool) -> None:
    server = ServerSession(0.0)
    if asked:
        server.receive(gateway("login"), 1.0)
    assert server.deadline_s == 5.0
    assert server.tick(4.9).closing is None
    step = server.tick(5.0)
    assert step.closing == Closing("login_timeout", "no login in time")
    assert errors(step.frames) == ["no login in time"]
    with pytest.raises(StateError):
        server.receive(gateway("login"), 6.0)
    with pytest.raises(StateError):
        server.send(OK, 6.0)


def test_a_second_login_is_an_error_and_no_more() -> None:
    server = ready_server()
    step = server.receive(gateway("login", data("user", "bob"), data("token", "t")), 0.0)
    assert errors(step.frames) == ["already logged in"]
    assert step.messages == []
    assert server.state is ServerState.READY


def test_a_client_gives_up_on_a_login_that_is_never_answered() -> None:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    assert client.tick(5.0).closing == Closing("login_timeout")


# Asking


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
    step = server.receive(request(lines.message_id_line(4), data("a", 1), flag=flag), 0.0)
    assert step.frames == []
    (message,) = step.messages
    assert (message.kind, message.target, message.fields, message.correlation) == (Kind.EVENT, ADD, {"a": 1}, "")
    assert server.receive(gateway("ping", flag=flag), 0.0) == Step()
    (published,) = server.receive(gateway("publish", data("topic", "@a"), flag=flag), 0.0).messages
    assert (published.kind, published.target, published.correlation) == (Kind.NOTIFICATION, Topic("@a"), "")


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


# Being asked


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
def test_no_answer_in_time_is_a_failure(session: Callable[[], Peer], headers: dict[str, object], due_s: float) -> None:
    asking = session()
    asking.send(Message(kind=Kind.REQUEST, target=ADD, correlation="q", headers=headers), 0.0)
    asking.send(Message(kind=Kind.REQUEST, target=ADD, correlation="r", headers={"timeout_ms": 700_000}), 1.0)
    assert asking.deadline_s == due_s
    assert asking.tick(due_s - 0.1) == Step()
    step = asking.tick(due_s)
    assert [(each.correlation, each.failure) for each in step.messages] == [("q", Failure("timeout", Fault.TIMEOUT))]
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
    assert server.audience == ready_server().audience == "esnp"
    assert ServerSession(0.0).audience is None
    assert server.encoded(news) == server.send(news, 0.0).frames[0].encode()


# Bounds and ends


def test_too_many_open_requests_get_an_error() -> None:
    server = ready_server()
    for number in range(ESNP_REQUESTS_OPEN_MAX):
        assert len(server.receive(request(lines.message_id_line(number)), 0.0).messages) == 1
    step = server.receive(request(lines.message_id_line(ESNP_REQUESTS_OPEN_MAX)), 0.0)
    assert errors(step.frames) == [f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open"]
    assert step.messages == []


@pytest.mark.parametrize("session", [ready_server, ready_client])
def test_we_ask_no_more_than_is_allowed(session: Callable[[], Peer]) -> None:
    asking = session()
    for _ in range(ESNP_REQUESTS_OPEN_MAX):
        assert len(asking.send(ASK, 0.0).frames) == 1
    step = asking.send(ASK, 0.0)
    assert step.frames == []
    assert [(each.kind, each.correlation) for each in step.messages] == [(Kind.RESPONSE, "q")]
    assert step.messages[0].failure == Failure(f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", Fault.BUSY)


def test_a_flood_behind_one_unanswered_request_closes() -> None:
    server = ready_server()
    server.receive(request(), 0.0)
    for _ in range(ESNP_ANSWERS_WAITING_MAX):
        assert server.receive(gateway("ping"), 0.0) == Step()
    step = server.receive(gateway("ping"), 0.0)
    assert step.closing == Closing("too_many_requests", "too many answers wait their turn")
    assert errors(step.frames) == ["too many answers wait their turn"]
    assert server.receive(gateway("ping"), 0.0) == Step()


@pytest.mark.parametrize("session", [ready_server, ready_client])
def test_too_many_parts_behind_one_unanswered_request_close(session: Callable[[], Peer]) -> None:
    answering = session()
    answering.receive(request(), 0.0)
    (second,) = answering.receive(request(), 0.0).messages
    for _ in range(ESNP_ANSWERS_WAITING_MAX):
        assert answering.send(answer_to(second, more=1), 0.0) == Step()
    step = answering.send(answer_to(second, more=1), 0.0)
    assert step.closing is not None
    assert step.closing.code == "too_many_requests"
    assert answering.state.name == "CLOSED"


def test_bytes_that_cannot_be_read_get_an_error_and_close() -> None:
    talking = logged_in()
    step = talking.inject(Sender.CLIENT, b"\x00\x00\x00\x07")
    assert step.closing is not None
    assert step.closing.code == "end_size"
    place = sum(len(raw) for sender, raw in talking.wire if sender is Sender.CLIENT) - 3
    assert talking.client_messages[-1].failure == Failure(
        f"the end line has no data, this one has 7 bytes (byte {place}, end_size)"
    )
    assert talking.closings[Sender.CLIENT].code == "server_error"
    assert talking.sessions[Sender.SERVER].fail(ProtocolError("x", "y", 0), 0.0) == Step()


@pytest.mark.parametrize("state", ["NEW", "LOGGING_IN", "READY"])
def test_goodbye_says_why(state: str) -> None:
    talking = logged_in() if state == "READY" else talk()
    if state == "LOGGING_IN":
        talking.client_says(LOGIN)
    step = talking.sessions[Sender.SERVER].goodbye(Closing("shutdown"), 0.0)
    assert step.closing == Closing("shutdown")
    (frame,) = step.frames
    talking.inject(Sender.SERVER, frame.encode())
    assert talking.client_messages[-1].kind is Kind.EVENT
    assert talking.client_messages[-1].failure == Failure("shutdown")
    assert talking.closings[Sender.CLIENT] == Closing("server_error", "shutdown")


def test_a_client_before_its_login_has_nothing_to_be_asked() -> None:
    client = ClientSession(0.0)
    assert client.receive(request(), 0.0) == Step()
    client.send(LOGIN, 0.0)
    assert client.receive(request(), 0.0) == Step()
    assert client.state is ClientState.LOGGING_IN


def checking_server(idle_s: float | None = None) -> ServerSession:
    server = ServerSession(0.0, Settings(idle_s=idle_s))
    server.receive(gateway("login"), 0.0)
    return server


def logging_in_client(idle_s: float | None = None) -> ClientSession:
    client = ClientSession(0.0, Settings(idle_s=idle_s))
    client.send(LOGIN, 0.0)
    return client


def any_state(idle_s: float | None = None) -> list[Peer]:
    """A session in every state that is not the last."""
    ready_one = checking_server(idle_s)
    ready_one.send(OK, 0.0)
    ready_other = logging_in_client(idle_s)
    ready_other.receive(EsnpMessage((lines.flag_line(3), lines.source_message_id_line(1))), 0.0)
    new = Settings(idle_s=idle_s)
    return [
        ServerSession(0.0, new),
        checking_server(idle_s),
        ready_one,
        ClientSession(0.0, new),
        logging_in_client(idle_s),
        ready_other,
    ]


def test_silence_is_allowed_unless_set() -> None:
    assert ready_server().tick(1e6) == Step()
    assert ready_client().tick(1e6) == Step()
    for session in any_state(idle_s=3.0):
        assert session.tick(2.9) == Step()
        assert session.tick(3.0) == Step(closing=Closing("idle", "nothing heard for 3 s"))
        assert session.state is session.closed


def test_bytes_that_cannot_be_read_close_in_every_state() -> None:
    for session in any_state():
        step = session.fail(ProtocolError("short", "…", 1), 0.0)
        assert step.closing == Closing("short", "… (byte 1, short)")
        assert errors(step.frames) == (["… (byte 1, short)"] if session.other is Sender.CLIENT else [])
        assert session.state is session.closed


def test_goodbye_closes_in_every_state() -> None:
    for session in any_state():
        step = session.goodbye(Closing("replaced", "you are connected elsewhere"), 0.0)
        assert step.closing == Closing("replaced", "you are connected elsewhere")
        assert len(step.frames) == (1 if session.other is Sender.CLIENT else 0)
        assert session.state is session.closed


def test_nothing_is_asked_before_the_login() -> None:
    for session in (ClientSession(0.0), logging_in_client()):
        with pytest.raises(StateError):
            session.send(ASK, 0.0)


def test_a_ping_before_the_login_may_stay_without_an_answer() -> None:
    for login in (False, True):
        client = ClientSession(0.0, Settings(login_s=9.0))
        client.send(control(Op.PING, correlation="p"), 0.0)
        if login:
            client.send(LOGIN, 0.0)
        hop = EsnpMessage((lines.flag_line(2), lines.source_message_id_line(1), data("hop", "received")))
        assert [each.fields for each in client.receive(hop, 0.0).messages] == [{"hop": "received"}]
        (answer,) = client.tick(5.0).messages
        assert (answer.correlation, answer.failure) == ("p", Failure("timeout", Fault.TIMEOUT))


def test_a_ready_client_pings() -> None:
    talking = logged_in()
    talking.client_says(control(Op.PING, correlation="p"))
    assert [message.correlation for message in talking.client_messages] == ["p"]
    assert talking.server_messages[1:] == []


def test_a_service_may_tell_of_its_hops_too() -> None:
    client = ready_client()
    (question,) = client.receive(request(lines.flag_line(1), lines.message_id_line(8)), 0.0).messages
    hop = Message(kind=Kind.EVENT, name="trace", correlation=question.correlation, fields={"hop": "worker"})
    (frame,) = client.send(hop, 0.0).frames
    assert isinstance(frame, EsnpMessage)
    assert (frame.flags, frame.source_message_id) == ((2,), 8)


def test_a_client_is_flooded_like_a_server() -> None:
    client = ready_client()
    client.receive(request(), 0.0)
    for _ in range(ESNP_ANSWERS_WAITING_MAX):
        assert client.receive(request(Line(0x15)), 0.0) == Step()
    assert client.receive(request(), 0.0) == Step(
        closing=Closing("too_many_requests", "too many answers wait their turn")
    )


@pytest.mark.parametrize("session", [ServerSession, ClientSession])
def test_every_row_names_a_method(session: type[Peer]) -> None:
    for row in session.table.rows:
        assert callable(getattr(session, row.do))
