import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.apostol.strategies import packets, plain_device_packets, plain_server_packets, proper_receipts
from wirelake.errors import TranslationError
from wirelake.message import Device, Failure, Kind, Message
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.translation import from_message, to_message
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender

METER = Device("1234", 6)


def sender_of(packet: Packet) -> Sender:
    return Sender.SERVER if packet.to_device else Sender.CLIENT


@given(st.one_of(packets, plain_device_packets, plain_server_packets, proper_receipts))
def test_every_packet_crosses_and_comes_back(packet: Packet) -> None:
    """Except for answers to a device, which nobody sends."""
    sender = sender_of(packet)
    message = to_message(packet, sender)
    if message.kind is Kind.RESPONSE and sender is Sender.SERVER and "packet_no" not in message.fields:
        with pytest.raises(TranslationError):
            from_message(message, sender)
    else:
        assert from_message(message, sender) == packet


def test_the_documents_sample_is_telemetry() -> None:
    wire = bytes.fromhex("1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7")
    status = {"state": 0, "tariff": 4, "configured_at": 0, "time_sync": 2, "synced_at": 1577866140}
    assert to_message(PROTOCOL.decode(wire, Sender.CLIENT), Sender.CLIENT) == Message(
        kind=Kind.TELEMETRY,
        name="packet",
        protocol="apostol",
        source="1234",
        correlation="240",
        headers={"device_type": 6},
        fields={"command_type": 1, "error": 0, "device_time": 1577866150, "status": status},
    )


def test_readings_are_fields() -> None:
    command = DeviceCommand(9, 4, 0, (Reading(1, 7, 1), Reading(2, 21.5, 8), Reading(3, b"abcde", 5)))
    message = to_message(Packet(1, 3, 0, "1", 5, 0, command.encode()), Sender.CLIENT)
    assert message.fields["readings"] == [
        {"type": 1, "value": 7, "size": 1},
        {"type": 2, "value": 21.5, "size": 8},
        {"type": 3, "value": b"abcde", "size": 5},
    ]


def test_a_request_has_the_device_as_its_target() -> None:
    message = to_message(Packet(1, 7, 6, "1234", 5, 0, b"\x82hi"), Sender.SERVER)
    assert (message.kind, message.target, message.fields) == (Kind.REQUEST, METER, {"command_type": 0x82})
    assert (message.payload, message.source, message.correlation) == (b"hi", "", "5")


def test_an_answer_with_an_error_is_a_failure() -> None:
    message = to_message(Packet(1, 11, 6, "1234", 5, 0, DeviceCommand(9, 2, 4).encode()), Sender.CLIENT)
    assert (message.kind, message.failure) == (Kind.RESPONSE, Failure("bad parameters", 4))
    odd = to_message(Packet(1, 11, 6, "1234", 5, 0, DeviceCommand(9, 2, 99).encode()), Sender.CLIENT)
    assert odd.failure == Failure("not a known code", 99)
    report = to_message(Packet(1, 3, 6, "1234", 5, 0, DeviceCommand(9, 2, 4).encode()), Sender.CLIENT)
    assert (report.kind, report.failure, report.fields["error"]) == (Kind.TELEMETRY, None, 4)


def test_a_receipt_is_control() -> None:
    message = to_message(Receipt(1, 0x44, 6, "1234", 5, 9, b""), Sender.SERVER)
    assert (message.kind, message.name, message.fields) == (Kind.CONTROL, "receipt", {"packet_no": 9})
    assert (message.target, message.correlation) == (METER, "5")


def test_a_broadcast_is_an_event() -> None:
    message = to_message(Packet(1, 7, 0xFF, "", 5, 0, b"\x85"), Sender.SERVER)
    assert (message.kind, message.target) == (Kind.EVENT, Device("", 0xFF))
    assert from_message(message, Sender.SERVER).broadcast


def test_a_piece_says_which_one_it_is() -> None:
    message = to_message(Packet(1, 0x32, 6, "1234", 5, 3, b"\x99"), Sender.CLIENT)
    assert message.fields == {"packet_no": 3, "first": False, "last": True}
    assert message.headers == {"zipped": True, "sealed": True, "device_type": 6}
    assert message.payload == b"\x99"


def test_a_malformed_command_keeps_its_bytes_and_says_why() -> None:
    message = to_message(Packet(1, 3, 6, "1234", 5, 0, b"abc"), Sender.CLIENT)
    assert message.payload == b"abc"
    assert message.fields["malformed"] == "a command needs 6 bytes, this has 3 (byte 3, short)"


def test_readings_may_come_without_sizes() -> None:
    message = Message(
        kind=Kind.TELEMETRY,
        source="1234",
        fields={"command_type": 4, "readings": [{"type": 1, "value": 300}, {"type": 2, "value": 1.5}]},
    )
    packet = from_message(message, Sender.CLIENT)
    assert packet.data == DeviceCommand(0, 4, 0, (Reading(1, 300, 2), Reading(2, 1.5, 8))).encode()
    assert (packet.device_type, packet.serial, packet.command_no) == (0, "1234", 0)


def test_a_known_failure_keeps_its_number() -> None:
    message = Message(kind=Kind.RESPONSE, source="1", fields={"command_type": 2}, failure=Failure("what?", 2))
    assert from_message(message, Sender.CLIENT).data == DeviceCommand(0, 2, 2).encode()


def request(**rest: object) -> Message:
    return Message(**{"kind": Kind.REQUEST, "target": METER, "fields": {"command_type": 0x82}, **rest})  # type: ignore[arg-type]


def report(**rest: object) -> Message:
    return Message(**{"kind": Kind.TELEMETRY, "source": "1", "fields": {"command_type": 1}, **rest})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        request(fields={}),
        request(fields={"command_type": "130"}),
        request(fields={"command_type": True}),
        request(fields={"command_type": 256}),
        request(fields={"command_type": 0x82, "device_time": 1}),
        request(correlation="256"),
        request(correlation="no-number"),
        request(correlation="²"),
        request(correlation="9" * 5000),
        request(headers={"zipped": True}),
        request(headers={"sealed": True}),
        request(payload=bytes(32755)),
        request(target=Device("x" * 256, 0)),
        request(kind=Kind.TELEMETRY),
        request(kind=Kind.RESPONSE),
        request(fields={"packet_no": 0, "other": 1}),
        request(fields={"packet_no": 256}),
        request(kind=Kind.CONTROL),
        request(kind=Kind.CONTROL, name="receipt", fields={}),
    ],
)
def test_what_the_gateway_cannot_say_is_refused(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, Sender.SERVER)


@pytest.mark.parametrize(
    "message",
    [
        report(kind=Kind.REQUEST),
        report(fields={"command_type": 0x81}),
        report(fields={"command_type": 1, "status": {"state": 1}}),
        report(fields={"command_type": 1, "status": {}, "readings": []}),
        report(fields={"command_type": 4, "readings": "none"}),
        report(fields={"command_type": 4, "readings": [{"type": 1, "value": -1}]}),
        report(fields={"command_type": 1, "readings": []}),
        report(fields={"command_type": 4, "readings": []}, payload=b"x"),
        report(fields={"command_type": 1, "device_time": 2**32}),
        report(headers={"device_type": 256}),
        report(headers={"device_type": "meter"}),
    ],
)
def test_what_a_device_cannot_say_is_refused(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, Sender.CLIENT)


def test_a_frame_of_another_protocol_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError):
        to_message(comet.Ok(), Sender.SERVER)
