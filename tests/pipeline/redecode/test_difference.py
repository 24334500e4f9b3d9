from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from wirelake.lake.tables import AUDIT, MESSAGES, READINGS, LakeTable
from wirelake.pipeline.redecode.difference import Difference, compare_row_sets, compare_rows, is_known

AT = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
MINUTE_US = int(AT.replace(second=0).timestamp()) * 1_000_000
DAY = date(2030, 1, 1)


def rows(table: LakeTable, *given: dict[str, Any]) -> pa.Table:
    common = {"node": "n", "received_at": AT, "protocol": "comet", "decoder": "comet/1", "day": DAY}
    return pa.Table.from_pylist([common | each for each in given], table.schema)


def test_rows_are_known_by_node_and_seq() -> None:
    old = rows(
        MESSAGES,
        {"seq": 1, "topic": "a"},
        {"seq": 2, "topic": "a"},
        {"seq": 3, "topic": None, "payload": b"x"},
        {"seq": 4},
        {"seq": 1, "node": "other", "topic": "a"},
    )
    new = rows(
        MESSAGES,
        {"seq": 1, "topic": "a"},
        {"seq": 2, "topic": "a", "decoder": "comet/2"},
        {"seq": 3, "topic": "b", "payload": b"y", "decoder": "comet/2"},
        {"seq": 1, "node": "third", "topic": "a"},
    )
    found = compare_rows(MESSAGES, old, new)
    assert (found.same, found.relabelled, found.changed, found.new, found.removed) == (1, 1, 1, 1, 2)
    assert found.fields == {"topic": 1, "payload": 1}
    assert (found.before, found.after) == (5, 4)
    assert (found.days, found.dirty_us) == ({"2030-01-01"}, {MINUTE_US})


def test_another_decoder_replaces_files_but_changes_no_sum() -> None:
    found = compare_rows(MESSAGES, rows(MESSAGES, {"seq": 1}), rows(MESSAGES, {"seq": 1, "decoder": "comet/2"}))
    assert (found.relabelled, found.days, found.dirty_us) == (1, {"2030-01-01"}, set())
    assert compare_rows(MESSAGES, rows(MESSAGES, {"seq": 1}), rows(MESSAGES, {"seq": 1})) == Difference(same=1)


def test_a_row_that_was_there_twice_goes_once() -> None:
    found = compare_rows(MESSAGES, rows(MESSAGES, {"seq": 1}, {"seq": 1}), rows(MESSAGES, {"seq": 1}))
    assert (found.same, found.removed, found.days) == (1, 1, {"2030-01-01"})


def test_rows_without_names_are_counted() -> None:
    one = {"seq": 1, "type": 1, "value": 1.5}
    old = rows(READINGS, one, one, {"seq": 2, "value": None}, {"seq": 3, "value": 4.0})
    new = rows(READINGS, one, {"seq": 2, "value": None, "decoder": "x/2"}, {"seq": 3, "value": 5.0})
    found = compare_row_sets(READINGS, old, new)
    assert (found.same, found.relabelled, found.removed, found.new) == (1, 1, 2, 1)
    assert compare_row_sets(READINGS, old, old) == Difference(same=4)
    assert compare_row_sets(READINGS, READINGS.schema.empty_table(), READINGS.schema.empty_table()) == Difference()


def test_which_rows_others_know() -> None:
    some = rows(MESSAGES, {"seq": 1}, {"seq": 2}, {"seq": 1, "node": "m"})
    assert is_known(some, rows(MESSAGES, {"seq": 1}, {"seq": 2, "node": "m"})).tolist() == [True, False, False]


def test_differences_add_up() -> None:
    whole = Difference(same=1, fields={"topic": 1}, days={"a"})
    whole.add(Difference(same=2, changed=3, fields={"topic": 2, "op": 1}, days={"b"}, dirty_us={7}))
    assert whole == Difference(same=3, changed=3, fields={"topic": 3, "op": 1}, days={"a", "b"}, dirty_us={7})


def test_rows_that_no_decoder_wrote_are_counted_too() -> None:
    old = rows(AUDIT, {"seq": 1, "action": "login"}, {"seq": 2, "action": "sql"})
    new = rows(AUDIT, {"seq": 1, "action": "login"}, {"seq": 3, "action": "sql"})
    found = compare_row_sets(AUDIT, old, new)
    assert (found.same, found.relabelled, found.removed, found.new, found.days) == (1, 0, 1, 1, {"2030-01-01"})
