"""Every described protocol, from its layout alone: decode, dissect, encode and the splitter agree."""

from typing import Any

import pytest
from gateway.installed_protocol import example
from hypothesis import given
from hypothesis import strategies as st

from layout.sampler import frames_of, with_checksum
from protocols import laws
from wirelake.layout import FrameSet
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol

DESCRIBED: list[Protocol] = [
    protocol for protocol in (*registry.all_protocols(), example("beacon").PROTOCOL) if protocol.layout is not None
]
every_protocol = pytest.mark.parametrize("protocol", DESCRIBED, ids=lambda protocol: protocol.name)


def layout_of(protocol: Protocol) -> FrameSet:
    assert protocol.layout is not None
    return protocol.layout


def sender_of(frame: Any) -> Sender:
    return frame.sender or Sender.CLIENT


def carrier_of(protocol: Protocol) -> Carrier:
    return next(each.carrier for each in protocol.transports if each.carrier is not Carrier.WEBSOCKET)


@every_protocol
@given(data=st.data())
def test_every_frame_round_trips(protocol: Protocol, data: st.DataObject) -> None:
    frame = data.draw(frames_of(layout_of(protocol)))
    laws.round_trips(protocol, frame, sender_of(frame))


@every_protocol
@given(data=st.data(), tail=st.binary(max_size=5), cuts=laws.cuts)
def test_any_split_gives_the_same_frames(protocol: Protocol, data: st.DataObject, tail: bytes, cuts: list[int]) -> None:
    sent = data.draw(st.lists(frames_of(layout_of(protocol)), max_size=4))
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.same_for_any_split(protocol, stream, cuts, Sender.CLIENT, carrier_of(protocol))
    found = protocol.splitter(Sender.CLIENT, carrier_of(protocol)).receive(stream)
    assert found[: len(sent)] == [frame.encode() for frame in sent]


@every_protocol
@given(data=st.data(), place=st.integers(0), byte=st.integers(0, 255), sender=laws.senders, is_right=st.booleans())
def test_decode_and_dissect_agree_on_a_changed_frame(
    protocol: Protocol, data: st.DataObject, place: int, byte: int, sender: Sender, is_right: bool
) -> None:
    wire = bytearray(data.draw(frames_of(layout_of(protocol))).encode())
    wire[place % len(wire)] = byte
    if is_right:
        wire = with_checksum(layout_of(protocol), wire)
    laws.is_total(protocol, bytes(wire), sender, carrier_of(protocol))
    laws.assert_verdict(protocol, bytes(wire)[: place % len(wire)], sender)
    laws.assert_verdict(protocol, bytes(wire) + bytes([byte]), sender)


@every_protocol
@given(data=st.binary(max_size=40), sender=laws.senders)
def test_any_bytes_are_read_or_refused_by_name(protocol: Protocol, data: bytes, sender: Sender) -> None:
    laws.is_total(protocol, data, sender, carrier_of(protocol))


@every_protocol
@given(data=st.data())
def test_no_secret_is_left_in_redacted_bytes(protocol: Protocol, data: st.DataObject) -> None:
    layout = layout_of(protocol)
    frame = data.draw(frames_of(layout))
    found = layout.decode(layout.redact(frame.encode(), sender_of(frame)), sender_of(frame))
    assert type(found) is type(frame)
    for field in frame.__layout_fields__:
        value = getattr(found, field.name)
        if not field.is_secret:
            assert value == getattr(frame, field.name)
        else:
            assert set(value) <= {"*", 0}


def test_a_protocol_decodes_by_the_layout_that_it_names() -> None:
    """Or else what is derived from the layout says nothing about the protocol."""
    assert {protocol.name: protocol.decode for protocol in DESCRIBED} == {
        protocol.name: layout_of(protocol).decode for protocol in DESCRIBED
    }
