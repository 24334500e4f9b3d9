import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import InputError
from wirelake.services.tables import LOOSE, LooseTable, PackedTable, read_layout, table_of
from wirelake.state.records import LayoutField

FIELDS = [["time", "I", 8, 1], ["price", "F", 8, 1], ["bids", "I", 2, 2], ["name", "C", 12, 1]]
NUMBERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(
        NUMBERS,
        st.floats(allow_nan=False),
        st.lists(st.integers(-(2**15), 2**15 - 1), min_size=2, max_size=2),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
    ).map(list)
)
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), st.text("aä\0"))
OBJECTS = st.lists(
    st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4).map(lambda each: {"time": 7, **each}), min_size=1
)


def stored(table: PackedTable | LooseTable, values: list[Any]) -> list[bytes]:
    return [record.data for record in table.records(values)]


@given(ROWS)
def test_what_is_packed_comes_back(rows: list[Any]) -> None:
    table = read_layout("t", FIELDS)
    assert table.rows(stored(table, rows)) == rows
    assert [record.time for record in table.records(rows)] == [row[0] for row in rows]
    objects = [dict(zip(table.names, row, strict=True)) for row in rows]
    assert table.records(objects) == table.records(rows)
    assert table.unpack(b"".join(stored(table, rows))) == table.records(rows)


@given(OBJECTS, OBJECTS)
def test_what_a_table_without_a_layout_is_given_comes_back(first: list[Any], later: list[Any]) -> None:
    empty = LooseTable("t", ())
    before = empty.with_fields_of(first)
    after = before.with_fields_of(later)
    assert after.names[: len(before.names)] == before.names, "fields only come behind the others"
    assert after.with_fields_of(first + later) is after
    rows = after.rows(stored(before, first) + stored(after, later))
    assert rows == [[each.get(name) for name in after.names] for each in first + later]


def test_a_table_is_made_again_from_its_layout() -> None:
    packed = read_layout("t", FIELDS)
    assert isinstance(table_of("t", packed.layout), PackedTable)
    assert table_of("t", packed.layout).layout == packed.layout
    loose = table_of("t", (LayoutField("a", LOOSE, 0, 1),))
    assert isinstance(loose, LooseTable)
    assert loose.names == ("a",)
    assert table_of("t", None).names == ()


@pytest.mark.parametrize(
    "fields", [{"time": ["I", 8], "x": ["F", 4, 2]}, {"fields": [["time", "I", 8], ["x", "F", 4, 2]]}]
)
def test_layouts_are_written_in_several_ways(fields: dict[str, Any]) -> None:
    assert read_layout("t", fields).layout == (LayoutField("time", "I", 8, 1), LayoutField("x", "F", 4, 2))


@pytest.mark.parametrize("time", [True, "7", [7], float("nan"), float("inf"), 1e300])
def test_a_time_is_a_number(time: Any) -> None:
    with pytest.raises(InputError, match="time"):
        LooseTable("t", ("time",)).records([{"time": time}])


def test_times_with_a_fraction_are_ordered_by_their_whole_part() -> None:
    table = LooseTable("t", ("time",))
    assert [record.time for record in table.records([[-1.5], [2.9], []])] == [-2, 2, 0]
    assert [record.time for record in read_layout("t", [["time", "F", 8]]).unpack(struct.pack("<d", 2.9))] == [2]


def test_half_a_record_is_refused() -> None:
    with pytest.raises(InputError, match="the size of the data, 4, is not a multiple of the record size"):
        read_layout("t", FIELDS).unpack(b"half")


def test_a_table_has_a_bounded_number_of_fields() -> None:
    with pytest.raises(InputError, match="more than 1024 fields"):
        LooseTable("t", ()).with_fields_of([{f"f{number}": 1 for number in range(1025)}])
