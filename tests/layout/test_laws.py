"""The laws of every protocol, for described frames with every type of field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.sampler import SAMPLER, SETS, frames_of, protocol, with_checksum
from wirelake.errors import ProtocolError
from wirelake.layout import FrameSet, LayoutFrame
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender

PROTOCOLS = {frames.name: protocol(frames) for frames in SETS}
any_set = st.sampled_from(SETS)
set_and_frame = any_set.flatmap(lambda frames: st.tuples(st.just(frames), frames_of(frames)))
set_and_frames = any_set.flatmap(lambda frames: st.tuples(st.just(frames), st.lists(frames_of(frames), max_size=4)))
ALL = [(frames, kind) for frames in SETS for kind in frames.frames]


def sender_of(frame: Any) -> Sender:
    return frame.sender or Sender.CLIENT


@pytest.mark.parametrize(("frames", "kind"), ALL, ids=lambda each: getattr(each, "name", ""))
@given(data=st.data())
def test_every_frame_round_trips(frames: FrameSet, kind: type[LayoutFrame], data: st.DataObject) -> None:
    frame = data.draw(frames.strategies()[kind])
    laws.check_round_trip(PROTOCOLS[frames.name], frame, sender_of(frame))


@given(set_and_frames, st.binary(max_size=5), laws.cuts)
def test_any_split_gives_the_same_frames(
    drawn: tuple[FrameSet, list[LayoutFrame]], tail: bytes, cuts: list[int]
) -> None:
    frames, sent = drawn
    sent = laws.one_order(sent)
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOLS[frames.name], stream, cuts, Sender.CLIENT)
    splitter = frames.splitter()
    assert splitter.receive(stream)[: len(sent)] == [frame.encode() for frame in sent]


@given(any_set, st.binary(max_size=80), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(frames: FrameSet, data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOLS[frames.name], data, sender)


@given(set_and_frame, st.integers(min_value=0), st.integers(0, 255), laws.senders, st.booleans())
def test_a_changed_byte_never_raises_anything_else(
    drawn: tuple[FrameSet, LayoutFrame], place: int, byte: int, sender: Sender, is_checksum_right: bool
) -> None:
    frames, frame = drawn
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    if is_checksum_right:
        wire = with_checksum(frames, wire)
    laws.check_any_bytes(PROTOCOLS[frames.name], bytes(wire), sender)


@given(st.sampled_from([kind.opcode for kind in SAMPLER.frames]), st.binary(max_size=60), laws.senders)
def test_any_body_is_read_or_refused_by_name(number: int, body: bytes, sender: Sender) -> None:
    size = len(body) + 9
    wire = bytearray(b"\xca\xfe" + size.to_bytes(2, "big") + bytes([number, 0, 1]) + body + b"\0\0")
    laws.check_any_bytes(PROTOCOLS["sampler"], bytes(with_checksum(SAMPLER, wire)), sender)


@given(set_and_frame)
def test_a_frame_that_is_cut_off_is_refused_at_its_end_or_at_its_length(drawn: tuple[FrameSet, LayoutFrame]) -> None:
    frames, frame = drawn
    wire, sender = frame.encode(), sender_of(frame)
    for end in range(len(wire)):
        laws.check_verdict(PROTOCOLS[frames.name], wire[:end], sender)
        with pytest.raises(ProtocolError) as caught:
            frames.decode(wire[:end], sender)
        if frames.name == "sampler":
            assert (caught.value.code, caught.value.offset) == (("short", end) if end < 4 else ("length", 2))


@given(set_and_frame, st.integers(min_value=0), laws.senders)
def test_what_is_redacted_still_decodes_and_has_no_secrets(
    drawn: tuple[FrameSet, LayoutFrame], place: int, sender: Sender
) -> None:
    frames, frame = drawn
    wire = frame.encode()
    blank = frames.redact(wire, sender_of(frame))
    assert len(blank) == len(wire)
    found = frames.decode(blank, sender_of(frame))
    for field in frame.__layout_fields__:
        value, before = getattr(found, field.name), getattr(frame, field.name)
        if not field.is_secret:
            assert value == before
        elif isinstance(value, str | bytes):
            assert set(value) <= {"*", 0}
    broken = wire[: place % len(wire)]
    assert len(frames.redact(broken, sender)) == len(broken)
