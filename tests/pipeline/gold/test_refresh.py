"""Test that gold tables are refreshed where silver changed, and nowhere else; twice does no harm."""

import fcntl
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.rows import after
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import (
    DEVICE_COMMANDS,
    FRAMES,
    LEDGER,
    MESSAGES,
    READINGS,
    RECORDS,
    TALLIES,
    LakeTable,
)
from wirelake.pipeline.commit.delta import commit_lock, live_files, open_table, replace_files
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.gold import refresh
from wirelake.pipeline.gold.refresh import refresh_ledger, refresh_minutes
from wirelake.pipeline.gold.schedule import Dirty


def put(lake: LocalStore, table: LakeTable, *rows: dict[str, Any]) -> None:
    """Write rows as a batch commits them."""
    data = pa.Table.from_pylist([{"day": row.get("at", after(0)).date(), **row} for row in rows], schema=table.schema)
    replace_files(
        lake,
        open_table(lake, table),
        table.name,
        write_rows(table, data, lake),
        [],
        data_change=True,
    )


def minute(at: datetime) -> int:
    us = int(at.timestamp()) * 1_000_000
    return us - us % 60_000_000


def dirty(table: LakeTable, *times: datetime) -> Dirty:
    return {table.name: {minute(at) for at in times}}


def message(seconds: float, **rest: Any) -> dict[str, Any]:
    return {"at": after(seconds), "protocol": "comet", "name": "auth", "direction": "in", "bytes": 7, **rest}


def test_minutes_that_changed_are_worked_out_again_and_others_stay(spark: SparkSession, lake: LocalStore) -> None:
    put(lake, MESSAGES, message(1), message(61))
    refresh_minutes(spark, lake, dirty(MESSAGES, after(1), after(61)))
    sql = "SELECT minute, frames FROM gold.traffic_minute ORDER BY minute"
    before = query(lake, sql).rows
    assert [frames for _, frames in before] == [1, 1]
    put(lake, MESSAGES, message(62), message(2), message(86_400 + 1))
    refresh_minutes(spark, lake, dirty(MESSAGES, after(62)))  # the others are not said to have changed
    assert [frames for _, frames in query(lake, sql).rows] == [1, 2]
    for _ in range(2):
        refresh_minutes(spark, lake, dirty(MESSAGES, after(2), after(62), after(86_400)))
        assert [frames for _, frames in query(lake, sql).rows] == [2, 2, 1]
    files = live_files(open_table(lake, MESSAGES), MESSAGES.name)
    assert len(files) == 3, "silver is only read"


def test_the_newest_of_a_device_is_kept_from_one_time_to_the_next(spark: SparkSession, lake: LocalStore) -> None:
    command = {
        "at": after(1),
        "seq": 1,
        "serial": "m",
        "device_type": 6,
        "direction": "in",
        "answer": False,
        "settled": True,
    }
    status = {"state": "complete", "command_type": 1, "error": 0, "fields": '{"status":{"state":3}}'}
    put(lake, DEVICE_COMMANDS, {**command, **status})
    refresh_minutes(spark, lake, dirty(DEVICE_COMMANDS, after(1)))
    put(lake, READINGS, {"at": after(61), "seq": 2, "serial": "m", "type": 1, "value": 230.5})
    put(lake, DEVICE_COMMANDS, {**command, **status, "at": after(61), "command_type": 4})
    refresh_minutes(spark, lake, dirty(READINGS, after(61)))
    assert query(lake, "SELECT serial, status, readings FROM gold.device_latest").rows == [
        ["m", '{"state":3}', '{"1":230.5}']
    ]


def test_bars_are_where_the_records_say_not_where_they_came(spark: SparkSession, lake: LocalStore) -> None:
    record = {"key": "k", "sdb": "now", "at": after(7200), "seq": 1, "fields": '{"newp":5}', "recorded_at": after(30)}
    put(lake, RECORDS, {**record, "day": after(30).date()})
    refresh_minutes(spark, lake, dirty(RECORDS, after(30)))
    assert query(lake, "SELECT minute, open, count FROM gold.bars_minute").rows == [["2026-01-02T12:00:00Z", 5.0, 1]]


def test_what_a_table_is_made_of_is_listed_between_two_batches(
    spark: SparkSession, lake: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the lock on the files: a ledger of tables with and without a batch would not balance."""
    row = {"at": after(0), "seq": 0, "protocol": "comet", "direction": "in"}
    put(lake, FRAMES, {**row, "event": "frame"})
    put(lake, MESSAGES, row)
    inputs: list[str] = []

    def files(lake: LocalStore, table: LakeTable, when: Any = None) -> list[FileAction]:
        if table is not LEDGER:
            with (lake.folder / "batch.lock").open() as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as a batch would want it
            inputs.append(table.name)
        return list_files(lake, table, when)

    list_files = refresh.table_files
    monkeypatch.setattr(refresh, "table_files", files)
    refresh_ledger(spark, lake, dirty(MESSAGES, after(0)))
    assert len(inputs) == 7
    with commit_lock(lake), (lake.folder / "batch.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.mark.parametrize("lost", [False, True])
def test_the_ledger_counts_whole_hours_where_they_lie(spark: SparkSession, lake: LocalStore, lost: bool) -> None:
    received = [{"at": after(n), "seq": n, "protocol": "comet", "direction": "in"} for n in range(3)]
    put(lake, FRAMES, *({**row, "event": "frame"} for row in received))
    put(lake, MESSAGES, *(received[1:] if lost else received))
    put(lake, TALLIES, {"hour": after(0), "protocol": "comet", "counted": 3, "received": 3, "settled": True})
    refresh_ledger(spark, lake, dirty(MESSAGES, after(2)))
    assert query(lake, "SELECT protocol, received, counted, decoded, balanced, why FROM gold.ledger").rows == [
        ["comet", 3, 3, 2, False, "received 3, but decoded + quarantined + waiting = 2"]
        if lost
        else ["comet", 3, 3, 3, True, None]
    ]
