"""Logging in, from both sides."""

import pytest

from protocols.esnp.talking import ADD, LOGIN, OK, answer_to, data, errors, gateway, ready_server, request, talk
from wirelake.errors import StateError
from wirelake.message import Failure, Kind, Op, control, control_op
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.constants import ESNP_FRAME_BYTES_MAX, ESNP_HELD_FRAMES_MAX, ESNP_LOGIN_FRAME_BYTES_MAX
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import ClientState, ServerState
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step


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
