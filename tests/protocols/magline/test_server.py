"""The gateway's end against a client that breaks the rules."""

from typing import Any

import pytest
from msgspec.structs import replace

from protocols.magline.talking import Peer, answer_to, ends, peer, ready
from wirelake.errors import LimitError, ProtocolError, SealError, StateError, TranslationError
from wirelake.message import Credentials, Failure, FailureCode, Kind, Message, Op, Operation, Topic, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.constants import (
    MAGLINE_HELD_BYTES_MAX,
    MAGLINE_HELD_FRAMES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    MAGLINE_SEQ_MAX,
)
from wirelake.protocols.magline.redaction import redact
from wirelake.protocols.magline.session import ServerState
from wirelake.protocols.session import ACCESS_DENIED, Closing, Step

LOGIN = b'{"user":"ann","token":"t0ken"}'
NEWS = Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="n1", payload=b"hi")


def number(step: Step) -> int:
    """The number of the one ERR in a step that goes on."""
    (err,) = step.frames
    assert isinstance(err, frames.Err)
    assert step.closing is None
    assert step.messages == []
    return err.error_number


def closes(step: Step, code: str) -> tuple[int, int]:
    assert step.closing is not None
    assert step.closing.code == code
    return ends(step.frames)


def checking() -> Peer:
    made = peer()
    made.connect()
    assert made.session.receive(made.req(1, LOGIN), 0.0).frames == []
    assert made.session.state is ServerState.CHECKING
    return made


def test_before_a_syn_only_pings_are_served() -> None:
    new = peer()
    step = new.session.receive(frames.Pin(7, seq=3), 0.0)
    assert step.frames == [frames.Pon(7, seq=3)]
    assert closes(new.session.receive(frames.Req(16, bytes(16), b"", seq=4), 0.0), "unknown_session") == (5, 1)


@pytest.mark.parametrize(
    "frame",
    [
        frames.Ack(bytes(32), bytes(32), bytes(32)),
        frames.Pon(1),
        frames.Rep(1, bytes(16), b""),
        frames.Psh(1, bytes(16), b""),
    ],
)
def test_what_a_client_does_not_say_ends_the_connection(frame: frames.MaglineFrame) -> None:
    assert closes(peer().session.receive(frame, 0.0), "unexpected_frame") == (2, 1)
    assert closes(ready().session.receive(frame, 0.0), "unexpected_frame") == (2, 1)


def test_an_err_of_the_client_waits_for_its_fin() -> None:
    for made in (peer(), ready(), checking()):
        assert made.session.receive(frames.Err(0, 3, seq=1), 0.0) == Step()
        step = made.session.receive(frames.Fin(1, seq=9), 0.0)
        assert step == Step(closing=Closing("fin_error", "the peer sent FIN 1"))
        with pytest.raises(StateError):
            made.session.receive(frames.Pin(1), 0.0)


def test_a_fin_of_unknown_reason_closes_too() -> None:
    step = ready().session.receive(frames.Fin(99), 0.0)
    assert step.closing is not None
    assert step.closing.code == "fin_unknown"


def test_a_key_of_low_order_is_refused() -> None:
    for sid in (b"", bytes(16)):
        step = peer().session.receive(frames.Syn(bytes(32), bytes(32), sid, seq=1), 0.0)
        assert closes(step, "bad_key") == (2, 1)
        assert step.messages == []
    made = ready()
    for sid in (b"", made.sid):
        made = ready()
        syn = frames.Syn(bytes(32), bytes(32), sid, seq=9)
        proof = crypto.resume_proof(made.keys.resume, syn)
        step = made.session.receive(replace(syn, head_optional=1, header=proof), 0.0)
        assert closes(step, "bad_key") == (2, 1)


def test_answers_come_in_the_byte_order_of_the_client() -> None:
    made = peer(require_login=False)
    made.little = True
    made.connect()
    step = made.session.receive(made.req(16, b"x"), 0.0)
    (rep,) = made.session.send(answer_to(step.messages[0], payload=b"y"), 0.0).frames
    assert made.open(rep) == frames.Rep(16, frames.OPENED, b"y", seq=2, little=True)
    (push,) = made.session.send(NEWS, 0.0).frames
    assert made.open(push).little
    assert made.session.close(Closing("shutdown"), 0.0).frames == [frames.Fin(4, seq=2, little=True)]


def test_without_a_login_other_commands_get_err_6() -> None:
    made = peer()
    made.connect()
    assert number(made.session.receive(made.req(16), 0.0)) == 6
    assert number(made.session.receive(made.req(2, b'{"topics":["@a"]}'), 0.0)) == 6
    assert number(made.session.receive(made.req(1, b'{"user":"ann"}'), 0.0)) == 2
    assert made.session.state is ServerState.CONNECTED
    step = made.session.receive(made.req(1, LOGIN), 0.0)
    assert step.messages[0].credentials == Credentials("ann", "t0ken")
    with pytest.raises(StateError):
        made.session.send(NEWS, 0.0)


@pytest.mark.parametrize(("code", "told"), [(0, 6), (4711, 6), (8, 8), (10, 10), (FailureCode.BUSY, 10)])
def test_a_refused_login_gets_err_6_or_the_number_given(code: int, told: int) -> None:
    made = checking()
    step = made.session.send(Message(kind=Kind.RESPONSE, correlation="2", failure=Failure("no", code)), 0.0)
    assert closes(step, "login_refused") == (told, 1)


def test_requests_sent_before_the_verdict_are_served_after_it() -> None:
    made = checking()
    assert made.session.receive(made.req(2, b'{"topics":["@a"]}'), 0.0) == Step()
    assert made.session.receive(made.req(9), 0.0) == Step()
    assert made.session.receive(frames.Pin(1, seq=50), 0.0).frames == [frames.Pon(1, seq=50)]
    assert made.session.send(Message(kind=Kind.RESPONSE, correlation="77"), 0.0) == Step()
    assert made.session.state.name == "CHECKING"
    step = made.session.send(Message(kind=Kind.RESPONSE, correlation="2"), 0.0)
    rep, err = step.frames
    assert made.open(rep) == frames.Rep(1, frames.OPENED, b'{"ok":true}', seq=2)
    assert err == frames.Err(9, 7, seq=4)
    assert [control_op(message) for message in step.messages] == [Op.SUBSCRIBE]
    assert made.session.state is ServerState.READY
    assert made.session.deadline_s == 60.0


def test_held_requests_are_bounded_by_count() -> None:
    made = checking()
    for _ in range(MAGLINE_HELD_FRAMES_MAX):
        assert made.session.receive(made.req(16), 0.0) == Step()
    assert number(made.session.receive(made.req(16), 0.0)) == 10


def test_held_requests_are_bounded_by_size() -> None:
    made = checking()
    assert made.session.receive(made.req(16, bytes(MAGLINE_HELD_BYTES_MAX - 1000)), 0.0) == Step()
    assert number(made.session.receive(made.req(16, bytes(1001)), 0.0)) == 10
    assert made.session.receive(made.req(16, bytes(1000)), 0.0) == Step()


def test_a_held_request_is_checked_when_it_comes() -> None:
    made = checking()
    assert closes(made.session.receive(made.req(16, b"", seq=2), 0.0), "replay") == (4, 1)
    made = checking()
    assert closes(made.session.receive(frames.Req(16, bytes(16), b"", seq=9), 0.0), "bad_hmac") == (3, 1)


def test_a_broken_seal_at_the_login_ends_the_connection() -> None:
    made = peer()
    made.connect()
    assert closes(made.session.receive(frames.Req(1, bytes(16), LOGIN, seq=9), 0.0), "bad_hmac") == (3, 1)


def test_a_second_login_gets_err_2() -> None:
    made = checking()
    made.session.send(Message(kind=Kind.RESPONSE, correlation="2"), 0.0)
    assert number(made.session.receive(made.req(1, LOGIN), 0.0)) == 2


def test_where_no_login_is_required_one_can_still_log_in() -> None:
    made = ready()
    step = made.session.receive(made.req(1, LOGIN), 0.0)
    (rep,) = made.session.send(answer_to(step.messages[0]), 0.0).frames
    assert made.open(rep).data == b'{"ok":true}'
    made = ready()
    step = made.session.receive(made.req(1, LOGIN), 0.0)
    refusal = answer_to(step.messages[0], failure=Failure("no"))
    assert closes(made.session.send(refusal, 0.0), "login_refused") == (6, 1)


@pytest.mark.parametrize("state", ["new", "connected", "checking"])
def test_no_login_in_time_ends_the_connection(state: str) -> None:
    made = checking() if state == "checking" else peer()
    if state == "connected":
        made.connect()
    assert made.session.deadline_s == 10.0
    assert made.session.tick(9.9) == Step()
    assert closes(made.session.tick(10.0), "login_timeout") == (8, 1)


@pytest.mark.parametrize(
    ("business", "data", "expected"),
    [
        (2, b'{"topics":["@a","b"]}', {"op": Op.SUBSCRIBE, "fields": {"topics": ["@a", "b"]}}),
        (3, b'{"topics":[]}', {"op": Op.UNSUBSCRIBE, "fields": {"topics": []}}),
        (6, b'{"ids":["1","2"]}', {"op": Op.ACK, "fields": {"ids": ["1", "2"]}}),
        (4, b'{"topic":"@a","content":"\xc3\xa4"}', {"target": Topic("@a"), "payload": b"\xc3\xa4"}),
        (4, b'{"topic":"b","content":"/w==","encoding":"base64"}', {"target": Topic("b"), "payload": b"\xff"}),
        (
            7,
            b'{"serial":"m1","type":130,"data":"0a"}',
            {"target": Operation("devices", "command"), "fields": {"serial": "m1", "type": 130, "data": "0a"}},
        ),
        (16, b"\x00raw", {"target": Operation("magline/16", "call"), "payload": b"\x00raw"}),
        (2**32 - 1, b"", {"target": Operation("magline/4294967295", "call"), "payload": b""}),
    ],
)
def test_requests_go_up_and_their_answers_come_back(business: int, data: bytes, expected: dict[str, Any]) -> None:
    made = ready()
    step = made.session.receive(made.req(business, data), 0.0)
    assert step.frames == []
    (question,) = step.messages
    found: dict[str, Any] = {"op": control_op(question), "target": question.target}
    found |= {"fields": question.fields, "payload": question.payload}
    assert {name: found[name] for name in expected} == expected
    (rep,) = made.session.send(answer_to(question), 0.0).frames
    answer = b'{"ok":true}' if business < 16 else b""
    assert made.open(rep) == frames.Rep(business, frames.OPENED, answer, seq=2)
    assert made.session.send(answer_to(question), 0.0) == Step()


@pytest.mark.parametrize(
    ("business", "data", "told"),
    [
        (0, b"", 7),
        (5, b"{}", 7),
        (8, b"", 7),
        (15, b"", 7),
        (7, b"", 2),
        (7, b'{"serial":"","type":130}', 2),
        (7, b'{"serial":"m1"}', 2),
        (2, b"", 2),
        (2, b'{"topics":"@a"}', 2),
        (2, b'{"topics":[""]}', 2),
        (3, b"[" * 100_000, 2),
        (6, b'{"ids":[1]}', 2),
        (4, b'{"topic":"","content":"x"}', 2),
        (4, b'{"topic":"@a"}', 2),
        (4, b'{"topic":"@a","content":"\xff"}', 2),
        (4, b'{"topic":"@a","content":"x","encoding":"rot13"}', 2),
        (4, b'{"topic":"@a","content":"%","encoding":"base64"}', 2),
        (4, b'{"topic":"@a","content":"\xc3\xa4","encoding":"base64"}', 2),
    ],
)
def test_bad_requests_get_an_err_and_nothing_goes_up(business: int, data: bytes, told: int) -> None:
    made = ready()
    step = made.session.receive(made.req(business, data), 0.0)
    assert number(step) == told
    assert step.frames == [frames.Err(business, told, seq=2)]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, 0),
        (7, 7),
        (4711, 4711),
        (2**32 - 1, 2**32 - 1),
        (-1, 0),
        (FailureCode.BAD_REQUEST, 2),
        (FailureCode.NOT_FOUND, 7),
        (FailureCode.TIMEOUT, 8),
        (FailureCode.TOO_LARGE, 9),
        (FailureCode.BUSY, 10),
        (FailureCode.STORAGE, 10),
        (FailureCode.PROVIDER_LOST, 0),
        (FailureCode.UNENCODABLE, 0),
    ],
)
def test_a_failure_is_an_err_with_its_number(code: int, told: int) -> None:
    made = ready()
    (question,) = made.session.receive(made.req(17), 0.0).messages
    step = made.session.send(answer_to(question, failure=Failure("text is lost", code)), 0.0)
    assert step.frames == [frames.Err(17, told, seq=2)]
    assert step.closing is None


def test_an_answer_over_the_limit_becomes_err_9() -> None:
    made = ready()
    (question,) = made.session.receive(made.req(17), 0.0).messages
    fits = answer_to(question, payload=bytes(MAGLINE_MESSAGE_BYTES_MAX - 20))
    over = answer_to(question, payload=bytes(MAGLINE_MESSAGE_BYTES_MAX - 19))
    assert made.session.send(over, 0.0).frames == [frames.Err(17, 9, seq=2)]
    (question,) = made.session.receive(made.req(17), 0.0).messages
    assert made.session.send(answer_to(question, payload=fits.payload), 0.0).frames[0].name == "REP"


def test_an_answer_that_cannot_be_said_leaves_the_question_open() -> None:
    made = ready()
    (question,) = made.session.receive(made.req(17), 0.0).messages
    with pytest.raises(TranslationError):
        made.session.send(answer_to(question, fields={"a": 1}, payload=b"x"), 0.0)
    assert made.session.send(answer_to(question, failure=Failure("so")), 0.0).frames == [frames.Err(17, 0, seq=2)]


def test_a_push_over_the_limit_is_refused_and_takes_no_seq() -> None:
    made = ready()
    large = Message(kind=Kind.NOTIFICATION, payload=bytes(MAGLINE_MESSAGE_BYTES_MAX))
    with pytest.raises(TranslationError):
        made.session.send(large, 0.0)
    assert made.open(made.session.send(NEWS, 0.0).frames[0]).seq == 1


def test_pushes_count_from_one() -> None:
    made = ready()
    pushes = [made.open(made.session.send(NEWS, 0.0).frames[0]) for _ in range(3)]
    assert [push.seq for push in pushes] == [1, 2, 3]
    assert pushes[0].business_cmd == 5
    assert pushes[0].data == b'{"topic":"@news","id":"n1","type":0,"content":"hi","ts":0}'


def test_the_app_cannot_ask_a_client() -> None:
    with pytest.raises(StateError):
        ready().session.send(Message(kind=Kind.REQUEST, target=Operation("magline/17", "call")), 0.0)


@pytest.mark.parametrize("seq", [0, 1, 4, 5])
def test_a_repeat_or_a_step_back_is_a_replay(seq: int) -> None:
    made = ready()
    made.session.receive(made.req(16, seq=5), 0.0)
    step = made.session.receive(made.req(16, seq=seq), 0.0)
    assert closes(step, "replay") == (4, 1)
    assert step.frames[0] == frames.Err(16, 4, seq=seq)


def test_a_gap_in_the_seqs_is_fine() -> None:
    made = ready()
    assert len(made.session.receive(made.req(16, seq=1000), 0.0).messages) == 1


def test_a_broken_seal_ends_the_connection() -> None:
    made = ready()
    good = made.req(16, b"hello")
    bad = frames.Req(16, good.hmac, b"hellp", seq=good.seq)
    assert closes(made.session.receive(bad, 0.0), "bad_hmac") == (3, 1)


def test_a_seq_near_its_end_asks_for_new_keys() -> None:
    made = ready()
    assert len(made.session.receive(made.req(16, seq=MAGLINE_SEQ_MAX - 1), 0.0).messages) == 1
    step = made.session.receive(made.req(16, seq=MAGLINE_SEQ_MAX), 0.0)
    assert step.frames == [frames.Fin(3, seq=1)]
    assert step.closing is not None
    assert step.closing.code == "rekey"


def test_our_own_seq_near_its_end_asks_for_new_keys() -> None:
    made = ready()
    made.session.sent_seq = MAGLINE_SEQ_MAX - 2
    assert made.open(made.session.send(NEWS, 0.0).frames[0]).seq == MAGLINE_SEQ_MAX - 1
    step = made.session.send(NEWS, 0.0)
    assert step.frames == [frames.Fin(3, seq=MAGLINE_SEQ_MAX)]
    assert made.session.state is ServerState.CLOSED


def test_too_many_open_requests_get_err_10() -> None:
    made = ready()
    for _ in range(MAGLINE_REQUESTS_OPEN_MAX):
        assert len(made.session.receive(made.req(16), 0.0).messages) == 1
    assert number(made.session.receive(made.req(16), 0.0)) == 10
    made.session.send(Message(kind=Kind.RESPONSE, correlation="2"), 0.0)
    assert len(made.session.receive(made.req(16), 0.0).messages) == 1


def test_an_old_session_is_resumed_when_the_app_allows_it() -> None:
    made = peer()
    sid = bytes(range(16))
    syn = made.syn(sid)
    step = made.session.receive(syn, 0.0)
    (question,) = step.messages
    assert (question.kind, question.name, question.fields) == (Kind.CONTROL, "resume", {"sid": sid.hex()})
    assert step.frames == []
    assert made.session.receive(frames.Pin(1, seq=2), 0.0).frames == [frames.Pon(1, seq=2)]
    (ack,) = made.session.send(answer_to(question), 0.0).frames
    made.take(syn, ack)
    assert made.sid == made.session.sid != sid
    assert made.session.state is ServerState.READY
    assert made.open(made.session.send(NEWS, 0.0).frames[0]).business_cmd == 5
    assert number(made.session.receive(made.req(1, LOGIN), 0.0)) == 2


def test_a_session_that_is_gone_gets_err_5() -> None:
    made = peer()
    (question,) = made.session.receive(made.syn(bytes(16)), 0.0).messages
    step = made.session.send(answer_to(question, failure=Failure("expired", 3)), 0.0)
    assert closes(step, "unknown_session") == (5, 1)
    assert step.frames[0] == frames.Err(0, 5, seq=1)


def test_while_resuming_nothing_else_has_a_place() -> None:
    made = peer()
    made.session.receive(made.syn(bytes(16)), 0.0)
    assert closes(made.session.receive(made.syn(), 0.0), "unexpected_frame") == (2, 1)
    made = peer()
    made.session.receive(made.syn(bytes(16)), 0.0)
    assert closes(made.session.tick(10.0), "login_timeout") == (8, 1)


def test_a_second_syn_with_the_own_sid_changes_the_keys_and_nothing_else() -> None:
    made = ready()
    (question,) = made.session.receive(made.req(17), 0.0).messages
    old_keys, old_sid = made.keys, made.sid
    syn = made.syn(made.sid)
    step = made.session.receive(syn, 0.0)
    assert [(message.kind, message.name) for message in step.messages] == [(Kind.CONTROL, "rekey")]
    made.take(syn, step.frames[0])
    assert made.keys != old_keys
    assert made.sid != old_sid
    (rep,) = made.session.send(answer_to(question, payload=b"late"), 0.0).frames
    assert made.open(rep) == frames.Rep(17, frames.OPENED, b"late", seq=2)
    assert len(made.session.receive(made.req(16), 0.0).messages) == 1
    made.keys = old_keys
    assert closes(made.session.receive(made.req(16), 0.0), "bad_hmac") == (3, 1)


def test_the_seqs_run_on_through_a_second_syn() -> None:
    made = ready()
    made.session.receive(made.req(17), 0.0)
    assert closes(made.session.receive(made.syn(made.sid, seq=2), 0.0), "replay") == (4, 1)
    made = ready()
    made.session.receive(made.req(17), 0.0)
    made.connect(made.sid)
    assert closes(made.session.receive(made.req(16, seq=2), 0.0), "replay") == (4, 1)


def test_a_second_syn_with_another_sid_gets_err_5() -> None:
    made = ready()
    assert closes(made.session.receive(made.syn(bytes(16)), 0.0), "unknown_session") == (5, 1)


def test_a_second_syn_without_the_proof_gets_err_5() -> None:
    made = ready()
    assert closes(made.session.receive(made.syn(made.sid, proof=False), 0.0), "unknown_session") == (5, 1)
    for change in ("client_random", "client_public", "header"):
        made = ready()
        syn = replace(made.syn(made.sid), **{change: bytes(range(32))})
        assert closes(made.session.receive(syn, 0.0), "unknown_session") == (5, 1)
    made = ready(resume_without_proof="always")
    assert [f.name for f in made.session.receive(made.syn(made.sid, proof=False), 0.0).frames] == ["ACK"]
    wrong = replace(made.syn(made.session.sid), header=bytes(32))
    assert closes(made.session.receive(wrong, 0.0), "unknown_session") == (5, 1), "one that is there must hold"


def test_a_proof_is_checked_with_the_secret_that_the_app_brings() -> None:
    secret, sid = bytes(range(32)), bytes(range(16))
    made = peer()
    syn = made.syn(sid, proof=False)
    proof = crypto.resume_proof(secret, syn)
    cases = [
        (replace(syn, head_optional=1, header=proof), True),
        (replace(syn, head_optional=0x8001, header=proof + b"what a later version adds"), True),
        (replace(syn, header=proof), False),  # the bit is not set
        (replace(syn, head_optional=2, header=proof), False),
        (replace(syn, head_optional=1, header=proof[:31]), False),
        (replace(syn, head_optional=1), False),
        (replace(syn, head_optional=1, header=crypto.resume_proof(bytes(32), syn)), False),
        (syn, False),
    ]
    for given, right in cases:
        made = peer()
        made.session.receive(given, 0.0)
        assert made.session.may_resume(secret) is right
    made = peer()
    nothing = crypto.resume_proof(b"", syn)
    made.session.receive(replace(syn, head_optional=1, header=nothing), 0.0)
    assert not made.session.may_resume(b""), "a session without a secret has no proof"


def test_the_log_has_no_sid() -> None:
    for made in (peer(), ready()):
        sid = made.sid or bytes(range(1, 17))
        syn = made.syn(sid)
        wire = syn.encode()
        made.session.receive(syn, 0.0)
        kept = redact(made.session.logged_frame(wire, Sender.CLIENT), Sender.CLIENT)
        assert kept == replace(syn, sid=bytes(16)).encode()
    first = made.syn()
    assert redact(made.session.logged_frame(first.encode(), Sender.CLIENT), Sender.CLIENT) == first.encode()


def test_a_second_syn_without_a_sid_is_a_new_session_without_a_login() -> None:
    made = checking()
    made.session.send(Message(kind=Kind.RESPONSE, correlation="2"), 0.0)
    (question,) = made.session.receive(made.req(17), 0.0).messages
    old_sid = made.sid
    syn = made.syn()
    step = made.session.receive(syn, 5.0)
    made.take(syn, step.frames[0])
    assert [control_op(message) for message in step.messages] == [Op.LOGOUT]
    assert made.sid != old_sid
    assert made.session.state is ServerState.CONNECTED
    assert made.session.deadlines["login"] == 15.0
    assert made.session.send(answer_to(question, payload=b"secret"), 5.0) == Step()
    assert number(made.session.receive(made.req(17), 5.0)) == 6
    syn = made.syn()
    assert made.session.receive(syn, 6.0).messages == []  # nobody was logged in


def test_where_no_login_is_required_a_new_session_is_ready_at_once() -> None:
    made = ready()
    syn = made.syn()
    step = made.session.receive(syn, 0.0)
    assert [control_op(message) for message in step.messages] == [Op.LOGOUT]
    assert made.session.state is ServerState.READY


def test_a_login_is_never_decided_for_another_session() -> None:
    made = checking()
    made.connect(made.sid)
    assert made.session.state is ServerState.CHECKING
    (rep,) = made.session.send(Message(kind=Kind.RESPONSE, correlation="2"), 0.0).frames
    assert made.open(rep).data == b'{"ok":true}'
    made = checking()
    assert closes(made.session.receive(made.syn(), 0.0), "unexpected_frame") == (2, 1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ProtocolError("version", "…", 1), 1),
        (ProtocolError("bad_magic", "…", 0), 2),
        (SealError("bad_seal", "…", 0), 3),
        (LimitError("magline_message_bytes_max", "…", 12), 9),
    ],
)
def test_what_cannot_be_read_ends_the_connection(error: ProtocolError, told: int) -> None:
    for made in (peer(), ready(), checking()):
        step = made.session.fail(error, 0.0)
        assert closes(step, error.code) == (told, 1)
        assert made.session.fail(error, 0.0) == Step()


@pytest.mark.parametrize(
    ("code", "reason"), [("shutdown", 4), ("replaced", 5), ("idle", 2), ("rekey", 3), ("error", 1), ("kicked", 0)]
)
def test_goodbye_says_why(code: str, reason: int) -> None:
    step = ready().session.close(Closing(code), 0.0)
    assert step == Step(frames=[frames.Fin(reason, seq=1)], closing=Closing(code))


def test_a_session_that_is_no_longer_allowed_gets_err_11_and_ends() -> None:
    step = ready().session.close(Closing(ACCESS_DENIED, "access denied: subscribe @a"), 0.0)
    assert closes(step, ACCESS_DENIED) == (11, 1)


def test_silence_ends_with_fin_2_and_pings_prevent_it() -> None:
    made = ready()
    made.session.receive(frames.Pin(1, seq=2), 50.0)
    assert made.session.tick(109.0) == Step()
    step = made.session.tick(110.0)
    assert step.frames == [frames.Fin(2, seq=1)]
    assert step.closing == Closing("idle", "no data received for 60 s")


def test_the_log_keeps_frames_opened() -> None:
    made = ready()
    req = made.req(17, b"hello")
    plain = frames.Req(17, frames.OPENED, b"hello", seq=2).encode()
    (question,) = made.session.receive(req, 0.0).messages
    assert made.session.logged_frame(req.encode(), Sender.CLIENT) == plain
    (rep,) = made.session.send(answer_to(question, payload=b"olleh"), 0.0).frames
    assert made.session.logged_frame(rep.encode(), Sender.SERVER) == made.open(rep).encode()
    forged = frames.Req(17, b"x" * 16, b"hello", seq=3).encode()
    pin = frames.Pin(1).encode()
    assert made.session.logged_frame(forged, Sender.CLIENT) == forged
    assert made.session.logged_frame(pin, Sender.CLIENT) == pin
    assert peer().session.logged_frame(forged, Sender.CLIENT) == forged
