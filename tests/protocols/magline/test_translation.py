import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.magline.strategies import either_order
from wirelake.errors import TranslationError
from wirelake.message import Credentials, Device, Failure, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.frames import OPENED, MaglineFrame
from wirelake.protocols.magline.translation import from_message, to_message

CALL = Operation("magline/17", "call")
COMMAND = Operation("devices", "command")


@given(either_order, laws.senders)
def test_every_frame_has_a_message(frame: MaglineFrame, sender: Sender) -> None:
    assert to_message(frame, sender).protocol == "magline"


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (
            control(Op.LOGIN, credentials=Credentials("ann", "t")),
            frames.Req(1, OPENED, b'{"user":"ann","token":"t"}'),
        ),
        (control(Op.SUBSCRIBE, fields={"topics": ["@a"]}), frames.Req(2, OPENED, b'{"topics":["@a"]}')),
        (control(Op.UNSUBSCRIBE, fields={"topics": ["b"]}), frames.Req(3, OPENED, b'{"topics":["b"]}')),
        (control(Op.ACK, fields={"ids": ["1"]}), frames.Req(6, OPENED, b'{"ids":["1"]}')),
        (
            Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=b"\xff"),
            frames.Req(4, OPENED, b'{"topic":"@a","content":"/w==","encoding":"base64"}'),
        ),
        (Message(kind=Kind.REQUEST, target=CALL, payload=b"x"), frames.Req(17, OPENED, b"x")),
        (
            Message(kind=Kind.REQUEST, target=COMMAND, fields={"serial": "m1", "type": 130, "data": "0a"}),
            frames.Req(7, OPENED, b'{"serial":"m1","type":130,"data":"0a"}'),
        ),
        (control(Op.PING, fields={"number": 3}), frames.Pin(3)),
    ],
)
def test_what_a_client_says_comes_back(message: Message, frame: MaglineFrame) -> None:
    assert from_message(message, Sender.CLIENT) == frame
    back = to_message(frame, Sender.CLIENT)
    assert (back.kind, back.target, back.fields) == (message.kind, message.target, message.fields)
    assert (back.payload, back.credentials) == (message.payload, message.credentials)


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (
            Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="1", type=2, payload=b"x", at_ms=3),
            frames.Psh(5, OPENED, b'{"topic":"@a","id":"1","type":2,"content":"x","ts":3}'),
        ),
        (
            Message(kind=Kind.NOTIFICATION, payload=b"\xff"),
            frames.Psh(5, OPENED, b'{"topic":"","id":"","type":0,"content":"/w==","encoding":"base64","ts":0}'),
        ),
        (Message(kind=Kind.RESPONSE, target=CALL, payload=b"x"), frames.Rep(17, OPENED, b"x")),
        (Message(kind=Kind.RESPONSE, payload=b"x"), frames.Rep(0, OPENED, b"x")),
        (
            Message(kind=Kind.RESPONSE, target=Operation("wirelake", "subscribe"), fields={"topics": ["@a"]}),
            frames.Rep(2, OPENED, b'{"ok":true,"topics":["@a"]}'),
        ),
        (Message(kind=Kind.RESPONSE, target=CALL, failure=Failure("error 4711", 4711)), frames.Err(17, 4711)),
    ],
)
def test_what_a_server_says_comes_back(message: Message, frame: MaglineFrame) -> None:
    assert from_message(message, Sender.SERVER) == frame
    back = to_message(frame, Sender.SERVER)
    assert (back.kind, back.target, back.fields) == (message.kind, message.target, message.fields)
    assert (back.payload, back.failure) == (message.payload, message.failure)
    assert (back.id, back.type, back.at_ms) == (message.id, message.type, message.at_ms)


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        (Sender.CLIENT, control(Op.LOGIN)),
        (Sender.CLIENT, control(Op.SUBSCRIBE)),
        (Sender.CLIENT, control(Op.ACK, fields={"ids": "1"})),
        (Sender.CLIENT, control(Op.TOPICS)),
        (Sender.CLIENT, control(Op.PUBLISH)),
        (Sender.CLIENT, Message(kind=Kind.REQUEST)),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("magline/15", "call"))),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("magline/017", "call"))),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("magline/4294967296", "call"))),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("magline/17", "read"))),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("magline/17", "call", "thing"))),
        (Sender.CLIENT, Message(kind=Kind.REQUEST, target=Operation("wirelake", "login"))),
        (Sender.CLIENT, Message(kind=Kind.NOTIFICATION, target=Device("1"))),
        (Sender.SERVER, control(Op.PING)),
        (Sender.SERVER, Message(kind=Kind.EVENT)),
        (Sender.SERVER, Message(kind=Kind.RESPONSE, parts=(Message(kind=Kind.NOTIFICATION),))),
        (Sender.SERVER, Message(kind=Kind.RESPONSE, target=Operation("wirelake", "ack"), payload=b"x")),
    ],
)
def test_what_cannot_be_said_is_refused(sender: Sender, message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, sender)


def test_the_seq_ties_answers_to_questions() -> None:
    question = frames.Req(17, OPENED, b"", seq=5)
    for answer in (frames.Rep(17, OPENED, b"", seq=5), frames.Err(17, 7, seq=5)):
        asked, answered = to_message(question, Sender.CLIENT), to_message(answer, Sender.SERVER)
        assert asked.correlation == answered.correlation == "5"
        assert asked.target == answered.target == CALL


@pytest.mark.parametrize("frame", [frames.Req(1, b"h" * 16, b"?"), frames.Rep(17, b"h" * 16, b"?")])
def test_what_is_still_sealed_says_so(frame: MaglineFrame) -> None:
    message = to_message(frame, Sender.CLIENT)
    assert (message.headers, message.payload, message.credentials) == ({"sealed": True}, b"?", None)


def test_a_sealed_push_says_so() -> None:
    message = to_message(frames.Psh(5, b"h" * 16, b"?"), Sender.SERVER)
    assert (message.kind, message.headers, message.payload) == (Kind.NOTIFICATION, {"sealed": True}, b"?")


@pytest.mark.parametrize(
    ("frame", "payload"),
    [
        (frames.Req(2, OPENED, b"{"), b"{"),
        (frames.Req(9, OPENED, b"raw"), b"raw"),
        (frames.Psh(5, OPENED, b"{"), b"{"),
        (frames.Psh(17, OPENED, b"{}"), b"{}"),
        (frames.Req(1, OPENED, b'{"token":"t0ken"'), b""),
    ],
)
def test_data_that_cannot_be_read_is_a_failure_that_shows_no_token(frame: MaglineFrame, payload: bytes) -> None:
    message = to_message(frame, Sender.CLIENT)
    assert message.failure is not None
    assert message.failure.code == 2
    assert message.payload == payload


@pytest.mark.parametrize("data", [b"plain", b"[1]", b"\xff"])
def test_an_answer_of_the_gateway_that_is_no_object_is_kept(data: bytes) -> None:
    assert to_message(frames.Rep(2, OPENED, data), Sender.SERVER).payload == data


def test_the_end_of_a_connection() -> None:
    assert from_message(control(Op.LOGOUT), Sender.CLIENT) == frames.Fin(0)
    left = to_message(frames.Fin(0), Sender.CLIENT)
    assert (control_op(left), left.fields) == (Op.LOGOUT, {"reason": 0, "says": "normal"})
    sent_away = to_message(frames.Fin(5), Sender.SERVER)
    assert (sent_away.target, sent_away.fields) == (None, {"reason": 5, "says": "replaced"})
    assert to_message(frames.Fin(99), Sender.SERVER).fields["says"] == "not a known reason"


@given(st.binary(max_size=100))
def test_any_content_crosses(content: bytes) -> None:
    news = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=content)
    assert to_message(from_message(news, Sender.SERVER), Sender.SERVER).payload == content
    assert to_message(from_message(news, Sender.CLIENT), Sender.CLIENT).payload == content


def test_a_syn_says_whether_it_resumes_and_not_what() -> None:
    syn = frames.Syn(bytes(32), bytes(32), bytes(range(16)), seq=1)
    message = to_message(syn, Sender.CLIENT)
    said = {"resume": True, "proof": False}
    assert (message.kind, message.name, message.fields) == (Kind.CONTROL, "SYN", said)
    proving = frames.Syn(bytes(32), bytes(32), bytes(range(16)), seq=1, head_optional=1, header=bytes(32))
    assert to_message(proving, Sender.CLIENT).fields == {"resume": True, "proof": True}
    assert to_message(frames.Syn(bytes(32), bytes(32)), Sender.CLIENT).fields == {}


def test_a_command_may_name_the_device_as_its_object_and_bring_its_data_as_payload() -> None:
    message = Message(
        kind=Kind.REQUEST, target=Operation("devices", "command", "m1"), fields={"type": 130}, payload=b"\x0a"
    )
    assert from_message(message, Sender.CLIENT) == frames.Req(7, OPENED, b'{"serial":"m1","type":130,"data":"0a"}')
    with pytest.raises(TranslationError, match="serial"):
        from_message(Message(kind=Kind.REQUEST, target=COMMAND, fields={"type": 130}), Sender.CLIENT)
