import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.esnp.strategies import any_messages, good_messages
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols import testing as laws
from wirelake.protocols.esnp import frames, lines
from wirelake.protocols.esnp.constants import ESNP_FRAME_BYTES_MAX, ESNP_LINES_MAX
from wirelake.protocols.esnp.contents import read_contents
from wirelake.protocols.esnp.frames import END, EsnpMessage, EsnpSplitter, decode
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.protocol import PROTOCOL, clues
from wirelake.protocols.esnp.values import Var, var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import identify

REQUEST = bytes.fromhex(
    "1e00000108170000052806616464170000063c08746573741100000800000000054c56381500000402610502150000040262050300000000"
)


@given(any_messages, laws.senders)
def test_every_message_round_trips(message: EsnpMessage, sender: Sender) -> None:
    laws.check_round_trip(PROTOCOL, message, sender)


@given(good_messages)
def test_a_well_formed_message_has_no_malformed_line_and_keeps_the_order(message: EsnpMessage) -> None:
    assert read_contents(message).malformed is None
    assert message.head_after_body is None
    for name in PROPERTIES:
        getattr(message, name)


@given(st.lists(any_messages, max_size=4), st.binary(max_size=9), laws.cuts)
def test_any_split_gives_the_same_messages(sent: list[EsnpMessage], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(message.encode() for message in sent) + tail
    laws.check_split(PROTOCOL, stream, cuts, Sender.CLIENT)


@given(st.binary(max_size=80), laws.senders)
def test_any_bytes_are_read_or_refused_by_name(data: bytes, sender: Sender) -> None:
    laws.check_any_bytes(PROTOCOL, data, sender)


@given(st.lists(any_messages, min_size=1, max_size=2), st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_a_changed_byte_never_raises_anything_else(
    sent: list[EsnpMessage], place: int, byte: int, sender: Sender
) -> None:
    wire = bytearray(b"".join(message.encode() for message in sent))
    wire[place % len(wire)] = byte
    laws.check_any_bytes(PROTOCOL, bytes(wire), sender)


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", "short", 0),
        ("000000", "short", 3),
        ("00000001ff", "end_size", 1),
        ("0000000000", "trailing", 4),
        ("16000002ab", "short", 5),
        ("16000001ab", "short", 5),
        ("16000001ab0000", "short", 7),
        ("16000001ab00000100", "end_size", 6),
        ("11000007000000000000000000000000", "line_size", 1),
        ("1200000000000000", "line_size", 1),
        ("160000001f00000300000000000000", "line_size", 5),
    ],
)  # fmt: skip
def test_bad_messages_are_refused_at_the_bad_byte(hex_: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(hex_), Sender.CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


PROPERTIES = (
    "message_id", "source_message_id", "flags", "addresses", "source_addresses", "seq_no", "error", "version",
    "session_infos", "headers", "data", "payload", "xdata", "unknown",
)  # fmt: skip


def test_the_properties_of_a_message_with_everything() -> None:
    message = EsnpMessage(
        (
            lines.flag_line(4),
            lines.flag_line(130),
            lines.message_id_line(2**64 - 1),
            lines.source_message_id_line(7),
            lines.address_line(30, "calc"),
            lines.address_line(20, "add"),
            lines.source_address_line(40, "here"),
            lines.seq_no_line(2, 5),
            lines.error_line("no"),
            lines.version_line(1, 2, 3, 4),
            lines.session_info_line("s", var_of(1)),
            lines.header_line("h", var_of("x")),
            lines.data_line("d", Var(3, -1)),
            lines.payload_line(b"ab"),
            lines.payload_line(b"c"),
            lines.xdata_line(-3, b"x"),
            Line(0x80, b"app"),
            Line(0x13, b"\x01"),
        )
    )
    assert {name: getattr(message, name) for name in PROPERTIES} == {
        "message_id": 2**64 - 1,
        "source_message_id": 7,
        "flags": (4, 130),
        "addresses": ((30, "calc"), (20, "add")),
        "source_addresses": ((40, "here"),),
        "seq_no": SeqNo(2, 5),
        "error": "no",
        "version": (1, 2, 3, 4),
        "session_infos": (("s", Var(5, 1)),),
        "headers": (("h", Var(24, "x")),),
        "data": (("d", Var(3, -1)),),
        "payload": b"abc",
        "xdata": ((-3, b"x"),),
        "unknown": (Line(0x80, b"app"),),
    }
    assert decode(message.encode(), Sender.SERVER) == message
    empty = EsnpMessage(())
    assert all(not getattr(empty, name) for name in PROPERTIES)


@pytest.mark.parametrize(
    ("name", "line", "code", "offset"),
    [
        ("flags", Line(0x1E), "short", 0),
        ("flags", Line(0x1E, b"\x08\x00"), "trailing", 1),
        ("flags", Line(0x1E, b"\xff\xff\xff\xff\x7f"), "int_range", 0),
        ("addresses", Line(0x17, b"\x3c"), "short", 1),
        ("addresses", Line(0x17, b"\x3c\x08tes"), "short", 5),
        ("addresses", Line(0x17, b"\x3c\x01"), "negative_size", 1),
        ("addresses", Line(0x17, b"\x3c\x02ab"), "trailing", 3),
        ("addresses", Line(0x17, b"\x3c\x04a\xff"), "bad_utf8", 3),
        ("seq_no", Line(0x1B, b"\x02"), "short", 1),
        ("seq_no", Line(0x1B, b"\x02\x02\x02"), "trailing", 2),
        ("error", Line(0x1D, b"a\xff"), "bad_utf8", 1),
        ("xdata", Line(0x1C), "short", 0),
        ("data", Line(0x15, b"\x02a"), "short", 2),
        ("data", Line(0x15, b"\x02a\x0c"), "unknown_tag", 2),
        ("headers", Line(0x14, b"\x02a\x00\x00"), "trailing", 3),
        ("session_infos", Line(0x10), "short", 0),
    ],
)
def test_a_malformed_line_is_told_when_it_is_read_and_shown_by_the_tree(
    name: str, line: Line, code: str, offset: int
) -> None:
    message = EsnpMessage((lines.payload_line(b"xyz"), line))
    place = 4 + 3 + 4 + offset
    wire = message.encode()
    decoded = decode(wire, Sender.CLIENT)
    with pytest.raises(ProtocolError) as caught:
        getattr(decoded, name)
    assert (caught.value.code, caught.value.offset) == (code, place)
    malformed = read_contents(decoded).malformed
    assert malformed is not None
    assert (malformed.code, malformed.offset) == (code, place)
    shown = PROTOCOL.dissect(wire, Sender.CLIENT).root.children[1].children[-1]
    assert (shown.name, shown.value) == ("data", line.data)
    assert shown.note == f"malformed: {malformed}"
    failure = PROTOCOL.to_message(decoded, Sender.CLIENT).failure
    assert failure is not None
    assert failure.text == f"malformed: {malformed}"


@given(any_messages)
def test_the_tree_and_the_contents_agree_on_what_is_malformed(message: EsnpMessage) -> None:
    tree = PROTOCOL.dissect(message.encode(), Sender.CLIENT)
    notes = [leaf.note for leaf in tree.root.leaves() if leaf.note.startswith("malformed")]
    malformed = read_contents(message).malformed
    assert notes[:1] == ([] if malformed is None else [f"malformed: {malformed}"])


def test_only_the_first_malformed_line_is_told() -> None:
    message = EsnpMessage((Line(0x1E), Line(0x17), lines.flag_line(4)))
    contents = read_contents(message)
    assert contents.malformed is not None
    assert contents.malformed.offset == 4
    assert contents.flags == [4]


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        ((lines.payload_line(b""), lines.flag_line(4)), 4),
        ((Line(0x80), lines.flag_line(4)), 4),
        ((Line(0x80), Line(0x20), Line(0x13)), 8),
        ((Line(0x20), lines.flag_line(4), Line(0x21), Line(0x80), Line(0x22)), None),
    ],
)
def test_a_head_line_behind_a_body_line_is_found(sent: tuple[Line, ...], place: int | None) -> None:
    assert EsnpMessage(sent).head_after_body == place


@pytest.mark.parametrize(
    "message",
    [
        EsnpMessage((Line(0),)),
        EsnpMessage((Line(256),)),
        EsnpMessage((Line(-1),)),
        EsnpMessage((Line(0x11, b"1234567"),)),
        EsnpMessage((Line(0x1F, b"123"),)),
        EsnpMessage((Line(0x16, bytes(1 << 24)),)),
        EsnpMessage((Line(0x16, bytes(ESNP_FRAME_BYTES_MAX)),)),
        EsnpMessage((Line(0x16),) * (ESNP_LINES_MAX + 1)),
    ],
    ids=["end", "type", "negative", "id", "version", "size", "frame", "lines"],
)
def test_what_the_wire_has_no_room_for_is_not_written(message: EsnpMessage) -> None:
    with pytest.raises(EncodeError):
        message.encode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: lines.message_id_line(2**64),
        lambda: lines.message_id_line(-1),
        lambda: lines.version_line(1, 2, 3, 256),
        lambda: lines.flag_line(2**31),
        lambda: lines.error_line("\ud800"),
    ],
)
def test_a_line_is_not_made_of_what_does_not_fit(make: object) -> None:
    with pytest.raises(EncodeError):
        make()  # type: ignore[operator]


def test_the_end_of_a_sequence() -> None:
    assert [SeqNo(1, 3).more, SeqNo(3, 3).more, SeqNo(2, 0).more, SeqNo(4, 3).more] == [2, 0, 1, 0]


def test_a_size_over_the_limit_is_refused_before_the_data_comes() -> None:
    splitter = EsnpSplitter(frame_bytes_max=100)
    ok = Line(0x16, bytes(92))
    assert splitter.receive(EsnpMessage((ok,)).encode()) == [EsnpMessage((ok,)).encode()]
    assert splitter.receive(b"\x16\x00\x00\x01x\x16\x00\x00\x58") == []
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("esnp_frame_bytes_max", 105)
    assert splitter.receive(END) == []


def test_the_limit_may_be_raised_in_the_middle_of_a_message() -> None:
    splitter = EsnpSplitter(frame_bytes_max=100)
    long = EsnpMessage((Line(0x16, bytes(80)), Line(0x16, bytes(80)))).encode()
    assert splitter.receive(long[:50]) == []
    splitter.frame_bytes_max = 1000
    assert splitter.receive(long[50:]) == [long]


def test_too_many_lines_are_refused_by_both_readers() -> None:
    most = EsnpMessage((Line(0x16),) * ESNP_LINES_MAX).encode()
    assert EsnpSplitter().receive(most) == [most]
    assert len(decode(most, Sender.CLIENT).lines) == ESNP_LINES_MAX
    one_more = most[:4] + most
    splitter = EsnpSplitter()
    assert splitter.receive(one_more) == []
    with pytest.raises(LimitError) as caught:
        decode(one_more, Sender.CLIENT)
    assert splitter.failure is not None
    for error in (splitter.failure, caught.value):
        assert (error.code, error.offset) == ("esnp_lines_max", 4 * ESNP_LINES_MAX)


def test_an_end_line_with_data_stops_the_splitter() -> None:
    splitter = EsnpSplitter()
    assert splitter.receive(REQUEST + b"\x00\x00\x00\x01") == [REQUEST]
    assert splitter.failure is not None
    assert (splitter.failure.code, splitter.failure.offset) == ("end_size", len(REQUEST) + 1)


def test_small_pieces_cost_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    class Counted:
        @staticmethod
        def unpack_from(buffer: bytes | bytearray, place: int) -> tuple[int]:
            nonlocal looks
            looks += 1
            return (int.from_bytes(buffer[place : place + 4], "big"),)

    monkeypatch.setattr(frames, "_HEAD", Counted)
    splitter = EsnpSplitter()
    stream = b"\x16\x00\x00\x00" * 500 + b"\x16\x00\x03\xe8" + bytes(1000) + END
    found = [frame for place in range(len(stream)) for frame in splitter.receive(stream[place : place + 1])]
    assert found == [stream]
    assert looks == 500 + 1 + 1  # each line once, and the end


def test_notes_of_the_tree_say_it_in_words() -> None:
    message = EsnpMessage(
        (
            lines.flag_line(4),
            lines.flag_line(200),
            lines.address_line(30, "calc"),
            lines.seq_no_line(1, 0),
            lines.version_line(1, 0, 0, 2),
            Line(0x19),
            Line(0x05, b"?"),
            lines.data_line("ts", var_of(1_700_000_000_000)),
            lines.data_line("ts", var_of(-1)),
            lines.data_line("map", var_of({"k": [1, b"x"]})),
            Line(0x80, b"app"),
        )
    )
    root = PROTOCOL.dissect(message.encode(), Sender.CLIENT).root
    assert root.find("FLAG", "flag").note == "request"
    assert root.find("ADDRESS", "kind").note == "service"
    assert root.find("SEQ_NO", "last").note == "not known yet"
    assert root.find("VERSION", "version").note == "1.0.0.2"
    assert root.find("TRACE", "type").note == "withdrawn, ignored"
    assert root.find("0x05", "type").note == "unknown"
    assert root.find("0x80", "type").note == "the application's own"
    assert root.find("DATA", "value").note == "2023-11-14T22:13:20.000+00:00"
    assert root.children[8].find("value").note == ""
    entry = root.children[9].find("value", "entry 0")
    assert entry.find("key").value == "k"
    assert entry.find("value", "item 1").value == b"x"
    assert [child.value for child in root.find("END").children] == [0, 0]


def test_identify_finds_esnp() -> None:
    (guess, *_) = identify(REQUEST, (PROTOCOL,))
    assert guess.protocol == "esnp"
    assert guess.bits > 40
    assert list(clues(END, Sender.CLIENT)) == []
    assert identify(bytes(400), (PROTOCOL,)) == []
    malformed = EsnpMessage((Line(0x80), Line(0x1E))).encode()
    assert any(clue.bits < 0 for clue in clues(malformed, Sender.CLIENT))
    assert [clue.bits for clue in clues(EsnpMessage((Line(0x80),)).encode(), Sender.CLIENT)] == [20]
