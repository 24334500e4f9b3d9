"""Bounds, silence and ends."""

from collections.abc import Callable

import pytest

from protocols.esnp.talking import (
    ASK,
    LOGIN,
    OK,
    answer_to,
    data,
    errors,
    gateway,
    logged_in,
    ready_client,
    ready_server,
    request,
    talk,
)
from wirelake.errors import ProtocolError, StateError
from wirelake.message import Failure, FailureCode, Kind, Message, Op, control
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.constants import ESNP_ANSWERS_WAITING_MAX, ESNP_REQUESTS_OPEN_MAX
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import ClientState, EsnpSession, SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step


def test_too_many_open_requests_get_an_error() -> None:
    server = ready_server()
    for number in range(ESNP_REQUESTS_OPEN_MAX):
        assert len(server.receive(request(lines.message_id_line(number)), 0.0).messages) == 1
    step = server.receive(request(lines.message_id_line(ESNP_REQUESTS_OPEN_MAX)), 0.0)
    assert errors(step.frames) == [f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open"]
    assert step.messages == []


@pytest.mark.parametrize("session", [ready_server, ready_client])
def test_we_ask_no_more_than_is_allowed(session: Callable[[], EsnpSession]) -> None:
    asking = session()
    for _ in range(ESNP_REQUESTS_OPEN_MAX):
        assert len(asking.send(ASK, 0.0).frames) == 1
    step = asking.send(ASK, 0.0)
    assert step.frames == []
    assert [(each.kind, each.correlation) for each in step.messages] == [(Kind.RESPONSE, "q")]
    assert step.messages[0].failure == Failure(f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", FailureCode.BUSY)


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
def test_too_many_parts_behind_one_unanswered_request_close(session: Callable[[], EsnpSession]) -> None:
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
    step = talking.sessions[Sender.SERVER].close(Closing("shutdown"), 0.0)
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


def checking_server(idle_s: float = 0.0) -> ServerSession:
    server = ServerSession(0.0, SessionSettings(idle_s=idle_s))
    server.receive(gateway("login"), 0.0)
    return server


def logging_in_client(idle_s: float = 0.0) -> ClientSession:
    client = ClientSession(0.0, SessionSettings(idle_s=idle_s))
    client.send(LOGIN, 0.0)
    return client


def any_state(idle_s: float = 0.0) -> list[EsnpSession]:
    """A session in every state that is not the last."""
    ready_one = checking_server(idle_s)
    ready_one.send(OK, 0.0)
    ready_other = logging_in_client(idle_s)
    ready_other.receive(EsnpMessage((lines.flag_line(3), lines.source_message_id_line(1))), 0.0)
    new = SessionSettings(idle_s=idle_s)
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
        assert session.tick(3.0) == Step(closing=Closing("idle", "no data received for 3 s"))
        assert session.state is session.closed


def test_bytes_that_cannot_be_read_close_in_every_state() -> None:
    for session in any_state():
        step = session.fail(ProtocolError("short", "…", 1), 0.0)
        assert step.closing == Closing("short", "… (byte 1, short)")
        assert errors(step.frames) == (["… (byte 1, short)"] if session.other is Sender.CLIENT else [])
        assert session.state is session.closed


def test_goodbye_closes_in_every_state() -> None:
    for session in any_state():
        step = session.close(Closing("replaced", "you are connected elsewhere"), 0.0)
        assert step.closing == Closing("replaced", "you are connected elsewhere")
        assert len(step.frames) == (1 if session.other is Sender.CLIENT else 0)
        assert session.state is session.closed


def test_nothing_is_asked_before_the_login() -> None:
    for session in (ClientSession(0.0), logging_in_client()):
        with pytest.raises(StateError):
            session.send(ASK, 0.0)


def test_a_ping_before_the_login_may_stay_without_an_answer() -> None:
    for login in (False, True):
        client = ClientSession(0.0, SessionSettings(login_s=9.0))
        client.send(control(Op.PING, correlation="p"), 0.0)
        if login:
            client.send(LOGIN, 0.0)
        hop = EsnpMessage((lines.flag_line(2), lines.source_message_id_line(1), data("hop", "received")))
        assert [each.fields for each in client.receive(hop, 0.0).messages] == [{"hop": "received"}]
        (answer,) = client.tick(5.0).messages
        assert (answer.correlation, answer.failure) == ("p", Failure("timeout", FailureCode.TIMEOUT))


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
def test_every_row_names_a_method(session: type[EsnpSession]) -> None:
    for row in session.state_machine.rows:
        assert callable(getattr(session, row.action))
