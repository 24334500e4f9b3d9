"""Byte orders that a frame shows, sizes in other fields, and values that each class sets."""

from typing import Annotated

import pytest

from layout.sampler import TURNED, WIDE, Begin, High, Low, Mixed, Pixel, Point, Reply
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    const,
    fixed,
    i8,
    length_of_body,
    length_of_rest,
    opcode,
    optional,
    or_empty,
    order_shown_by,
    per_frame,
    sized_by,
    u8,
    u16,
)
from wirelake.protocols.frame import Sender

CLIENT = Sender.CLIENT
REPLY = Reply(0x01020304, 0x0506, b"xy", seq=7, extra=b"e")


# ── a byte order that the frame shows


def test_a_field_shows_the_byte_order() -> None:
    assert REPLY.encode().hex(" ") == "a0 01 00 02 00 01 00 07 00 00 00 08 65 01 02 03 04 06 05 78 79"
    little = Reply(0x01020304, 0x0506, b"xy", seq=7, extra=b"e", little=True)
    assert little.encode().hex(" ") == "a0 01 02 00 01 00 00 07 08 00 00 00 65 04 03 02 01 06 05 78 79"
    assert [TURNED.decode(each.encode(), CLIENT) for each in (REPLY, little)] == [REPLY, little]


def test_the_order_of_parts_and_items_is_that_of_the_frame() -> None:
    frame = Mixed(1, "w", Point(1, 2, "", ()), (), (3,), 0x1234, little=True)
    assert frame.encode()[12:].hex(" ") == "01 77 01 00 02 00 00 00 00 01 03 00 34 12"
    pixels = Mixed(0, "", Point(0, 0, "", ()), (Pixel(0x0102, 1),), (), 0x1234)  # type: ignore[arg-type]
    assert pixels.encode()[19:23].hex() == "010201" + "01"  # a Pixel says its own order


def test_the_tree_names_the_order() -> None:
    tree = TURNED.dissect(REPLY.encode(), CLIENT)
    assert tree.root.find("kind").note == "reply, big-endian"
    little = Reply(1, 2, b"", little=True)
    assert TURNED.dissect(little.encode(), CLIENT).root.find("number").value == 1


def test_the_first_frame_sets_the_order_of_a_stream() -> None:
    big, little = Begin(b"1234").encode(), Begin(b"1234", little=True).encode()
    for first, second in ((big, little), (little, big)):
        splitter = TURNED.splitter()
        assert splitter.receive(first + first + second[:4]) == [first, first]
        assert splitter.failure is not None
        assert (splitter.failure.code, splitter.failure.offset) == ("byte_order", 2 * len(first) + 2)


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("a0 02", "version", 1),
        ("a2", "bad_magic", 0),
        ("a0 01 00 04", "unknown_kind", 2),
        ("a0 01 04 00", "unknown_kind", 2),
        ("a1 01 00 01", "bad_magic", 0),
        ("a0 01 00 03", "bad_magic", 0),
        ("a0 01 00 01 0000 0007 00000005 31323334", "length_wrong", 8),
        ("a0 01 00 01 0001 0007 00000004 31323334", "length_wrong", 8),
        ("a0 01 00 01 0001 0007 00000003 31323334", "short", 16),
        ("a0 01 00 01 0000 0007 00000005 3132333435", "short", 17),
        ("a0 01 00 01 0000 0007 00000008 3132333435363738", "trailing", 19),
    ],
)
def test_a_bad_head_is_refused_at_the_bad_byte(hex_: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        TURNED.decode(bytes.fromhex(hex_), CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_the_first_bytes_are_refused_before_the_head_is_whole() -> None:
    for before in (b"", REPLY.encode()):
        splitter = TURNED.splitter()
        splitter.receive(before + bytes.fromhex("a1010001"))
        assert splitter.failure is not None
        assert (splitter.failure.code, splitter.failure.offset) == ("bad_magic", len(before))


# ── two lengths


def test_each_length_has_its_own_limit() -> None:
    wire = REPLY.encode()
    for limits, code, place in (
        ({"extra_size": 0}, "turned_extra_bytes_max", 4),
        ({"length": 7}, "turned_body_bytes_max", 8),
    ):
        splitter = TURNED.splitter(limits=limits)
        assert splitter.receive(wire[:12]) == []
        assert isinstance(splitter.failure, LimitError)
        assert (splitter.failure.code, splitter.failure.offset) == (code, place)
    splitter = TURNED.splitter(len(wire) - 1)
    splitter.receive(wire)
    assert isinstance(splitter.failure, LimitError)
    assert (splitter.failure.code, splitter.failure.offset) == ("turned_bytes_max", 8)
    splitter.set_limit(len(wire))
    assert splitter.receive_again() == [wire]


def test_lengths_of_three_bytes() -> None:
    wire = Low(0x010203, label="ab").encode()
    assert wire.hex(" ") == "00 00 02 00 00 07 01 03 61 62 01 02 03"
    assert WIDE.splitter().receive(wire) == [wire]
    splitter = WIDE.splitter(limits={"length": 6})
    splitter.receive(wire)
    assert splitter.failure is not None
    assert (splitter.failure.code, splitter.failure.offset) == ("wide_length_max", 3)


def test_a_value_of_each_class_is_checked() -> None:
    wire = bytearray(High(("a",)).encode())
    assert wire[7] == 9
    wire[7] = 3
    with pytest.raises(ProtocolError) as caught:
        WIDE.decode(bytes(wire), CLIENT)
    assert (caught.value.code, caught.value.offset) == ("level", 7)


def test_a_size_in_a_body_must_fit() -> None:
    with pytest.raises(EncodeError, match="another size than word_size says"):
        Mixed(2, "w", Point(0, 0, "", ()), (), (), 0x1234).encode()


def test_bytes_at_the_end_may_be_empty_instead_of_none() -> None:
    assert TURNED.decode(Begin(b"1234").encode(), CLIENT) == Begin(b"1234")
    assert TURNED.decode(Begin(b"1234", b"abc").encode(), CLIENT) == Begin(b"1234", b"abc")
    with pytest.raises(EncodeError, match="ticket"):
        Begin(b"1234", b"ab").encode()


def test_the_markdown_explains_them() -> None:
    text = TURNED.markdown() + WIDE.markdown()
    for line in (
        "| magic | u8 | 0xa1 |",
        "| extra_size | u16 | counts the bytes of extra |",
        "| extra | bytes of extra_size |  |",
        "| ticket | bytes of 3, optional |  |",
        "| length | u24 | counts all bytes after it |",
    ):
        assert line in text


def test_clues_of_a_head() -> None:
    clues = {clue.text: clue.bits for clue in TURNED.clues(REPLY.encode(), CLIENT)}
    assert clues["magic is that of a reply"] == 8
    assert clues["the length fits to the byte"] == 30


# ── descriptions that cannot be


def test_a_byte_order_needs_a_number_after_constants() -> None:
    with pytest.raises(TypeError, match="shows the byte order"):

        class Missing(Envelope, byte_order=order_shown_by("nothing")):
            length: Annotated[u16, length_of_rest()]
            body: Body

    with pytest.raises(TypeError, match="up to the byte order"):

        class Late(Envelope, byte_order=order_shown_by("kind")):
            seq: u8
            kind: Annotated[u16, opcode()]
            length: Annotated[u16, length_of_rest()]
            body: Body

    with pytest.raises(TypeError, match="a length is needed"):

        class Lengthless(Envelope, byte_order=order_shown_by("kind")):
            kind: Annotated[u16, const(1)]
            body: Body


def test_a_size_is_an_unsigned_number_before_what_it_sizes() -> None:
    with pytest.raises(TypeError, match="not an unsigned number before it"):

        class Signed(LayoutFrame, frozen=True):
            size: i8
            data: Annotated[bytes, sized_by("size")]

    with pytest.raises(TypeError, match="come before it"):

        class Turned(Envelope):
            length: Annotated[u8, length_of_body()]
            size: u8
            data: Annotated[bytes, sized_by("size")]
            body: Body


def test_a_class_sets_the_values_that_its_envelope_asks_for() -> None:
    class Level(Envelope):
        kind: Annotated[u8, opcode()]
        level: Annotated[u8, per_frame()]
        length: Annotated[u8, length_of_rest()]
        body: Body

    with pytest.raises(TypeError, match="needs a class variable level"):

        class Wrong(LayoutFrame, frozen=True, envelope=Level, opcode=1):
            value: u8


def test_only_fixed_bytes_can_be_or_empty() -> None:
    with pytest.raises(TypeError, match="only fixed bytes"):

        class Text(LayoutFrame, frozen=True):
            word: Annotated[str, fixed(3), or_empty] = ""


def test_every_frame_has_the_byte_order() -> None:
    class Shown(Envelope, byte_order=order_shown_by("kind")):
        kind: Annotated[u16, opcode()]
        length: Annotated[u16, length_of_rest()]
        body: Body

    class Wrong(LayoutFrame, frozen=True, envelope=Shown, opcode=1):
        value: optional[u8] = None

    with pytest.raises(TypeError, match="needs an attribute for little"):
        FrameSet("x", Shown, [Wrong])
