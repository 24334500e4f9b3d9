"""Test the way from real clients, through a real gateway's log, to the tables."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from gateway.running_gateway import HOST, running_gateway
from simulator.test_simulation import ALL_LISTENERS, BAD_WEATHER, Watched, world_of

from pipeline.histories import BucketRun, batch_of, numbered, record
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.serving import ServiceRequest
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.pipeline.stateful.events import EVENT_SCHEMA, bucket_of
from wirelake.pipeline.stateful.reduce import events_of
from wirelake.simulator.report import Report
from wirelake.simulator.simulation import Plan, simulate

BUCKETS = 4
BLOCKS = 50
APP = ("app", "t0ken")


def settled(folder: Path, keys: dict[str, bytes]) -> BucketRun:
    """Use blocks of the log as spans, several of them as a batch."""
    bucketed = BucketRun(BUCKETS, keys)
    blocks = list(LogReader(folder / "data" / "log").read())
    for first in range(0, len(blocks), BLOCKS):
        spans = blocks[first : first + BLOCKS]
        items = [events_of(span, decode_batch(span), BUCKETS) for span in spans]
        now_us = max(pc.max(span["at"]).cast(pa.int64()).as_py() for span in spans)
        bucketed.events(pa.Table.from_batches(items, EVENT_SCHEMA), now_us)
    return bucketed


async def test_a_fleet_in_bad_weather_is_all_there(tmp_path: Path) -> None:
    keys: dict[str, bytes] = {}

    async def story() -> Report:
        plan = Plan(devices=16, rate=60, seconds=2, seed=5, keep=True)
        async with running_gateway(tmp_path, *ALL_LISTENERS, apostol={"receipt_s": 0.4, "resends_max": 12}) as running:
            report = await simulate(world_of(running, seed=5, faults=BAD_WEATHER), plan, Watched())
            keys.update({each.serial: each.key for each in running.gateway.state.devices.list() if each.key})
            return report

    report = await story()
    tables = settled(tmp_path, keys)
    for row in tables.rows("silver.tallies"):
        assert row["counted"] == row["received"] == row["decoded"] + row["quarantined"], row
        assert row["counted_out"] == row["sent"], row
    assert {row["status"] for row in tables.rows("silver.calls")} & {"open", "unanswered"} == set()
    assert all(row["settled"] and row["reason"] for row in tables.rows("silver.sessions"))
    deliveries = tables.rows("silver.deliveries")
    assert len(deliveries) == len({(row["id"], row["identity"]) for row in deliveries})
    acknowledged = [report.counts_of("apostol", kind).acknowledged for kind in ("status", "readings")]
    commands = tables.rows("silver.device_commands")
    complete = Counter(row["command_type"] for row in commands if row["state"] == "complete")
    assert [complete[1], complete[4]] == acknowledged, "each report once, whatever the network did to its packets"
    assert {row["state"] for row in commands} == {"complete"}
    assert len(tables.rows("silver.records")) == report.counts_of("sisnet", "set").acknowledged
    assert tables.counts.keys() <= {"packets_repeated", "acks_repeated", "sent_after_ack"}


async def added(_request: ServiceRequest) -> dict[str, int]:
    return {"sum": 3}


async def test_services_asked_by_magline_and_answered_by_esnp(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "esnp", "magline", identities=[APP]) as running:
        esnp = EsnpClient(HOST, running.port("esnp"), *APP)
        magline = MaglineClient(HOST, running.port("magline"), *APP)
        async with esnp, magline:
            await esnp.register("magline/17", added)
            await magline.call(17, b"1+2")
            await magline.publish("@news", "hi")
            await esnp.ping()
    calls = settled(tmp_path, {}).rows("silver.calls")
    found = Counter((row["protocol"], row["service"], row["op"], row["status"], row["requester"]) for row in calls)
    assert found[("magline", "magline/17", "call", "ok", "app")] == 1
    assert found[("magline", "wirelake", "publish", "ok", "app")] == 1
    assert found[("magline", "wirelake", "login", "ok", "app")] == 1
    assert found[("esnp", "wirelake", "register", "ok", "app")] == 1
    assert found[("esnp", "wirelake", "ping", "ok", "app")] == 1
    assert all(row["latency_ms"] is not None for row in calls)


def test_a_bucket_is_the_same_everywhere() -> None:
    assert [bucket_of(key, 8) for key in ("", "a", "s-1", "in/6/=A1")] == [0, 3, 6, 1]


def test_of_nothing_comes_nothing() -> None:
    nothing = batch_of([])
    assert events_of(nothing, decode_batch(nothing), BUCKETS).num_rows == 0
    (settled_nothing, *_) = BucketRun().events(EVENT_SCHEMA.empty_table(), 5)
    assert (settled_nothing.final, settled_nothing.open) == ({}, {})


def test_what_concerns_everybody_is_in_every_bucket() -> None:
    start = batch_of(numbered([record("counters", note={"start": True, "hours": {}})]))
    items = events_of(start, decode_batch(start), BUCKETS).to_pylist()
    found = Counter((row["kind"], row["bucket"]) for row in items if row["name"] == "start")
    assert found == {(kind, bucket): 1 for kind in ("call", "record", "session") for bucket in range(BUCKETS)}
