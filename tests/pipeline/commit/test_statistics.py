"""Test the statistics of files: readers must skip files by them, and must find every row."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALL_MINUTE, MESSAGES, TABLES, TALLIES, LakeTable
from wirelake.limits import LAKE_STATISTICS_CHARS_MAX
from wirelake.pipeline.commit.delta import DeltaWriter, table_properties
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.commit.statistics import ColumnStatistics, delta_statistics, round_up

AT = datetime(2030, 1, 1, 12, 0, 0, 123_456, UTC)
LONG = "é" * 5000  # longer than what a Parquet footer has statistics for
LARGEST = "\U0010ffff"
FILES = 6

Select = Callable[[Path, str], list[int]]  # (table, condition): the seqs


def messages(number: int) -> pa.Table:
    """Return the rows of one file: all values differ from those of other files, and some are null."""
    session, topic = f"s-{number}", None if number == 0 else f"@{number}" + "x" * 100
    rows: list[dict[str, Any]] = [
        {"seq": 10 * number, "received_at": AT + timedelta(hours=number), "session": session, "topic": topic},
        {"seq": 10 * number + 1, "received_at": AT + timedelta(hours=number, microseconds=1), "session": session},
    ]
    rows[1]["topic"] = LONG + str(number) if number == 1 else topic
    common = {"protocol": "comet", "day": date(2030, 1, 1), "name": f"name {number}", "fields": f'{{"n":{number}}}'}
    common |= {"service": LARGEST * 70 if number == 2 else f"é{number}", "bytes": number}
    return pa.Table.from_pylist([common | row for row in rows], MESSAGES.schema)


@pytest.fixture(params=[False, True], ids=["commits", "checkpoint"])
def written(request: pytest.FixtureRequest, lake: LocalStore) -> LocalStore:
    commits = DeltaWriter(lake, "app")
    for number in range(FILES):
        commits.commit(MESSAGES.name, number, write_rows(MESSAGES, messages(number), lake), [])
    if request.param:
        DeltaTable(lake.folder / MESSAGES.folder).create_checkpoint()
        for path in (lake.folder / MESSAGES.folder / "_delta_log").glob("*.json"):
            path.unlink()  # so that readers need the checkpoint
    return lake


def with_duckdb(folder: Path, condition: str) -> list[int]:
    sql = f"SELECT seq FROM silver.messages WHERE {condition} ORDER BY seq"
    return [row[0] for row in query(LocalStore(folder.parent.parent), sql).rows]


def with_polars(folder: Path, condition: str) -> list[int]:
    found = polars.scan_delta(str(folder)).filter(polars.sql_expr(condition)).collect()
    return list(found["seq"].sort().to_list())


def with_datafusion(folder: Path, condition: str) -> list[int]:
    sql = f"SELECT seq FROM messages WHERE {condition} ORDER BY seq"
    table = pa.table(QueryBuilder().register("messages", DeltaTable(folder)).execute(sql))
    return list(table["seq"].to_pylist())


def seqs_of(number: int) -> list[int]:
    return [10 * number, 10 * number + 1]


def with_pyarrow(folder: Path, condition: str) -> list[int]:
    """Select from a pyarrow dataset with DuckDB, as queries do for object stores that DuckDB cannot read."""
    database = duckdb.connect()
    database.register("messages", DeltaTable(folder).to_pyarrow_dataset())
    rows = database.execute(f"SELECT seq FROM messages WHERE {condition} ORDER BY seq").fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("select", [with_duckdb, with_polars, with_datafusion, with_pyarrow])
def test_filters_find_every_row(written: LocalStore, select: Select) -> None:
    folder = written.folder / MESSAGES.folder
    long_topic = "@3" + "x" * 100
    conditions = {
        "seq = 30": [30],
        "seq >= 51": [51],
        "session = 's-3'": seqs_of(3),
        f"topic = '{long_topic}'": seqs_of(3),
        f"topic = '{LONG}1'": [11],
        "topic IS NULL": seqs_of(0),
        "service = 'é4'": seqs_of(4),
        f"service >= '{LARGEST * 70}'": seqs_of(2),
        "name = 'name 3'": seqs_of(3),  # of these columns, nothing is known
        "bytes > 4": seqs_of(5),
        "identity IS NULL AND session = 's-1'": seqs_of(1),
        "fields = '{\"n\":2}'": seqs_of(2),
    }
    assert {condition: select(folder, condition) for condition in conditions} == conditions


def test_times_are_exact(written: LocalStore) -> None:
    folder = written.folder / MESSAGES.folder
    for at, expected in ((AT + timedelta(hours=3), [30]), (AT + timedelta(hours=3, microseconds=1), [31])):
        assert with_duckdb(folder, f"received_at = TIMESTAMPTZ '{at.isoformat()}'") == expected
        text = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert with_datafusion(folder, f"received_at = TIMESTAMP '{text}'") == expected
        frame = polars.scan_delta(str(folder)).filter(polars.col("received_at") == at).collect()
        assert frame["seq"].to_list() == expected


def test_what_is_rounded_is_no_answer(written: LocalStore) -> None:
    """Check that readers do not take a shortened text for the greatest one."""
    folder = written.folder / MESSAGES.folder
    table = polars.read_delta(str(folder))
    wanted = [table[name].max() for name in ("seq", "received_at", "session", "topic", "service")]
    columns = "max(seq), max(received_at), max(session), max(topic), max(service)"
    rows = pa.table(QueryBuilder().register("t", DeltaTable(folder)).execute(f"SELECT {columns} FROM t")).to_pylist()
    assert list(rows[0].values()) == wanted
    found = query(written, f"SELECT {columns} FROM silver.messages").rows[0]
    assert [found[0], *found[2:]] == [wanted[0], *wanted[2:]]


def test_files_are_skipped(written: LocalStore) -> None:
    table = DeltaTable(written.folder / MESSAGES.folder)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert len(actions) == FILES
    unknown = {1, 2}  # of values that are too long
    known = [f"s-{number}" for number in range(FILES) if number not in unknown]
    assert sorted(action["min.session"] for action in actions if action["min.session"]) == known
    (file,) = [action for action in actions if action["min.seq"] == 30]
    assert (file["max.seq"], file["null_count.topic"], file["null_count.seq"]) == (31, 0, 0)
    assert file["min.received_at"] == AT + timedelta(hours=3)
    assert file["max.received_at"] == AT + timedelta(hours=3, microseconds=1)
    assert len(file["max.topic"]) <= LAKE_STATISTICS_CHARS_MAX
    assert file["max.topic"] >= "@3" + "x" * 100
    kept = "s-3"
    for action in actions:
        if action["min.session"] not in (kept, None):
            (written.folder / MESSAGES.folder / action["path"]).unlink()
    assert len(with_duckdb(written.folder / MESSAGES.folder, f"session = '{kept}'")) == 2, "the others are not opened"
    assert len(with_polars(written.folder / MESSAGES.folder, f"session = '{kept}'")) == 2
    assert len(with_datafusion(written.folder / MESSAGES.folder, f"session = '{kept}'")) == 2


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_properties_name_the_columns_with_statistics(table: LakeTable) -> None:
    named = (table_properties(table).get("delta.dataSkippingStatsColumns") or "").split(",")
    assert [name for name in named if name] == list(table.statistics)
    assert not set(table.statistics) & set(table.partition_by)


def test_tables_have_those_of_the_columns_that_they_have() -> None:
    assert MESSAGES.statistics == ("seq", "received_at", "session", "topic", "service")
    assert CALL_MINUTE.statistics == ("service",)
    assert TALLIES.statistics == ()
    assert table_properties(TALLIES)["delta.dataSkippingNumIndexedCols"] == "0"


@given(st.text(min_size=1, max_size=200))
def test_a_rounded_text_is_not_less(text: str) -> None:
    rounded = round_up(text)
    assert rounded is not None
    assert rounded >= text
    assert rounded.encode(errors="surrogatepass") >= text.encode(errors="surrogatepass")
    assert len(rounded) <= LAKE_STATISTICS_CHARS_MAX


def test_the_greatest_text_has_no_greater_one() -> None:
    assert round_up(LARGEST * 64) == LARGEST * 64
    assert round_up(LARGEST * 65) is None
    assert round_up("\ud7ff" * 65) == "\ud7ff" * 63 + "\ue000"


def test_statistics_are_written_as_delta_has_them() -> None:
    columns = {"seq": ColumnStatistics(0, 1, 2), "topic": ColumnStatistics(3)}
    assert json.decode(delta_statistics(3, columns)) == {
        "numRecords": 3,
        "minValues": {"seq": 1},
        "maxValues": {"seq": 2},
        "nullCount": {"seq": 0, "topic": 3},
    }
    assert delta_statistics(3, {}) == '{"numRecords":3}'
