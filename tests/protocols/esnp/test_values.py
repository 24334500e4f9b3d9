from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.esnp.strategies import plain_values, u64, variables
from wirelake.errors import EncodeError, LimitError, ProtocolError, TranslationError
from wirelake.layout.varint import VARINT_BYTES_MAX, write_varint
from wirelake.message import Kind
from wirelake.protocols.esnp import values
from wirelake.protocols.esnp.constants import ESNP_DEPTH_MAX, ESNP_ITEMS_MAX, Tag
from wirelake.protocols.esnp.values import Var, VarReader, var_of

NAME = b"\x02a"  # the LenString "a"


def read(var: bytes) -> Var:
    return VarReader().named(NAME + var)[1]


def refusal(var: bytes) -> tuple[str, int]:
    """The error's code, and its place in the value."""
    with pytest.raises(ProtocolError) as caught:
        read(var)
    return caught.value.code, caught.value.offset - len(NAME)


def outcome(reading: Callable[[], object]) -> str:
    """What is read, as text since a NaN equals none, or why it is refused."""
    try:
        return repr(reading())
    except ProtocolError as error:
        return f"{error.code} at {error.offset}: {error.text}"


@given(variables)
def test_every_value_round_trips_with_its_tag(var: Var) -> None:
    assert read(var.encode()) == var


@given(plain_values)
def test_a_plain_value_comes_back(value: object) -> None:
    assert read(var_of(value).encode()).plain() == value


@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(lambda var, plain: NAME + var.encode(plain_counts=plain), variables, st.booleans()),
        st.builds(lambda tag, rest: NAME + bytes((tag,)) + rest, st.sampled_from(list(Tag)), st.binary(max_size=12)),
    )
)
def test_a_value_without_types_is_that_of_the_value_with_them(data: bytes) -> None:
    def with_types(reader: VarReader) -> tuple[str, object]:
        name, var = reader.named(data)
        return name, var.plain()

    typed, plain = VarReader(), VarReader()
    assert outcome(lambda: plain.plain_named(data)) == outcome(lambda: with_types(typed))
    assert (plain.items_left, plain.plain_counts) == (typed.items_left, typed.plain_counts)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused_inside_them(data: bytes) -> None:
    place = 0
    try:
        VarReader().named(data)
    except ProtocolError as error:
        place = error.offset
    assert 0 <= place <= len(data)


@given(u64)
def test_varints_round_trip(value: int) -> None:
    wire = write_varint(value)
    assert values.read_uvarint(b"\xff" + wire + b"\xff", 1) == (value, 1 + len(wire))
    assert len(wire) <= VARINT_BYTES_MAX


@given(st.integers(-(2**63), 2**63 - 1))
def test_zigzag_round_trips(value: int) -> None:
    wire = values.write_signed(value, 64)
    assert values.read_signed(wire, 0, 64) == (value, len(wire))


@pytest.mark.parametrize(
    ("var", "hex_"),
    [
        (Var(Tag.NULL), "00"),
        (Var(Tag.BOOL, True), "0101"),
        (Var(Tag.INT, -1), "0201"),
        (Var(Tag.INT8, -1), "03ff"),
        (Var(Tag.INT16, -32768), "04ffff03"),
        (Var(Tag.INT32, 64), "058001"),
        (Var(Tag.INT64, -(2**63)), "06ffffffffffffffffff01"),
        (Var(Tag.UINT, 300), "07ac02"),
        (Var(Tag.UINT8, 255), "08ff"),
        (Var(Tag.UINT16, 65535), "09ffff03"),
        (Var(Tag.UINT32, 127), "0a7f"),
        (Var(Tag.UINT64, 2**64 - 1), "0bffffffffffffffffff01"),
        (Var(Tag.FLOAT32, 1.5), "0d3fc00000"),
        (Var(Tag.FLOAT64, -2.0), "0ec000000000000000"),
        (Var(Tag.BYTES, b"\x00\xff"), "110400ff"),
        (Var(Tag.STRING, "é"), "1804c3a9"),
        (Var(Tag.LIST, (Var(Tag.NULL), Var(Tag.INT8, 5))), "1704000305"),
        (Var(Tag.MAP, {"k": Var(Tag.BOOL, False)}), "1502026b0100"),
    ],
)
def test_known_values(var: Var, hex_: str) -> None:
    assert var.encode().hex() == hex_
    assert read(bytes.fromhex(hex_)) == var


def test_what_readers_take_though_nobody_writes_it() -> None:
    assert read(b"\x01\x05") == Var(Tag.BOOL, True)
    assert read(b"\x07\x80\x00") == Var(Tag.UINT, 0)
    assert read(b"\x15\x04\x02k\x00\x02k\x01\x01") == Var(Tag.MAP, {"k": Var(Tag.BOOL, True)})


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", "short", 0),
        *((f"{tag:02x}00", "unknown_tag", 0) for tag in (12, 15, 16, 18, 19, 20, 22, 25, 255)),
        ("01", "short", 1),
        ("03", "short", 1),
        ("08", "short", 1),
        ("0000", "trailing", 1),
        ("0580", "short", 2),
        ("04808004", "int_range", 1),
        ("058080808010", "int_range", 1),
        ("0a8080808010", "int_range", 1),
        ("09808004", "int_range", 1),
        ("0bffffffffffffffffff02", "varint_overflow", 10),
        ("0bffffffffffffffffffff01", "varint_overflow", 10),
        ("0bffffffffffffffffff", "short", 10),
        ("0d000000", "short", 4),
        ("0e00000000000000", "short", 8),
        ("1101", "negative_size", 1),
        ("1106ab", "short", 3),
        ("1804ffff", "bad_utf8", 2),
        ("1705", "count", 1),
        ("1701", "count", 1),
        ("1502", "count", 1),
        ("17020c", "unknown_tag", 2),
        ("17020102", "trailing", 4),
        ("150202ff00", "bad_utf8", 3),
    ],
)
def test_bad_values_are_refused_at_the_bad_byte(hex_: str, code: str, offset: int) -> None:
    if code == "trailing" and hex_.startswith("17"):
        hex_ += "0c0c"  # more than the plain reading could explain
    assert refusal(bytes.fromhex(hex_)) == (code, offset)


def test_plain_counts_are_tried_where_zigzag_does_not_fit() -> None:
    two = b"\x17\x02\x03\x01\x03\x02"  # a List with the plain count 2, which is the zigzag 1
    assert read(two) == Var(Tag.LIST, (Var(Tag.INT8, 1), Var(Tag.INT8, 2)))
    odd = b"\x17\x01\x00"  # plain 1, zigzag -1
    assert read(odd) == Var(Tag.LIST, (Var(Tag.NULL),))
    nested = b"\x15\x01\x02k\x17\x03\x00\x00\x00"  # the whole line in one way or the other
    assert read(nested).plain() == {"k": [None] * 3}
    mixed = b"\x17\x04\x17\x01\x00\x00"  # outside zigzag, inside plain
    assert refusal(mixed) == ("count", 3)


def nested(depth: int) -> bytes:
    return b"\x17\x02" * depth + b"\x00"


def test_depth_is_bounded_both_ways() -> None:
    deepest = read(nested(ESNP_DEPTH_MAX))
    assert deepest.encode() == nested(ESNP_DEPTH_MAX)
    assert refusal(nested(ESNP_DEPTH_MAX + 1)) == ("esnp_depth_max", 2 * ESNP_DEPTH_MAX)
    assert refusal(nested(100_000))[0] == "esnp_depth_max"
    with pytest.raises(EncodeError, match="deep"):
        Var(Tag.LIST, (deepest,)).encode()
    assert var_of(deepest.plain()) == Var(Tag.LIST, deepest.value)
    with pytest.raises(TranslationError, match="deep"):
        var_of([deepest.plain()])


def test_items_are_bounded_over_all_values_of_one_message() -> None:
    reader = VarReader(items_max=5)
    three = Var(Tag.LIST, (Var(Tag.NULL),) * 3).encode()
    assert len(reader.named(NAME + three)[1].value) == 3
    with pytest.raises(LimitError) as caught:
        reader.named(NAME + three)
    assert (caught.value.code, caught.value.offset) == ("esnp_items_max", 3)
    assert reader.items_left == 2
    assert refusal(b"\x17" + values.write_signed(ESNP_ITEMS_MAX + 1) + bytes(ESNP_ITEMS_MAX + 1)) == (
        "esnp_items_max",
        1,
    )


@pytest.mark.parametrize(
    "var",
    [
        Var(12, 1),
        Var(Tag.INT8, 128),
        Var(Tag.UINT8, -1),
        Var(Tag.INT16, 32768),
        Var(Tag.INT32, -(2**31) - 1),
        Var(Tag.UINT32, 2**32),
        Var(Tag.UINT64, -1),
        Var(Tag.FLOAT32, 1e300),
        Var(Tag.FLOAT64, "x"),
        Var(Tag.INT32, "x"),
        Var(Tag.STRING, 5),
        Var(Tag.STRING, "\ud800"),
        Var(Tag.BYTES, "text"),
        Var(Tag.LIST, 5),
        Var(Tag.LIST, (5,)),
        Var(Tag.MAP, (Var(0),)),
        Var(Tag.MAP, {1: Var(0)}),
    ],
)
def test_a_value_that_does_not_fit_its_tag_is_not_written(var: Var) -> None:
    with pytest.raises(EncodeError):
        var.encode()


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        (2**31 - 1, Tag.INT32),
        (2**31, Tag.INT64),
        (-(2**63), Tag.INT64),
        (2**63, Tag.UINT64),
        (True, Tag.BOOL),
        (Tag.INT8, Tag.INT32),
        (Kind.EVENT, Tag.STRING),
        (0.5, Tag.FLOAT64),
        ((1, 2), Tag.LIST),
    ],
)
def test_the_narrowest_tag_is_chosen(value: object, tag: Tag) -> None:
    var = var_of(value)
    assert var.tag == tag
    assert read(var.encode()).tag == tag


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, {1: 2}, {1, 2}, object()])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(TranslationError):
        var_of(value)
