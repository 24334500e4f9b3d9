"""Fields whose form depends on the frame: choices, numbers after their size, ranges, and frames inside bytes."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.sampler import frames_of, protocol
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.layout import (
    Bits,
    Body,
    Content,
    Envelope,
    FrameSet,
    LayoutFrame,
    SizedNumber,
    between,
    choice,
    const,
    contains,
    fixed,
    i16,
    length_of_rest,
    list8,
    opcode,
    rest_bytes,
    secret,
    size_of,
    sized_number,
    text8,
    u8,
    u16,
)
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Tree

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


class Message(Envelope, is_datagram=True, frame_bytes_max=300, limit_name="message_bytes_max"):
    body: Body


class Measured(LayoutFrame, frozen=True):
    """A value of any size."""

    kind: u8
    value: sized_number
    size: Annotated[int, size_of("value")] = 0


class Position(LayoutFrame, frozen=True):
    x: i16
    y: i16


class Signed(LayoutFrame, frozen=True, byte_order="little"):
    value: Annotated[int | float | bytes, SizedNumber((1, 2, 4), (), (2, 4), is_signed=True)]


Data = Position | Signed | tuple[Measured, ...] | bytes
_ByKind = Annotated[
    Data, choice("kind", {1: Position, 2: list8[Measured], 3: Signed, 4: Annotated[bytes, fixed(3)]}, rest_bytes)
]


class Report(LayoutFrame, frozen=True, envelope=Message, sender=CLIENT):
    kind: Annotated[u8, between(1, 9)]
    fault: u8
    data: Annotated[Data, choice("fault", {0: _ByKind}, Annotated[bytes, fixed(0)])] = b""


class Command(LayoutFrame, frozen=True, envelope=Message, sender=SERVER):
    kind: Annotated[u8, between(0x80, 0xFF)]
    target: Annotated[str | int, choice("kind", {0x80: text8, 0x81: u16})]


MESSAGES = FrameSet("message", Message, [Report, Command])


class Outer(Envelope):
    version: Annotated[u8, const(1, is_carried=True)]
    length: Annotated[u8, length_of_rest()]
    type: Annotated[u8, opcode()]
    body: Body


class Packet(LayoutFrame, frozen=True, envelope=Outer, opcode=1):
    version: int
    params: u8
    data: Annotated[
        rest_bytes,
        contains(
            Content("report", MESSAGES, CLIENT, (Bits("params", 0x81, 0x01),)),
            Content("command", MESSAGES, SERVER, (Bits("params", 0x81, 0x81),)),
            otherwise=lambda values: f"params are {values['params']}",
        ),
    ]


class Empty(Packet, frozen=True, opcode=2):
    data: Annotated[bytes, fixed(0)] = b""


PACKETS = FrameSet("packets", Outer, [Packet, Empty])
messages = frames_of(MESSAGES)
PROTOCOLS = {frames.name: protocol(frames) for frames in (MESSAGES, PACKETS)}


@given(messages)
def test_every_form_round_trips(frame: LayoutFrame) -> None:
    laws.check_round_trip(PROTOCOLS["message"], frame, frame.sender or CLIENT)


@given(messages, st.integers(0), st.integers(0, 255), laws.senders)
def test_one_verdict_on_changed_messages(frame: LayoutFrame, place: int, byte: int, sender: Sender) -> None:
    wire = bytearray(frame.encode())
    wire[place % len(wire)] = byte
    for data in (bytes(wire), bytes(wire)[: place % len(wire)], bytes(wire) + b"\0"):
        laws.check_verdict(PROTOCOLS["message"], data, sender)


@given(st.binary(max_size=30), laws.senders)
def test_one_verdict_on_any_message(data: bytes, sender: Sender) -> None:
    laws.check_verdict(PROTOCOLS["message"], data, sender)
    laws.check_verdict(PROTOCOLS["packets"], data, sender)


@given(frames_of(PACKETS), messages, st.integers(0, 255))
def test_packets_with_anything_inside_round_trip(frame: Packet, inner: LayoutFrame, params: int) -> None:
    laws.check_round_trip(PROTOCOLS["packets"], frame, CLIENT)
    laws.check_round_trip(PROTOCOLS["packets"], Packet(1, params, inner.encode()), CLIENT)


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (Report(1, 0, Position(-1, 2)), "0100ffff0002"),
        (Report(2, 0, (Measured(7, 300, 2), Measured(8, 1.5, 8), Measured(9, b"", 0))), None),
        (Report(2, 0, (Measured(7, 5, 3),)), "020001" + "0703000005"),
        (Report(2, 0, (Measured(7, 2**40, 6),)), "020001" + "0706010000000000"),
        (Report(3, 0, Signed(-2)), "030002feff"),
        (Report(4, 0, b"abc"), "0400616263"),
        (Report(9, 0, b"anything"), "0900" + b"anything".hex()),
        (Report(1, 7), "0107"),
        (Command(0x80, "Oslo"), "8004" + b"Oslo".hex()),
        (Command(0x81, 258), "810102"),
    ],
)
def test_bytes_of_the_forms(frame: LayoutFrame, wire: str | None) -> None:
    assert wire is None or frame.encode().hex() == wire
    assert MESSAGES.decode(frame.encode(), frame.sender or CLIENT) == frame


@pytest.mark.parametrize(
    ("value", "size"), [(0, 1), (255, 1), (256, 2), (65_536, 3), (2**24, 4), (2**32, 6), (1.0, 8), (b"12345", 5)]
)
def test_a_number_without_a_size_takes_the_fewest_bytes(value: Any, size: int) -> None:
    wire = Report(2, 0, (Measured(1, value),)).encode()
    assert wire[4] == size
    assert MESSAGES.decode(wire, CLIENT) == Report(2, 0, (Measured(1, value, size),))


@pytest.mark.parametrize(
    "frame",
    [
        Report(0, 0, b""),
        Report(10, 0, b""),
        Report(1, 7, b"x"),
        Report(1, 7, Position(0, 0)),
        Report(2, 0, (Measured(1, 256, 1),)),
        Report(2, 0, (Measured(1, -1),)),
        Report(2, 0, (Measured(1, 2**48),)),
        Report(2, 0, (Measured(1, 1.5, 4),)),
        Report(2, 0, (Measured(1, b"1234"),)),
        Report(2, 0, (Measured(1, b"12345", 7),)),
        Report(2, 0, (Measured(1, bytes(256)),)),
        Report(3, 0, Signed(2**31)),
        Report(3, 0, Signed(1.5)),
        Report(4, 0, b"ab"),
        Command(0x7F, ""),
        Command(0x82, ""),
    ],
)
def test_what_does_not_fit_is_refused(frame: LayoutFrame) -> None:
    with pytest.raises(EncodeError):
        frame.encode()


def test_bytes_are_written_as_they_are_for_any_form() -> None:
    assert Report(1, 0, b"1234").encode() == b"\x01\x001234"
    assert MESSAGES.decode(b"\x01\x001234", CLIENT) == Report(1, 0, Position(0x3132, 0x3334))


@pytest.mark.parametrize(
    ("wire", "sender", "code", "offset"),
    [
        ("", CLIENT, "short", 0),
        ("0000", CLIENT, "kind", 0),
        ("0a00", CLIENT, "kind", 0),
        ("010000", CLIENT, "short", 3),
        ("01000000000000", CLIENT, "trailing", 6),
        ("010700", CLIENT, "trailing", 2),
        ("02000101", CLIENT, "short", 4),
        ("0200010102ff", CLIENT, "short", 6),
        ("0200010101ffff", CLIENT, "trailing", 6),
        ("7f", SERVER, "kind", 0),
        ("82", SERVER, "unknown_kind", 1),
    ],
)
def test_bad_forms_are_refused_at_the_bad_byte(wire: str, sender: Sender, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        MESSAGES.decode(bytes.fromhex(wire), sender)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def leaves(tree: Tree) -> list[tuple[str, int, int, Any]]:
    return [(leaf.name, leaf.offset, leaf.size, leaf.value) for leaf in tree.root.leaves()]


def test_trees_show_the_form_that_the_frame_has() -> None:
    tree = MESSAGES.dissect(Report(2, 0, (Measured(7, 5, 3), Measured(8, b"", 0))).encode(), CLIENT)
    assert leaves(tree) == [
        ("kind", 0, 1, 2),
        ("fault", 1, 1, 0),
        ("data count", 2, 1, 2),
        ("kind", 3, 1, 7),
        ("size", 4, 1, 3),
        ("value", 5, 3, 5),
        ("kind", 8, 1, 8),
        ("size", 9, 1, 0),
        ("value", 10, 0, b""),
    ]
    assert tree.root.find("data 1", "value").note == "of no known size, kept as bytes"
    assert [leaf[0] for leaf in leaves(MESSAGES.dissect(Report(1, 7).encode(), CLIENT))] == ["kind", "fault"]


def test_trees_show_the_frames_that_bytes_hold() -> None:
    inside = Packet(1, 0x01, Report(1, 0, Position(1, 2)).encode())
    tree = PACKETS.dissect(inside.encode(), CLIENT)
    assert [leaf[:3] for leaf in leaves(tree)] == [
        ("version", 0, 1),
        ("length", 1, 1),
        ("type", 2, 1),
        ("params", 3, 1),
        ("kind", 4, 1),
        ("fault", 5, 1),
        ("x", 6, 2),
        ("y", 8, 2),
    ]
    assert (tree.root.find("report").offset, tree.root.find("report").size) == (4, 6)
    command = PACKETS.dissect(Packet(1, 0x81, b"\x81\x01\x02").encode(), CLIENT)
    assert command.root.find("command", "target").value == 258
    other = PACKETS.dissect(Packet(1, 0x02, b"xyz").encode(), CLIENT).root.find("data")
    assert (other.value, other.note) == (b"xyz", "params are 2")


def test_a_malformed_frame_inside_is_no_fault_of_the_one_around_it() -> None:
    tree = PACKETS.dissect(Packet(1, 0x01, b"\x01\x00\x00").encode(), CLIENT)
    field = tree.root.find("data")
    assert tree.error is None
    assert field.value == b"\x01\x00\x00"
    assert field.note.startswith("not readable as a report: ")
    assert field.fault is not None
    assert (field.fault.code, field.fault.offset) == ("short", 7)


def test_a_constant_can_be_an_attribute_of_every_frame() -> None:
    assert Empty(1, 5).encode() == b"\x01\x02\x02\x05"
    assert PACKETS.decode(b"\x01\x02\x02\x05", CLIENT) == Empty(1, 5, b"")
    with pytest.raises(EncodeError, match="version is 2, not 1"):
        Empty(2, 5).encode()
    with pytest.raises(EncodeError, match="data is not empty"):
        Empty(1, 5, b"x").encode()
    with pytest.raises(ProtocolError) as caught:
        PACKETS.decode(b"\x02\x02\x02\x05", CLIENT)
    assert (caught.value.code, caught.value.offset) == ("version", 0)


def test_a_datagram_is_one_frame() -> None:
    splitter = MESSAGES.splitter()
    assert splitter.receive(b"abc") == [b"abc"]
    assert splitter.receive(b"d") == [b"d"]
    assert splitter.receive(bytes(301)) == []
    assert isinstance(splitter.failure, LimitError)
    assert splitter.failure.code == "message_bytes_max"


def test_secrets_in_forms_are_blanked() -> None:
    class Login(LayoutFrame, frozen=True, envelope=Message):
        kind: u8
        token: Annotated[str | int, choice("kind", {1: text8, 2: u16}), secret]
        pin: Annotated[int | float | bytes, SizedNumber(), secret]

    frames = FrameSet("logins", Message, [Login])
    for frame, blank in ((Login(1, "abc", 999), Login(1, "***", 0)), (Login(2, 77, b"12345"), Login(2, 0, bytes(5)))):
        found = frames.decode(frames.redact(frame.encode(), CLIENT), CLIENT)
        assert found == blank


def test_the_table_of_fields_names_the_forms() -> None:
    text = MESSAGES.markdown()
    assert "| kind | u8 | from 1 to 9 |" in text
    assert (
        "by fault (0: by kind (1: position; 2: list8 of measured; 3: signed; 4: bytes of 3; else bytes, the rest);"
        in text
    )
    assert "| target | by kind (128: text8; 129: u16) |" in text
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "### report (from the client)",
        "### command (from the server)",
        *("### position", "### measured", "### signed"),
    ]
    assert "| value | number after its size | 1, 2, 3, 4, 6: unsigned; 8: float; any other size: bytes |" in text


def test_the_frames_inside_follow_those_around_them() -> None:
    text = PACKETS.markdown()
    assert "| data | bytes, the rest | may hold a report or a command |" in text
    assert text.count("### report (from the client)") == 1
    assert "data" not in text.partition("### empty")[2].partition("###")[0]


def _depends_on_what_follows() -> None:
    class Later(LayoutFrame, frozen=True, envelope=Message):
        data: Annotated[bytes, choice("kind", {1: rest_bytes})]
        kind: u8


def _follows_the_rest() -> None:
    class After(LayoutFrame, frozen=True, envelope=Message):
        kind: u8
        data: Annotated[bytes, choice("kind", {1: rest_bytes})]
        more: u8


def _has_no_number() -> None:
    class Sizeless(LayoutFrame, frozen=True, envelope=Message):
        value: u8
        size: Annotated[int, size_of("value")]


def _has_no_end() -> None:
    class Endless(LayoutFrame, frozen=True):
        kind: u8
        data: Annotated[bytes, choice("kind", {1: rest_bytes})]

    class Holder(LayoutFrame, frozen=True, envelope=Message):
        items: list8[Endless]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (_depends_on_what_follows, "depends on kind, which is not before it"),
        (_follows_the_rest, "more follows data, which takes all the bytes"),
        (_has_no_number, "size is the size of value, which is no sized number"),
        (_has_no_end, "must say where it ends"),
    ],
)
def test_impossible_descriptions_are_refused(make: Callable[[], None], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()
