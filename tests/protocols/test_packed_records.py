import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols.packed_records import (
    LINE_VALUES_MAX,
    TABLE_VALUES_MAX,
    TABLES_MAX,
    read_tables,
    write_tables,
)
from wirelake.protocols.sisnet.constants import LIMIT_CODE_PREFIX

FIELDS = [
    ["time", "U", 8, 1],
    ["open", "F", 8],
    ["last", "F", 4, 1],
    ["side", "I", 1, 1],
    ["lots", "I", 2, 3],
    ["code", "C", 6, 1],
    ["tags", "C", 2, 2],
]
TABLES = read_tables({"info": {"fields": FIELDS}, "tick": {"fields": [["time", "U", 4], ["price", "I", 4]]}})
INFO = {"time": 7, "open": 1.5, "last": 0.25, "side": -1, "lots": [1, -2, 3], "code": "sh6006", "tags": ["a", ""]}


def test_a_record_lies_little_endian_without_gaps() -> None:
    assert TABLES["info"].record_bytes == 8 + 8 + 4 + 1 + 6 + 6 + 4
    wire = TABLES["info"].pack([INFO])
    assert wire.hex() == (
        "0700000000000000" + "000000000000f83f" + "0000803e" + "ff" + "0100feff0300" + b"sh6006".hex() + "61000000"
    )
    assert TABLES["info"].unpack(wire) == [INFO]


rows = st.lists(
    st.fixed_dictionaries({"time": st.integers(0, 2**32 - 1), "price": st.integers(-(2**31), 2**31 - 1)}), max_size=20
)


@given(rows)
def test_many_records_round_trip(records: list[dict[str, int]]) -> None:
    wire = TABLES["tick"].pack(records)
    assert len(wire) == 8 * len(records)
    assert TABLES["tick"].unpack(wire) == records


@pytest.mark.parametrize(
    ("kind", "size", "low", "high"),
    [("I", size, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) for size in (1, 2, 4, 8)]
    + [("U", size, 0, 2 ** (8 * size) - 1) for size in (1, 2, 4, 8)],
)
def test_integers_have_their_whole_range_and_no_more(kind: str, size: int, low: int, high: int) -> None:
    table = read_tables({"t": {"fields": [["v", kind, size]]}})["t"]
    assert table.unpack(table.pack([{"v": low}, {"v": high}])) == [{"v": low}, {"v": high}]
    for value in (low - 1, high + 1):
        with pytest.raises(EncodeError):
            table.pack([{"v": value}])


def test_floats() -> None:
    table = read_tables({"t": {"fields": [["d", "F", 8], ["f", "F", 4]]}})["t"]
    assert table.unpack(table.pack([{"d": 0.1, "f": 0.5}])) == [{"d": 0.1, "f": 0.5}]
    assert math.isnan(table.unpack(table.pack([{"d": math.nan, "f": 0}]))[0]["d"])
    with pytest.raises(EncodeError):
        table.pack([{"d": 0, "f": 1e300}])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"abc\0\0\0", "abc"),
        ("浦发".encode(), "浦发"),
        ("浦发".encode("gbk") + b"\0\0", "浦发"),
        (b"\xff\xff\xff\0\0\0", "���"),
        (b"\0\0\0\0\0\0", ""),
    ],
)
def test_text_is_utf8_or_gbk(data: bytes, text: str) -> None:
    table = read_tables({"t": {"fields": [["v", "C", 6]]}})["t"]
    assert table.unpack(data) == [{"v": text}]


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "too long"},
        {"code": 7},
        {"tags": ["a"]},
        {"tags": "ab"},
        {"lots": 3},
        {"lots": [1, 2, "3"]},
        {"time": -1},
        {"time": "now"},
    ],
)
def test_what_a_field_cannot_hold_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match="info"):
        TABLES["info"].pack([INFO | changed])


def test_a_missing_field_is_named() -> None:
    with pytest.raises(EncodeError, match="price"):
        TABLES["tick"].pack([{"time": 1}])


def test_half_a_record_is_refused_where_it_begins() -> None:
    with pytest.raises(ProtocolError) as caught:
        TABLES["tick"].unpack(bytes(20))
    assert (caught.value.code, caught.value.offset) == ("record_bytes", 16)


def test_a_line_has_a_bounded_number_of_values() -> None:
    table = read_tables({"t": {"fields": [["v", "I", 1, 1024]]}})["t"]
    assert len(table.unpack(bytes(1024 * 4))) == 4
    with pytest.raises(LimitError, match="values in one line"):
        table.unpack(bytes(LINE_VALUES_MAX + 1024))


def test_tables_are_written_as_they_are_read() -> None:
    written = write_tables(TABLES.values())
    assert written["tick"] == {"fields": [["time", "U", 4, 1], ["price", "I", 4, 1]]}
    assert write_tables(read_tables(written).values()) == written


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], "bad_dict"),
        (None, "bad_dict"),
        ({"t": []}, "bad_dict"),
        ({"t": {}}, "bad_dict"),
        ({"t": {"fields": []}}, "bad_dict"),
        ({"t": {"fields": {}}}, "bad_dict"),
        ({"t": {"fields": ["v"]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I"]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", 4, 1, 0]]}}, "bad_dict"),
        ({"t": {"fields": [[1, "I", 4]]}}, "bad_dict"),
        ({"t": {"fields": [["v", 1, 4]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", True]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", 4, 0]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", 4, 1.0]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", 3]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "F", 2]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "X", 4]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "C", 0]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "I", 4], ["v", "I", 4]]}}, "bad_dict"),
        ({"t": {"fields": [["v", "C", 65537]]}}, "sisnet_record_bytes_max"),
        ({"t": {"fields": [["v", "C", 10**30]]}}, "sisnet_record_bytes_max"),
        ({"t": {"fields": [["v", "I", 1, TABLE_VALUES_MAX + 1]]}}, "sisnet_table_values_max"),
        (
            {str(n): {"fields": [["v", "I", 1]]} for n in range(TABLES_MAX + 1)},
            "sisnet_tables_max",
        ),
    ],
)
def test_a_bad_dict_is_refused_by_name(given: Any, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_tables(given, LIMIT_CODE_PREFIX)
    assert caught.value.code == code
