"""Kernel and codec give the same verdict and the same columns on every input, valid or not."""

import struct
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from fastcrc.crc16 import modbus
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layout.sampler import follows
from pipeline.ingest import inputs
from pipeline.ingest.inputs import Sent, captured, damaged

from protocols.apostol import strategies as apostol_strategies
from protocols.comet import strategies as comet_strategies
from protocols.magline import strategies as magline_strategies
from wirelake.errors import ProtocolError
from wirelake.protocols import kernel_floats
from wirelake.protocols import kernel_primitives as primitives
from wirelake.protocols.apostol import columns as apostol
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.columnar import DecodedFrames, decode_each
from wirelake.protocols.comet.frames import Message, MessageAck
from wirelake.protocols.frame import Sender
from wirelake.protocols.kernel_columns import KernelDecoder, column_decoder
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.registry import get

FRAMES_AT_ONCE = 4000
seeds = st.integers(0, 2**32)
REPAIRS = {"apostol": inputs.repair_apostol, "comet": inputs.repair_comet, "magline": inputs.repair_magline}
MAGLINE_CALLS: list[Sent] = [
    (kind(number, magline.OPENED, data, seq=seq, header=header, little=little).encode(), sender)
    for kind, sender in ((magline.Req, Sender.CLIENT), (magline.Rep, Sender.SERVER))
    for number, data, seq in ((16, b"", 0), (17, b"hello", 1), (2**32 - 1, b"\xff" * 300, 2**32 - 1))
    for header in (b"", b"head")
    for little in (False, True)
]


def assert_same(name: str, sent: list[Sent]) -> None:
    frames = pa.array([frame for frame, _ in sent], pa.binary())
    from_server = np.array([sender is Sender.SERVER for _, sender in sent], np.bool_)
    wanted = decode_each(get(name), frames, from_server)
    decoder = column_decoder(get(name))
    assert decoder is not None
    part = decoder.decode(frames, from_server)
    if name == "apostol":
        check_packets(part, frames)
    else:
        assert isinstance(decoder, KernelDecoder)
        assert decoder.kernel.run(frames, from_server).others.tolist() == left_to_the_codec(name, sent)
    assert part.refused == wanted.refused
    assert part.rows.tolist() == wanted.rows.tolist()
    part.messages.validate(full=True)
    for column, want, field in zip(part.messages.columns, wanted.messages.columns, part.messages.schema, strict=True):
        assert column.to_pylist() == want.to_pylist(), field.name


def left_to_the_codec(name: str, sent: list[Sent]) -> list[int]:
    """Return the indices of the frames that are malformed, or that no rule is for."""
    protocol, found = get(name), []
    assert protocol.message_rules is not None
    for row, (data, sender) in enumerate(sent):
        try:
            frame: Any = protocol.decode(data, sender)
        except ProtocolError:
            found.append(row)
            continue
        rule = protocol.message_rules.rules.get(type(frame))
        if rule is None or not follows(frame, rule):
            found.append(row)
    return found


def check_packets(part: DecodedFrames, frames: Any) -> None:
    decode = get("apostol").decode
    rows, packets = apostol.parse_packets(frames)
    assert rows.tolist() == part.rows.tolist()
    assert packets.equals(part.packets)
    packets.validate(full=True)
    columns = {name: packets.column(name).to_pylist() for name in packets.schema.names}
    for place, row in enumerate(rows.tolist()):
        packet = decode(frames[row].as_py(), Sender.CLIENT)
        assert isinstance(packet, Packet)
        wanted = {
            "serial": packet.serial,
            "device_type": packet.device_type,
            "to_device": packet.to_device,
            "answer": packet.answer,
            "first": packet.first,
            "last": packet.last,
            "zlib": packet.zipped,
            "sealed": packet.sealed,
            "receipt": packet.receipt,
            "command_no": packet.command_no,
            "packet_no": packet.packet_no,
            "data": packet.data,
        }
        assert {name: columns[name][place] for name in columns} == wanted


def bulk(name: str, seed: int) -> list[Sent]:
    """Known frames with damage, and random bytes."""
    random = Random(seed)
    known, repair = captured(name) + MAGLINE_CALLS * (name == "magline"), REPAIRS[name]
    sent = []
    for _ in range(FRAMES_AT_ONCE):
        frame, sender = random.choice(known)
        if random.random() < 0.05:
            frame = random.randbytes(random.randrange(40))
        if random.random() < 0.05:
            sender = sender.other
        sent.append((damaged(frame, random, repair), sender))
    return sent


@pytest.mark.parametrize("name", ["apostol", "comet", "magline"])
@settings(max_examples=8)
@given(seed=seeds)
def test_kernel_and_codec_agree_on_damaged_frames(name: str, seed: int) -> None:
    assert_same(name, bulk(name, seed))


packets = st.one_of(
    apostol_strategies.any_frames, apostol_strategies.plain_device_packets, apostol_strategies.plain_server_packets
)


@settings(max_examples=60)
@given(frames=st.lists(packets, max_size=40), seed=seeds)
def test_kernel_and_codec_agree_on_apostol(frames: list[Packet], seed: int) -> None:
    random = Random(seed)
    whole = [(frame.encode(), Sender.CLIENT) for frame in frames]
    assert_same("apostol", whole)
    assert_same("apostol", [(damaged(frame, random, inputs.repair_apostol), sender) for frame, sender in whole])


@settings(max_examples=60)
@given(frames=st.lists(comet_strategies.any_frames, max_size=40), seed=seeds)
def test_kernel_and_codec_agree_on_comet(frames: list[Any], seed: int) -> None:
    random = Random(seed)
    whole = [(frame.encode(), frame.sender) for frame in frames]
    assert_same("comet", whole)
    assert_same("comet", [(damaged(frame, random, inputs.repair_comet), sender) for frame, sender in whole])


@settings(max_examples=60)
@given(frames=st.lists(magline_strategies.either_order, max_size=40), seed=seeds)
def test_kernel_and_codec_agree_on_magline(frames: list[Any], seed: int) -> None:
    random = Random(seed)
    whole = [(frame.encode(), random.choice(list(Sender))) for frame in frames]
    assert_same("magline", whole)
    assert_same("magline", [(damaged(frame, random, inputs.repair_magline), sender) for frame, sender in whole])


def test_calls_of_magline_services_are_not_left_to_the_codec() -> None:
    """So that the tests above prove something."""
    assert left_to_the_codec("magline", MAGLINE_CALLS) == []
    assert_same("magline", MAGLINE_CALLS)


def test_the_faults_of_all_are_all_reached() -> None:
    """So that the tests above prove something."""
    faults = {
        "apostol": {"short", "length_min", "length_form", "length", "crc", "version", "params", "bad_utf8", "trailing"},
        "comet": {"short", "length", "unknown_type", "bad_utf8", "trailing"},
        "magline": {"short", "length", "bad_magic", "version", "unknown_cmd", "trailing"},
    }
    for name, codes in faults.items():
        sent = [each for seed in range(4) for each in bulk(name, seed)]
        frames = pa.array([frame for frame, _ in sent], pa.binary())
        from_server = np.array([sender is Sender.SERVER for _, sender in sent], np.bool_)
        part = decode_each(get(name), frames, from_server)
        assert {fault.code for fault in part.refused} == codes
        assert len(part.rows) > len(sent) // 10


@given(data=st.binary(max_size=200), start=st.integers(0, 20), size=st.integers(0, 200))
def test_crc(data: bytes, start: int, size: int) -> None:
    part = data[start : start + size]
    end = min(start + size, len(data))
    assert primitives.crc16(np.frombuffer(data, np.uint8), min(start, end), end) == modbus(part)


@given(data=st.one_of(st.binary(max_size=12), st.text(max_size=6).map(str.encode)), cut=st.integers(0, 12))
def test_utf8(data: bytes, cut: int) -> None:
    """Every place where a text may be cut off or broken."""
    data = data[:cut]
    try:
        data.decode()
        wanted = -1
    except UnicodeDecodeError as error:
        wanted = error.start
    assert primitives.bad_utf8(np.frombuffer(data, np.uint8), 0, len(data)) == wanted


def test_utf8_of_all_short_sequences() -> None:
    interesting = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF]
    interesting += [0xF0, 0xF4, 0xF5, 0xFF]
    for first in interesting:
        for second in interesting:
            for third in interesting:
                data = bytes((first, second, third, 0x80))
                try:
                    data.decode()
                    wanted = -1
                except UnicodeDecodeError as error:
                    wanted = error.start
                assert primitives.bad_utf8(np.frombuffer(data, np.uint8), 0, 4) == wanted, data.hex()


@given(
    number=st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -(10**18), -(10**18) - 1, 10**18]))
)
def test_numbers(number: int) -> None:
    out = np.zeros(32, np.uint8)
    end = primitives.put_number(out, 0, number)
    assert out[:end].tobytes() == str(number).encode()


@given(text=st.text(max_size=30))
def test_texts(text: str) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    out = np.zeros(6 * data.size + 2, np.uint8)
    end = primitives.put_text(out, 0, data, 0, data.size)
    assert out[:end].tobytes() == msgspec.json.encode(text)


@given(data=st.binary(max_size=8))
def test_a_text_that_is_not_utf8_is_not_written(data: bytes) -> None:
    found = primitives.put_text(np.zeros(64, np.uint8), 0, np.frombuffer(data, np.uint8), 0, len(data))
    assert (found < 0) == (primitives.bad_utf8(np.frombuffer(data, np.uint8), 0, len(data)) >= 0)


@given(data=st.binary(max_size=30))
def test_base64(data: bytes) -> None:
    out = np.zeros(64, np.uint8)
    end = primitives.put_base64(out, 0, np.frombuffer(data, np.uint8), 0, len(data))
    assert out[:end].tobytes() == msgspec.json.encode(data)


@given(number=st.integers(0, 2**64 - 1))
def test_unsigned_numbers(number: int) -> None:
    out = np.zeros(32, np.uint8)
    end = primitives.put_unsigned(out, 0, number - (1 << 64) if number >= 1 << 63 else number)
    assert out[:end].tobytes() == str(number).encode()


@given(number=st.one_of(st.integers(-(2**47), 2**48 - 1), st.integers(-1000, 1000)), digits=st.integers(1, 4))
def test_decimals(number: int, digits: int) -> None:
    out = np.zeros(32, np.uint8)
    end = primitives.put_decimal(out, 0, number, digits)
    assert out[:end].tobytes() == msgspec.json.encode(number / 10**digits)


floats = st.one_of(st.floats(), st.floats(-1e6, 1e6), st.integers(-(10**6), 10**6).map(lambda number: number / 1000))


@settings(max_examples=1000)
@given(value=floats)
@example(value=5e-324)
@example(value=2.2250738585072014e-308)
@example(value=1.7976931348623157e308)
@example(value=9007199254740993.0)
@example(value=1e23)
@example(value=-0.0)
@example(value=1e16)
@example(value=9.5e-6)
def test_floats(value: float) -> None:
    out = np.zeros(32, np.uint8)
    end = kernel_floats.put_f64(out, 0, *struct.unpack("<q", struct.pack("<d", value)))
    assert out[:end].tobytes() == msgspec.json.encode(value)


@given(bits=st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 2**23), st.integers(2**31, 2**31 + 2**23)))
def test_short_floats(bits: int) -> None:
    (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
    out = np.zeros(32, np.uint8)
    end = kernel_floats.put_f32(out, 0, bits)
    assert out[:end].tobytes() == msgspec.json.encode(value)


@given(number=st.integers(-(2**47), 2**48 - 1), factor=st.sampled_from([0.25, 1 / 3, 1e-9, 12.5, 1e250, 1e-250]))
def test_scaled_numbers(number: int, factor: float) -> None:
    out = np.zeros(32, np.uint8)
    end = kernel_floats.put_float(out, 0, number * factor)
    assert out[:end].tobytes() == msgspec.json.encode(number * factor)


def test_long_fields_find_room() -> None:
    """Readings and ids take many times their bytes as JSON."""
    readings = tuple(Reading(255, 255, 1) for _ in range(255))
    packet = Packet(1, FIRST | LAST, 6, "1234", 1, 0, DeviceCommand(1, 4, 0, readings).encode())
    assert_same("apostol", [(packet.encode(), Sender.CLIENT)] * 50)
    acks = MessageAck(tuple("\x01" * 40 for _ in range(127)))
    news = Message(255, "\x01" * 5000, b"x" * 100, -(2**63))
    assert_same("comet", [(acks.encode(), Sender.CLIENT), (news.encode(), Sender.SERVER)] * 50)


def test_float_readings_are_those_of_the_codec() -> None:
    values = (0.1, -0.0, 1e300, 5e-324, float("inf"), float("nan"), 1e16, 123456789.123)
    readings = tuple(Reading(7, value, 8) for value in values)
    commands = [DeviceCommand(1, 4, 0, readings[:count]) for count in range(len(values) + 1)]
    packets = [Packet(1, FIRST | LAST, 6, "1234", 1, 0, command.encode()) for command in commands]
    assert_same("apostol", [(packet.encode(), Sender.CLIENT) for packet in packets])


def test_only_malformed_commands_are_left_to_the_codec() -> None:
    """Odd sizes of readings, too, are written by the kernel."""
    odd = DeviceCommand(1, 4, 0, (Reading(1, b"12345", 5), Reading(2, b"", 0), Reading(3, 7, 1)))
    good = Packet(1, FIRST | LAST, 6, "1234", 1, 0, odd.encode()).encode()
    bad = Packet(1, FIRST | LAST, 6, "1234", 1, 0, odd.encode()[:-1]).encode()
    found = apostol.message_kernel().run(pa.array([good, bad, good], pa.binary()), np.zeros(3, np.bool_))
    assert found.rows.tolist() == [0, 2]
    assert_same("apostol", [(good, Sender.CLIENT), (bad, Sender.CLIENT), (good, Sender.CLIENT)])
