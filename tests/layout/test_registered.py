"""Every described protocol, from its layout alone: decode, dissect, encode and the splitter agree."""

import pytest
from gateway.installed_protocol import example
from hypothesis import given
from hypothesis import strategies as st

from layout.sampler import frames_of
from wirelake.layout import FrameSet
from wirelake.protocols import registry
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol

DESCRIBED: list[Protocol] = [
    protocol
    for protocol in (*registry.all_protocols(), example("beacon").PROTOCOL, example("pager").PROTOCOL)
    if protocol.layout is not None
]
every_protocol = pytest.mark.parametrize("protocol", DESCRIBED, ids=lambda protocol: protocol.name)


def layout_of(protocol: Protocol) -> FrameSet:
    assert protocol.layout is not None
    return protocol.layout


def carrier_of(protocol: Protocol) -> Carrier:
    return next(each.carrier for each in protocol.transports if each.carrier is not Carrier.WEBSOCKET)


@pytest.mark.parametrize(
    "law",
    [pytest.param(law, id=f"{protocol.name}: {law.name}") for protocol in DESCRIBED for law in laws.laws(protocol)],
)
def test_the_laws_hold(law: laws.Law) -> None:
    law.run(laws.EXAMPLES)


@every_protocol
@given(data=st.data(), tail=st.binary(max_size=5), cuts=laws.cuts)
def test_any_split_gives_the_same_frames(protocol: Protocol, data: st.DataObject, tail: bytes, cuts: list[int]) -> None:
    sent = laws.one_order(data.draw(st.lists(frames_of(layout_of(protocol)), max_size=4)))
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(protocol, stream, cuts, Sender.CLIENT, carrier_of(protocol))
    found = protocol.splitter(Sender.CLIENT, carrier_of(protocol)).receive(stream)
    assert found[: len(sent)] == [frame.encode() for frame in sent]


def test_a_protocol_decodes_by_the_layout_that_it_names() -> None:
    """Or else what is derived from the layout says nothing about the protocol."""
    assert {protocol.name: protocol.decode for protocol in DESCRIBED} == {
        protocol.name: layout_of(protocol).decode for protocol in DESCRIBED
    }
