"""Described frames read and write the same bytes as the hand-written codecs, and refuse the same at the same byte."""

from typing import Any

import pytest
from fastcrc.crc16 import modbus
from hypothesis import given
from hypothesis import strategies as st

from layout import described
from protocols.apostol import strategies as apostol_strategies
from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout import FrameSet
from wirelake.protocols.apostol import frames as apostol
from wirelake.protocols.apostol.tree import dissect as apostol_dissect
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.testing import cuts, split_at, split_outcome

CLIENT = Sender.CLIENT


def values(frame: Frame) -> dict[str, Any]:
    found = {name: plain(getattr(frame, name)) for name in frame.__struct_fields__}
    return {"name": frame.name, **found}


def plain(value: Any) -> Any:
    """Return the values of the frames inside a frame."""
    return [values(item) if isinstance(item, Frame) else item for item in value] if isinstance(value, tuple) else value


def verdict(decode: Any, data: bytes, sender: Sender = CLIENT) -> Any:
    try:
        return values(decode(data, sender))
    except ProtocolError as error:
        return type(error), error.code, error.offset


def apostol_values(decode: Any, data: bytes) -> Any:
    found = verdict(decode, data)
    if isinstance(found, dict):
        found = {"data": b"", **found}
        found.pop("version", None)
    return found


def apostol_alike(data: bytes) -> None:
    assert apostol_values(described.APOSTOL.decode, data) == apostol_values(apostol.decode, data)
    assert_trees(described.APOSTOL, data, apostol_dissect(data, CLIENT).error)


def assert_trees(frames: FrameSet, data: bytes, expected: ProtocolError | None, sender: Sender = CLIENT) -> None:
    error = frames.dissect(data, sender).error
    assert (error and (error.code, error.offset)) == (expected and (expected.code, expected.offset))


def described_twin(frame: Frame) -> Frame:
    kind = getattr(described, type(frame).__name__)
    fields = {name: getattr(frame, name) for name in kind.__struct_fields__}
    twin: Frame = kind(**fields)
    return twin


@given(st.binary(max_size=24))
def test_random_bytes_have_the_same_verdict(data: bytes) -> None:
    apostol_alike(data)


@given(apostol_strategies.any_frames)
def test_apostol_packets_have_the_same_bytes(packet: apostol.Packet) -> None:
    assert described_twin(packet).encode() == packet.encode()
    apostol_alike(packet.encode())


def with_crc(packet: bytes) -> bytes:
    return packet[:-2] + modbus(packet[:-2]).to_bytes(2, "little")


@given(apostol_strategies.any_frames, st.integers(0), st.integers(0, 255))
def test_a_changed_packet_has_the_same_verdict(packet: apostol.Packet, place: int, byte: int) -> None:
    wire = bytearray(packet.encode())
    wire[place % len(wire)] = byte
    apostol_alike(bytes(wire))
    apostol_alike(with_crc(bytes(wire)))
    apostol_alike(bytes(wire)[: place % len(wire)])


@given(st.binary(min_size=8, max_size=140))
def test_a_random_packet_with_a_right_crc_has_the_same_verdict(body: bytes) -> None:
    size = len(body)
    length = bytes([size]) if size < 0x80 else bytes([0x80 | size & 0x7F, size >> 7])
    apostol_alike(with_crc(length + body))
    apostol_alike(with_crc(length + b"\x01" + body[1:]))


@given(st.lists(apostol_strategies.any_frames, max_size=4), st.binary(max_size=4), cuts)
def test_a_stream_of_packets_is_cut_alike(packets: list[apostol.Packet], tail: bytes, places: list[int]) -> None:
    stream = b"".join(packet.encode() for packet in packets) + tail
    pieces = split_at(stream, places)
    for limit in (32_769, 20):
        ours, theirs = described.APOSTOL.splitter(limit), apostol.ApostolSplitter(limit)
        assert split_outcome(ours, pieces) == split_outcome(theirs, pieces)
        assert type(ours.failure) is type(theirs.failure)


@pytest.mark.parametrize(
    "frame",
    [
        apostol.Packet(1, 0x80, 0, "", 0, 0, b""),
        apostol.Packet(1, 0x40, 0, "", 0, 0, b""),
        apostol.Packet(1, 0, 256, "", 0, 0, b""),
        apostol.Packet(1, 0, 0, "x" * 256, 0, 0, b""),
        apostol.Packet(1, 0, 0, "", 0, 0, b"x" * 32_767),
        apostol.Packet(1, 0, 0, "\ud800", 0, 0, b""),
    ],
    ids=lambda frame: frame.name,
)
def test_what_cannot_be_written_is_refused_by_both(frame: Frame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()
    with pytest.raises(EncodeError):
        described_twin(frame).encode()
