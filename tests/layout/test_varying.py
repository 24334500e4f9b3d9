"""Numbers of varying size, sizes in an encoding of their own, and bodies without their envelope."""

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.sampler import SAMPLER, VARYING, Login, Numbered, Sized
from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout import BodyCodec, LayoutFrame, rest_bytes, text_zigzag, u8, varint64, zigzag32
from wirelake.protocols.frame import Sender

CLIENT = Sender.CLIENT


class Entry(LayoutFrame, frozen=True):
    number: zigzag32
    word: text_zigzag
    data: rest_bytes


class Wide(LayoutFrame, frozen=True):
    number: varint64


ENTRY, WIDE = BodyCodec(Entry), BodyCodec(Wide)


@pytest.mark.parametrize(
    ("number", "hex_"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(1 << 31), "ffffffff0f")],
)
def test_zigzag_numbers(number: int, hex_: str) -> None:
    wire = bytes.fromhex(hex_) + b"\0"
    assert ENTRY.encode(Entry(number, "", b"")) == wire
    assert ENTRY.decode(wire) == Entry(number, "", b"")


@pytest.mark.parametrize(
    ("codec", "hex_", "code", "offset"),
    [
        (ENTRY, "", "short", 0),
        (ENTRY, "80", "short", 1),
        (ENTRY, "8080808010 00", "int_range", 0),
        (ENTRY, "02", "short", 1),
        (ENTRY, "02 01", "negative_size", 1),
        (ENTRY, "02 04 61", "short", 3),
        (ENTRY, "02 02 ff", "bad_utf8", 2),
        (WIDE, "ffffffffffffffffff02", "varint_overflow", 9),
        (WIDE, "ffffffffffffffffffff01", "varint_overflow", 9),
        (WIDE, "ffffffffffffffffff", "short", 9),
        (WIDE, "0000", "trailing", 1),
    ],
)
def test_bad_bytes_are_refused_at_the_bad_byte(
    codec: BodyCodec[LayoutFrame], hex_: str, code: str, offset: int
) -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode(bytes.fromhex(hex_))
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_the_largest_number_of_64_bits() -> None:
    wire = bytes.fromhex("ffffffffffffffffff01")
    assert WIDE.decode(wire) == Wide((1 << 64) - 1)
    assert WIDE.encode(Wide((1 << 64) - 1)) == wire


@pytest.mark.parametrize("frame", [Entry(1 << 31, "", b""), Entry(-(1 << 31) - 1, "", b""), Entry(0, "\ud800", b"")])
def test_what_does_not_fit_is_not_written(frame: Entry) -> None:
    with pytest.raises(EncodeError):
        ENTRY.encode(frame)
    with pytest.raises(EncodeError):
        WIDE.encode(Wide(-1))


@given(st.binary(max_size=24))
def test_a_body_has_one_verdict(body: bytes) -> None:
    for codec in (ENTRY, WIDE):
        error = codec.dissect(body).error
        if error is None:
            codec.decode(body)
            continue
        with pytest.raises(ProtocolError) as caught:
            codec.decode(body)
        assert (caught.value.code, caught.value.offset) == (error.code, error.offset)


def test_the_tree_shows_sizes_names_and_own_parts() -> None:
    tree = VARYING.dissect(Numbered(1, 2, 3, 4, -1, (5,)).encode(), CLIENT)
    assert tree.root.find("level").note == "below"
    assert tree.root.find("many 0").value == 5
    frame = Sized(b"", "", b"", "", b"x" * 64, "secret", ("w",), b"1234", b"")
    tree = VARYING.dissect(frame.encode(), CLIENT)
    assert tree.error is None
    assert (tree.root.find("e size").size, tree.root.find("e size").value) == (2, 64)
    assert tree.root.find("pairs", "pair 1").value == b"34"
    assert VARYING.decode(VARYING.redact(frame.encode(), CLIENT), CLIENT).f == "******"  # type: ignore[attr-defined]


def test_the_markdown_names_the_encodings() -> None:
    text = VARYING.markdown()
    for line in (
        "| a | varint32 |  |",
        "| d | zigzag64 |  |",
        "| d | text after a zigzag32 |  |",
        "| e | bytes after a quarter |  |",
        "| level | zigzag32 | -1 below, 1 above |",
    ):
        assert line in text


def test_a_body_codec_needs_all_values_in_the_body() -> None:
    with pytest.raises(TypeError, match="values of its envelope"):
        BodyCodec(Login)
    assert SAMPLER.name == "sampler"


def test_names_do_not_disturb_the_source() -> None:
    class Names(LayoutFrame, frozen=True):
        read_zigzag32: zigzag32
        write_zigzag32: zigzag32
        word_size: u8
        word: text_zigzag
        word_reader: Annotated[int, u8]

    codec = BodyCodec(Names)
    frame = Names(1, 300, 3, "four", 5)
    assert codec.decode(codec.encode(frame)) == frame
