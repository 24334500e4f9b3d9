import pytest
from hypothesis import given

from protocols.esnp.strategies import any_messages, client_says, server_says
from wirelake.errors import TranslationError
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import ESNP_FRAME_BYTES_MAX, ESNP_ITEMS_MAX, ESNP_LINES_MAX
from wirelake.protocols.esnp.contents import read_contents
from wirelake.protocols.esnp.frames import EsnpMessage, decode
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.protocol import PROTOCOL
from wirelake.protocols.esnp.translation import to_message
from wirelake.protocols.esnp.values import Var, var_of
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.testing import senders
from wirelake.protocols.translation import Loss

ADD = Operation("calc", "add")
CALC = (lines.address_line(20, "add"), lines.address_line(30, "calc"))


def crossed(message: Message, sender: Sender) -> Message:
    frame = from_message(message, sender)
    assert frame.head_after_body is None
    assert read_contents(frame).malformed is None
    return to_message(decode(frame.encode(), sender), sender)


@given(client_says)
def test_what_a_client_says_comes_back(message: Message) -> None:
    assert crossed(message, Sender.CLIENT) == message


@given(server_says)
def test_what_a_server_says_comes_back(message: Message) -> None:
    assert crossed(message, Sender.SERVER) == message


@given(any_messages, senders)
def test_every_frame_becomes_a_message(frame: EsnpMessage, sender: Sender) -> None:
    assert to_message(frame, sender).protocol == "esnp"


@pytest.mark.parametrize("loss", PROTOCOL.losses, ids=lambda loss: loss.what)
def test_losses(loss: Loss) -> None:
    if loss.becomes is None:
        with pytest.raises(TranslationError):
            from_message(loss.example, loss.sender)
        return
    assert crossed(loss.example, loss.sender) == loss.becomes
    assert loss.becomes != loss.example


def said(*parts: Line, sender: Sender = Sender.CLIENT) -> Message:
    return to_message(EsnpMessage(parts), sender)


def gateway(op: str, *rest: Line, flag: int = 4) -> Message:
    return said(lines.flag_line(flag), lines.address_line(20, op), lines.address_line(30, "wirelake"), *rest)


def test_what_only_esnp_has_is_kept_for_esnp() -> None:
    everything = EsnpMessage(
        (
            lines.flag_line(4),
            *CALC,
            lines.message_id_line(7),
            lines.flag_line(1),
            lines.flag_line(200),
            lines.source_address_line(40, "here"),
            lines.seq_no_line(1, 2),
            lines.address_line(25, "?"),
            lines.version_line(1, 0, 0, 0),
            Line(0x20, b"unknown"),
            lines.session_info_line("s", var_of([1])),
            lines.header_line("h", var_of(1)),
            lines.header_line("to", var_of(250)),
            lines.data_line("d", var_of(2)),
            lines.payload_line(b"p"),
            lines.xdata_line(3, b"x"),
            Line(0x80, b"app"),
        )
    )
    message = to_message(everything, Sender.CLIENT)
    assert message == Message(
        kind=Kind.REQUEST,
        name="request",
        protocol="esnp",
        target=ADD,
        correlation="7",
        fields={"d": 2},
        payload=b"p",
        headers={
            "h": 1,
            "timeout_ms": 250,
            "esnp.flags": [1, 200],
            "esnp.session": {"s": [1]},
            "esnp.source": [[40, "here"]],
            "esnp.seq_no": [1, 2],
            "esnp.lines": [
                [0x17, b"\x32\x02?"],
                [0x1F, b"\x01\0\0\0"],
                [0x20, b"unknown"],
                [0x1C, b"\x06x"],
                [0x80, b"app"],
            ],
        },
    )
    assert from_message(message, Sender.CLIENT) == everything


def test_withdrawn_lines_are_ignored() -> None:
    plain = (lines.flag_line(4), *CALC)
    assert said(*plain, Line(0x13, b"\x02"), Line(0x19), Line(0x1A)) == said(*plain)


def test_a_message_without_flags_is_a_request() -> None:
    assert said(*CALC).kind is Kind.REQUEST
    assert said().target is None


@pytest.mark.parametrize(
    ("flags", "kind", "name"),
    [
        ((4,), Kind.REQUEST, "request"),
        ((4, 5), Kind.REQUEST, "request"),
        ((7,), Kind.REQUEST, "request"),
        ((5,), Kind.EVENT, "info"),
        ((6,), Kind.EVENT, "event"),
        ((2,), Kind.EVENT, "trace"),
        ((3, 4), Kind.RESPONSE, "response"),
    ],
)
@pytest.mark.parametrize("sender", Sender)
def test_the_flags_say_what_a_message_is_for(flags: tuple[int, ...], kind: Kind, name: str, sender: Sender) -> None:
    message = said(*map(lines.flag_line, flags), *CALC, sender=sender)
    assert (message.kind, message.name, message.target) == (kind, name, ADD)


def test_only_a_server_notifies() -> None:
    event = (lines.flag_line(6), lines.address_line(10, "@a"), lines.data_line("id", var_of("n1")))
    assert said(*event, sender=Sender.SERVER).kind is Kind.NOTIFICATION
    assert said(*event).kind is Kind.EVENT


def test_a_notification_keeps_what_is_not_as_it_should_be_among_the_fields() -> None:
    message = said(
        lines.flag_line(6),
        lines.address_line(10, "@a"),
        lines.data_line("id", var_of(5)),
        lines.data_line("type", var_of(True)),
        lines.data_line("ts", var_of("now")),
        sender=Sender.SERVER,
    )
    assert (message.id, message.type, message.at_ms) == ("", 0, 0)
    assert message.fields == {"id": 5, "type": True, "ts": "now"}


@pytest.mark.parametrize("flag", [4, 5])
def test_a_token_is_in_the_credentials_and_nowhere_else(flag: int) -> None:
    user, token = lines.data_line("user", var_of("ann")), lines.data_line("token", var_of("s3cret"))
    message = gateway("login", user, token, flag=flag)
    assert message.credentials == Credentials("ann", "s3cret")
    assert message.fields == {}
    odd = gateway("login", lines.data_line("user", var_of(5)), lines.data_line("token", var_of(b"s3cret")))
    assert odd.credentials == Credentials("", "")
    assert odd.fields == {}


@pytest.mark.parametrize(
    ("content", "payload"),
    [("héllo", "héllo".encode()), (b"\xff", b"\xff"), ([1, None], b"[1,null]"), (None, b"null")],
)
def test_what_is_published_may_stand_in_a_data_line(content: object, payload: bytes) -> None:
    topic = lines.data_line("topic", var_of("@a"))
    message = gateway("publish", topic, lines.data_line("content", var_of(content)), lines.data_line("x", var_of(1)))
    assert (message.kind, message.target, message.payload) == (Kind.NOTIFICATION, Topic("@a"), payload)
    assert message.fields == {"x": 1}


def test_a_payload_comes_before_a_content_line() -> None:
    both = gateway("publish", lines.data_line("content", var_of("x")), lines.payload_line(b"y"))
    assert (both.payload, both.fields, both.target) == (b"y", {"content": "x"}, Topic(""))


def test_requests_to_the_gateway_that_lack_something_are_still_messages() -> None:
    assert gateway("subscribe", lines.data_line("topic", var_of(5))).fields == {"topics": []}
    assert gateway("register").fields == {"service": ""}
    unknown = gateway("dance", lines.data_line("a", var_of(1)))
    assert (unknown.kind, unknown.name, unknown.fields, control_op(unknown)) == (Kind.CONTROL, "dance", {"a": 1}, None)


def test_a_peer_cannot_write_the_headers_that_only_we_write() -> None:
    forged = lines.header_line("esnp.lines", var_of([[0x1E, b"\x06"]]))
    named = lines.header_line("timeout_ms", var_of("x"))
    late = lines.header_line("to", var_of("later"))
    negative = lines.header_line("to", var_of(-1))
    message = said(*CALC, forged, named, late)
    assert message.headers == {"to": "later", "esnp.lines": [[0x14, forged.data], [0x14, named.data]]}
    assert said(*CALC, negative).headers == {"to": -1}


def test_an_answer_in_parts_counts_down() -> None:
    (first, last) = (
        said(lines.flag_line(3), lines.source_message_id_line(7), lines.seq_no_line(*numbers))
        for numbers in ((1, 2), (2, 2))
    )
    assert [(part.correlation, part.more) for part in (first, last)] == [("7", 1), ("7", 0)]
    frame = from_message(Message(kind=Kind.RESPONSE, more=2), Sender.SERVER)
    assert frame.seq_no == lines.SeqNo(1, 3)


def test_a_malformed_answer_is_a_failure_and_the_last() -> None:
    message = said(lines.flag_line(3), lines.seq_no_line(1, 5), lines.error_line("x"), Line(0x15))
    assert message.failure == Failure("malformed: the bytes end inside a number (byte 20, short)")
    assert message.more == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"esnp.flags": 5},
        {"esnp.flags": ["x"]},
        {"esnp.flags": [3]},
        {"esnp.session": [1]},
        {"esnp.source": [[40]]},
        {"esnp.source": "x"},
        {"esnp.seq_no": ["a", "b"]},
        {"esnp.lines": [[0x80, "text"]]},
        {"esnp.lines": [5]},
        {"esnp.lines": [[0, b""]]},
        {"esnp.lines": [[256, b""]]},
        {"esnp.lines": [[0x1E, b"\x06"]]},
        {"esnp.lines": [[0x13, b""]]},
        {"esnp.lines": [[0x1F, b"123"]]},
        {"esnp.lines": [[0x17, b"\x3c\x02x"]]},
        {"lang": object()},
        {"lang": "\ud800"},
    ],
)
def test_headers_that_are_not_ours_are_refused(headers: dict[str, object]) -> None:
    with pytest.raises(TranslationError):
        from_message(Message(kind=Kind.REQUEST, target=ADD, headers=headers), Sender.CLIENT)


def test_an_unreadable_address_may_be_passed_on() -> None:
    message = Message(kind=Kind.REQUEST, headers={"esnp.lines": [[0x17, b""]]})
    assert from_message(message, Sender.CLIENT).lines[-1] == Line(0x17)


def test_messages_that_esnp_has_no_room_for_are_refused() -> None:
    for message in (
        Message(kind=Kind.REQUEST, payload=bytes(ESNP_FRAME_BYTES_MAX)),
        Message(kind=Kind.REQUEST, headers={"esnp.lines": [[0x80, b""]] * (ESNP_LINES_MAX + 1)}),
        Message(kind=Kind.REQUEST, fields={"a": [None] * ESNP_ITEMS_MAX, "b": {"c": [1]}}),
    ):
        with pytest.raises(TranslationError):
            from_message(message, Sender.CLIENT)
    full = Message(kind=Kind.REQUEST, fields={"a": [None] * (ESNP_ITEMS_MAX - 2), "b": {"c": [1]}})
    assert crossed(full, Sender.CLIENT).fields == full.fields


@pytest.mark.parametrize("correlation", ["18446744073709551616", "-1", "²", "1" * 5000, "x"])
def test_a_correlation_that_is_no_number_stays_here(correlation: str) -> None:
    message = Message(kind=Kind.REQUEST, target=ADD, correlation=correlation)
    assert from_message(message, Sender.CLIENT).message_id is None


@pytest.mark.parametrize(
    "message",
    [
        control(Op.LOGIN),
        control(Op.TOPICS),
        Message(kind=Kind.CONTROL, name="exchange_key"),
        Message(kind=Kind.EVENT, target=Topic("@a")),
    ],
)
def test_other_things_are_refused(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, Sender.CLIENT)


def test_the_widths_of_numbers_are_ours_after_a_crossing() -> None:
    message = said(*CALC, lines.data_line("a", Var(3, 5)), lines.data_line("b", Var(13, 0.5)))
    assert from_message(message, Sender.CLIENT).data == (("a", Var(5, 5)), ("b", Var(14, 0.5)))
