import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.magline.strategies import either_order, streams
from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.frames import MaglineFrame, decode, dissect
from wirelake.protocols.magline.protocol import PROTOCOL

KEY = bytes(range(32))


@given(either_order, laws.senders)
def test_every_frame_round_trips(frame: MaglineFrame, sender: Sender) -> None:
    laws.check_round_trip(PROTOCOL, frame, sender)


@given(streams, st.binary(max_size=20), laws.cuts)
def test_any_split_gives_the_same_frames(sent: list[MaglineFrame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, Sender.CLIENT)


@given(st.binary(max_size=80), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, data, sender)


@given(st.sampled_from([b"\x7f\x01\x00", b"\x7f\x01", b"\x7e\x01\x00", b"\x7e\x01"]), st.binary(max_size=80))
def test_any_bytes_behind_a_good_beginning(begin: bytes, data: bytes) -> None:
    laws.check_any_bytes(PROTOCOL, begin + data, Sender.CLIENT)


@given(either_order, st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(frame: MaglineFrame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender)


@given(either_order, st.integers(min_value=0))
def test_a_frame_cut_short_is_refused(frame: MaglineFrame, place: int) -> None:
    wire = frame.encode()
    cut = wire[: place % len(wire)]
    laws.check_verdict(PROTOCOL, cut, Sender.CLIENT)
    with pytest.raises(ProtocolError):
        decode(cut, Sender.CLIENT)


PIN = "7f010004 0000 0000 00000001 00000004 00000007"


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", "short", 0),
        ("00", "bad_magic", 0),
        ("7f", "short", 1),
        ("7f02", "version", 1),
        ("7f00", "version", 1),
        ("7f01", "short", 2),
        ("7f0100", "short", 3),
        ("7f010000", "unknown_cmd", 2),
        ("7f01000a", "unknown_cmd", 2),
        ("7f010a00", "unknown_cmd", 2),
        ("7f010101", "unknown_cmd", 2),
        ("7e010004", "bad_magic", 0),
        ("7f010006", "bad_magic", 0),
        ("7f010600", "bad_magic", 0),
        (PIN[:-9], "length", 12),
        (PIN + "00", "length", 12),
        (PIN[: len("7f010004 0000 0000 00000001 00")], "short", 13),
        ("7f010004 0000 0000 00000001 00000003 000000", "short", 19),
        ("7f010004 0000 0000 00000001 00000005 0000000700", "trailing", 20),
        ("7f010004 0000 0002 00000001 00000003 abcd 000000", "short", 21),
        ("7f010003 0000 0000 00000001 00000004 00000001", "short", 20),
        ("7f010001 0000 0000 00000001 00000040" + "00" * 64, None, 0),
        ("7f010001 0000 0000 00000001 0000003f" + "00" * 63, "short", 79),
        ("7f010001 0000 0000 00000001 00000041" + "00" * 65, "short", 81),
        ("7f010001 0000 0000 00000001 00000051" + "00" * 81, "trailing", 96),
        ("7f010002 0000 0000 00000001 0000005f" + "00" * 95, "short", 111),
        ("7f010002 0000 0000 00000001 00000061" + "00" * 97, "trailing", 112),
        ("7e010006 0000 0000 00000001 00000013" + "00" * 19, "short", 35),
        ("7e010006 0000 0001 00000001 00000013" + "00" * 20, "short", 36),
        ("7e010006 0000 0015 00000001 00000000" + "00" * 21, "short", 37),
        ("7f010900 0000 0000 01000000 03000000 000000", "short", 19),
    ],
)
def test_bad_frames_are_refused_at_the_bad_byte(hex_: str, code: str | None, offset: int) -> None:
    wire = bytes.fromhex(hex_)
    laws.check_verdict(PROTOCOL, wire, Sender.CLIENT)
    if code is None:
        assert decode(wire, Sender.CLIENT).name == "SYN"
        return
    with pytest.raises(ProtocolError) as caught:
        decode(wire, Sender.CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_numbers_in_the_body_follow_the_byte_order_of_the_head() -> None:
    wire = bytes.fromhex("7f010300 0000 0000 02000000 08000000 11000000 07000000")
    frame = decode(wire, Sender.SERVER)
    assert frame == frames.Err(17, 7, seq=2, little=True)
    assert frame.encode() == wire


def test_optional_bits_and_header_bytes_are_kept_and_ignored() -> None:
    wire = bytes.fromhex("7f010009 8001 0003 00000002 00000004 616263 00000000")
    frame = decode(wire, Sender.CLIENT)
    assert frame == frames.Fin(0, seq=2, head_optional=0x8001, header=b"abc")
    assert frame.encode() == wire


@pytest.mark.parametrize(
    "frame",
    [
        frames.Pin(-1),
        frames.Pin(2**32),
        frames.Err(0, 2**32),
        frames.Fin(0, seq=2**32),
        frames.Fin(0, seq=-1),
        frames.Fin(0, head_optional=2**16),
        frames.Fin(0, header=bytes(2**16)),
        frames.Syn(KEY, KEY[:31]),
        frames.Syn(KEY[:31], KEY),
        frames.Syn(KEY, KEY, b"short"),
        frames.Ack(KEY, KEY, KEY[:16]),
        frames.Req(2**32, frames.OPENED, b""),
        frames.Req(1, b"", b""),
    ],
)
def test_what_the_wire_has_no_room_for_is_not_written(frame: MaglineFrame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


def test_the_tree_says_what_numbers_mean() -> None:
    def notes(frame: MaglineFrame) -> dict[str, str]:
        return {leaf.name: leaf.note for leaf in dissect(frame.encode(), Sender.SERVER).root.leaves()}

    assert notes(frames.Err(17, 7))["error_number"] == "no such service"
    assert notes(frames.Err(17, 7))["business_cmd"] == "service magline/17"
    assert notes(frames.Err(0, 99))["error_number"] == "a service's own number"
    assert notes(frames.Fin(3))["reason"] == "rekey"
    assert notes(frames.Fin(77))["reason"] == "not a known reason"
    assert notes(frames.Fin(0, little=True))["cmd"] == "FIN, little-endian"
    assert notes(frames.Req(2, frames.OPENED, b"x"))["hmac"] == "zero: opened, as the log keeps it"
    assert notes(frames.Req(2, b"h" * 16, b"x"))["business_cmd"] == "subscribe"
