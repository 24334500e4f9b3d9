from wirelake.errors import ProtocolError
from wirelake.limits import SPLITTER_JOIN_BYTES_MAX
from wirelake.protocols.splitter import DatagramSplitter, Splitter


class Counted(Splitter):
    """Frames of a u32 length and a body; counts how often it looked at the bytes."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        super().__init__(2**31)
        self.looks = 0

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        self.looks += 1
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big") + 4
            if start + size > len(buffer):
                return size
            start += size
            ends.append(start)
        return 4


def test_a_large_frame_in_small_pieces_is_looked_at_a_few_times_only() -> None:
    body = bytes(range(256)) * 2048
    stream = len(body).to_bytes(4, "big") + body
    splitter = Counted()
    frames = []
    for start in range(0, len(stream), 1000):
        frames += splitter.receive(stream[start : start + 1000])
    assert len(body) > SPLITTER_JOIN_BYTES_MAX
    assert frames == [stream]
    assert splitter.looks == 2
    assert splitter.position == len(stream)


def test_frames_after_a_large_one_are_cut_too() -> None:
    large = (100_000).to_bytes(4, "big") + b"x" * 100_000
    small = b"\0\0\0\x01y"
    splitter = Counted()
    assert splitter.receive(large[:70_000]) == []
    assert splitter.receive(large[70_000:] + small + small[:2]) == [large, small]
    assert splitter.rest == small[:2]
    assert splitter.receive(small[2:]) == [small]
    assert splitter.rest == b""


def test_finish_names_the_place_where_the_bytes_end() -> None:
    splitter = Counted()
    splitter.receive(b"\0\0\0\x01y\0\0\0\x05ab")
    splitter.finish()
    assert isinstance(splitter.failure, ProtocolError)
    assert (splitter.failure.code, splitter.failure.offset) == ("incomplete", 11)


def test_finish_at_a_frame_bound_is_fine() -> None:
    splitter = Counted()
    splitter.receive(b"\0\0\0\x01y")
    splitter.finish()
    assert splitter.failure is None


def test_a_datagram_is_one_frame_within_its_limit() -> None:
    splitter = DatagramSplitter(4)
    assert splitter.receive(b"abc") == [b"abc"]
    assert splitter.receive(b"") == []
    assert splitter.receive(b"abcd") == [b"abcd"]
    assert splitter.receive(b"abcde") == []
    assert splitter.failure is not None
    assert splitter.failure.code == "message_bytes_max"
