"""Test the names that scripts outside the project depend on."""

from pathlib import Path

import duckdb
import pytest

from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import FORMER_NAMES, FRAMES, TABLES, LakeTable
from wirelake.log.interface import SCHEMA

PROMISED = {
    "bronze.frames": "seq at node protocol event direction session identity peer frame note",
    "silver.messages": "seq at protocol direction session identity kind name topic service op correlation status fields"
    " payload decoder",
    "silver.device_commands": "seq at protocol serial device_type command_no direction packets first_at done_at state"
    " command_type error device_time data fields",
    "silver.readings": "seq at protocol serial device_time type value",
    "silver.records": "seq at protocol service key sdb time fields",
    "silver.notifications": "seq at protocol",
    "silver.deliveries": "seq at protocol first_sent_at acked_at attempts state",
    "silver.calls": "seq at protocol requester service op asked_at answered_at latency_ms status",
    "silver.sessions": "seq at protocol opened_at closed_at reason frames_in frames_out bytes_in bytes_out",
    "silver.audit": "seq at protocol action outcome identity peer session target detail",
    "silver.quarantine": "seq at protocol reason offset frame",
    "gold.traffic_minute": "minute protocol name frames bytes errors",
    "gold.device_latest": "serial status readings",
    "gold.delivery_minute": "minute p50_ms p95_ms p99_ms",
    "gold.call_minute": "minute p50_ms p95_ms p99_ms",
    "gold.bars_minute": "minute key open high low close count",
    "gold.ledger": "hour protocol balanced",
}


# The reserved words of Trino; those of DuckDB come from DuckDB itself.
TRINO = """
alter and as auto between by case cast constraint create cross cube current_catalog current_date
current_path current_role current_schema current_time current_timestamp current_user deallocate
delete describe distinct drop else end escape except exists extract false for from full group
grouping having in inner insert intersect into is join json_array json_exists json_object json_query
json_table json_value left like listagg localtime localtimestamp natural normalize not null on or
order outer prepare recursive right rollup select skip table then trim true uescape union unnest
using values when where with
"""


@pytest.mark.parametrize("name", PROMISED)
def test_a_query_has_the_columns_that_were_promised(tmp_path: Path, name: str) -> None:
    found = query(LocalStore(tmp_path), f"SELECT * FROM {name}").columns
    assert set(PROMISED[name].split()) <= {column.name for column in found}


def test_no_column_is_a_keyword() -> None:
    kinds = ("reserved", "type_function")
    rows = duckdb.sql("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall()
    keywords = {word for word, kind in rows if kind in kinds} | set(TRINO.split())
    assert keywords >= {"offset", "select", "when"}
    names = {name for table in TABLES.values() for name in table.schema.names}
    assert names & keywords == set()
    assert names & set(FORMER_NAMES.values()) == set()


@pytest.mark.parametrize("name", TABLES)
def test_files_are_grouped_by_columns_that_are_there(name: str) -> None:
    table = TABLES[name]
    assert set(table.partition_by) <= set(table.schema.names)
    assert len(set(table.schema.names)) == len(table.schema.names)
    assert table.folder == name.replace(".", "/")


def test_bronze_is_the_log() -> None:
    """Check that bronze has the columns of the log, of which one has another name."""
    found = [field.with_name(FORMER_NAMES.get(field.name, field.name)) for field in FRAMES.schema][: len(SCHEMA)]
    assert [(field.name, field.type) for field in found] == [(field.name, field.type) for field in SCHEMA]


@pytest.mark.parametrize(
    "table", [table for table in TABLES.values() if table.has_open_rows], ids=lambda table: table.name
)
def test_open_rows_have_a_table_with_the_same_columns(table: LakeTable) -> None:
    opened = TABLES[table.open_table.name]
    assert opened.schema == table.schema
    assert (opened.is_open, opened.has_open_rows, opened.partition_by) == (True, False, ())
    assert (table.is_open, table.partition_by) == (False, ("day",))
