"""Test both ends of an apostol session: real sessions that exchange real bytes."""

import pytest
from msgspec.structs import replace

from protocols.conversation import Conversation
from wirelake.errors import EncodeError, ProtocolError, StateError, TranslationError
from wirelake.message import Credentials, Device, Failure, Kind, Message, Op, control_op
from wirelake.protocols.apostol.client import ClientSession
from wirelake.protocols.apostol.commands import DeviceCommand, ServerCommand
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_HELD_BYTES_MAX,
    APOSTOL_HELD_PACKETS_MAX,
    SEALED,
    TO_DEVICE,
    ZIPPED,
)
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, Receipt, decode, receipt_for
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import ClientState, ServerState, SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step

KEY = bytes(range(16))
METER = Device("1234", 6)
STATUS = {"state": 0, "tariff": 4, "configured_at": 0, "time_sync": 2, "synced_at": 1577866140}
REPORT = Message(
    kind=Kind.TELEMETRY,
    correlation="r1",
    fields={"command_type": 1, "device_time": 1577866150, "status": STATUS},
)
ASK = Message(kind=Kind.REQUEST, target=METER, correlation="q1", fields={"command_type": 0x82}, payload=b"give")
WELCOME = Message(kind=Kind.RESPONSE, correlation="login")
WELCOME_WITH_KEY = replace(WELCOME, fields={"key": KEY})


def random(size: int) -> bytes:
    """Return zeros: tests need the same bytes each time."""
    return bytes(size)


def start(key: bytes | None = None, **settings: float) -> Conversation:
    chosen = SessionSettings(**settings)  # type: ignore[arg-type]
    server = ServerSession(0.0, random, chosen)
    client = ClientSession(0.0, random, "1234", 6, key, chosen)
    return Conversation(PROTOCOL, client, server)


def known(key: bytes | None = None, **settings: float) -> Conversation:
    """Return a conversation with a device that has reported once and was admitted."""
    conversation = start(key, **settings)
    conversation.client_says(REPORT)
    conversation.server_says(WELCOME if key is None else WELCOME_WITH_KEY)
    conversation.client_messages.clear()
    conversation.server_messages.clear()
    conversation.wire.clear()
    return conversation


def ready(key: bytes | None = None, settings: SessionSettings = SessionSettings()) -> ServerSession:
    """Return the gateway's end alone, ready since 0 s, after a report with the number 0."""
    server = ServerSession(0.0, random, settings)
    server.receive(Packet(1, 3, 6, "1234", 0, 0, DeviceCommand(0, 2).encode()), 0.0)
    server.send(replace(WELCOME, fields={"key": key}), 0.0)
    return server


def packets_of(step: Step) -> list[Packet]:
    return [frame for frame in step.frames if isinstance(frame, Packet) and not frame.receipt]


def packets_from(conversation: Conversation, sender: Sender) -> list[Packet]:
    return [decode(raw, by) for by, raw in conversation.wire if by is sender]


def device_packets(command: DeviceCommand, number: int = 7, params: int = 0, size: int = 1024) -> list[Packet]:
    return build_packets(command.encode(), params, 6, "1234", number, size)


# A device connects


def test_the_first_packet_makes_the_gateway_look_up_the_device() -> None:
    conversation = start()
    (login,) = conversation.client_says(REPORT)
    assert control_op(login) is Op.LOGIN
    assert login.credentials == Credentials("1234", "")
    assert (login.fields, login.source) == ({"device_type": 6}, "1234")
    assert packets_from(conversation, Sender.SERVER) == []
    assert conversation.sessions[Sender.SERVER].state is ServerState.CHECKING


def test_a_known_device_gets_its_receipt() -> None:
    conversation = start()
    conversation.client_says(REPORT)
    conversation.server_says(WELCOME)
    report = conversation.server_messages[-1]
    assert (report.kind, report.name, report.source) == (Kind.TELEMETRY, "command", "1234")
    assert report.fields == {"command_type": 1, "error": 0, "device_time": 1577866150, "status": STATUS}
    assert packets_from(conversation, Sender.SERVER) == [Receipt(1, 0x44, 6, "1234", 0, 0, b"")]
    (receipt,) = conversation.client_messages
    assert (receipt.kind, receipt.name, receipt.correlation) == (Kind.RESPONSE, "receipt", "r1")
    assert receipt.failure is None


def test_an_unknown_device_gets_no_response() -> None:
    conversation = start()
    conversation.client_says(REPORT)
    conversation.server_says(replace(WELCOME, failure=Failure("unknown device")))
    assert packets_from(conversation, Sender.SERVER) == []
    assert conversation.closings == {Sender.SERVER: Closing("device_refused", "unknown device")}
    assert conversation.sessions[Sender.SERVER].state is ServerState.CLOSED


def test_a_lookup_that_takes_too_long_closes() -> None:
    server = ServerSession(0.0, random, SessionSettings(check_s=10.0))
    server.receive(device_packets(DeviceCommand(0, 2))[0], 1.0)
    assert server.tick(10.9).closing is None
    step = server.tick(11.0)
    assert step.closing is not None
    assert (step.closing.code, step.frames) == ("check_timeout", [])


def test_held_packets_are_bounded_and_the_others_get_no_receipt() -> None:
    server = ServerSession(0.0, random)
    for number in range(APOSTOL_HELD_PACKETS_MAX + 1):
        server.receive(device_packets(DeviceCommand(0, 2), number)[0], 0.0)
    assert server.ignored.not_held == 1
    step = server.send(WELCOME, 0.0)
    assert [frame.name for frame in step.frames] == ["receipt"] * APOSTOL_HELD_PACKETS_MAX
    assert len(step.messages) == APOSTOL_HELD_PACKETS_MAX
    large = ServerSession(0.0, random)
    for number in range(3):
        large.receive(Packet(1, 3, 6, "1234", number, 0, bytes(APOSTOL_HELD_BYTES_MAX // 2)), 0.0)
    assert large.ignored.not_held == 1


def test_before_it_is_known_receipts_and_misdirected_packets_are_ignored() -> None:
    server = ServerSession(0.0, random)
    receipt = Receipt(1, 0x40, 6, "1234", 0, 0, b"")
    ignored = (receipt, Packet(1, 7, 6, "1234", 0, 0, b"\x82"), Packet(1, 3, 0xFF, "", 0, 0, bytes(6)))
    for frame in ignored:
        assert server.receive(frame, 0.0) == Step()
    assert server.state is ServerState.UNKNOWN
    assert (server.ignored.misdirected, server.ignored.unknown_receipts) == (2, 1)
    server.receive(device_packets(DeviceCommand(0, 2))[0], 0.0)
    assert server.receive(receipt, 0.0) == Step()
    assert server.ignored.unknown_receipts == 2
    with pytest.raises(StateError):
        server.send(ASK, 0.0)


def test_a_key_of_the_wrong_size_is_an_error_of_ours() -> None:
    server = ServerSession(0.0, random)
    server.receive(device_packets(DeviceCommand(0, 2))[0], 0.0)
    with pytest.raises(EncodeError):
        server.send(replace(WELCOME, fields={"key": b"short"}), 0.0)
    assert server.send(WELCOME_WITH_KEY, 0.0).messages != []
    with pytest.raises(EncodeError):
        ClientSession(0.0, random, "1", key=b"short")


# A device reports


def test_every_packet_gets_a_receipt_repeats_too_and_the_command_is_handed_up_once() -> None:
    server = ready()
    packets = device_packets(DeviceCommand(5, 2, 0, b"0123456789"), size=4)
    messages = []
    for packet in [packets[2], packets[0], packets[2], packets[3], packets[1], *packets]:
        step = server.receive(packet, 1.0)
        assert step.frames == [receipt_for(packet)]
        messages += step.messages
    (report,) = messages
    assert (report.kind, report.payload, report.correlation) == (Kind.TELEMETRY, b"0123456789", "7")


def test_packets_of_others_and_of_the_other_direction_are_ignored() -> None:
    server = ready()
    for frame in (
        replace(device_packets(DeviceCommand(5, 2))[0], serial="other"),
        Packet(1, 7, 6, "1234", 0, 0, b"\x82"),
        Receipt(1, 0x44, 6, "1234", 0, 0, b""),
    ):
        assert server.receive(frame, 0.0) == Step()
    assert server.ignored.misdirected == 3


def test_a_large_zipped_report_crosses_in_many_packets() -> None:
    conversation = known(packet_data_bytes=50)
    payload = bytes(range(256)) * 4
    for headers in ({}, {"zipped": True}):
        conversation.wire.clear()
        report = Message(
            kind=Kind.TELEMETRY, correlation="big", headers=headers, fields={"command_type": 2}, payload=payload
        )
        (received,) = conversation.client_says(report)
        assert received.payload == payload
        assert {packet.zipped for packet in packets_from(conversation, Sender.CLIENT)} == {bool(headers)}
        assert conversation.client_messages[-1].correlation == "big"
    assert received.headers == {"zipped": True, "device_type": 6}


def test_with_a_key_reports_and_requests_are_sealed_on_the_wire_and_open_above() -> None:
    conversation = known(KEY)
    (report,) = conversation.client_says(replace(REPORT, fields={"command_type": 2}, payload=b"in clear"))
    assert (report.payload, report.headers["sealed"]) == (b"in clear", True)
    (request,) = conversation.server_says(ASK)
    assert (request.payload, request.headers["sealed"]) == (b"give", True)
    answer = Message(kind=Kind.RESPONSE, correlation=request.correlation, payload=b"taken")
    (received,) = conversation.client_says(answer)
    assert received.payload == b"taken"
    wire = b"".join(raw for _, raw in conversation.wire)
    for word in (b"in clear", b"give", b"taken"):
        assert word not in wire
    conversation.server_says(replace(ASK, headers={"sealed": False}))
    assert b"give" in conversation.wire[-2][1]


def test_a_seal_can_be_required() -> None:
    server = ready(KEY, SessionSettings(require_seal=True))
    (refused,) = server.receive(device_packets(DeviceCommand(5, 2, 0, b"forged"))[0], 1.0).messages
    assert (refused.kind, refused.fields["state"], refused.fields["reason"]) == (Kind.EVENT, "refused", "unsealed")
    lax = ready(KEY)
    assert lax.receive(device_packets(DeviceCommand(5, 2))[0], 1.0).messages[0].kind is Kind.TELEMETRY
    keyless = ready(None, SessionSettings(require_seal=True))
    assert keyless.receive(device_packets(DeviceCommand(5, 2))[0], 1.0).messages[0].kind is Kind.TELEMETRY


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Packet(1, 3, 6, "1234", 7, 0, b"abc"), "short"),
        (Packet(1, 3, 6, "1234", 7, 0, bytes(4) + b"\x81\0"), "command_type"),
        (Packet(1, 3 | SEALED, 6, "1234", 7, 0, bytes(50)), "bad_seal"),
        (Packet(1, 3 | ZIPPED, 6, "1234", 7, 0, b"no zlib"), "bad_zlib"),
    ],
)
def test_a_command_that_cannot_be_read_is_reported(packet: Packet, reason: str) -> None:
    server = ready(KEY)
    step = server.receive(packet, 1.0)
    assert step.frames == [receipt_for(packet)]
    (event,) = step.messages
    assert (event.kind, event.name, event.source, event.correlation) == (Kind.EVENT, "command", "1234", "7")
    assert (event.fields["state"], event.fields["reason"], event.fields["packets"]) == ("refused", reason, 1)
    assert step.closing is None


def test_a_sealed_command_of_a_device_without_a_key_is_refused() -> None:
    (event,) = ready().receive(Packet(1, 3 | SEALED, 6, "1234", 7, 0, bytes(50)), 1.0).messages
    assert event.fields["reason"] == "no_key"


def test_a_zip_bomb_and_an_oversized_command_are_refused() -> None:
    server = ready(settings=SessionSettings(inflated_bytes_max=1000, command_bytes_max=100))
    (bomb,) = device_packets(DeviceCommand(5, 2, 0, bytes(1000)), params=ZIPPED)
    (event,) = server.receive(bomb, 1.0).messages
    assert event.fields["reason"] == "inflated_bytes_max"
    (giant,) = device_packets(DeviceCommand(5, 2, 0, bytes(100)), number=8)
    (event,) = server.receive(giant, 1.0).messages
    assert event.fields == {"state": "refused", "reason": "command_bytes_max", "packets": 1}


def test_a_command_not_complete_in_time_is_reported() -> None:
    server = ready(settings=SessionSettings(assembly_s=30.0))
    server.receive(device_packets(DeviceCommand(5, 2, 0, bytes(10)), size=4)[1], 100.0)
    assert server.deadline_s == 130.0
    assert server.tick(129.0) == Step()
    (event,) = server.tick(130.0).messages
    assert event.fields == {"state": "expired", "reason": "assembly_timeout", "packets": 1}
    assert "assembly" not in server.deadlines


# The gateway asks


def test_a_request_is_answered_under_its_own_correlation() -> None:
    conversation = known()
    (request,) = conversation.server_says(ASK)
    assert (request.kind, request.target, request.payload) == (Kind.REQUEST, METER, b"give")
    assert request.fields == {"command_type": 0x82}
    answer = Message(kind=Kind.RESPONSE, correlation=request.correlation, fields={"device_time": 9}, payload=b"here")
    (received,) = conversation.client_says(answer)
    assert (received.kind, received.correlation, received.payload) == (Kind.RESPONSE, "q1", b"here")
    assert received.fields == {"command_type": 2, "error": 0, "device_time": 9}
    assert received.failure is None
    packets = packets_from(conversation, Sender.CLIENT)
    assert [packet.params for packet in packets] == [0x40, 3 | ANSWER]
    assert packets[1].command_no == int(request.correlation)
    server, client = conversation.sessions[Sender.SERVER], conversation.sessions[Sender.CLIENT]
    assert (set(server.deadlines), set(client.deadlines)) == ({"silence"}, set())


def test_an_answer_with_an_error_is_a_failure() -> None:
    conversation = known()
    (request,) = conversation.server_says(ASK)
    failed = Message(kind=Kind.RESPONSE, correlation=request.correlation, failure=Failure("bad format", 3))
    (received,) = conversation.client_says(failed)
    assert (received.correlation, received.failure) == ("q1", Failure("bad format", 3))


def test_an_answer_given_twice_or_to_nobody_is_dropped() -> None:
    conversation = known()
    (request,) = conversation.server_says(ASK)
    answer = Message(kind=Kind.RESPONSE, correlation=request.correlation)
    assert len(conversation.client_says(answer)) == 1
    assert conversation.client_says(answer) == []
    assert conversation.client_says(replace(answer, correlation="nobody")) == []


def test_an_answer_that_nobody_waits_for_is_an_event() -> None:
    server = ready()
    (late,) = server.receive(device_packets(DeviceCommand(5, 2, 0, b"late"), params=ANSWER)[0], 1.0).messages
    assert (late.kind, late.payload, late.fields["state"]) == (Kind.EVENT, b"late", "unasked")
    (request,) = packets_of(server.send(ASK, 2.0))
    other_type = device_packets(DeviceCommand(5, 3, 0, b"odd"), request.command_no, ANSWER)
    (odd,) = server.receive(other_type[0], 3.0).messages
    assert (odd.kind, odd.fields["state"]) == (Kind.EVENT, "unasked")


def test_an_answer_is_as_good_as_the_receipts() -> None:
    server = ready()
    (request,) = packets_of(server.send(ASK, 2.0))
    (answer,) = server.receive(device_packets(DeviceCommand(5, 2), request.command_no, ANSWER)[0], 3.0).messages
    assert answer.correlation == "q1"
    assert set(server.deadlines) == {"silence"}
    assert server.receive(receipt_for(request), 4.0) == Step()
    assert server.ignored.unknown_receipts == 1


def test_packets_without_a_receipt_are_sent_again_three_times_and_then_the_request_fails() -> None:
    server = ready(settings=SessionSettings(packet_data_bytes=2))
    first, second, third = packets_of(server.send(ASK, 0.0))
    server.receive(receipt_for(second), 1.0)
    assert server.tick(4.9) == Step()
    for repeat in (1, 2, 3):
        assert server.tick(5.0 * repeat).frames == [first, third]
    step = server.tick(20.0)
    assert step.frames == []
    (failed,) = step.messages
    assert (failed.kind, failed.correlation) == (Kind.RESPONSE, "q1")
    assert failed.failure == Failure("no receipt after 3 repeats")
    assert set(server.deadlines) == {"silence"}


def test_a_request_without_an_answer_fails_in_time() -> None:
    server = ready(settings=SessionSettings(request_s=30.0))
    (request,) = packets_of(server.send(ASK, 0.0))
    assert server.receive(receipt_for(request), 1.0) == Step()
    assert server.deadline_s == 30.0
    (failed,) = server.tick(30.0).messages
    assert (failed.correlation, failed.failure) == ("q1", Failure("no answer within 30 s"))
    impatient = ready(settings=SessionSettings(request_s=2.0))
    impatient.send(ASK, 0.0)
    impatient.send(replace(ASK, correlation="q2"), 1.0)
    assert [message.correlation for message in impatient.tick(2.0).messages] == ["q1"]
    assert [message.correlation for message in impatient.tick(3.0).messages] == ["q2"]
    assert set(impatient.deadlines) == {"silence"}


def test_numbers_wrap_and_skip_those_in_use() -> None:
    server = ready()
    numbers = []
    for _ in range(256):
        (packet,) = packets_of(server.send(ASK, 0.0))
        server.receive(receipt_for(packet), 0.0)
        numbers.append(packet.command_no)
    assert numbers == list(range(256))
    with pytest.raises(StateError, match="in use"):
        server.send(ASK, 0.0)
    server.receive(device_packets(DeviceCommand(5, 2), 77, ANSWER)[0], 0.0)
    assert packets_of(server.send(ASK, 0.0))[0].command_no == 77


def test_the_counter_starts_at_a_random_number() -> None:
    server = ServerSession(0.0, lambda size: b"\xfe" * size)
    server.receive(device_packets(DeviceCommand(0, 2))[0], 0.0)
    server.send(WELCOME, 0.0)
    assert [packets_of(server.send(ASK, 0.0))[0].command_no for _ in range(3)] == [0xFE, 0xFF, 0x00]


def test_what_cannot_be_sent_is_an_error_of_ours() -> None:
    server = ready()
    for message, error in (
        (replace(ASK, target=Device("other", 6)), StateError),
        (replace(ASK, target=None), TranslationError),
        (replace(ASK, fields={}), TranslationError),
        (replace(ASK, headers={"sealed": True}), TranslationError),
        (replace(ASK, payload=bytes(256 * 1024)), TranslationError),
        (replace(ASK, kind=Kind.NOTIFICATION), StateError),
    ):
        with pytest.raises(error):
            server.send(message, 0.0)
    assert set(server.deadlines) == {"silence"}


def test_a_one_way_command_waits_for_receipts_only() -> None:
    conversation = known()
    (received,) = conversation.server_says(replace(ASK, kind=Kind.EVENT))
    assert received.payload == b"give"
    assert set(conversation.sessions[Sender.SERVER].deadlines) == {"silence"}
    server = ready(settings=SessionSettings(resends_max=0))
    server.send(replace(ASK, kind=Kind.EVENT, correlation="e1"), 0.0)
    (lost,) = server.tick(5.0).messages
    assert (lost.kind, lost.target, lost.correlation) == (Kind.EVENT, METER, "e1")
    assert (lost.fields["state"], lost.fields["reason"]) == ("undelivered", "no_receipt")


EVERYBODY = Message(
    kind=Kind.REQUEST, target=Device("", 0xFF), correlation="b1", fields={"command_type": 0x85}, payload=b"all"
)


def test_a_broadcast_is_confirmed_and_answered_by_the_device_in_its_own_name() -> None:
    conversation = known(KEY)
    (received,) = conversation.server_says(EVERYBODY)
    assert (received.kind, received.target, received.payload) == (Kind.EVENT, Device("", 0xFF), b"all")
    assert packets_from(conversation, Sender.SERVER) == [Packet(1, 0x07, 0xFF, "", 0, 0, b"\x85all")], (
        "in clear, to nobody by name"
    )
    assert packets_from(conversation, Sender.CLIENT) == [Receipt(1, 0x40, 6, "1234", 0, 0, b"")]
    (receipt,) = conversation.server_messages
    assert (receipt.kind, receipt.name, receipt.source, receipt.correlation) == (Kind.CONTROL, "receipt", "1234", "b1")
    answer = Message(kind=Kind.RESPONSE, correlation=received.correlation, payload=b"here")
    (message,) = conversation.client_says(answer)
    assert (message.kind, message.source, message.correlation, message.payload) == (
        Kind.RESPONSE,
        "1234",
        "b1",
        b"here",
    )
    assert set(conversation.sessions[Sender.SERVER].deadlines) == {"silence"}
    with pytest.raises(TranslationError):
        conversation.server_says(replace(EVERYBODY, headers={"sealed": True}))


def test_receipt_and_answer_to_a_broadcast_may_name_nobody_either() -> None:
    server = ready()
    (packet,) = packets_of(server.send(EVERYBODY, 0.0))
    (receipt,) = server.receive(Receipt(1, 0x40, 0xFF, "", packet.command_no, 0, b""), 1.0).messages
    assert (receipt.name, receipt.correlation) == ("receipt", "b1")
    (answer,) = build_packets(DeviceCommand(0, 5, 0, b"me").encode(), ANSWER, 0xFF, "", packet.command_no, 100)
    step = server.receive(answer, 2.0)
    (message,) = step.messages
    assert (message.kind, message.source, message.correlation, message.payload) == (Kind.RESPONSE, "1234", "b1", b"me")
    assert step.frames == [Receipt(1, 0x44, 0xFF, "", packet.command_no, 0, b"")]


def test_a_broadcast_without_a_receipt_is_sent_again_and_given_up() -> None:
    server = ready(settings=SessionSettings(resends_max=1))
    (packet,) = packets_of(server.send(EVERYBODY, 0.0))
    assert server.tick(5.0).frames == [packet]
    (message,) = server.tick(10.0).messages
    assert (message.correlation, message.failure) == ("b1", Failure("no receipt after 1 repeats"))


def test_a_broadcast_that_nobody_collects_answers_to_is_sent_once() -> None:
    conversation = known()
    conversation.server_says(replace(EVERYBODY, kind=Kind.EVENT, correlation=""))
    assert set(conversation.sessions[Sender.SERVER].deadlines) == {"silence"}
    assert conversation.server_messages == [], "the device's receipt is for nothing that waits"


@pytest.mark.parametrize("key", [None, KEY])
def test_a_device_reports_to_everybody(key: bytes | None) -> None:
    conversation = known(key)
    (report,) = conversation.client_says(replace(REPORT, headers={"broadcast": True}))
    assert (report.kind, report.source, report.headers["broadcast"]) == (Kind.TELEMETRY, "1234", True)
    assert report.fields["status"] == STATUS
    (packet,) = packets_from(conversation, Sender.CLIENT)
    assert (packet.device_type, packet.serial, packet.sealed) == (0xFF, "", key is not None)
    assert packets_from(conversation, Sender.SERVER) == [Receipt(1, 0x44, 0xFF, "", packet.command_no, 0, b"")]
    (receipt,) = conversation.client_messages
    assert (receipt.name, receipt.correlation, receipt.failure) == ("receipt", "r1", None)


def test_a_broadcast_and_a_report_under_one_number_are_two_commands() -> None:
    server = ready()
    for device_type, serial in ((6, "1234"), (0xFF, "")):
        for data in (b"a", b"b"):
            packets = build_packets(DeviceCommand(0, 2, 0, data * 30).encode(), 0, device_type, serial, 9, 20)
            taken = [message for packet in packets for message in server.receive(packet, 1.0).messages]
            assert [message.payload for message in taken] == [data * 30]


# The device's end


def test_a_report_is_sent_again_until_its_receipt() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    (packet,) = packets_of(client.send(REPORT, 0.0))
    assert client.tick(5.0).frames == [packet]
    (message,) = client.receive(receipt_for(packet), 6.0).messages
    assert (message.name, message.correlation, message.failure) == ("receipt", "r1", None)
    assert client.deadline_s is None
    assert client.receive(receipt_for(packet), 6.0) == Step()
    assert client.ignored.unknown_receipts == 1


def test_a_report_without_a_receipt_fails() -> None:
    client = ClientSession(0.0, random, "1234", 6, settings=SessionSettings(resends_max=1))
    client.send(REPORT, 0.0)
    client.tick(5.0)
    (message,) = client.tick(10.0).messages
    assert (message.correlation, message.failure) == ("r1", Failure("no receipt after 1 repeats"))


def test_reports_take_numbers_that_are_free() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    assert [packets_of(client.send(REPORT, 0.0))[0].command_no for _ in range(256)] == list(range(256))
    with pytest.raises(StateError):
        client.send(REPORT, 0.0)


def test_a_device_ignores_what_is_not_for_it() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    request = Packet(1, 7, 6, "1234", 0, 0, ServerCommand(0x82).encode())
    for frame in (replace(request, serial="other"), replace(request, params=3), Receipt(1, 0x40, 6, "1234", 0, 0, b"")):
        assert client.receive(frame, 0.0) == Step()
    assert client.ignored.misdirected == 3


def test_a_repeated_request_is_confirmed_again_and_handed_up_once() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    request = Packet(1, 7, 6, "1234", 9, 0, ServerCommand(0x82, b"x").encode())
    assert len(client.receive(request, 0.0).messages) == 1
    again = client.receive(request, 5.0)
    assert (again.frames, again.messages) == ([receipt_for(request)], [])


def test_an_answer_waits_while_a_report_under_its_number_is_on_its_way() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    (report,) = packets_of(client.send(REPORT, 0.0))
    client.receive(Packet(1, 7, 6, "1234", report.command_no, 0, ServerCommand(0x82).encode()), 0.0)
    answer = Message(kind=Kind.RESPONSE, correlation=str(report.command_no), payload=b"here")
    assert client.send(answer, 0.0).frames == []
    step = client.receive(receipt_for(report), 1.0)
    (sent,) = packets_of(step)
    assert (sent.answer, sent.command_no) == (True, report.command_no)
    assert [message.correlation for message in step.messages] == ["r1"]
    assert client.receive(receipt_for(sent), 2.0) == Step()
    assert client.deadline_s is None


def test_a_waiting_answer_keeps_its_number() -> None:
    client = ClientSession(0.0, random, "1234", 6, settings=SessionSettings(resends_max=0))
    packets_of(client.send(REPORT, 0.0))
    client.receive(Packet(1, 7, 6, "1234", 0, 0, ServerCommand(0x82).encode()), 0.0)
    client.send(Message(kind=Kind.RESPONSE, correlation="0"), 0.0)
    numbers = [packets_of(client.send(REPORT, 0.0))[0].command_no for _ in range(255)]
    assert numbers == list(range(1, 256))
    released = client.tick(5.0)
    assert [packet.answer for packet in packets_of(released)] == [True]
    assert len(released.messages) == 256


def test_an_answer_without_a_receipt_is_reported() -> None:
    client = ClientSession(0.0, random, "1234", 6, settings=SessionSettings(resends_max=0))
    client.receive(Packet(1, 7, 6, "1234", 9, 0, ServerCommand(0x82).encode()), 0.0)
    client.send(Message(kind=Kind.RESPONSE, correlation="9"), 0.0)
    (lost,) = client.tick(5.0).messages
    assert (lost.kind, lost.fields["state"]) == (Kind.EVENT, "undelivered")


def test_an_answer_to_a_device_is_handed_up_as_one() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    (message,) = client.receive(Packet(1, 7 | ANSWER, 6, "1234", 9, 0, b"\x82"), 0.0).messages
    assert message.kind is Kind.RESPONSE
    assert client.send(Message(kind=Kind.RESPONSE, correlation="9"), 0.0) == Step()


def test_a_request_not_complete_in_time_is_reported_to_the_device() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    client.receive(Packet(1, 1 | TO_DEVICE, 6, "1234", 9, 0, b"\x82"), 0.0)
    (event,) = client.tick(30.0).messages
    assert (event.kind, event.target, event.fields["state"]) == (Kind.EVENT, METER, "expired")


# The end


def test_undecodable_bytes_close_without_a_response() -> None:
    conversation = known()
    server = conversation.sessions[Sender.SERVER]
    server.send(ASK, 0.0)
    step = server.fail(ProtocolError("crc", "wrong", 29), 1.0)
    assert step.frames == []
    assert step.closing == Closing("crc", "wrong (byte 29, crc)")
    assert [(message.correlation, message.failure) for message in step.messages] == [
        ("q1", Failure("the session ended"))
    ]
    assert server.fail(ProtocolError("crc", "wrong", 29), 1.0) == Step()
    with pytest.raises(StateError):
        server.receive(device_packets(DeviceCommand(0, 2))[0], 2.0)


@pytest.mark.parametrize("state", [ServerState.UNKNOWN, ServerState.CHECKING, ServerState.READY])
def test_closing_and_silence_end_every_state(state: ServerState) -> None:
    def session() -> ServerSession:
        server = ServerSession(0.0, random, SessionSettings(idle_s=8.0))
        if state is not ServerState.UNKNOWN:
            server.receive(device_packets(DeviceCommand(0, 2))[0], 0.0)
        if state is ServerState.READY:
            server.send(WELCOME, 0.0)
        assert server.state is state
        return server

    assert session().close(Closing("shutdown"), 1.0).closing == Closing("shutdown")
    assert session().fail(ProtocolError("crc", "wrong", 1), 1.0).closing is not None
    silent = session()
    assert silent.tick(7.9).closing is None
    assert silent.tick(8.0).closing == Closing("idle", "no data received for 8 s")
    assert silent.state is ServerState.CLOSED


def test_a_closed_client_reports_what_got_no_receipt() -> None:
    client = ClientSession(0.0, random, "1234", 6)
    client.send(REPORT, 0.0)
    step = client.close(Closing("done"), 1.0)
    assert (step.closing, step.frames) == (Closing("done"), [])
    assert [(message.correlation, message.failure) for message in step.messages] == [
        ("r1", Failure("the session ended"))
    ]
    assert client.state is ClientState.CLOSED
    failed = ClientSession(0.0, random, "1234", 6).fail(ProtocolError("crc", "wrong", 1), 0.0)
    assert failed.closing == Closing("crc", "wrong (byte 1, crc)")


def test_a_lossy_network_delivers_everything_once() -> None:
    """Lose every third packet of either side; resending makes up for it."""
    conversation = known(resends_max=10)
    client, server = conversation.sessions[Sender.CLIENT], conversation.sessions[Sender.SERVER]
    ends = {Sender.CLIENT: server, Sender.SERVER: client}
    count = 0
    received: dict[Sender, list[Message]] = {Sender.CLIENT: [], Sender.SERVER: []}

    def carry(sender: Sender, step: Step, now_s: float) -> None:
        nonlocal count
        received[sender] += step.messages
        for frame in step.frames:
            count += 1
            if count % 3:
                carry(sender.other, ends[sender].receive(decode(frame.encode(), sender), now_s), now_s)

    for number in range(20):
        report = replace(REPORT, correlation=str(number), fields={"command_type": 2, "device_time": number})
        carry(Sender.CLIENT, client.send(report, 0.0), 0.0)
    for now_s in range(5, 30, 5):
        carry(Sender.CLIENT, client.tick(now_s), now_s)
    assert sorted(message.fields["device_time"] for message in received[Sender.SERVER]) == list(range(20))
    assert sorted(int(message.correlation) for message in received[Sender.CLIENT]) == list(range(20))
    assert [message.failure for message in received[Sender.CLIENT]] == [None] * 20
