from protocols.magline.talking import logged_in
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import identify
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.protocol import PROTOCOL


def test_magline_is_known_by_its_bytes_and_by_who_speaks() -> None:
    talking = logged_in()
    for sender in Sender:
        stream = b"".join(raw for said, raw in talking.wire if said is sender)
        best, other = identify(stream, (PROTOCOL,))
        assert (best.sender, other.sender) == (sender, sender.other)
        assert best.bits > 100


def test_optional_bits_make_it_less_sure() -> None:
    def bits(frame: frames.MaglineFrame) -> float:
        return sum(clue.bits for clue in PROTOCOL.clues(frame.encode(), Sender.CLIENT))

    assert bits(frames.Fin(0, head_optional=1)) < bits(frames.Fin(0))


def test_the_transport() -> None:
    (transport,) = PROTOCOL.transports
    assert (transport.carrier, transport.port, transport.setting) == ("tcp", 9757, "magline")
