import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.comet.strategies import any_frames, client_frames
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols import testing as laws
from wirelake.protocols.comet import frames
from wirelake.protocols.comet.frames import CometFrame, CometSplitter, decode
from wirelake.protocols.comet.protocol import PROTOCOL
from wirelake.protocols.frame import Sender


@given(any_frames)
def test_every_frame_round_trips(frame: CometFrame) -> None:
    laws.check_round_trip(PROTOCOL, frame, frame.sender)


@given(st.lists(client_frames, max_size=5), st.binary(max_size=5), laws.cuts)
def test_any_split_gives_the_same_frames(sent: list[CometFrame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, Sender.CLIENT)


@given(st.binary(max_size=80), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, data, sender)


@given(any_frames, st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(frame: CometFrame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender)


@pytest.mark.parametrize(
    ("sender", "hex_", "code", "offset"),
    [
        (Sender.CLIENT, "0000", "short", 2),
        (Sender.CLIENT, "00", "short", 1),
        (Sender.CLIENT, "000209", "length", 0),
        (Sender.CLIENT, "000109", "unknown_type", 2),
        (Sender.SERVER, "000106", "unknown_type", 2),
        (Sender.CLIENT, "00020600", "trailing", 3),
        (Sender.CLIENT, "0006000003616263", "short", 8),
        (Sender.CLIENT, "0007030100024061ff"[:-2], "length", 0),
        (Sender.CLIENT, "00060301000240ff", "bad_utf8", 7),
        (Sender.SERVER, "000c05000001410000000000000a", "short", 14),
    ],
)
def test_bad_frames_are_refused_at_the_bad_byte(sender: Sender, hex_: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(hex_), sender)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_the_unsigned_range_is_read() -> None:
    body = b"\x07" + b"\xff" + b"\x00\x01a" * 255
    frame = len(body).to_bytes(2, "big") + body
    assert decode(frame, Sender.CLIENT) == frames.MessageAck(("a",) * 255)


@pytest.mark.parametrize(
    "frame",
    [
        frames.MessageAck(("a",) * 128),
        frames.Subscribe(("a",) * 128),
        frames.MessageList((frames.Message(0, "", b"", 0),) * 128),
        frames.Auth("x" * 32_767, ""),
        frames.Auth("x" * 65_536, ""),
        frames.Auth("\ud800", ""),
        frames.ReportEnviron(256, 0, "", ()),
        frames.ReportEnviron(0, -1, "", ()),
        frames.ExchangeKey(b"x" * 32766),
        frames.ExchangeKey(b"x" * 65536),
        frames.Error(256, ""),
        frames.Error(-1, ""),
    ],
)
def test_writers_keep_to_the_signed_range(frame: CometFrame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


def test_a_length_over_the_limit_is_refused_before_the_body_comes() -> None:
    splitter = CometSplitter(frame_bytes_max=100)
    assert splitter.receive(b"\x00\x01\x06\x00\x63") == [b"\x00\x01\x06"]
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("comet_frame_bytes_max", 3)
    assert splitter.rest == b"\x00\x63"
    assert splitter.receive(b"\x00\x01\x06") == []
