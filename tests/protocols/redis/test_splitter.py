import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.redis.strategies import client_frames, server_frames
from wirelake.errors import LimitError
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.constants import (
    REDIS_ARGUMENTS_MAX,
    REDIS_BULK_BYTES_MAX,
    REDIS_DEPTH_MAX,
    REDIS_ITEMS_MAX,
    REDIS_LINE_BYTES_MAX,
)
from wirelake.protocols.redis.frames import Command, RespFrame
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.redis.splitter import (
    SMALL_BYTES_MAX,
    SMALL_COMMAND,
    SMALL_VALUE,
    CommandSplitter,
    RespSplitter,
    ValueSplitter,
)
from wirelake.protocols.splitter import Splitter

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER
tails = st.one_of(
    st.binary(max_size=5),
    st.sampled_from([b"*2\r\n$1\r\na\r\n$", b"$5\r\nab", b"*1\r\n:1", b"+\r", b"*1\r\n$x\r\n", b"%1\r\n?"]),
)


def _promises_little(text: str) -> bool:
    """No length or count in it is beyond the smaller limit."""
    return not re.search(r"[0-9]{3}", text)


@given(st.lists(client_frames, max_size=5), tails, laws.cuts)
def test_any_split_gives_the_same_commands(sent: list[RespFrame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, CLIENT)
    whole = laws.split_outcome(CommandSplitter(), [stream])[0]
    assert whole[: len(sent)] == [frame.encode() for frame in sent]


@given(st.lists(server_frames, max_size=5), tails, laws.cuts)
def test_any_split_gives_the_same_values(sent: list[RespFrame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, SERVER)
    whole = laws.split_outcome(ValueSplitter(), [stream])[0]
    assert whole[: len(sent)] == [frame.encode() for frame in sent]


@given(
    st.lists(st.one_of(client_frames, server_frames), max_size=5),
    laws.cuts,
    st.integers(1, 60),
    st.sampled_from([CommandSplitter, ValueSplitter]),
)
def test_any_split_breaks_the_same_limit(
    sent: list[RespFrame], cuts: list[int], limit: int, kind: type[RespSplitter]
) -> None:
    stream = b"".join(frame.encode() for frame in sent)
    whole = laws.split_outcome(kind(limit), [stream])
    assert laws.split_outcome(kind(limit), laws.split_at(stream, cuts)) == whole
    assert laws.split_outcome(kind(limit), [bytes([byte]) for byte in stream]) == whole
    assert all(len(frame) <= limit for frame in whole[0])


@given(st.text("+:$*_,>0123456\r\na", max_size=60).filter(_promises_little), laws.senders)
def test_the_short_way_and_the_long_way_cut_alike(text: str, sender: Sender) -> None:
    """Below SMALL_BYTES_MAX a splitter does without the regular expressions; these streams fit either way."""
    stream = text.encode().replace(b"a", b"\r\n")
    kind = CommandSplitter if sender is CLIENT else ValueSplitter
    assert laws.split_outcome(kind(SMALL_BYTES_MAX - 1), [stream]) == laws.split_outcome(kind(), [stream])


@given(st.one_of(client_frames, server_frames))
def test_small_frames_are_matched_whole_or_not_at_all(frame: RespFrame) -> None:
    wire = frame.encode()
    found = (SMALL_COMMAND if frame.sender is CLIENT else SMALL_VALUE).match(wire)
    assert found is None or found.end() == len(wire) <= SMALL_BYTES_MAX


@pytest.mark.parametrize("splitter", [CommandSplitter(), ValueSplitter()])
def test_long_frames_grow_in_place(splitter: Splitter) -> None:
    item = b"$70\r\n" + b"x" * 70 + b"\r\n"
    wire = b"*2000\r\n" + item * 2000
    pieces = [wire[start : start + 7] for start in range(0, len(wire), 7)]
    assert [frame for piece in [*pieces, wire + wire[:1]] for frame in splitter.receive(piece)] == [wire, wire]
    assert splitter.rest == wire[:1]


@pytest.mark.parametrize(
    ("splitter", "head", "code", "offset"),
    [
        (CommandSplitter(), b"*1\r\n$%d\r\n" % (REDIS_BULK_BYTES_MAX + 1), "resp_bulk_bytes_max", 5),
        (CommandSplitter(), b"*%d\r\n" % (REDIS_ARGUMENTS_MAX + 1), "resp_items_max", 1),
        (CommandSplitter(100), b"*2\r\n$10\r\n0123456789\r\n$73\r\n", "resp_frame_bytes_max", 22),
        (CommandSplitter(), b"x" * (REDIS_LINE_BYTES_MAX + 1), "resp_line_bytes_max", 0),
        (CommandSplitter(50), b"x" * 50, "resp_frame_bytes_max", 0),
        (ValueSplitter(), b"$%d\r\n" % (REDIS_BULK_BYTES_MAX + 1), "resp_bulk_bytes_max", 1),
        (ValueSplitter(), b"~%d\r\n" % (REDIS_ITEMS_MAX + 1), "resp_items_max", 1),
        (ValueSplitter(), b"%%%d\r\n" % REDIS_ITEMS_MAX, "resp_items_max", 1),
        (ValueSplitter(), b"*2\r\n*%d\r\n" % (REDIS_ITEMS_MAX - 1), "resp_items_max", 5),
        (ValueSplitter(), b"*1\r\n" * REDIS_DEPTH_MAX + b"*", "resp_depth_max", 4 * REDIS_DEPTH_MAX),
        (ValueSplitter(), b"+" + b"x" * (REDIS_LINE_BYTES_MAX + 2), "resp_line_bytes_max", 0),
        (ValueSplitter(100), b"*1\r\n+" + b"x" * 95, "resp_frame_bytes_max", 4),
        (ValueSplitter(100), b"$94\r\n", "resp_frame_bytes_max", 1),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_length_over_the_limit_is_refused_before_the_body_comes(
    splitter: Splitter, head: bytes, code: str, offset: int
) -> None:
    assert laws.split_outcome(splitter, [head[:-1]]) == ([], None)
    assert laws.split_outcome(splitter, [head[-1:]]) == ([], (code, offset))
    assert isinstance(splitter.failure, LimitError)
    assert splitter.rest == head
    assert splitter.receive(b"+OK\r\n") == []


def test_where_one_line_was_searched_does_not_matter_to_the_next() -> None:
    for splitter, pieces in (
        (ValueSplitter(), [b"-ERR a long", b" line\r\n%1\r\n+a\r\n:3\r\n"]),
        (ValueSplitter(), [b"+a long line", b"\r\n", b"+b\r\n"]),
        (CommandSplitter(), [b"a long line", b" of words\r\nPING\r\n"]),
        (CommandSplitter(), [b"a long line", b"\n", b"a\nPING\n"]),
    ):
        found = [frame for piece in pieces for frame in splitter.receive(piece)]
        assert found == laws.split_outcome(type(splitter)(), [b"".join(pieces)])[0]
        assert (b"".join(found), len(found) > 1) == (b"".join(pieces), True)


def test_frames_as_long_as_the_limit_are_taken() -> None:
    for splitter, wire in (
        (CommandSplitter(), b"x" * REDIS_LINE_BYTES_MAX + b"\n"),
        (ValueSplitter(), b"+" + b"x" * REDIS_LINE_BYTES_MAX + b"\r\n"),
        (CommandSplitter(100), b"*1\r\n$89\r\n" + b"x" * 89 + b"\r\n"),
        (CommandSplitter(50), b"x" * 49 + b"\n"),
        (ValueSplitter(100), b"+" + b"x" * 97 + b"\r\n"),
    ):
        assert laws.split_outcome(splitter, [wire[:20], wire[20:]]) == ([wire], None)


def test_the_limit_can_be_raised_after_a_login() -> None:
    splitter = CommandSplitter(40)
    login = b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"
    assert splitter.receive(login) == [login]
    splitter.frame_bytes_max = 1000
    large = b"*1\r\n$500\r\n" + b"x" * 500 + b"\r\n"
    assert splitter.receive(large) == [large]


@pytest.mark.parametrize(
    ("splitter", "stream"),
    [
        (CommandSplitter(), b"x" * REDIS_LINE_BYTES_MAX),
        (CommandSplitter(), b"*40000\r\n" + b"$0\r\n\r\n" * 40_000),
        (ValueSplitter(), b"+" + b"x" * REDIS_LINE_BYTES_MAX),
        (ValueSplitter(), b"*80000\r\n" + b"_\r\n" * 80_000),
        (ValueSplitter(), b"$200000\r\n" + b"x" * 200_000),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_single_bytes_are_not_read_again_and_again(splitter: Splitter, stream: bytes) -> None:
    """Reading each frame again from its start would take minutes."""
    began_s = time.perf_counter()
    for byte in stream:
        splitter.receive(bytes((byte,)))
    assert splitter.failure is None
    assert time.perf_counter() - began_s < 10.0


def test_frames_like_the_one_before_are_known_by_their_head() -> None:
    long = Command((b"PUBLISH", b"live", b"x" * 300)).encode()
    other = Command((b"PUBLISH", b"lively", b"x" * 300)).encode()
    shorter = Command((b"PUBLISH", b"live", b"x" * 299)).encode()
    stream = [long, long, b"*0\r\n", long, shorter, other, other, b"PING\r\n", long, long]
    splitter = CommandSplitter()
    assert splitter.receive(b"".join(stream)) == stream
    in_pieces = CommandSplitter()
    data = b"".join(stream)
    found = [frame for start in range(0, len(data), 7) for frame in in_pieces.receive(data[start : start + 7])]
    assert found == stream
