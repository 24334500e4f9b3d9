from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocols.sisnet.strategies import any_frames, binary_frames, words
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.layout import BodyCodec
from wirelake.limits import JSON_DEPTH_MAX
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.sisnet.binary import (
    ANSWER_BODY,
    REQUEST_BODY,
    BinaryAnswer,
    BinaryFrame,
    BinaryRequest,
    Extension,
)
from wirelake.protocols.sisnet.constants import SISNET_MESSAGE_BYTES_MAX
from wirelake.protocols.sisnet.envelope import SisnetFrame, own_name, relayed, sized, write_size
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis
from wirelake.protocols.sisnet.frames import SisnetMessageSplitter, SisnetTcpSplitter, decode
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.tree import dissect


@given(any_frames, laws.senders)
def test_every_frame_round_trips(frame: SisnetFrame, sender: Sender) -> None:
    laws.check_round_trip(PROTOCOL, frame, sender)
    assert decode(frame.encode(), sender).encode() == frame.encode()


@given(st.binary(max_size=60), laws.senders)
def test_whatever_is_read_is_written_back_byte_for_byte(data: bytes, sender: Sender) -> None:
    for wire in (data, b"n:" + data, b"n:B" + data, b"n:a:" + data):
        try:
            frame = decode(wire, sender)
        except ProtocolError:
            continue
        assert frame.encode() == wire


@given(st.lists(any_frames, max_size=5), st.binary(max_size=5), laws.cuts)
def test_any_split_gives_the_same_frames(sent: list[SisnetFrame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(sized(frame.encode()) for frame in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, Sender.CLIENT)


@given(st.lists(any_frames, min_size=1, max_size=5))
def test_what_is_wrapped_is_cut_and_bared(sent: list[SisnetFrame]) -> None:
    splitter = PROTOCOL.splitter(Sender.CLIENT, Carrier.TCP)
    stream = b"".join(splitter.wrap(frame.encode()) for frame in sent)
    assert [decode(splitter.bare(raw), Sender.CLIENT) for raw in splitter.receive(stream)] == sent


@given(st.binary(max_size=80), laws.senders, st.sampled_from([Carrier.TCP, Carrier.WEBSOCKET]))
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender, carrier: Carrier) -> None:
    for start in (b"", b"n:", b"n:B", b"n:{", b"n:set:"):
        laws.check_any_bytes(PROTOCOL, start + data, sender, carrier)


@given(any_frames, st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(frame: SisnetFrame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender, Carrier.WEBSOCKET)
    stream = bytearray(sized(frame.encode()))
    stream[place % len(stream)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(stream), sender)


@given(any_frames, st.integers(min_value=0), laws.senders)
def test_a_message_that_is_cut_off_never_raises_anything_else(frame: SisnetFrame, place: int, sender: Sender) -> None:
    wire = frame.encode()
    laws.check_verdict(PROTOCOL, wire[: place % len(wire)], sender)


@pytest.mark.parametrize(
    ("message", "code", "offset"),
    [
        (b"", "short", 0),
        (b"name", "short", 4),
        (b"name:", "short", 5),
        (b"na{e:{}", "name_byte", 2),
        (b"(:{}", "name_byte", 0),
        (b"x" * 129, "sisnet_name_bytes_max", 128),
        (b"x" * 129 + b":{}", "sisnet_name_bytes_max", 128),
        (b"x" * 128 + b"{:", "name_byte", 128),
        (b"n\xff:{}", "bad_utf8", 1),
        (b"n:{", "bad_json", 3),
        (b'n:{"a":}', "bad_json", 7),
        (b"n:{}x", "bad_json", 5),
        (b'n:{"\xff":1}', "bad_utf8", 2),
        (b"n:[" + b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX + b"]", "json_depth_max", 2),
        (b"n:" + b"[" * 100_000, "json_depth_max", 2),
        (b"n:B", "short", 3),
        (b"n:B\x80", "short", 4),
        (b"n:B\x50", "reserved_flag", 3),
        (b"n:B\x01", "short", 4),
        (b"n:B\x01\x02a", "short", 6),
        (b"n:B\x01\xff", "size_form", 4),
        (b"n:B\x01\xfb\x00", "size_form", 4),
        (b"n:B\x01\x01ab", "trailing", 6),
        (b"n:B\x00\x01ab", "trailing", 6),
        (b"n:B\x42\x01x", "bad_number", 5),
        (b"n:B\x42\x00", "bad_number", 5),
        (b"n:B\x48\x011\x00", "trailing", 6),
        (b"n:B\x81\x01\x01a\x01b", "short", 9),
        (b"n:B\x80\x01\x01a", "short", 7),
        (b"n:set:key:sdb", "short", 13),
        (b"n:set:k(y:sdb:", "name_byte", 7),
        (b"n:set:key:\xff:", "bad_utf8", 10),
        (b"n:set", "short", 5),
        (b"o:n\xff:{}", "bad_utf8", 3),
        (b"o:n:{", "bad_json", 5),
    ],
)
def test_bad_messages_are_refused_at_the_bad_byte(message: bytes, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(message, Sender.CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)
    laws.check_verdict(PROTOCOL, message, Sender.CLIENT)


def test_a_name_of_128_bytes_is_taken() -> None:
    assert decode(b"x" * 128 + b":[]", Sender.CLIENT).message_name == "x" * 128


def test_json_is_kept_as_it_was_written() -> None:
    frame = decode(b'n: {"ans":0}'.replace(b" ", b"") + b" ", Sender.SERVER)
    assert isinstance(frame, Json)
    assert frame.text == b'{"ans":0} '
    assert frame.values == {"ans": 0}
    assert frame != Json.of("n", {"ans": 0})
    same = Json("n", b'{"ans":0} ', None)
    assert frame == same
    assert not frame != same  # noqa: SIM202 (that operator is what is tested)
    assert hash(frame) == hash(same)
    assert hash(frame) != hash(Json.of("n", {"ans": 0}))
    assert frame.encode() == b'n:{"ans":0} '
    assert Json.of("n", [1, 2]).text == b"[1,2]"
    assert Json.of("n", []) != "n:[]"


@pytest.mark.parametrize(
    ("text", "is_request"),
    [
        (b'{"command":"get"}', True),
        (b'{"cmd":"get"}', True),
        (b'{"ask":1}', True),
        (b'{"argv":1}', True),
        (b'{"ans":0,"command":"publish"}', False),
        (b'{"login":"ok"}', False),
        (b'{"logout":"bad"}', False),
        (b'{"k.info":[[1]]}', False),
        (b"{}", False),
        (b"[[1]]", False),
    ],
)
def test_the_keys_tell_a_request_from_an_answer(text: bytes, is_request: bool) -> None:
    frame = decode(b"n:" + text, Sender.CLIENT)
    assert isinstance(frame, Json)
    assert frame.is_request is is_request


def test_relayed_json_has_two_names() -> None:
    frame = decode(b'17:n1:{"ans":0}', Sender.SERVER)
    assert frame == Json.of("17:n1", {"ans": 0})
    assert frame.encode() == b'17:n1:{"ans":0}'
    assert decode(b"17::[]", Sender.SERVER) == Json.of("17:", [])
    assert [leaf.name for leaf in dissect(b"17:n1:{}", Sender.SERVER).root.leaves()] == [
        "name",
        "colon",
        "relayed name",
        "colon",
        "json",
    ]


def test_json_relayed_twice_has_three_names_and_no_message_has_four() -> None:
    frame = decode(b'5:17:n1:{"ans":0}', Sender.SERVER)
    assert frame == Json.of("5:17:n1", {"ans": 0})
    assert frame.encode() == b'5:17:n1:{"ans":0}'
    names = [leaf.name for leaf in dissect(b"5:17:n1:[]", Sender.SERVER).root.leaves()]
    assert names == ["name", "colon", "relayed name", "colon", "relayed name", "colon", "json"]
    assert decode(b"3:5:17:n1:{}", Sender.SERVER) == DataLine("3", "5", "17", "n1", b"{}")


def test_a_binary_message_behind_several_names() -> None:
    wire = bytes.fromhex("363a6e313a42460136030102ff")
    assert wire == b"6:n1:BF\x016\x03\x01\x02\xff"
    frame = decode(wire, Sender.SERVER)
    assert frame == BinaryAnswer(message_name="6:n1", ans=b"6", msg=b"\x01\x02\xff")
    assert frame.encode() == wire
    names = [leaf.name for leaf in dissect(wire, Sender.SERVER).root.leaves()]
    assert names == ["name", "colon", "relayed name", "colon", "form", "flags", "ans size", "ans", "msg size", "msg"]
    looks_like_json = b'6:n1:B\x46\x015:{"a":"%s"}' % (b"x" * 50)  # a size of 58 is a colon
    assert decode(looks_like_json, Sender.SERVER).name == "binary_answer"


relayed_names = st.lists(
    words.filter(lambda word: not word.startswith(("B", "H", "R", "["))), min_size=1, max_size=2
).map(":".join)


@given(any_frames, relayed_names, laws.senders)
def test_relayed_messages_round_trip_or_are_not_written(frame: SisnetFrame, names: str, sender: Sender) -> None:
    relayed_frame = replace(frame, message_name=f"17:{names}")
    if isinstance(frame, Json) or (isinstance(frame, BinaryFrame) and frame.can_be_relayed):
        laws.check_round_trip(PROTOCOL, relayed_frame, sender)
    else:
        with pytest.raises(EncodeError):
            relayed_frame.encode()


@pytest.mark.parametrize(
    "line",
    [
        b"3:set:B12345:info:" + bytes(range(48)),
        b"3:set:BA0001:info:" + bytes(39),  # would be an answer with ver alone
        b"3:set:B2001:info:" + b"\xff" * 37 + b"\0\0",  # would be a request, its command no text
        b"3:set:BFG:s:",
        b"3:set:k:Bob:\x01",
    ],
)
def test_a_data_line_whose_key_begins_with_b_stays_one(line: bytes) -> None:
    frame = decode(line, Sender.CLIENT)
    assert isinstance(frame, DataLine)
    assert frame.command == "set"
    assert frame.encode() == line


@pytest.mark.parametrize(
    ("own", "asked", "name"),
    [
        ("17", "n1", "17:n1"),
        ("5", "17:n1", "5:17:n1"),
        ("3", "5:17:n1", "3:5:17.n1"),
        ("2", "3:5:17.n1", "2:3:5.17.n1"),
        ("17", "", "17:"),
        ("17", "Bob", "17"),  # would be read as the binary form
        ("5", "17:" + "n" * 128, "5:17:" + "n" * 128),
        ("3", "5:17:" + "n" * 128, "3"),  # no name has 131 bytes
    ],
)
def test_a_relay_puts_its_own_name_before_the_askers(own: str, asked: str, name: str) -> None:
    assert relayed(own, asked) == name
    wire = Json.of(name, {}).encode()
    assert decode(wire, Sender.CLIENT) == Json.of(name, {})
    assert own_name(name) == own


@pytest.mark.parametrize(
    "frame",
    [
        Json.of("a{", {}),
        Json.of("a:b:c:d", {}),
        Json.of("a:Bob", {}),
        Json.of("x" * 129, {}),
        Redis("a:b", b""),
        BinaryAnswer(message_name="a:Bob"),
        BinaryAnswer(message_name="a:b:c:d"),
        BinaryAnswer(message_name="a:b", msg=b"no ans"),
        BinaryRequest(message_name="a:b", service=b"no command"),
        BinaryRequest(message_name="a:b", command=b"\xff"),
        DataLine("n", "set", "B@", "s", b"x" * 56),
        Http("é" * 65, b""),
        DataLine("n", "Buy", "k", "s", b""),
        DataLine("n", "set", "[k", "s", b""),
        DataLine("n", "set", "k", "[s", b""),
        DataLine("n", "set", "k", "s:", b""),
        BinaryRequest(message_name="n", ask=b"x", data=b"y"),
        BinaryRequest(message_name="n", extensions=(Extension(b"a", b"b"),)),
        BinaryRequest(message_name="n", ask=b"x", extensions=(Extension(b"a", b"b"),) * 256),
        BinaryAnswer(message_name="n", ans=b"x"),
        BinaryAnswer(message_name="n", ans=b"0", fuc=b""),
    ],
)
def test_what_would_be_read_otherwise_is_not_written(frame: SisnetFrame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


def test_binary_fields_stand_in_the_order_of_their_bits() -> None:
    request = BinaryRequest(message_name="n", lnk=b"l", fmt=b"f", ask=b"a", service=b"s", command=b"c", ver=b"v")
    assert request.encode() == b"n:B\x3f\x01v\x01c\x01s\x01a\x01f\x01l"
    answer = BinaryAnswer(message_name="n", lnk=b"l", fuc=b"2", msg=b"m", ans=b"2", ver=b"v")
    assert answer.encode() == b"n:B\x6f\x01v\x012\x01m\x012\x01l"
    assert BinaryAnswer(message_name="").encode() == b":B\x40"
    extended = BinaryAnswer(message_name="", data=b"d", extensions=(Extension(b"k", b"vv"),))
    assert extended.encode() == b":B\xc0\x01\x01d\x01k\x02vv"
    assert BinaryAnswer(message_name="", extensions=()).encode() == b":B\xc0\x00"


def test_the_tree_explains() -> None:
    tree = dissect(BinaryAnswer(message_name="n", ans=b"-1", msg=b"bad").encode(), Sender.SERVER)
    assert tree.root.name == "sisnet binary"
    assert tree.root.find("flags").note == "answer, ans, msg"
    assert tree.root.find("ans").note == "failed"
    notes = {
        b'{"ans":-1}': "answer: failed",
        b'{"ans":-7}': "answer: failed",
        b'{"ans":9}': "answer: not a known type",
        b'{"command":"get"}': "request: get",
        b'{"cmd":"sisdb.get"}': "request: sisdb.get",
        b'{"command":7}': "",
        b"[]": "answer: an array",
    }
    for text, note in notes.items():
        assert dissect(b"n:" + text, Sender.CLIENT).root.find("json").note == note


@pytest.mark.parametrize("size", [SISNET_MESSAGE_BYTES_MAX + 1, 2**32 - 1, 2**63])
def test_a_size_over_the_limit_is_refused_before_the_message_comes(size: int) -> None:
    splitter = SisnetTcpSplitter()
    first = sized(b":{}")
    assert splitter.receive(first + write_size(size)) == [first]
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("sisnet_message_bytes_max", 4)
    assert splitter.rest == write_size(size)


def test_limits_can_be_set() -> None:
    assert SisnetTcpSplitter(3).receive(b"\x03:{}\x04") == [b"\x03:{}"]
    small = SisnetTcpSplitter(3)
    small.receive(b"\x04")
    assert small.failure is not None
    message = SisnetMessageSplitter(4)
    assert message.receive(b"n:{}") == [b"n:{}"]
    assert message.receive(b"nn:{}") == []
    assert message.failure is not None


def test_a_size_is_waited_for() -> None:
    splitter = SisnetTcpSplitter()
    wire = sized(b":" + b"R" * 700)
    for piece in pairwise([0, 1, 2, 3, 4, 500, len(wire) - 1]):
        assert splitter.receive(wire[slice(*piece)]) == []
    assert splitter.receive(wire[-1:]) == [wire]


@given(words)
def test_every_form_is_a_clue(name: str) -> None:
    for frame, bits in (
        (Json.of(name, {"ans": 0}), 32),
        (Json.of(name, [1]), 24),
        (BinaryAnswer(message_name=name), 12),
        (DataLine(name, "set", "k", "s", b""), 6),
        (DataLine(name, "s.t", "k", "s", b""), 0),
        (Redis(name, b"*1\r\n$4\r\nPING\r\n"), 16),
        (Redis(name, b"x"), 0),
        (Http(name, b"x"), 0),
    ):
        found = sum(clue.bits for clue in PROTOCOL.clues(frame.encode(), Sender.CLIENT))
        assert found == bits + (4 if name.isprintable() else 0)


def test_servers_answer_and_clients_ask() -> None:
    def bits(frame: SisnetFrame, sender: Sender) -> float:
        return sum(clue.bits for clue in PROTOCOL.clues(frame.encode(), sender))

    answer, request = Json.of("n", {"ans": 0}), BinaryRequest(message_name="n")
    assert bits(answer, Sender.SERVER) == bits(answer, Sender.CLIENT) + 1
    assert bits(request, Sender.CLIENT) == bits(request, Sender.SERVER) + 1


@given(binary_frames)
def test_the_described_body_is_what_a_binary_message_writes(frame: SisnetFrame) -> None:
    body = frame.encode()[len(frame.message_name.encode()) + 2 :]
    codec: BodyCodec[Any] = ANSWER_BODY if isinstance(frame, BinaryAnswer) else REQUEST_BODY
    assert codec.encode(codec.decode(body)) == body
