"""Test the way from real clients of every protocol to the last table: the tables have what was sent."""

import asyncio
from pathlib import Path

import polars
from deltalake import DeltaTable
from gateway.running_gateway import running_gateway
from pyspark.sql import SparkSession
from simulator.test_simulation import ALL_LISTENERS, BAD_WEATHER, Watched, of, world_of

from pipeline.checking import check_tables, rows_of
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.simulator.report import Report
from wirelake.simulator.simulation import Plan, simulate


async def spoken(folder: Path) -> Report:
    plan = Plan(devices=16, rate=60, seconds=2, seed=5, keep=True)
    async with running_gateway(folder, *ALL_LISTENERS, apostol={"receipt_s": 0.4, "resends_max": 12}) as running:
        return await simulate(world_of(running, seed=5, faults=BAD_WEATHER), plan, Watched())


def test_what_a_fleet_sent_is_what_the_tables_say(spark: SparkSession, tmp_path: Path) -> None:
    report = asyncio.run(spoken(tmp_path))
    data = tmp_path / "data"
    Job(spark, data, JobSettings(once=True, batch_rows=700), gold=True).run()
    check_tables(data)
    _check_silver(data, report)
    _check_gold(data, report)
    _check_that_the_ledger_can_fail(data)


def _check_silver(data: Path, report: Report) -> None:
    commands = rows_of(data, "silver.device_commands")
    assert set(commands["state"]) == {"complete"}
    reports = commands.filter(~polars.col("answer") & (polars.col("direction") == "in"))
    for kind, command_type in (("status", 1), ("readings", 4)):
        assert (
            len(reports.filter(polars.col("command_type") == command_type))
            == report.counts_of("apostol", kind).acknowledged
        )
    measured = rows_of(data, "silver.readings")
    assert set(measured["serial"]) == set(reports.filter(polars.col("command_type") == 4)["serial"])
    assert len(rows_of(data, "silver.records")) == report.counts_of("sisnet", "set").acknowledged
    published = rows_of(data, "silver.notifications").filter(~polars.col("topic").str.starts_with("@devices/"))
    assert len(published) == of(report, "publish").acknowledged
    deliveries = rows_of(data, "silver.deliveries")
    phones = deliveries.filter(polars.col("protocol") == "comet")
    assert set(phones["state"]) == {"acked"}
    assert len(phones) == report.counts_of("comet", "notification").acknowledged
    assert len(deliveries) == deliveries.select("id", "identity").n_unique()
    sessions = rows_of(data, "silver.sessions")
    assert sessions["closed_at"].null_count() == 0
    for protocol in report.members.keys() - {"apostol"}:
        assert len(sessions.filter(polars.col("protocol") == protocol)) == report.connections[protocol]
    calls = rows_of(data, "silver.calls")
    assert set(calls["status"]).isdisjoint({"open", "unanswered"})
    requests = calls.filter((polars.col("service") == "sim-adder") | polars.col("service").str.starts_with("magline/"))
    assert len(requests) == of(report, "ask").acknowledged


def _check_gold(data: Path, report: Report) -> None:
    lake = LocalStore(data / "lake")
    ledger = rows_of(data, "gold.ledger")
    assert ledger["balanced"].all(), ledger.filter(~polars.col("balanced"))["why"].to_list()
    assert ledger["uncounted"].sum() == 0, "the gateway ended in peace: it counted to the last frame"
    assert ledger["received"].sum() == ledger["counted"].sum()
    frames = query(lake, "SELECT sum(frames) FROM gold.traffic_minute").rows[0][0]
    assert frames == len(rows_of(data, "silver.messages")) + len(rows_of(data, "silver.quarantine"))
    latest = query(lake, "SELECT serial FROM gold.device_latest WHERE status IS NOT NULL ORDER BY serial").rows
    assert len(latest) == report.members["apostol"], "every meter tells its status first"
    for gold, silver, count in (
        ("gold.call_minute", "silver.calls", "calls"),
        ("gold.delivery_minute", "silver.deliveries", "deliveries"),
        ("gold.bars_minute", "silver.records", "count"),
    ):
        assert rows_of(data, gold)[count].sum() == len(rows_of(data, silver)), gold


def _check_that_the_ledger_can_fail(data: Path) -> None:
    """Check that rows removed by hand are found missing."""
    folder = data / "lake" / TABLES["silver.messages"].folder
    lost = DeltaTable(str(folder)).delete("protocol = 'comet' AND direction = 'in'")["num_deleted_rows"]
    assert lost
    paths = DataPaths.of(data)
    GoldTables(paths.lake, paths.checkpoint, open_stream(paths).app).check()
    wrong = rows_of(data, "gold.ledger").filter(~polars.col("balanced"))
    assert set(wrong["protocol"]) == {"comet"}
    assert sum(wrong["received"].to_list()) - sum(wrong["decoded"].to_list()) == lost
