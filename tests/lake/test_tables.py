"""Test the names that scripts outside the project depend on."""

import pytest

from wirelake.lake.tables import FRAMES, TABLES
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
    "silver.quarantine": "seq at protocol reason offset frame",
    "gold.traffic_minute": "minute protocol name frames bytes errors",
    "gold.device_latest": "serial status readings",
    "gold.delivery_minute": "minute p50_ms p95_ms p99_ms",
    "gold.call_minute": "minute p50_ms p95_ms p99_ms",
    "gold.bars_minute": "minute key open high low close count",
    "gold.ledger": "hour protocol balanced",
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_table_has_the_columns_that_were_promised(name: str) -> None:
    assert set(PROMISED[name].split()) <= set(TABLES[name].schema.names)


@pytest.mark.parametrize("name", TABLES)
def test_files_are_grouped_by_columns_that_are_there(name: str) -> None:
    table = TABLES[name]
    assert set(table.partition_by) <= set(table.schema.names)
    assert len(set(table.schema.names)) == len(table.schema.names)
    assert table.folder == name.replace(".", "/")


def test_bronze_is_the_log() -> None:
    assert [field.name for field in FRAMES.schema][: len(SCHEMA)] == SCHEMA.names
    assert all(FRAMES.schema.field(field.name).type == field.type for field in SCHEMA)
