"""Row filters: a query reads the rows that it may read, and learns nothing about others."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from msgspec import json

from lake.writing import write
from wirelake.errors import InputError
from wirelake.lake.field_views import field_views
from wirelake.lake.query import QueryResult
from wirelake.lake.query_process import QueryPool
from wirelake.lake.row_filters import check_row_patterns, row_filters_of
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, MESSAGES, READINGS
from wirelake.roles import Role, RowCondition, RowFilter, row_conditions

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = date(2026, 1, 2)
VIEW = field_views()["fields.comet_report_environ"]
NAMES = ("ann", "ann's", "annex", "bob", "a/b", "12\n3", None)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryPool]:
    folder = tmp_path_factory.mktemp("lake")
    place = {"received_at": AT, "day": DAY}
    write(folder, READINGS, *({"seq": n, "serial": name, "value": 1.0, **place} for n, name in enumerate(NAMES)))
    messages = [
        {"seq": n, "identity": name, "protocol": VIEW.protocol, "name": VIEW.frame, "fields": "{}", **place}
        for n, name in enumerate(NAMES)
    ]
    write(folder, MESSAGES, *messages)
    write(folder, CALLS, *({"requester": name, "op": "settled", "day": DAY} for name in NAMES))
    write(folder, CALLS.open_table, *({"requester": name, "op": "open"} for name in NAMES))
    made = QueryPool(LocalStore(folder))
    yield made
    made.close()


def run(pool: QueryPool, sql: str, filters: dict[str, RowFilter]) -> list[list[object]]:
    return json.decode(pool.query(sql, 100, row_filters=filters).run(), type=QueryResult).rows


def only(table: str, name: str, **columns: str) -> dict[str, RowFilter]:
    return {table: (row_conditions(columns, name),)}


@pytest.mark.parametrize(
    ("pattern", "identity", "read"),
    [
        ("{identity}", "ann", ["ann"]),
        ("{identity}", "ann's", ["ann's"]),
        ("{identity}*", "ann", ["ann", "ann's", "annex"]),
        ("a*", "", ["ann", "ann's", "annex"]),
        ("a**", "", ["a/b", "ann", "ann's", "annex"]),
        ("1*", "", ["12\n3"]),
        ("**", "", sorted(filter(None, NAMES))),
        ("*.*", "", []),
        ("{identity}", ".*", []),
        ("{identity}", "' OR true --", []),
        ("{identity}*", "' OR true --", []),
    ],
)
def test_rows_whose_value_matches(pool: QueryPool, pattern: str, identity: str, read: list[str]) -> None:
    filters = only("silver.readings", identity, serial=pattern)
    rows = run(pool, "SELECT serial FROM silver.readings ORDER BY serial", filters)
    assert [serial for (serial,) in rows] == read


def test_all_conditions_of_one_role_or_those_of_another(pool: QueryPool) -> None:
    ann = (RowCondition("serial", "ann", False), RowCondition("value", "1.0", False))
    none = (RowCondition("serial", "bob", False), RowCondition("value", "2.0", False))
    sql = "SELECT serial FROM silver.readings ORDER BY serial"
    assert run(pool, sql, {"silver.readings": (ann, none)}) == [["ann"]]
    assert run(pool, sql, {"silver.readings": (ann, (RowCondition("serial", "bob", False),))}) == [["ann"], ["bob"]]


def test_open_rows_are_limited_like_settled_ones(pool: QueryPool) -> None:
    filters = row_filters_of(
        lambda table: (row_conditions({"requester": "{identity}"}, "bob"),) if table == CALLS.name else None
    )
    assert run(pool, "SELECT requester, op FROM silver.calls ORDER BY op", filters) == [
        ["bob", "open"],
        ["bob", "settled"],
    ]
    assert run(pool, "SELECT requester, op FROM silver.open_calls", filters) == [["bob", "open"]]


def test_views_of_fields_have_the_rows_of_messages(pool: QueryPool) -> None:
    sql = "SELECT identity FROM silver.messages ORDER BY identity"
    filters = only("silver.messages", "bob", identity="{identity}")
    assert run(pool, sql, filters) == [["bob"]]
    sql = f"SELECT identity FROM {VIEW.name}"
    assert run(pool, sql, filters) == [["bob"]]
    assert len(run(pool, sql, {})) == len(NAMES)


def test_the_next_query_of_the_same_process_has_its_own_filter(pool: QueryPool) -> None:
    sql = "SELECT count(*) FROM silver.readings"
    assert run(pool, sql, only("silver.readings", "ann", serial="{identity}")) == [[1]]
    assert run(pool, sql, {}) == [[len(NAMES)]]
    assert run(pool, sql, only("silver.readings", "nobody", serial="{identity}")) == [[0]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM silver.readings WHERE CAST(serial AS INT) = 1",
        "SELECT count(*) FROM silver.readings WHERE error(serial) IS NULL",
        "SELECT count(*) FROM silver.readings WHERE serial = 'bob' AND error('bob is there') IS NULL",
        "SELECT CAST(serial AS INT) FROM silver.readings WHERE seq > 0",
        "SELECT max(CAST(serial AS INT)) FROM silver.readings",
        "SELECT count(*) FROM silver.readings JOIN range(9) AS r(n) ON CAST(serial AS INT) = n",
        "SELECT count(*) FROM (SELECT * FROM silver.readings LIMIT 5) WHERE CAST(serial AS INT) = 1",
    ],
)
@pytest.mark.parametrize("pattern", ["{identity}", "{identity}*", "*{identity}"])
def test_an_error_does_not_reveal_a_row_that_may_not_be_read(pool: QueryPool, sql: str, pattern: str) -> None:
    run(pool, sql, only("silver.readings", "anna", serial=pattern))  # does not fail: there is no row
    with pytest.raises(InputError):
        run(pool, sql, {})


def test_statistics_do_not_reveal_other_rows(pool: QueryPool) -> None:
    filters = only("silver.readings", "bob", serial="{identity}")
    assert run(pool, "SELECT min(serial), max(serial), count(*) FROM silver.readings", filters) == [["bob", "bob", 1]]
    summary = run(pool, "SELECT column_name, min, max FROM (SUMMARIZE silver.readings)", filters)
    assert ["serial", "bob", "bob"] in summary


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({"silver.nothing": {"identity": "x"}}, r"roles.x.rows.silver.nothing: no such table: there are bronze"),
        ({"silver.open_calls": {"requester": "x"}}, r"roles.x.rows.silver.open_calls: no such table"),
        ({"fields.comet_auth": {"identity": "x"}}, "have the rows of silver.messages"),
        ({"silver.calls": {"colour": "x"}}, "roles.x.rows.silver.calls.colour: no such column: there are"),
        ({"silver.calls": {}}, "roles.x.rows.silver.calls: no column is named"),
    ],
)
def test_errors_name_the_setting(rows: dict[str, dict[str, str]], error: str) -> None:
    with pytest.raises(InputError, match=error):
        check_row_patterns({"x": Role(rows=rows)})
    check_row_patterns({"x": Role(rows={"silver.calls": {"requester": "{identity}"}})})
