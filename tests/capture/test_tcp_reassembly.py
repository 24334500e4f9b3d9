"""However the segments of a stream arrive, its bytes come out in order, each once."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wirelake.capture.tcp_reassembly import TcpReassembly

STREAM = bytes(range(251)) * 4


def joined(pieces: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in pieces)


@st.composite
def segments(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Draw segments that cover the stream, some of them twice or overlapping, in any order."""
    cuts = sorted({0, len(STREAM), *draw(st.lists(st.integers(0, len(STREAM)), max_size=20))})
    parts = [(start, STREAM[start:end]) for start, end in pairwise(cuts)]
    places = draw(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(1, 300)), max_size=8))
    return draw(st.permutations(parts + [(start, STREAM[start : start + size]) for start, size in places]))


@given(segments(), st.integers(0, 2**32 - 1))
def test_any_order_gives_the_stream(parts: list[tuple[int, bytes]], first_seq: int) -> None:
    stream = TcpReassembly()
    stream.start(first_seq)
    found = b"".join(joined(stream.receive(0, (first_seq + at) % 2**32, data)) for at, data in parts)
    assert found == STREAM
    assert stream.waiting_bytes == 0
    assert stream.repeated_bytes == sum(len(data) for _, data in parts) - len(STREAM)


@given(segments(), st.integers(0, 10))
def test_gaps_lose_what_is_missing_and_nothing_else(parts: list[tuple[int, bytes]], kept: int) -> None:
    stream, parts = TcpReassembly(), parts[:kept]
    stream.start(7)
    has = sorted({place for at, data in parts for place in range(at, at + len(data))})
    found = b"".join(joined(stream.receive(0, 7 + at, data)) for at, data in parts)
    missing = 0
    while stream.waiting_bytes:
        gap, pieces = stream.skip_gap()
        missing += gap
        found += joined(pieces)
    assert found == bytes(STREAM[place] for place in has)
    assert missing == (has[-1] + 1 - len(has) if has else 0)


def test_bytes_behind_a_gap_keep_their_time_and_those_that_waited_have_that_of_the_last() -> None:
    stream = TcpReassembly()
    stream.start(0)
    assert stream.receive(1, 5, b"fgh") == []
    assert stream.receive(2, 0, b"abcde") == [(2, b"abcde"), (2, b"fgh")]
    assert stream.receive(3, 10, b"kl") == []
    assert stream.receive(4, 14, b"op") == []
    assert stream.skip_gap() == (2, [(3, b"kl")])
    assert stream.skip_gap() == (2, [(4, b"op")])
    assert stream.skip_gap() == (0, [])


def test_the_end_counts_when_all_before_it_is_there() -> None:
    stream = TcpReassembly()
    stream.start(0)
    assert stream.receive(1, 3, b"def", fin=True) == []
    assert not stream.is_complete
    assert joined(stream.receive(2, 0, b"abc")) == b"abcdef"
    assert stream.is_complete


def test_a_number_far_away_is_of_another_connection() -> None:
    stream = TcpReassembly()
    stream.start(2**32 - 10)
    assert stream.is_inside_window(5)
    assert not stream.is_inside_window(2**31)
