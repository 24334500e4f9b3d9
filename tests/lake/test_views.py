"""Test what queries see of tables: settled and open rows, former names, and tables of the previous version."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lake.writing import write
from wirelake.lake.query import list_tables, query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, QUARANTINE, TALLIES, LakeTable
from wirelake.lake.views import is_delta_table, is_written

AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
DAY = date(2026, 1, 2)
AT_TEXT = "2026-01-02T03:04:05.000678Z"


def write_previous(lake: Path, table: LakeTable, *rows: dict[str, object]) -> None:
    """Write a table as the previous version did."""
    names = {"received_at": "at", "byte_offset": "offset"}
    fields = [field.with_name(names.get(field.name, field.name)) for field in table.schema]
    partition_by = list(table.partition_by)
    if table.has_open_rows:
        fields.insert(-1, pa.field("settled", pa.bool_()))
        partition_by.insert(0, "settled")
    data = pa.Table.from_pylist(list(rows), pa.schema(fields))
    write_deltalake(lake / table.folder, data, mode="append", partition_by=partition_by)


def test_settled_and_open_rows_are_one_table(tmp_path: Path) -> None:
    lake = LocalStore(tmp_path)
    counts = "SELECT count(*), count(*) FILTER (WHERE settled) FROM silver.calls"
    assert query(lake, counts).rows == [[0, 0]]
    write(tmp_path, CALLS.open_table, {"seq": 2, "received_at": AT, "day": DAY, "status": "open"})
    assert query(lake, counts).rows == [[1, 0]]
    assert is_written(lake, CALLS)
    assert not is_delta_table(lake, CALLS)
    write(tmp_path, CALLS, {"seq": 1, "received_at": AT, "day": DAY, "status": "ok"})
    rows = query(lake, "SELECT seq, status, settled, day FROM silver.calls WHERE at = received_at ORDER BY seq").rows
    assert rows == [[1, "ok", True, "2026-01-02"], [2, "open", False, "2026-01-02"]]
    assert query(lake, "SELECT seq FROM silver.calls WHERE NOT settled").rows == [[2]]
    assert query(lake, "SELECT seq, received_at FROM silver.open_calls").rows == [[2, AT_TEXT]]
    sizes = {info.name: info.rows for info in list_tables(lake)}
    assert (sizes["silver.calls"], sizes["silver.open_calls"]) == (1, 1)


def test_former_names_come_last(tmp_path: Path) -> None:
    row = {"seq": 1, "received_at": AT, "protocol": "comet", "byte_offset": 7, "day": DAY}
    write(tmp_path, QUARANTINE, row)
    lake = LocalStore(tmp_path)
    found = query(lake, 'SELECT seq, at, protocol, "offset", byte_offset FROM silver.quarantine WHERE "offset" = 7')
    assert found.rows == [[1, AT_TEXT, "comet", 7, 7]]
    names = [column.name for column in query(lake, "SELECT * FROM silver.quarantine").columns]
    assert names == [*QUARANTINE.schema.names, "at", "offset"]


@pytest.mark.parametrize("migrated", [False, True])
def test_tables_of_the_previous_version_can_be_queried(tmp_path: Path, migrated: bool) -> None:
    row = {"seq": 1, "day": DAY, "protocol": "comet"}
    if migrated:
        write(tmp_path, CALLS, {**row, "received_at": AT})
        write(tmp_path, CALLS.open_table, {**row, "received_at": AT, "seq": 2})
        write(tmp_path, QUARANTINE, {**row, "received_at": AT, "byte_offset": 3})
        write(tmp_path, TALLIES, {"hour": AT, "day": DAY, "received": 1})
        write(tmp_path, TALLIES.open_table, {"hour": AT, "day": DAY, "received": 2})
    else:
        write_previous(
            tmp_path, CALLS, {**row, "at": AT, "settled": True}, {**row, "seq": 2, "at": AT, "settled": False}
        )
        write_previous(tmp_path, QUARANTINE, {**row, "at": AT, "offset": 3})
        tally = {"hour": AT, "day": DAY}
        write_previous(
            tmp_path, TALLIES, {**tally, "received": 1, "settled": True}, {**tally, "received": 2, "settled": False}
        )
    lake = LocalStore(tmp_path)
    assert query(lake, "SELECT seq, settled, received_at, at FROM silver.calls ORDER BY seq").rows == [
        [1, True, AT_TEXT, AT_TEXT],
        [2, False, AT_TEXT, AT_TEXT],
    ]
    assert query(lake, 'SELECT byte_offset, "offset", at FROM silver.quarantine').rows == [[3, 3, AT_TEXT]]
    assert query(lake, "SELECT received, settled FROM silver.tallies ORDER BY ALL").rows == [[1, True], [2, False]]


def test_a_column_that_an_earlier_version_did_not_have_is_null(tmp_path: Path) -> None:
    fields = [field for field in QUARANTINE.schema if field.name != "text"]
    rows = pa.Table.from_pylist([{"seq": 1, "received_at": AT, "day": DAY, "protocol": "comet"}], pa.schema(fields))
    write_deltalake(tmp_path / QUARANTINE.folder, rows, partition_by=["protocol", "day"])
    found = query(LocalStore(tmp_path), "SELECT seq, text, at FROM silver.quarantine").rows
    assert found == [[1, None, AT_TEXT]]
