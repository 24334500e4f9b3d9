"""What must hold for every protocol, whatever the bytes. Each protocol's tests call these with their own inputs."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.splitter import Splitter

cuts = st.lists(st.integers(min_value=0), max_size=8)
senders = st.sampled_from(Sender)


def split_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` in pieces, cut at these places (taken modulo its length)."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(bounds)]


def outcome(splitter: Splitter, pieces: Sequence[bytes]) -> tuple[list[bytes], tuple[str, int] | None]:
    """All frames, and the failure's code and offset."""
    frames = [frame for piece in pieces for frame in splitter.receive(piece)]
    failure = splitter.failure
    return frames, None if failure is None else (failure.code, failure.offset)


def same_for_any_split(
    protocol: Protocol, data: bytes, places: Sequence[int], sender: Sender, carrier: Carrier = Carrier.TCP
) -> None:
    whole = outcome(protocol.splitter(sender, carrier), [data])
    assert outcome(protocol.splitter(sender, carrier), split_at(data, places)) == whole
    assert outcome(protocol.splitter(sender, carrier), [bytes([byte]) for byte in data]) == whole


def round_trips(protocol: Protocol, frame: Frame, sender: Sender) -> None:
    """decode(encode(x)) == x, and the tree agrees."""
    wire = frame.encode()
    assert protocol.decode(wire, sender) == frame
    assert_verdict(protocol, wire, sender)


def assert_verdict(protocol: Protocol, frame: bytes, sender: Sender) -> None:
    """decode and dissect agree: both take the frame, or both refuse it at the same place for the same reason.

    A tree without an error accounts for every byte, once and in order.
    """
    error: ProtocolError | None = None
    try:
        decoded = protocol.decode(frame, sender)
    except ProtocolError as caught:
        error = caught
    tree = protocol.dissect(frame, sender)
    if error is not None:
        assert tree.error is not None, f"decode refuses ({error}), dissect does not"
        assert (tree.error.code, tree.error.offset) == (error.code, error.offset)
        assert 0 <= error.offset <= len(frame)
        return
    assert tree.error is None, f"dissect refuses ({tree.error}), decode does not"
    place = 0
    for leaf in tree.root.leaves():
        assert leaf.offset == place, f"{leaf.name} begins at {leaf.offset}, not {place}"
        place += leaf.size
    assert place == len(frame)
    protocol.to_message(decoded, sender)
    list(protocol.clues(frame, sender))


def is_total(protocol: Protocol, data: bytes, sender: Sender, carrier: Carrier = Carrier.TCP) -> None:
    """Any bytes give frames, "need more" or a ProtocolError with an offset inside them; nothing else is raised."""
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)
    if splitter.failure is not None:
        assert 0 <= splitter.failure.offset <= len(data)
    assert b"".join(frames) + splitter.rest == data
    for frame in frames:
        assert splitter.wrap(splitter.bare(frame)) == frame
        assert_verdict(protocol, splitter.bare(frame), sender)
    assert_verdict(protocol, data, sender)
