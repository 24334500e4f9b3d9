"""A user's end against a server that breaks the rules."""

from typing import Any

import pytest
from msgspec.structs import replace

from protocols.magline.talking import CONNECT, LOGIN, PRIVATE, PUBLIC, REKEY, counted, ends, resume
from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import Failure, Kind, Message, Op, Operation, control
from wirelake.protocols.frame import Frame
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.constants import (
    MAGLINE_HELD_FRAMES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    MAGLINE_SEQ_MAX,
)
from wirelake.protocols.magline.session import ClientState, SessionSettings
from wirelake.protocols.session import Closing, Step

SERVER_RANDOM = bytes(range(50, 82))
SID = bytes(range(200, 216))
CALL = Message(kind=Kind.REQUEST, target=Operation("magline/17", "call"), correlation="c")
CLOSED = ClientState.CLOSED


class Host:
    """A server by hand, for what our own server would never send."""

    def __init__(self, **options: Any) -> None:
        self.session = ClientSession(0.0, counted(0), **options)
        self.keys = crypto.Keys(crypto.DirectionKeys(b"", b""), crypto.DirectionKeys(b"", b""))

    def ack(self, syn: Frame, sid: bytes = SID) -> frames.Ack:
        assert isinstance(syn, frames.Syn)
        shared = crypto.shared_secret(PRIVATE, syn.client_public)
        self.keys = crypto.derive(shared, syn.client_random, SERVER_RANDOM)
        sealed_sid = crypto.seal_sid(sid, shared, syn.client_random, SERVER_RANDOM)
        return frames.Ack(SERVER_RANDOM, PUBLIC, sealed_sid, seq=syn.seq)

    def begin(self, message: Message) -> frames.Syn:
        (syn,) = self.session.send(message, 0.0).frames
        assert isinstance(syn, frames.Syn)
        return syn

    def seal(self, frame: frames.SealedFrame) -> frames.SealedFrame:
        return crypto.seal(frame, self.keys.s2c)

    def push(self, seq: int, data: bytes = b'{"topic":"@a","content":"x"}', business: int = 5) -> Step:
        return self.session.receive(self.seal(frames.Psh(business, frames.OPENED, data, seq=seq)), 0.0)


def connected(**options: Any) -> Host:
    host = Host(**options)
    host.session.receive(host.ack(host.begin(CONNECT)), 0.0)
    assert host.session.state is ClientState.READY
    return host


def closes(step: Step, code: str) -> tuple[int, int]:
    assert step.closing is not None
    assert step.closing.code == code
    return ends(step.frames)


def test_each_syn_takes_a_new_key_and_random() -> None:
    host = Host()
    first = host.begin(CONNECT)
    host.session.receive(host.ack(first), 0.0)
    second = host.begin(REKEY)
    assert (first.seq, second.seq) == (1, 2)
    assert (first.sid, second.sid) == (b"", SID)
    assert first.client_public != second.client_public
    assert first.client_random != second.client_random


def test_the_servers_key_can_be_read_to_be_pinned() -> None:
    host = connected()
    assert host.session.server_public == PUBLIC
    assert host.session.sid == SID
    assert connected(pinned=PUBLIC).session.server_public == PUBLIC


@pytest.mark.parametrize("change", ["server_random", "sealed_sid"])
def test_a_changed_ack_is_refused(change: str) -> None:
    host = Host()
    ack = host.ack(host.begin(LOGIN))
    step = host.session.receive(replace(ack, **{change: bytes(32)}), 0.0)
    assert closes(step, "bad_seal") == (3, 1)


def test_a_server_key_of_low_order_is_refused() -> None:
    host = Host()
    step = host.session.receive(replace(host.ack(host.begin(LOGIN)), server_public=bytes(32)), 0.0)
    assert closes(step, "bad_key") == (2, 1)


def test_an_ack_to_another_syn_is_refused() -> None:
    host = Host()
    step = host.session.receive(replace(host.ack(host.begin(LOGIN)), seq=9), 0.0)
    assert closes(step, "unexpected_frame") == (2, 1)


def test_to_resume_proves_that_the_session_was_ours() -> None:
    secret = bytes(range(32))
    host = Host()
    syn = host.begin(resume(bytes(16), secret))
    assert (syn.head_optional, syn.header) == (1, crypto.resume_proof(secret, syn))
    host.session.receive(host.ack(syn), 0.0)
    assert host.session.sid == SID, "a new one"
    again = host.begin(REKEY)
    assert (again.sid, again.header) == (SID, crypto.resume_proof(host.session.resume_secret, again))
    assert Host().begin(CONNECT).header == b""


def test_an_ack_after_an_err_is_refused() -> None:
    host = Host()
    syn = host.begin(LOGIN)
    step = host.session.receive(frames.Err(0, 1, seq=1), 0.0)
    assert [(m.correlation, m.failure) for m in step.messages] == [("in", Failure("version", 1))]
    assert host.session.receive(frames.Err(0, 1, seq=1), 0.0) == Step()
    assert closes(host.session.receive(host.ack(syn), 0.0), "unexpected_frame") == (2, 1)


@pytest.mark.parametrize(
    "message", [resume(b"short"), resume(bytes(16), b"short"), Message(kind=Kind.CONTROL, name="resume")]
)
def test_to_resume_takes_a_sid(message: Message) -> None:
    host = Host()
    with pytest.raises(StateError, match="sid"):
        host.session.send(message, 0.0)
    assert host.session.state is ClientState.NEW


def test_a_login_that_cannot_be_said_is_refused_at_once() -> None:
    host = Host()
    with pytest.raises(TranslationError):
        host.session.send(control(Op.LOGIN), 0.0)
    assert host.session.state is ClientState.NEW


def test_before_connecting_nothing_is_heard_and_nothing_asked() -> None:
    assert closes(Host().session.receive(frames.Pon(1), 0.0), "unexpected_frame") == (2, 1)
    with pytest.raises(StateError):
        Host().session.send(CALL, 0.0)
    with pytest.raises(StateError):
        Host().session.send(Message(kind=Kind.CONTROL, name="dance"), 0.0)


@pytest.mark.parametrize("state", ["connecting", "logging in", "rekeying"])
def test_no_answer_in_time_closes(state: str) -> None:
    host = Host() if state != "rekeying" else connected()
    syn = host.begin(LOGIN if state != "rekeying" else REKEY)
    if state == "logging in":
        host.session.receive(host.ack(syn), 0.0)
        assert host.session.state is ClientState.LOGGING_IN
    assert host.session.tick(9.9) == Step()
    step = host.session.tick(10.0)
    assert step.closing == Closing("login_timeout")
    assert [frame.name for frame in step.frames] == ["FIN"]


def test_an_answer_is_taken_once() -> None:
    host = connected()
    host.session.send(CALL, 0.0)
    rep = host.seal(frames.Rep(17, frames.OPENED, b"y", seq=2))
    (answer,) = host.session.receive(rep, 0.0).messages
    assert (answer.correlation, answer.payload) == ("c", b"y")
    step = host.session.receive(rep, 0.0)
    assert closes(step, "replay") == (4, 1)
    assert step.messages == []


def test_an_answer_of_another_command_is_refused() -> None:
    host = connected()
    host.session.send(CALL, 0.0)
    step = host.session.receive(host.seal(frames.Rep(18, frames.OPENED, b"y", seq=2)), 0.0)
    assert closes(step, "unexpected_frame") == (2, 1)


def test_a_ping_is_not_answered_by_a_rep_nor_a_request_by_a_pon() -> None:
    host = connected()
    host.session.send(control(Op.PING), 0.0)
    step = host.session.receive(host.seal(frames.Rep(0, frames.OPENED, b"", seq=2)), 0.0)
    assert closes(step, "replay") == (4, 1)
    host = connected()
    host.session.send(CALL, 0.0)
    assert closes(host.session.receive(frames.Pon(0, seq=2), 0.0), "unexpected_frame") == (2, 1)


def test_a_broken_seal_closes() -> None:
    for frame in (frames.Rep(17, b"x" * 16, b"y", seq=2), frames.Psh(5, b"x" * 16, b"y", seq=1)):
        host = connected()
        host.session.send(CALL, 0.0)
        assert closes(host.session.receive(frame, 0.0), "bad_hmac") == (3, 1)
    host = Host()
    host.session.receive(host.ack(host.begin(LOGIN)), 0.0)
    assert closes(host.session.receive(frames.Rep(1, b"x" * 16, b"y", seq=2), 0.0), "bad_hmac") == (3, 1)


@pytest.mark.parametrize("seq", [0, 4, 5])
def test_pushes_must_grow(seq: int) -> None:
    host = connected()
    assert len(host.push(5).messages) == 1
    step = host.push(seq)
    assert closes(step, "replay") == (4, 1)
    assert step.messages == []


@pytest.mark.parametrize(
    ("data", "business", "code"),
    [
        (b"{}", 5, "bad_json"),
        (b'{"topic":"@a","content":"x","type":99999999999999999999}', 5, "bad_json"),
        (b'{"topic":"@a","content":"*","encoding":"base64"}', 5, "bad_json"),
        (b'{"topic":"@a","content":"x"}', 17, "unknown_business_cmd"),
    ],
)
def test_a_push_that_is_no_notification_closes(data: bytes, business: int, code: str) -> None:
    assert closes(connected().push(1, data, business), code) == (2, 1)


def test_an_err_to_nothing_goes_up_and_waits_for_its_fin() -> None:
    host = connected()
    step = host.session.receive(frames.Err(0, 9), 0.0)
    assert [(m.correlation, m.failure) for m in step.messages] == [("", Failure("too large", 9))]
    assert step.closing is None
    assert host.session.receive(frames.Fin(1), 0.0).closing == Closing("fin_error", "the peer sent FIN 1")


def test_an_err_to_our_own_ping_answers_nobody() -> None:
    host = connected()
    assert [frame.name for frame in host.session.tick(20.0).frames] == ["PIN"]
    (told,) = host.session.receive(frames.Err(0, 10, seq=2), 20.0).messages
    assert told.correlation == ""


def test_requests_wait_for_new_keys() -> None:
    host = connected()
    syn = host.begin(REKEY)
    assert host.session.send(CALL, 0.0) == Step()
    assert len(host.push(1).messages) == 1  # still under the old keys
    step = host.session.receive(host.ack(syn), 0.0)
    assert [message.correlation for message in step.messages] == ["key"]
    (req,) = step.frames
    assert isinstance(req, frames.Req)
    assert crypto.open_data(req, host.keys.c2s) == b""
    assert req.seq == 3


def test_requests_that_wait_are_bounded_and_must_be_sayable() -> None:
    host = connected()
    host.begin(REKEY)
    with pytest.raises(TranslationError):
        host.session.send(Message(kind=Kind.REQUEST, target=Operation("billing")), 0.0)
    for _ in range(MAGLINE_HELD_FRAMES_MAX):
        host.session.send(CALL, 0.0)
    with pytest.raises(StateError, match="wait for new keys"):
        host.session.send(CALL, 0.0)


def test_new_keys_refused() -> None:
    host = connected()
    syn = host.begin(REKEY)
    step = host.session.receive(frames.Err(0, 5, seq=2), 0.0)
    assert [(m.correlation, m.failure) for m in step.messages] == [("key", Failure("unknown session", 5))]
    assert closes(host.session.receive(host.ack(syn), 0.0), "unexpected_frame") == (2, 1)


def test_open_requests_are_bounded() -> None:
    host = connected()
    for _ in range(MAGLINE_REQUESTS_OPEN_MAX):
        host.session.send(CALL, 0.0)
    with pytest.raises(StateError, match="open already"):
        host.session.send(CALL, 0.0)
    assert host.session.tick(20.0) == Step()  # no room for a PIN either
    assert host.session.deadlines["ping"] == 40.0


def test_a_request_over_the_limit_is_refused_and_takes_no_seq() -> None:
    host = connected()
    with pytest.raises(TranslationError):
        host.session.send(replace(CALL, payload=bytes(MAGLINE_MESSAGE_BYTES_MAX - 19)), 0.0)
    (req,) = host.session.send(replace(CALL, payload=bytes(MAGLINE_MESSAGE_BYTES_MAX - 20)), 0.0).frames
    assert isinstance(req, frames.Req)
    assert req.seq == 2


@pytest.mark.parametrize("message", [CALL, REKEY])
def test_used_up_seqs_end_the_connection(message: Message) -> None:
    host = connected()
    host.session.sent_seq = MAGLINE_SEQ_MAX - 1
    step = host.session.send(message, 0.0)
    assert step.frames == [frames.Fin(3, seq=MAGLINE_SEQ_MAX)]
    assert step.closing is not None
    assert step.closing.code == "rekey"
    assert step.messages[0].failure is not None
    assert step.messages[0].correlation == message.correlation


def test_used_up_seqs_end_the_connection_at_a_ping_and_among_what_was_held() -> None:
    host = connected()
    host.session.sent_seq = MAGLINE_SEQ_MAX - 1
    assert host.session.tick(20.0).frames == [frames.Fin(3, seq=MAGLINE_SEQ_MAX)]
    host = connected()
    host.session.sent_seq = MAGLINE_SEQ_MAX - 3
    syn = host.begin(REKEY)
    for _ in range(3):
        host.session.send(CALL, 0.0)
    step = host.session.receive(host.ack(syn), 0.0)
    assert [frame.name for frame in step.frames] == ["REQ", "FIN"]
    assert host.session.state is CLOSED


def test_a_client_says_why_it_ends() -> None:
    assert connected().session.close(Closing("done"), 0.0).frames == [frames.Fin(0, seq=2)]
    assert closes(connected().session.fail(ProtocolError("version", "…", 1), 0.0), "version") == (1, 1)
    host = connected(settings=SessionSettings(idle_s=5.0))
    assert host.session.tick(5.0).closing == Closing("idle", "no data received for 5 s")
    assert Host().session.close(Closing("done"), 0.0).closing == Closing("done")
