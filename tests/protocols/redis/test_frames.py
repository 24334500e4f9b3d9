import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.redis.strategies import client_frames, inline, server_frames
from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.constants import (
    REDIS_BULK_BYTES_MAX,
    REDIS_DEPTH_MAX,
    REDIS_ITEMS_MAX,
    REDIS_LINE_BYTES_MAX,
    REDIS_NUMBER_CHARS_MAX,
)
from wirelake.protocols.redis.frames import BulkString, Pair, RespFrame
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.redis.reader import decode

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


@given(st.one_of(client_frames, server_frames))
def test_every_frame_round_trips(frame: RespFrame) -> None:
    laws.check_round_trip(PROTOCOL, frame, frame.sender)


@given(st.one_of(client_frames, server_frames), st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(frame: RespFrame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender)


@given(st.one_of(client_frames, server_frames), st.integers(min_value=0), laws.senders)
def test_a_frame_cut_short_is_refused_by_name(frame: RespFrame, place: int, sender: Sender) -> None:
    wire = frame.encode()
    laws.check_any_bytes(PROTOCOL, wire[: place % len(wire)], sender)


@given(st.binary(max_size=80), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, data, sender)


@given(st.text("+-:$*_,#!=(%~>|?.;0123456789tfinxe\"' \r\n\\", max_size=60), laws.senders)
def test_any_bytes_of_the_right_alphabet_are_read_or_refused_by_name(text: str, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, text.encode().replace(b"  ", b"\r\n"), sender)


@given(st.one_of(client_frames, server_frames), st.integers(min_value=0), st.sampled_from(b"0123459+-.$*_\r\n\"'\\ "))
def test_whatever_is_read_is_written_back_byte_for_byte(frame: RespFrame, place: int, byte: int) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    splitter = PROTOCOL.splitter(frame.sender, PROTOCOL.transports[0].carrier)
    for raw in splitter.receive(bytes(wire)):
        with suppress(ProtocolError):
            assert decode(raw, frame.sender).encode() == raw


@pytest.mark.parametrize(
    ("wire", "frame"),
    [
        (b"+OK\r\n", frames.SimpleString(b"OK")),
        (b"-ERR no\r\n", frames.SimpleError(b"ERR no")),
        (b":-42\r\n", frames.Integer(-42)),
        (b":9223372036854775807\r\n", frames.Integer(2**63 - 1)),
        (b":-9223372036854775808\r\n", frames.Integer(-(2**63))),
        (b"$5\r\na\r\nbc\r\n", BulkString(b"a\r\nbc")),
        (b"$0\r\n\r\n", BulkString(b"")),
        (b"$-1\r\n", frames.NullBulkString()),
        (b"*-1\r\n", frames.NullArray()),
        (b"*0\r\n", frames.Array(())),
        (b"*2\r\n:1\r\n*1\r\n+a\r\n", frames.Array((frames.Integer(1), frames.Array((frames.SimpleString(b"a"),))))),
        (b"_\r\n", frames.Null()),
        (b",1.10\r\n", frames.Double(b"1.10")),
        (b",-inf\r\n", frames.Double(b"-inf")),
        (b"#t\r\n", frames.Boolean(True)),
        (b"#f\r\n", frames.Boolean(False)),
        (b"!5\r\nERR x\r\n", frames.BulkError(b"ERR x")),
        (b"=8\r\ntxt:some\r\n", frames.VerbatimString(b"txt", b"some")),
        (b"(+00012345678901234567890\r\n", frames.BigNumber(b"+00012345678901234567890")),
        (b"%1\r\n+a\r\n:1\r\n", frames.Map((Pair(frames.SimpleString(b"a"), frames.Integer(1)),))),
        (b"~2\r\n:1\r\n:1\r\n", frames.Set((frames.Integer(1), frames.Integer(1)))),
        (b">1\r\n+a\r\n", frames.Push((frames.SimpleString(b"a"),))),
        (
            b"|1\r\n+ttl\r\n:1\r\n$1\r\nv\r\n",
            frames.Attribute((Pair(frames.SimpleString(b"ttl"), frames.Integer(1)),), BulkString(b"v")),
        ),
        (b"|0\r\n_\r\n", frames.Attribute((), frames.Null())),
    ],
)
def test_every_type_of_value(wire: bytes, frame: Frame) -> None:
    assert decode(wire, SERVER) == frame
    assert frame.encode() == wire


def test_numbers_kept_as_text_have_a_value() -> None:
    assert frames.Double(b"1.10").value == 1.1
    assert frames.BigNumber(b"+00012345678901234567890").value == 12345678901234567890


@pytest.mark.parametrize(
    ("line", "args"),
    [
        (b"PING\r\n", (b"PING",)),
        (b"  GET \t a\n", (b"GET", b"a")),
        (b"\r\n", ()),
        (b"\n", ()),
        (b'SET a "b c\\n\\x41\\xzz\\q"\r\n', (b"SET", b"a", b"b c\nAxzzq")),
        (b"SET a 'it\\'s \\n'\r\n", (b"SET", b"a", b"it's \\n")),
        (b'foo"bar" \'\' ""\r\n', (b"foobar", b"", b"")),
        (b'"\\r\\t\\b\\a\\\\\\""\n', (b'\r\t\b\a\\"',)),
        (b"\xff\xfe\n", (b"\xff\xfe",)),
    ],
)
def test_inline_words_as_redis_reads_them(line: bytes, args: tuple[bytes, ...]) -> None:
    frame = decode(line, CLIENT)
    assert frame == frames.Inline(args, line)
    assert frame.encode() == line


def test_large_commands_and_many_arguments() -> None:
    for args in ((b"SET", b"k", b"\r\n" * 5000), (b"MGET", *[b"k"] * 40), (b"DEL", *[b"key"] * 4000)):
        laws.check_round_trip(PROTOCOL, frames.Command(args), CLIENT)


def test_commands_have_a_verb() -> None:
    assert frames.Command((b"GeT", b"a")).verb == b"get"
    assert inline(b"PING\r\n").verb == b"ping"
    assert frames.Command(()).verb == b""


BAD_COMMANDS = [
    (b"", "short", 0),
    (b"PING", "short", 4),
    (b"PING\nPING\n", "trailing", 5),
    (b"a\x00b\n", "nul", 1),
    (b'SET "a\n', "quotes", 4),
    (b"SET a'b'c d\n", "quotes", 5),
    (b"'\\'\n", "quotes", 0),
    (b"x" * (REDIS_LINE_BYTES_MAX + 1) + b"\n", "resp_line_bytes_max", 0),
    (b"x" * (REDIS_LINE_BYTES_MAX + 1), "resp_line_bytes_max", 0),
    (b"*", "short", 1),
    (b"*1", "short", 2),
    (b"*1\r\n", "short", 4),
    (b"*-1\r\n", "number_form", 1),
    (b"*01\r\n", "number_form", 1),
    (b"*+1\r\n", "number_form", 1),
    (b"* 1\r\n", "number_form", 1),
    (b"*1_0\r\n", "number_form", 1),
    (b"*\r\n", "number_form", 1),
    (b"*" + b"1" * 22, "number_form", 1),
    (b"*" + b"1" * 30 + b"\r\n", "number_form", 1),
    (b"*%d\r\n" % (REDIS_ITEMS_MAX + 1), "resp_items_max", 1),
    (b"*1\r\n*1\r\n$1\r\na\r\n", "expected_bulk", 4),
    (b"*1\r\n:1\r\n", "expected_bulk", 4),
    (b"*1\r\n\x001\r\n", "expected_bulk", 4),
    (b"*2\r\n$1\r\na\r\n+b\r\n", "expected_bulk", 11),
    (b"*1\r\n$-1\r\n", "number_form", 5),
    (b"*1\r\n$03\r\nabc\r\n", "number_form", 5),
    (b"*1\r\n$?\r\n", "streamed", 5),
    (b"*?\r\n", "streamed", 1),
    (b"*1\r\n$%d\r\n" % (REDIS_BULK_BYTES_MAX + 1), "resp_bulk_bytes_max", 5),
    (b"*1\r\n$3\r\nab", "short", 10),
    (b"*1\r\n$3\r\nabc", "short", 11),
    (b"*1\r\n$3\r\nabc\r", "short", 12),
    (b"*1\r\n$3\r\nabcd\r\n", "bulk_end", 11),
    (b"*1\r\n$1\r\na\r\n\n", "trailing", 11),
]
BAD_VALUES = [
    (b"", "short", 0),
    (b"x\r\n", "unknown_type", 0),
    (b";4\r\nabcd\r\n", "unknown_type", 0),
    (b"+OK", "short", 3),
    (b"+OK\r", "short", 4),
    (b"+a\nb\r\n", "line_form", 2),
    (b"-a\rb\r\n", "line_form", 2),
    (b"+OK\r\n+OK\r\n", "trailing", 5),
    (b"+" + b"x" * (REDIS_LINE_BYTES_MAX + 1) + b"\r\n", "resp_line_bytes_max", 0),
    (b"+" + b"x" * (REDIS_LINE_BYTES_MAX + 2), "resp_line_bytes_max", 0),
    (b":\r\n", "number_form", 1),
    (b":+5\r\n", "number_form", 1),
    (b":05\r\n", "number_form", 1),
    (b":-0\r\n", "number_form", 1),
    (b":1.5\r\n", "number_form", 1),
    (b":" + b"1" * 5000 + b"\r\n", "number_form", 1),
    (b":9223372036854775808\r\n", "number_range", 1),
    (b"$03\r\nabc\r\n", "number_form", 1),
    (b"$-2\r\n", "number_form", 1),
    (b"$-0\r\n\r\n", "number_form", 1),
    (b"$?\r\n", "streamed", 1),
    (b"*?\r\n", "streamed", 1),
    (b"%?\r\n", "streamed", 1),
    (b"$" + b"1" * 22, "number_form", 1),
    (b"$12345", "short", 6),
    (b"$%d\r\n" % (REDIS_BULK_BYTES_MAX + 1), "resp_bulk_bytes_max", 1),
    (b"$3\r\nabcXX", "bulk_end", 7),
    (b"$3\r\nabc", "short", 7),
    (b"!-1\r\n", "number_form", 1),
    (b"=-1\r\n", "number_form", 1),
    (b"%-1\r\n", "number_form", 1),
    (b"~-1\r\n", "number_form", 1),
    (b">-1\r\n", "number_form", 1),
    (b"|-1\r\n", "number_form", 1),
    (b"=3\r\ntxt\r\n", "verbatim_form", 4),
    (b"=5\r\ntxt;a\r\n", "verbatim_form", 4),
    (b"#x\r\n", "boolean_form", 1),
    (b"#tt\r\n", "boolean_form", 1),
    (b"_x\r\n", "null_form", 1),
    (b",\r\n", "number_form", 1),
    (b",1e\r\n", "number_form", 1),
    (b",1_0\r\n", "number_form", 1),
    (b"," + b"1" * (REDIS_NUMBER_CHARS_MAX + 1) + b"\r\n", "resp_number_chars_max", 1),
    (b"(1.5\r\n", "number_form", 1),
    (b"(" + b"1" * (REDIS_NUMBER_CHARS_MAX + 1) + b"\r\n", "resp_number_chars_max", 1),
    (b"*1\r\n", "short", 4),
    (b"*2\r\n:1\r\n", "short", 8),
    (b"*1\r\nx", "unknown_type", 4),
    (b"*%d\r\n" % (REDIS_ITEMS_MAX + 1), "resp_items_max", 1),
    (b"%1\r\n+a\r\n", "short", 8),
    (b"|1\r\n+a\r\n+b\r\n", "short", 12),
    (b"*1\r\n" * (REDIS_DEPTH_MAX + 1), "resp_depth_max", 4 * REDIS_DEPTH_MAX),
    (b"|0\r\n" * (REDIS_DEPTH_MAX + 1), "resp_depth_max", 4 * REDIS_DEPTH_MAX),
]


@pytest.mark.parametrize(
    ("sender", "wire", "code", "offset"),
    [(CLIENT, *bad) for bad in BAD_COMMANDS] + [(SERVER, *bad) for bad in BAD_VALUES],
    ids=lambda value: repr(value)[:40],
)
def test_bad_frames_are_refused_at_the_bad_byte(sender: Sender, wire: bytes, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(wire, sender)
    assert (caught.value.code, caught.value.offset) == (code, offset)
    laws.check_any_bytes(PROTOCOL, wire, sender)


def test_values_nest_as_deep_as_the_limit_and_no_deeper() -> None:
    wire = b"*1\r\n" * REDIS_DEPTH_MAX + b":1\r\n"
    deep = decode(wire, SERVER)
    assert deep.encode() == wire
    laws.check_verdict(PROTOCOL, wire, SERVER)
    with pytest.raises(EncodeError, match="deeper"):
        frames.Array((deep,)).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frame",
    [
        frames.SimpleString(b"a\r"),
        frames.SimpleError(b"a\n"),
        frames.SimpleString(b"x" * (REDIS_LINE_BYTES_MAX + 1)),
        frames.Integer(2**63),
        frames.Integer(-(2**63) - 1),
        frames.Double(b"1,5"),
        frames.BigNumber(b"1.5"),
        frames.BigNumber(b"1" * (REDIS_NUMBER_CHARS_MAX + 1)),
        frames.VerbatimString(b"text", b""),
        frames.Inline((b"PING",), b"PING"),
        frames.Inline((), b""),
        frames.Inline((b"PING",), b"PING\nPING\n"),
        frames.Inline((b"*1",), b"*1\r\n"),
    ],
)
def test_writers_refuse_what_no_reader_takes(frame: Frame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


def test_the_tree_says_what_stands_where() -> None:
    tree = PROTOCOL.dissect(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", CLIENT)
    assert tree.root.name == "resp command"
    assert tree.root.find("count").value == 2
    content = tree.root.find("argument 1", "content")
    assert (content.offset, content.value, content.note) == (17, b"k", "k")
    tree = PROTOCOL.dissect(b"|1\r\n+a\r\n#t\r\n%1\r\n+b\r\n=7\r\ntxt:\xff\xff\xff\r\n", SERVER)
    assert tree.root.name == "resp attribute"
    assert tree.root.find("value 0", "value").note == "true"
    assert tree.root.find("value", "value 0", "content").note == ""
    assert PROTOCOL.dissect(b"$-1\r\n", SERVER).root.name == "resp null_bulk_string"
    assert PROTOCOL.dissect(b"*-1\r\n", SERVER).root.name == "resp null_array"
    nulls = PROTOCOL.dissect(b"*2\r\n$-1\r\n*-1\r\n", SERVER)
    assert nulls.root.name == "resp array"
    assert nulls.root.find("item 0", "length").note == "null"
    line = PROTOCOL.dissect(b" GET 'a b' \r\n", CLIENT)
    assert [(leaf.name, leaf.value) for leaf in line.root.leaves()] == [
        ("space", b" "),
        ("command", b"GET"),
        ("space", b" "),
        ("argument 1", b"a b"),
        ("space", b" "),
        ("end of line", b"\r\n"),
    ]


def test_thousands_of_small_commands_are_read_in_no_time() -> None:
    """Ten times slower than on any machine seen so far would still pass; quadratic would not."""
    stream = frames.Command((b"SET", b"key:1234", b"value")).encode() * 20_000
    began_s = time.perf_counter()
    found = PROTOCOL.splitter(CLIENT, PROTOCOL.transports[0].carrier).receive(stream)
    assert {decode(frame, CLIENT) for frame in found} == {frames.Command((b"SET", b"key:1234", b"value"))}
    assert len(found) == 20_000
    assert time.perf_counter() - began_s < 2.0
