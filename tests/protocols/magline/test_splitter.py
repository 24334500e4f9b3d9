import pytest

from wirelake.errors import LimitError
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.constants import MAGLINE_MESSAGE_BYTES_MAX
from wirelake.protocols.magline.frames import make_splitter

PIN = frames.Pin(1, seq=1).encode()
LITTLE_PIN = frames.Pin(1, seq=1, little=True).encode()


def test_a_body_over_the_limit_is_refused_before_it_comes() -> None:
    splitter = make_splitter(message_bytes_max=100)
    head = frames.Req(16, frames.OPENED, bytes(81)).encode()[:16]
    assert splitter.receive(PIN + head) == [PIN]
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("magline_message_bytes_max", len(PIN) + 12)
    assert splitter.rest == head
    assert splitter.receive(PIN) == []


def test_a_message_header_over_the_limit_is_refused_before_it_comes() -> None:
    splitter = make_splitter(header_bytes_max=10)
    assert splitter.receive(frames.Fin(0, header=bytes(11)).encode()[:16]) == []
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("magline_header_bytes_max", 6)


def test_what_just_fits_is_taken() -> None:
    largest = frames.Req(16, b"h" * 16, bytes(MAGLINE_MESSAGE_BYTES_MAX - 20), header=bytes(4096)).encode()
    splitter = make_splitter()
    assert splitter.receive(largest) == [largest]
    assert len(largest) == splitter.frame_bytes_max
    assert splitter.failure is None


@pytest.mark.parametrize(("first", "second"), [(PIN, LITTLE_PIN), (LITTLE_PIN, PIN)])
def test_the_byte_order_may_not_change(first: bytes, second: bytes) -> None:
    for pieces in ([first + first + second], [first, first, second], [first + first + second[:4]]):
        splitter = make_splitter()
        found = [frame for piece in pieces for frame in splitter.receive(piece)]
        assert found == [first, first]
        assert splitter.failure is not None
        assert (splitter.failure.code, splitter.failure.offset) == ("byte_order", 2 * len(first) + 2)


@pytest.mark.parametrize(
    ("begin", "code", "offset"),
    [
        (b"GET ", "bad_magic", 0),
        (b"\x7f\x02\x00\x01", "version", 1),
        (b"\x7f\x01\x00\x0a", "unknown_cmd", 2),
        (b"\x7e\x01\x00\x01", "bad_magic", 0),
    ],
)
def test_something_else_is_refused_by_its_first_four_bytes(begin: bytes, code: str, offset: int) -> None:
    for before in (b"", PIN):
        splitter = make_splitter()
        assert splitter.receive(before + begin) == ([PIN] if before else [])
        assert splitter.failure is not None
        assert (splitter.failure.code, splitter.failure.offset) == (code, offset + len(before))


def test_three_bytes_say_nothing_yet() -> None:
    splitter = make_splitter()
    splitter.receive(b"GET")
    splitter.finish()
    assert splitter.failure is not None
    assert (splitter.failure.code, splitter.failure.offset) == ("incomplete", 3)


def test_a_large_frame_in_small_pieces() -> None:
    large = frames.Req(16, b"h" * 16, bytes(200_000), seq=1).encode()
    splitter = make_splitter()
    found = []
    for start in range(0, 2 * len(large), 1000):
        found += splitter.receive((large + large)[start : start + 1000])
    assert found == [large, large]
