"""magline conversations, both sides real, through real bytes."""

from contextlib import suppress
from pathlib import Path

import pytest

from protocols.magline.talking import (
    CONNECT,
    LOGIN,
    PUBLIC,
    REKEY,
    anonymous,
    answer_to,
    codes,
    logged_in,
    resume,
    said_by,
    talk,
)
from wirelake.errors import ProtocolError
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.magline.server import ServerSession
from wirelake.protocols.magline.session import ClientState, SealedSession, ServerState
from wirelake.protocols.session import Closing

CAPTURED = Path(__file__).parent.parent.parent / "captures" / "magline.hex"


@pytest.mark.parametrize("little", [False, True])
def test_a_login_makes_both_ready(little: bool) -> None:
    talking = talk(little=little, pinned=PUBLIC)
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("ann", "t0ken")
    (answer,) = talking.server_says(answer_to(login))
    assert (answer.correlation, answer.failure, answer.fields) == ("in", None, {})
    client, server = talking.sessions[Sender.CLIENT], talking.sessions[Sender.SERVER]
    assert client.state is ClientState.READY
    assert server.state is ServerState.READY
    assert isinstance(client, SealedSession)
    assert isinstance(server, SealedSession)
    assert client.sid == server.sid != b""
    assert {frame.little for sender in Sender for frame in said_by(talking, sender)} == {little}
    assert b"t0ken" not in b"".join(raw for _, raw in talking.wire)


def test_a_conversation_byte_for_byte() -> None:
    """The captured frames begin with one that was made with the fixed keys and randoms of `talking`."""
    talking = logged_in(pinned=PUBLIC)
    (question,) = talking.client_says(control(Op.SUBSCRIBE, fields={"topics": ["@news"]}))
    talking.server_says(answer_to(question))
    talking.server_says(Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", payload=b"hi", at_ms=1))
    (question,) = talking.client_says(
        Message(kind=Kind.REQUEST, target=Operation("magline/17", "call"), payload=b"ping")
    )
    talking.server_says(answer_to(question, payload=b"pong"))
    talking.client_says(control(Op.PING, fields={"number": 3}))
    talking.client_says(control(Op.LOGOUT))
    said = [f"{sender} {PROTOCOL.decode(raw, sender).name} {raw.hex()} " for sender, raw in talking.wire]
    captured = CAPTURED.read_text().splitlines()[2 : 2 + len(said)]
    assert [line.partition("{")[0] for line in captured] == said
    assert len(said) == 12


def test_a_refused_login_is_told_and_closed() -> None:
    talking = talk()
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login, failure=Failure("wrong token")))
    (answer,) = talking.client_messages
    assert (answer.correlation, answer.failure) == ("in", Failure("not logged in", 6))
    assert codes(talking) == {Sender.CLIENT: "fin_error", Sender.SERVER: "login_refused"}


def test_the_wrong_server_is_refused() -> None:
    talking = talk(pinned=bytes(32))
    talking.client_says(LOGIN)
    assert codes(talking) == {Sender.CLIENT: "wrong_server", Sender.SERVER: "fin_error"}
    assert [frame.name for frame in said_by(talking, Sender.CLIENT)] == ["SYN", "ERR", "FIN"]


def test_a_server_without_login() -> None:
    talking = anonymous()
    (answer,) = talking.client_messages
    client = talking.sessions[Sender.CLIENT]
    assert isinstance(client, SealedSession)
    assert (answer.correlation, answer.fields) == ("on", {"sid": client.sid.hex()})
    (login,) = talking.client_says(LOGIN)
    (done,) = talking.server_says(answer_to(login))
    assert (done.correlation, done.failure) == ("in", None)


def test_without_the_login_that_is_required_one_can_still_log_in() -> None:
    talking = talk()
    talking.client_says(CONNECT)
    talking.client_says(Message(kind=Kind.REQUEST, target=Operation("magline/17"), correlation="x"))
    assert talking.client_messages[-1].failure == Failure("not logged in", 6)
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login))
    assert talking.sessions[Sender.SERVER].state is ServerState.READY


@pytest.mark.parametrize(
    "message",
    [
        control(Op.SUBSCRIBE, fields={"topics": ["@a", "b"]}),
        control(Op.UNSUBSCRIBE, fields={"topics": ["@a"]}),
        control(Op.ACK, fields={"ids": ["1", "2"]}),
    ],
)
def test_the_gateway_is_asked_and_answers(message: Message) -> None:
    talking = logged_in()
    (question,) = talking.client_says(message)
    assert (control_op(question), question.fields) == (control_op(message), message.fields)
    (answer,) = talking.server_says(answer_to(question, fields={"topics": ["@a"]}))
    assert (answer.kind, answer.failure, answer.fields) == (Kind.RESPONSE, None, {"topics": ["@a"]})


def test_services_are_called_and_answer_in_any_order() -> None:
    talking = logged_in()
    ask = Message(kind=Kind.REQUEST, target=Operation("magline/17", "call"), payload=b"\x00\xff", correlation="first")
    (first,) = talking.client_says(ask)
    (second,) = talking.client_says(Message(kind=Kind.REQUEST, target=Operation("magline/18"), correlation="second"))
    assert (first.target, first.payload) == (Operation("magline/17", "call"), b"\x00\xff")
    (answer,) = talking.server_says(answer_to(second, failure=Failure("nobody", 7)))
    assert (answer.correlation, answer.failure) == ("second", Failure("no such service", 7))
    (answer,) = talking.server_says(answer_to(first, payload=b"\xfe"))
    assert (answer.correlation, answer.payload, answer.target) == ("first", b"\xfe", first.target)


@pytest.mark.parametrize("content", ["grüße".encode(), b"\xff\x00", b""])
def test_publishing_and_notifications(content: bytes) -> None:
    talking = logged_in()
    sent = Message(kind=Kind.NOTIFICATION, target=Topic("@news"), payload=content, correlation="p")
    (published,) = talking.client_says(sent)
    assert (published.kind, published.target, published.payload) == (Kind.NOTIFICATION, Topic("@news"), content)
    (done,) = talking.server_says(answer_to(published))
    assert (done.correlation, done.failure) == ("p", None)
    news = Message(
        kind=Kind.NOTIFICATION, target=Topic("@news"), id="n1", type=3, payload=content, at_ms=1_700_000_000_000
    )
    (heard,) = talking.server_says(news)
    assert (heard.target, heard.id, heard.type) == (news.target, "n1", 3)
    assert (heard.payload, heard.at_ms) == (content, 1_700_000_000_000)


def test_a_session_is_taken_up_on_another_connection() -> None:
    before = logged_in().sessions[Sender.CLIENT]
    assert isinstance(before, SealedSession)
    talking = talk(pinned=PUBLIC)
    (question,) = talking.client_says(resume(before.sid, before.resume_secret))
    assert question.fields == {"sid": before.sid.hex()}
    server = talking.sessions[Sender.SERVER]
    assert isinstance(server, ServerSession)
    assert server.may_resume(before.resume_secret)
    assert not server.may_resume(bytes(32))
    (answer,) = talking.server_says(answer_to(question))
    assert (answer.correlation, answer.fields) == ("again", {"sid": server.sid.hex()})
    (heard,) = talking.server_says(Message(kind=Kind.NOTIFICATION, id="waited"))
    assert heard.id == "waited"


def test_a_session_that_is_gone() -> None:
    talking = talk()
    (question,) = talking.client_says(resume(bytes(16)))
    (answer,) = talking.server_says(answer_to(question, failure=Failure("expired")))
    assert (answer.correlation, answer.failure) == ("again", Failure("unknown session", 5))
    assert codes(talking) == {Sender.CLIENT: "fin_error", Sender.SERVER: "unknown_session"}


def test_new_keys_on_a_live_connection() -> None:
    talking = logged_in()
    ask = Message(kind=Kind.REQUEST, target=Operation("magline/17", "call"), correlation="before")
    (question,) = talking.client_says(ask)
    talking.client_says(REKEY)
    assert talking.client_messages[-1].correlation == "key"
    (answer,) = talking.server_says(answer_to(question, payload=b"late"))
    assert (answer.correlation, answer.payload) == ("before", b"late")
    (heard,) = talking.server_says(Message(kind=Kind.NOTIFICATION, id="n"))
    assert heard.id == "n"
    assert talking.client_says(ask)
    assert not talking.closings


def test_pings_keep_a_connection_alive() -> None:
    talking = logged_in()
    for _ in range(30):
        talking.pass_time(10.0)
    assert not talking.closings
    pins = [frame for frame in said_by(talking, Sender.CLIENT) if isinstance(frame, frames.Pin)]
    pons = [frame for frame in said_by(talking, Sender.SERVER) if isinstance(frame, frames.Pon)]
    assert [pin.ping_number for pin in pins] == list(range(1, 16))
    assert [(pon.ping_number, pon.seq) for pon in pons] == [(pin.ping_number, pin.seq) for pin in pins]
    assert len(talking.client_messages) == 1  # the login's answer: nobody above hears of our own pings


def test_a_ping_asked_for_is_answered_above() -> None:
    talking = logged_in()
    talking.client_says(control(Op.PING, correlation="there?", fields={"number": 9}))
    assert (talking.client_messages[-1].correlation, talking.client_messages[-1].fields) == ("there?", {"number": 9})


def test_logging_out() -> None:
    talking = logged_in()
    talking.client_says(control(Op.LOGOUT, correlation="bye"))
    assert talking.client_messages[-1].correlation == "bye"
    assert codes(talking) == {Sender.CLIENT: "normal", Sender.SERVER: "fin_normal"}


@pytest.mark.parametrize("reason", ["shutdown", "replaced"])
def test_the_server_says_why_it_goes(reason: str) -> None:
    talking = logged_in()
    step = talking.sessions[Sender.SERVER].close(Closing(reason), 0.0)
    for frame in step.frames:
        talking.inject(Sender.SERVER, frame.encode())
    assert codes(talking) == {Sender.CLIENT: f"fin_{reason}"}


def test_bytes_that_are_not_magline_are_told_and_closed() -> None:
    talking = talk()
    step = talking.inject(Sender.CLIENT, b"GET / HTTP/1.1\r\n\r\n")
    assert [frame.name for frame in step.frames] == ["ERR", "FIN"]
    assert step.closing is not None
    assert step.closing.code == "bad_magic"


def test_every_flipped_bit_of_a_request_ends_the_connection_unserved() -> None:
    talking = logged_in()
    talking.client_says(Message(kind=Kind.REQUEST, target=Operation("magline/17"), payload=b"x"))
    wire = talking.wire[-1][1]
    for bit in range(len(wire) * 8):
        changed = bytearray(wire)
        changed[bit // 8] ^= 1 << bit % 8
        victim = logged_in()
        served = len(victim.server_messages)
        with suppress(ProtocolError):
            victim.inject(Sender.CLIENT, bytes(changed))
        assert len(victim.server_messages) == served
