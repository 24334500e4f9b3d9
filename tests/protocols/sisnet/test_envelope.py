import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import ProtocolError
from wirelake.protocols.sisnet.envelope import read_size, size_width, sized, write_size


@pytest.mark.parametrize(
    ("size", "hex_"),
    [
        (0, "00"),
        (250, "fa"),
        (251, "fb01"),
        (505, "fbff"),
        (506, "fc0001"),
        (65785, "fcffff"),
        (65786, "fdfa000100"),
        (2**32 - 1, "fdffffffff"),
        (2**32, "fe0000000001000000"),
    ],
)
def test_each_size_has_its_form(size: int, hex_: str) -> None:
    assert write_size(size).hex() == hex_
    assert read_size(bytes.fromhex(hex_), 0) == (size, len(hex_) // 2)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=4))
def test_sizes_round_trip_wherever_they_stand(size: int, before: bytes) -> None:
    data = before + write_size(size)
    assert read_size(data, len(before)) == (size, len(data))
    assert size_width(data[len(before)]) == len(data) - len(before)


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", "short", 0),
        ("fb", "short", 1),
        ("fc00", "short", 2),
        ("fd000000", "short", 4),
        ("fe00000000000000", "short", 8),
        ("fb00", "size_form", 0),
        ("fcff00", "size_form", 0),
        ("fdf9000100", "size_form", 0),
        ("feffffffff00000000", "size_form", 0),
        ("ff", "size_form", 0),
    ],
)
def test_other_forms_and_parts_are_refused(hex_: str, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_size(bytes.fromhex(hex_), 0)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_sized_data() -> None:
    assert sized(b"ab") == b"\x02ab"
    assert sized(b"x" * 251) == b"\xfb\x01" + b"x" * 251
