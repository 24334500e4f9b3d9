"""What an author gets, and what is refused when a class is described."""

import inspect
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Annotated

import pytest

from layout import sampler
from layout.sampler import PLAIN, SAMPLER, SMALL, Colour, Login, Marks, Nothing, One, Point, Report, Two
from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    bytes8,
    const,
    crc16_modbus,
    custom,
    length_of_body,
    length_of_rest,
    list8,
    opcode,
    optional,
    present_if,
    rest_bytes,
    short_length,
    source,
    text8,
    u8,
    u16,
)
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Field

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER
GOLDEN = Path(__file__).parent / "golden"
LOGIN = Login("Oslo", "s3cret", b"\x01\x02\x03\x04", 1234, ("old", "older"), seq=7)


class Head(Envelope):
    kind: Annotated[u8, opcode()]
    length: Annotated[u8, length_of_rest()]
    body: Body


class Plainest(Envelope):
    length: Annotated[u8, length_of_rest()]
    body: Body


def marks(**changes: object) -> Marks:
    values = {"version": 3, "colour": Colour.BLUE, "level": 1, "params": 9, "tenths": -75, "sign": b"OK", "count": 300}
    return Marks(**{**values, "size": 1, "frame": "f", **changes})  # type: ignore[arg-type]


# ── frames


def test_frames_are_frozen_and_slotted() -> None:
    with pytest.raises(AttributeError):
        LOGIN.station = "Rome"  # type: ignore[misc]
    assert not [base for base in type(LOGIN).__mro__[:-1] if "__dict__" in vars(base)]
    assert SAMPLER.decode(LOGIN.encode(), CLIENT) == LOGIN
    assert (Login.name, Login.opcode, Login.sender) == ("login", 2, CLIENT)


def test_bytes_are_as_described() -> None:
    wire = One(0x01020304).encode()
    assert wire == bytes.fromhex("0100 06 04030201 0a") + bytes([6 ^ 4 ^ 3 ^ 2 ^ 1])
    report = Report("ab", (1, 2), -1, "ö").encode()
    assert report[:-2] == bytes.fromhex("be 02 6162 02 0001 0002 ffffffff 0002 c3b6")


def test_an_opcode_is_read_by_direction() -> None:
    texts = sampler.Texts("", "", "", b"", b"", b"", "abc", b"12345", "")
    assert SAMPLER.decode(texts.encode(), SERVER) == texts
    with pytest.raises(ProtocolError):
        SAMPLER.decode(texts.encode(), CLIENT)


def test_frames_without_fields_are_one_object() -> None:
    class Head(Envelope):
        length: Annotated[u8, length_of_rest()]
        body: Body

    class Ping(LayoutFrame, frozen=True, envelope=Head):
        pass

    frames = FrameSet("ping", Head, [Ping])
    assert Ping().encode() == b"\0"
    assert frames.decode(b"\0", CLIENT) is frames.decode(b"\0", CLIENT)
    assert frames.splitter().receive(bytes(200)) == [b"\0"] * 200


# ── trees


def test_the_tree_has_units_names_and_flags() -> None:
    tree = SAMPLER.dissect(marks(more=5, note="x", last=b"y").encode(), CLIENT)
    assert tree.error is None
    assert tree.root.name == "sampler marks"
    notes = {field.name: field.note for field in tree.root.leaves() if field.note}
    assert notes == {
        "kind": "marks",
        "colour": "blue",
        "crc": "right",
        "level": "high",
        "params": "first, answer",
        "tenths": "-7.5 °C",
    }
    assert tree.root.find("count") == Field("count", 15, 2, 300)


def test_lists_of_structs_are_groups() -> None:
    frame = sampler.Lists(
        (1,), (2,), (3,), (True,), (Colour.RED,), (Point(1, 2, "p", (b"t",)),), ((4,),), Point(0, 0, "", ()), ()
    )
    tree = SAMPLER.dissect(frame.encode(), CLIENT)
    assert tree.root.find("points 0", "label").value == "p"
    assert tree.root.find("matrix 0 0").value == 4
    assert tree.root.find("switches 0").value == 1


def test_fields_are_there_if_a_bit_says_so() -> None:
    parts = sampler.Parts(0x05, ver=3, words=("a",), always=9)
    assert parts.encode()[7:-2].hex() == "05000301016100000009"
    tree = SAMPLER.dissect(parts.encode(), CLIENT)
    assert [field.name for field in tree.root.children][4:-1] == [
        "params",
        "ver",
        "words count",
        "words 0 size",
        "words 0",
        "always",
    ]
    assert tree.root.find("always").note == "9 s"
    for wrong in (sampler.Parts(0x01), sampler.Parts(0x00, ver=1), sampler.Parts(0x02, words=())):
        with pytest.raises(EncodeError, match="does not fit the bits"):
            wrong.encode()


# ── errors


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", "short", 0),
        ("0100", "short", 2),
        ("0100 05 04030201 0a 00", "length", 2),
        ("0100 06 04030201 0a 00", "sum", 8),
        ("0100 06 04030201 0b 02", "end", 7),
        ("0300 06 04030201 0a 02", "no_such_kind", 0),
        ("0100 03 01 0a 02", "short", 4),
        ("0100 07 0403020100 0a 03", "trailing", 7),
    ],
)
def test_bad_bytes_are_refused_at_the_bad_byte(hex_: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        SMALL.decode(bytes.fromhex(hex_), CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


@pytest.mark.parametrize(
    ("offset", "byte", "code"),
    [(7, 4, "version"), (8, 3, "unknown_colour"), (10, 0x10, "params"), (13, 0, "sign")],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(offset: int, byte: int, code: str) -> None:
    wire = bytearray(marks().encode())
    wire[offset] = byte
    assert SAMPLER.envelope.checksum is not None
    wire[-2:] = crc16_modbus().compute(bytes(wire[:-2])).to_bytes(2, "little")
    with pytest.raises(ProtocolError) as caught:
        SAMPLER.decode(bytes(wire), CLIENT)
    assert (caught.value.code, caught.value.offset) == (code, offset)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"colour": 3},
        {"params": 0x10},
        {"tenths": 40_000},
        {"sign": b"NO"},
        {"sign": b"OKOK"},
        {"count": -1},
        {"frame": "x" * 256},
        {"frame": "\ud800"},
        {"seq": 1 << 16},
        {"note": "without the one before it"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_not_written(changes: dict[str, object]) -> None:
    with pytest.raises(EncodeError):
        marks(**changes).encode()


def test_a_constant_at_the_beginning_comes_before_the_checksum() -> None:
    wire = Report("ab", (1, 2), -1, "ö").encode()
    for place, code, offset in ((0, "magic", 0), (1, "crc", len(wire) - 2)):
        damaged = bytearray(wire)
        damaged[place] ^= 1
        with pytest.raises(ProtocolError) as caught:
            PLAIN.decode(bytes(damaged), CLIENT)
        assert (caught.value.code, caught.value.offset) == (code, offset)


def test_an_error_of_the_own_functions_has_its_offset() -> None:
    wire = bytearray(marks(count=0, size=0x80, frame="").encode())
    start = 15
    wire[start : start + 3] = b"\xff\xff\xff"
    wire[-2:] = crc16_modbus().compute(bytes(wire[:-2])).to_bytes(2, "little")
    with pytest.raises(ProtocolError) as caught:
        SAMPLER.decode(bytes(wire), CLIENT)
    assert (caught.value.code, caught.value.offset) == ("short", len(wire) - 2)


@pytest.mark.parametrize(
    ("wire", "code", "offset"),
    [(b"\0", "short", 1), (b"\x01\x05", "short", 2), (b"\x02\x01\xff", "word", 1), (b"\x01\x00", None, 0)],
)
def test_own_functions_may_simply_index(wire: bytes, code: str | None, offset: int) -> None:
    def read(frame: bytes, start: int, _end: int) -> tuple[str, int]:
        end = start + 1 + frame[start]
        return frame[start + 1 : end].decode(), end

    class Word(LayoutFrame, frozen=True, envelope=Plainest):
        word: Annotated[str, custom(read, lambda word: bytes([len(word)]) + word.encode())]

    frames = FrameSet("words", Plainest, [Word])
    error = frames.dissect(wire, CLIENT).error
    assert (error and error.code) == code
    assert error is None or error.offset == offset
    if error is None:
        assert frames.decode(wire, CLIENT) == Word("")
    else:
        with pytest.raises(ProtocolError):
            frames.decode(wire, CLIENT)


# ── streams


def test_a_length_over_the_limit_is_refused_before_the_body_comes() -> None:
    splitter = SAMPLER.splitter(50)
    first = Nothing().encode()
    assert splitter.receive(first + b"\xca\xfe\x00\x33") == [first]
    failure = splitter.failure
    assert isinstance(failure, LimitError)
    assert (failure.code, failure.offset) == ("sampler_bytes_max", len(first))
    splitter.set_limit(60)
    assert splitter.receive_again() == []
    assert splitter.failure is None
    assert SAMPLER.splitter().frame_bytes_max == 10_000


def test_a_frame_without_a_length_is_refused_as_soon_as_it_is_too_long() -> None:
    splitter = PLAIN.splitter(100)
    assert splitter.receive(b"\xbe\x01a\x60") == []
    assert isinstance(splitter.failure, LimitError)
    assert splitter.failure.offset == 0


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [("cafe0009", None, 0), ("caff0009", "magic", 0), ("cafe0003", "length", 2)],
)
def test_the_head_is_checked_when_it_is_there(hex_: str, code: str | None, offset: int) -> None:
    splitter = SAMPLER.splitter()
    splitter.receive(bytes.fromhex(hex_))
    assert (splitter.failure and splitter.failure.code) == code
    assert splitter.failure is None or splitter.failure.offset == offset


# ── secrets


def test_secrets_are_blanked_and_the_rest_stays() -> None:
    blank = SAMPLER.decode(SAMPLER.redact(LOGIN.encode(), CLIENT), CLIENT)
    assert blank == Login("Oslo", "******", bytes(4), 0, ("***", "*****"), seq=7)
    assert SMALL.redact(Two(b"hush").encode(), CLIENT)[3:7] == bytes(4)


@pytest.mark.parametrize("frame", [LOGIN, Two(b"s3cret"), comet.Auth("me", "s3cret")], ids=lambda each: each.name)
def test_no_cut_or_damage_shows_a_secret(frame: LayoutFrame) -> None:
    frames = {"login": SAMPLER, "two": SMALL, "auth": comet.FRAMES}[frame.name]
    wire = frame.encode()
    start = wire.index(b"s3cret")
    for end in range(start + 1, len(wire)):
        assert wire[start:end] not in frames.redact(wire[:end], CLIENT)[start:]
    for place in range(len(wire)):
        for byte in (0, 1, 0x7F, 0xFF):
            damaged = bytearray(wire)
            damaged[place] = byte
            shown = frames.redact(bytes(damaged), CLIENT)
            is_read = frames.dissect(bytes(damaged), CLIENT).error is None
            assert len(shown) == len(wire)
            assert is_read or b"s3cret" not in shown


# ── generated source


def test_the_source_of_a_small_frame_is_readable() -> None:
    """To accept a change, write the new text to the golden file."""
    envelope = FrameSet("comet", comet.Comet, [comet.Auth])
    assert envelope.source() == (GOLDEN / "comet_auth.py.txt").read_text()
    assert source(comet.Auth) in envelope.source()


def test_inspect_and_tracebacks_show_the_source() -> None:
    assert inspect.getsource(comet.Auth.encode) in source(comet.Auth)
    assert "raise dissect(frame, sender).error" in inspect.getsource(SAMPLER.decode)
    try:
        comet.Auth(1, "").encode()  # type: ignore[arg-type]
    except AttributeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "client_id = self.client_id.encode()" in shown
    assert "<wirelake layout wirelake.protocols.comet.frames.Auth.encode>" in shown


def test_the_program_needs_no_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from wirelake.protocols.comet import frames as comet; "
    code += "comet.FRAMES.markdown()"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


# ── documentation


def test_the_markdown_has_a_diagram_and_a_table() -> None:
    assert comet.FRAMES.markdown().startswith((GOLDEN / "comet_auth.md").read_text())
    text = SAMPLER.markdown() + SMALL.markdown()
    for line in (
        "| tenths | i16 | times 0.1 °C |",
        "| token | text8 | secret |",
        "| colour | u8 | 1 red, 2 green, 7 blue |",
        "| points | list8 of point |  |",
        "| more | u16, optional |  |",
        "| count | varint |  |",
        "| length | u8 | counts the bytes of the body, and 2 more |",
        "| sum | u8 | XOR over length..body |",
    ):
        assert line in text


def test_clues_weigh_what_random_bytes_rarely_show() -> None:
    clues = {clue.text: clue.bits for clue in SAMPLER.clues(LOGIN.encode(), CLIENT)}
    assert clues["magic is CAFE"] == 16
    assert clues["the CRC-16/MODBUS is right"] == 16
    assert clues["the length fits to the byte"] == 14
    assert 5 < clues["kind is login from a client"] < 6


def test_names_of_fields_and_classes_do_not_disturb_the_source() -> None:
    class Struct(LayoutFrame, frozen=True, envelope=Plainest):
        frame: text8
        frame_size: u8
        frame_end: text8
        pack_1: u8
        len: list8[text8]
        len_item: u8
        len_pieces: text8
        whole: u8
        at: text8
        start: u8

    frames = FrameSet("names", Plainest, [Struct])
    wire = Struct("a", 1, "b", 2, ("c", "d"), 3, "e", 4, "f", 5).encode()
    assert frames.decode(wire, CLIENT) == Struct("a", 1, "b", 2, ("c", "d"), 3, "e", 4, "f", 5)


def test_classes_of_one_name_are_kept_apart() -> None:
    def made(number: int) -> type[LayoutFrame]:
        class Same(LayoutFrame, frozen=True, envelope=Head, opcode=number):
            value: u8

        return Same

    one, two = made(1), made(2)
    frames = FrameSet("same", Head, [one, two])
    for kind in (one, two):
        frame = kind(7)
        assert type(frames.decode(frame.encode(), CLIENT)) is kind


# ── descriptions that cannot be


def test_an_envelope_needs_a_body() -> None:
    with pytest.raises(TypeError, match="has no body"):

        class Bodiless(Envelope):
            magic: Annotated[u8, const(1)]


def test_an_envelope_ends_with_checksums_and_constants() -> None:
    with pytest.raises(TypeError, match="only checksums and constants"):

        class Late(Envelope):
            body: Body
            value: u8


def test_a_short_length_comes_first() -> None:
    with pytest.raises(TypeError, match="comes first"):

        class Second(Envelope):
            magic: Annotated[u8, const(1)]
            length: Annotated[short_length, length_of_rest()]
            body: Body


def test_the_head_of_a_body_length_has_a_fixed_size() -> None:
    with pytest.raises(TypeError, match="fixed size"):

        class Varying(Envelope):
            length: Annotated[u8, length_of_body()]
            name: text8
            body: Body


def test_nothing_follows_the_rest() -> None:
    with pytest.raises(TypeError, match="takes all the bytes"):

        class Wrong(LayoutFrame, frozen=True):
            data: rest_bytes
            more: u8


def test_optional_fields_come_last() -> None:
    with pytest.raises(TypeError, match="is required"):

        class Wrong(LayoutFrame, frozen=True, kw_only=True):
            data: optional[u8] = None
            more: u8


def test_an_annotation_must_be_a_field_type() -> None:
    with pytest.raises(TypeError, match="exactly one field type"):

        class Wrong(LayoutFrame, frozen=True):
            data: int

    class Part(LayoutFrame, frozen=True):
        data: rest_bytes

    with pytest.raises(TypeError, match="where it ends"):

        class Whole(LayoutFrame, frozen=True):
            part: Part

    with pytest.raises(TypeError, match="needs not be optional"):

        class Doubtful(LayoutFrame, frozen=True):
            data: optional[rest_bytes] = None

    with pytest.raises(TypeError, match="which is not before it"):

        class Early(LayoutFrame, frozen=True):
            data: Annotated[optional[u8], present_if("params", 1)] = None
            params: u8 = 0

    with pytest.raises(TypeError, match="make it `optional"):

        class Always(LayoutFrame, frozen=True):
            params: u8
            data: Annotated[u8, present_if("params", 1)]

    with pytest.raises(TypeError, match="where it ends"):

        class Endless(LayoutFrame, frozen=True):
            data: list8[rest_bytes]


def test_opcodes_are_unique_and_needed() -> None:
    class A(LayoutFrame, frozen=True, envelope=Head, opcode=1):
        pass

    class B(LayoutFrame, frozen=True, envelope=Head, opcode=1, sender=SERVER):
        pass

    class C(LayoutFrame, frozen=True, envelope=Head):
        pass

    with pytest.raises(TypeError, match="same opcode"):
        FrameSet("x", Head, [A, B])
    with pytest.raises(TypeError, match="an opcode is needed"):
        FrameSet("x", Head, [C])
    with pytest.raises(TypeError, match="another envelope"):
        FrameSet("x", sampler.Small, [A])


def test_a_field_has_another_name_than_those_of_the_envelope() -> None:
    with pytest.raises(TypeError, match="rename one of them"):

        class Wrong(LayoutFrame, frozen=True, envelope=Head, opcode=1):
            length: u8


def test_a_field_has_another_name_than_the_attributes_of_frames() -> None:
    with pytest.raises(TypeError, match="choose another"):

        class Wrong(LayoutFrame, frozen=True, envelope=Plainest):
            name: text8  # type: ignore[misc]


def test_every_frame_has_the_values_of_its_envelope() -> None:
    class Counted(Envelope):
        length: Annotated[u8, length_of_rest()]
        seq: u8
        body: Body

    class Wrong(LayoutFrame, frozen=True, envelope=Counted):
        value: u8

    with pytest.raises(TypeError, match="needs an attribute for seq"):
        FrameSet("x", Counted, [Wrong])


def test_without_a_length_frames_must_say_where_they_end() -> None:
    class Bare(Envelope):
        magic: Annotated[u8, const(1)]
        body: Body

    class Open(LayoutFrame, frozen=True, envelope=Bare):
        data: rest_bytes

    class Deep(LayoutFrame, frozen=True, envelope=Bare):
        data: list8[bytes8]

    for kind in (Open, Deep):
        with pytest.raises(TypeError, match="needs a length field"):
            FrameSet("x", Bare, [kind])


# ── types


def test_a_type_checker_sees_plain_types(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(
        "from layout.sampler import Login, Marks, Lists\n"
        "def show(login: Login, marks: Marks, lists: Lists) -> None:\n"
        "    reveal_type(login.station)\n"
        "    reveal_type(marks.colour)\n"
        "    reveal_type(marks.more)\n"
        "    reveal_type(lists.points)\n"
        "    login.station = 'x'\n"
        "Login(1, 2)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent.parent)
    for text in ('"str"', '"layout.sampler.Colour"', '"int | None"', '"tuple[layout.sampler.Point, ...]"'):
        assert f"Revealed type is {text}" in done.stdout.replace("builtins.", ""), done.stdout
    assert "read-only" in done.stdout
    assert "incompatible type" in done.stdout


def test_u16_is_an_int() -> None:
    value: u16 = 3
    assert value == 3
