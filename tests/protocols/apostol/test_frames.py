import pytest
from fastcrc.crc16 import modbus
from hypothesis import given
from hypothesis import strategies as st

from protocols.apostol.strategies import any_frames, plain_device_packets, plain_server_packets
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols import testing as laws
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, Receipt, decode, receipt_for
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.inspection import identify
from wirelake.protocols.protocol import Carrier

SAMPLE = bytes.fromhex("1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7")
PACKET = Packet(1, 3, 6, "1234", 0xF0, 0, bytes.fromhex("a6530c5e010000000400000000029c530c5e"))


def with_crc(hex_: str) -> bytes:
    data = bytes.fromhex(hex_)
    return data + modbus(data).to_bytes(2, "little")


def slow_crc(data: bytes) -> int:
    """Follow the algorithm in the document of the protocol."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def test_the_documents_own_sample() -> None:
    assert decode(SAMPLE, Sender.CLIENT) == PACKET
    assert PACKET.encode() == SAMPLE


def test_crc_known_answers() -> None:
    assert modbus(SAMPLE[:-2]) == 0xC73E
    assert modbus(b"123456789") == 0x4B37  # the check value that CRC catalogues give for MODBUS


@given(st.binary(max_size=200))
def test_the_crc_is_the_documents_and_is_zero_over_itself(data: bytes) -> None:
    assert modbus(data) == slow_crc(data)
    assert modbus(data + slow_crc(data).to_bytes(2, "little")) == 0


@given(st.one_of(any_frames, plain_device_packets, plain_server_packets), laws.senders)
def test_every_frame_round_trips(frame: Frame, sender: Sender) -> None:
    laws.check_round_trip(PROTOCOL, frame, sender)


@pytest.mark.parametrize("data_bytes", [114, 115, 116, 117, 244, 1024, 32755])
def test_lengths_around_the_second_byte_round_trip(data_bytes: int) -> None:
    frame = Packet(1, 3, 6, "1234", 0, 0, bytes(data_bytes))
    wire = frame.encode()
    assert len(wire) == data_bytes + 12 + (1 if data_bytes < 116 else 2)
    laws.check_round_trip(PROTOCOL, frame, Sender.CLIENT)
    assert ApostolSplitter().receive(wire * 2) == [wire, wire]


@given(st.lists(any_frames, max_size=5), st.binary(max_size=5), laws.cuts)
def test_any_split_gives_the_same_frames(sent: list[Frame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, Sender.CLIENT)


@given(st.binary(max_size=300), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, data, sender)


@given(any_frames, st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(frame: Frame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender)


@given(any_frames, st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_under_a_right_crc(frame: Frame, place: int, byte: int, sender: Sender) -> None:
    body = bytearray(frame.encode()[:-2])
    body[place % len(body)] = byte
    laws.check_any_bytes(PROTOCOL, with_crc(body.hex()), sender)


@given(st.binary(max_size=60), laws.senders)
def test_any_body_under_a_right_length_and_crc(body: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, with_crc(bytes([len(body) + 3, 1, *body]).hex()), sender)


@pytest.mark.parametrize("wire", [SAMPLE, Packet(1, 3, 6, "1234", 0, 0, bytes(130)).encode()])
def test_every_flipped_bit_is_refused(wire: bytes) -> None:
    """A flipped bit of the length is an error of the length; any other is one of the CRC."""
    for bit in range(len(wire) * 8):
        changed = bytearray(wire)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError) as caught:
            decode(bytes(changed), Sender.CLIENT)
        size = 1 if len(wire) < 129 else 2
        expected = {"crc"} if bit // 8 >= size else {"length", "length_min", "length_form"}
        assert caught.value.code in expected


@pytest.mark.parametrize(
    ("wire", "code", "offset"),
    [
        ("", "short", 0),
        ("80", "short", 1),
        ("8000", "length_form", 0),
        ("ff00" + "00" * 127, "length_form", 0),
        ("00", "length_min", 0),
        ("07" + "00" * 7, "length_min", 0),
        ("08", "length", 0),
        ("09" + "00" * 8, "length", 0),
        ("8001" + "00" * 127, "length", 0),
        ("08" + "01" * 8, "crc", 7),
        ("08" + "09" * 8, "crc", 7),
        (SAMPLE[:-1].hex() + "c8", "crc", 29),
        (with_crc("08020306000000").hex(), "version", 1),
        (with_crc("08000306000000").hex(), "version", 1),
        (with_crc("8001" + "02" + "00" * 125).hex(), "version", 2),
        (with_crc("08018306000000").hex(), "params", 2),
        (with_crc("08010306010000").hex(), "short", 7),
        (with_crc("0801030600" + "00" + "00").hex()[:-2], "length", 0),
        (with_crc("080103060200" + "00").hex(), "short", 7),
        (with_crc("0a01030603" + "61c328" + "00").hex(), "bad_utf8", 6),
        (with_crc("0a010306fe" + "616263" + "00").hex(), "short", 9),
        (with_crc("09014006000000" + "aa").hex(), "trailing", 7),
        (with_crc("0901c006000000" + "aa").hex(), "params", 2),
    ],
)
def test_bad_packets_are_refused_at_the_bad_byte(wire: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(wire), Sender.CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


@pytest.mark.parametrize(
    "frame",
    [
        Packet(2, 3, 6, "1234", 0, 0, b""),
        Packet(1, 0x83, 6, "1234", 0, 0, b""),
        Packet(1, 0x43, 6, "1234", 0, 0, b""),
        Receipt(1, 0x03, 6, "1234", 0, 0, b""),
        Receipt(1, 0x40, 6, "1234", 0, 0, b"x"),
        Packet(1, 3, 256, "1234", 0, 0, b""),
        Packet(1, 3, 6, "x" * 256, 0, 0, b""),
        Packet(1, 3, 6, "\ud800", 0, 0, b""),
        Packet(1, 3, 6, "1234", 256, 0, b""),
        Packet(1, 3, 6, "1234", 0, -1, b""),
        Packet(1, 3, 6, "1234", 0, 0, bytes(32756)),
    ],
)
def test_what_the_wire_has_no_room_for_is_refused(frame: Packet) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


@pytest.mark.parametrize(
    ("stream", "code", "offset"),
    [
        (SAMPLE + b"\x07", "length_min", 31),
        (SAMPLE + b"\x80", None, 0),
        (SAMPLE + b"\x80\x00", "length_form", 31),
        (SAMPLE + b"\x80\x01", None, 0),
    ],
)
def test_a_bad_length_is_refused_when_it_is_read(stream: bytes, code: str | None, offset: int) -> None:
    frames, failure = laws.split_outcome(ApostolSplitter(), [stream])
    assert frames == [SAMPLE]
    assert failure == (None if code is None else (code, offset))


def test_a_length_over_the_limit_is_refused_before_the_body_comes() -> None:
    splitter = ApostolSplitter(frame_bytes_max=200)
    assert splitter.receive(SAMPLE + b"\xc7\x01") == [SAMPLE]
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("apostol_packet_bytes_max", 31)
    assert splitter.rest == b"\xc7\x01"


def test_a_datagram_holds_several_packets_and_has_to_end_with_one() -> None:
    splitter = PROTOCOL.splitter(Sender.CLIENT, Carrier.UDP)
    assert splitter.receive(SAMPLE * 3) == [SAMPLE] * 3
    splitter.finish()
    assert splitter.failure is None
    cut_off = PROTOCOL.splitter(Sender.CLIENT, Carrier.UDP)
    assert cut_off.receive(SAMPLE + SAMPLE[:-1]) == [SAMPLE]
    cut_off.finish()
    assert cut_off.failure is not None
    assert (cut_off.failure.code, cut_off.failure.offset) == ("incomplete", 61)


def test_the_bits_of_params_have_names() -> None:
    names = ("first", "last", "to_device", "answer", "zipped", "sealed")
    for bit, name in enumerate(names):
        packet = Packet(1, 1 << bit, 0, "1", 0, 0, b"")
        assert [each for each in (*names, "receipt") if getattr(packet, each)] == [name]
    assert Receipt(1, 0x40, 0, "1", 0, 0, b"").receipt
    assert PACKET.single
    assert not Packet(1, 3, 0, "1", 0, 1, b"").single
    assert not Receipt(1, 0x43, 0, "1", 0, 0, b"").single


def test_a_broadcast_has_no_serial_and_no_type() -> None:
    assert Packet(1, 7, 0xFF, "", 0, 0, b"").broadcast
    assert not Packet(1, 7, 0xFF, "1", 0, 0, b"").broadcast
    assert not Packet(1, 7, 0, "", 0, 0, b"").broadcast


def test_a_receipt_goes_the_other_way() -> None:
    report = Packet(1, 0x3B, 6, "1234", 7, 9, b"data")
    assert receipt_for(report) == Receipt(1, 0x44, 6, "1234", 7, 9, b"")
    request = Packet(1, 0x3F, 6, "1234", 7, 9, b"data")
    assert receipt_for(request) == Receipt(1, 0x40, 6, "1234", 7, 9, b"")
    assert receipt_for(report).name == "receipt"


def test_it_is_recognised_with_its_direction() -> None:
    best = identify(SAMPLE, (PROTOCOL,))[0]
    assert (best.protocol, best.sender) == ("apostol", Sender.CLIENT)
    assert best.bits >= 32
    request = Packet(1, 7, 0, "1234", 0, 0, b"\x82" + bytes(200)).encode()
    assert identify(request, (PROTOCOL,))[0].sender is Sender.SERVER
