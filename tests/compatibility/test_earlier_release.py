"""This release opens the data folder and settings of an earlier one, as its programs left them.

earlier-release.tar.xz has its wirelake.toml with every key of that time, and its data folder. Clients of all protocols
were connected to the gateway, the pipeline ran once while some of them still were and a call was open, more requests
and publications followed, and the gateway was stopped. All tokens and keys in it were made for it.
"""

import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import polars
import pytest
import redis.asyncio
from cli.serving import wirelake
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from pipeline.checking import check_tables, logged, rows_of

from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.config import Settings, default_settings, load
from wirelake.errors import RefusedError
from wirelake.lake.progress import read_progress
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES

ARCHIVE = Path(__file__).parent / "earlier-release.tar.xz"
TOKEN = "throw-away"
METER_KEY = bytes(range(16))
LISTENERS = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
OPEN_TABLES = {name for name, table in TABLES.items() if table.is_open}
NEW_TABLES = {"silver.audit", "silver.batches", "gold.counts_hour", *OPEN_TABLES}  # added since
EMPTY_TABLES = {"silver.quarantine"}  # had no rows, and so no files
PIPELINE_S = 300.0  # only a failing test waits so long


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Extract the folder with wirelake.toml and data/."""
    with tarfile.open(ARCHIVE) as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(tmp_path, **safely)  # noqa: S202 (our own)
    return tmp_path


@pytest.fixture
def data(folder: Path) -> Path:
    return folder / "data"


def read_settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "wirelake.toml").read_text())


def gateway(folder: Path) -> Any:
    """Run this release's gateway with the earlier settings, except for the ports."""
    sections = {name: value for name, value in read_settings(folder).items() if name not in {"data", "listen"}}
    return running_gateway(folder, *LISTENERS, **sections)


def pick(settings: Settings, like: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the keys that the earlier release had."""
    values = msgspec.json.decode(msgspec.json.encode(settings))
    return {
        section: {key: values[section][key] for key in keys} if isinstance(keys, dict) else values[section]
        for section, keys in like.items()
    }


def test_settings_have_their_values(folder: Path) -> None:
    written = read_settings(folder)
    loaded = load(folder / "wirelake.toml", environment={})
    assert pick(loaded, written) == written
    assert len(written) == 14
    unchanged = [
        f"{section}.{key}"
        for section, keys in written.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
        if pick(default_settings(), {section: {key: value}}) == {section: {key: value}}
    ]
    assert len(unchanged) < 15, "most differ from the defaults, which they would have if they were ignored"


def test_settings_in_variables_have_their_values(folder: Path) -> None:
    written = read_settings(folder)
    environment = {
        f"WIRELAKE_{section}_{key}".upper(): value if isinstance(value, str) else json.dumps(value)
        for section, keys in written.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
    }
    assert pick(load(environment=environment), written) == written


async def test_identities_log_in_by_every_protocol(folder: Path) -> None:
    server_key = load_pem_private_key((folder / "data" / "keys" / "magline.pem").read_bytes(), None).public_key()
    pinned = server_key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    async with gateway(folder) as running:
        async with (
            CometClient(HOST, running.port("comet"), "phone", TOKEN, secret_bytes=32) as phone,
            MaglineClient(HOST, running.port("magline"), "box", TOKEN, pinned=pinned) as box,
            EsnpClient(HOST, running.port("esnp"), "station", TOKEN) as station,
            SisnetClient(f"ws://{HOST}:{running.port('sisnet')}", "desk", TOKEN) as desk,
            redis_client(running) as cache,
            ApostolDevice(HOST, running.port("apostol"), "meter") as meter,
            ApostolDevice(HOST, running.port("apostol"), "sealed-meter", 0, METER_KEY, transport="tcp") as sealed,
        ):
            assert await phone.topics() == ["@news"]
            for client in (phone, box, station, desk, cache):
                await client.ping()
            for device in (meter, sealed):
                await device.readings({1: 232.5})
        with pytest.raises(RefusedError):
            await CometClient(HOST, running.port("comet"), "absent", "wrong").open()
        names = {identity.name for identity in running.gateway.state.identities.list()}
        assert {"phone", "box", "station", "desk", "cache", "absent"} < names
        assert any(name.startswith("sim-") for name in names)


async def test_waiting_notifications_are_delivered_and_new_ones_follow(folder: Path) -> None:
    async with gateway(folder) as running:
        assert [waiting.content for waiting in running.waiting("phone")] == [b"two"]
        async with CometClient(HOST, running.port("comet"), "absent", TOKEN) as absent:
            missed = [notification async for notification in absent.drain_backlog()]
            assert {each.text for each in missed} == {"one", "two", "three", "four", "five"}
            assert len(missed) == 5
            new_id = await running.publish("@alarms", "six")
            notification = await absent.next_notification(WAIT_S)
            assert (notification.id, notification.text) == (new_id, "six")
            await absent.ack(new_id)
        retained = running.gateway.state.topics.retained("@prices")
        assert retained is not None
        assert retained.content == b"4.25"
    (last_alarm,) = [each.id for each in missed if each.text == "five"]
    prefix, _, position = last_alarm.rpartition("-")
    assert new_id == f"{prefix}-{int(position) + 1}", "the topic's numbers go on"
    async with gateway(folder) as running:
        assert running.waiting("absent") == []


async def test_values_and_records_are_there(folder: Path) -> None:
    async with (
        gateway(folder) as running,
        redis_client(running) as cache,
        SisnetClient(f"tcp://{HOST}:{running.port('sisnet_tcp')}", "desk", TOKEN) as desk,
    ):
        keys = ["greeting", "count", "binary", "late", "lasting"]
        assert await cache.mget(keys) == [b"hello again", b"42", bytes(range(256)), b"after the pipeline", b"years"]
        assert await cache.ttl("lasting") > 0
        assert await cache.ttl("greeting") == -1
        assert await cache.incr("count") == 43
        rows = [[10, 1.5, "a"], [20, 2.5, "b"], [30, 3.5, "c"]]
        assert await desk.ask("sisdb", "get", {"key": "sh600000", "sdb": "day"}) == rows
        assert await desk.ask("second", "get", {"key": "k", "sdb": "min"}) == [[1, 7]]
        await desk.ask("sisdb", "set", {"key": "sh600000", "sdb": "day", "data": [[40, 4.5, "d"]]})
        newest = {"key": "sh600000", "sdb": "day", "count": 2}
        assert await desk.ask("sisdb", "get", newest) == [rows[2], [40, 4.5, "d"]]


async def test_the_log_is_read_from_its_first_record_and_continued(folder: Path, data: Path) -> None:
    before = logged(data)
    assert [row["seq"] for row in before] == list(range(len(before)))
    assert {row["protocol"] for row in before} >= {"comet", "magline", "apostol", "esnp", "sisnet", "resp", "http"}
    async with gateway(folder) as running, redis_client(running) as cache:
        await cache.set("new", "value")
    after = logged(data)
    assert after[: len(before)] == before
    assert [row["seq"] for row in after] == list(range(len(after)))
    added = {row["protocol"] for row in after[len(before) :]}
    assert "redis" in added
    assert "resp" not in added
    assert "no damage" in run_wirelake(folder, "log", "verify")


def test_records_under_the_name_resp_are_printed_and_decoded(folder: Path) -> None:
    lines = run_wirelake(folder, "log", "cat", "--json", "--protocol", "resp").splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["protocol"] for record in records} == {"resp"}
    (frame,) = [
        record["frame"]
        for record in records
        if record["event"] == "frame" and b"after the pipeline" in bytes.fromhex(record["frame"])
    ]
    tree = run_wirelake(folder, "decode", "resp", frame)
    assert "SET" in tree
    assert "after the pipeline" in tree


def test_tables_are_queried_before_the_pipeline_runs_again(data: Path) -> None:
    lake = LocalStore(data / "lake")
    for name in TABLES.keys() - NEW_TABLES - EMPTY_TABLES:
        assert query(lake, f"SELECT count(*) FROM {name}").rows[0][0] > 0, name
    waiting = "SELECT topic FROM silver.deliveries WHERE identity = 'phone' AND state != 'acked'"
    assert query(lake, waiting).rows == [["@news"]]


@pytest.mark.xdist_group("spark-processes")
def test_the_pipeline_continues_from_its_checkpoint(folder: Path, data: Path) -> None:
    progress = read_progress(data)
    assert progress is not None
    done, until = progress.next_seq, len(logged(data))
    assert rows_of(data, "bronze.frames")["seq"].max() == done - 1
    asked = "SELECT status, settled FROM silver.calls WHERE service = 'slow-adder'"
    assert query(LocalStore(data / "lake"), asked).rows == [["open", False]]
    printed = run_wirelake(folder, "pipeline", "run", "--once", timeout_s=PIPELINE_S)
    assert f"{until - done} records in 1 batch; the tables contain all records before {until}." in printed
    check_tables(data)
    ledger = rows_of(data, "gold.ledger")
    assert ledger["balanced"].all(), ledger.filter(~polars.col("balanced"))["why"].to_list()
    assert ledger["received"].sum() == ledger["counted"].sum()
    assert len(rows_of(data, "silver.quarantine")) == 0
    for gold, silver, count in (
        ("gold.traffic_minute", "silver.messages", "frames"),
        ("gold.call_minute", "silver.calls", "calls"),
        ("gold.delivery_minute", "silver.deliveries", "deliveries"),
    ):
        assert rows_of(data, gold)[count].sum() == len(rows_of(data, silver)), gold
    priced = rows_of(data, "silver.records").filter(polars.col("fields").str.contains('"newp"'))
    assert rows_of(data, "gold.bars_minute")["count"].sum() == len(priced)
    call = rows_of(data, "silver.calls").filter(service="slow-adder")
    assert call["status"].to_list() == ["ok"], "asked before the checkpoint, answered after it"
    assert rows_of(data, "silver.sessions")["closed_at"].null_count() == 0
    deliveries = rows_of(data, "silver.deliveries").filter(identity="phone").sort("seq")
    assert deliveries["state"].to_list() == ["acked", "pending", "acked"]
    names = rows_of(data, "silver.messages").filter(polars.col("protocol").is_in(["resp", "redis"]))["protocol"]
    assert set(names) == {"resp"}


def test_the_tokens_that_it_logged_can_be_removed(folder: Path, data: Path) -> None:
    before = logged(data)
    with_token = {row["protocol"] for row in before if TOKEN.encode() in row["frame"]}
    assert with_token == {"comet", "esnp", "magline", "resp", "sisnet"}
    done = json.loads(run_wirelake(folder, "log", "redact", "--json"))
    redacted = {protocol for protocol, count in done["redacted"].items() if count}
    assert redacted == {"comet", "esnp", "magline", "redis", "sisnet"}
    for path in (data / "log").glob("*.seg"):
        assert TOKEN.encode() not in path.read_bytes()
    same = {"seq", "at", "event", "session", "note"}
    assert [{name: row[name] for name in same} for row in logged(data)] == [
        {name: row[name] for name in same} for row in before
    ]
    assert [len(row["frame"]) for row in logged(data)] == [len(row["frame"]) for row in before]
    assert "no damage" in run_wirelake(folder, "log", "verify")


def redis_client(running: Running) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(host=HOST, port=running.port("redis"), username="cache", password=TOKEN)


def run_wirelake(folder: Path, *words: str, timeout_s: float = WAIT_S) -> str:
    ran = wirelake(
        *words, "--config", str(folder / "wirelake.toml"), "--data", str(folder / "data"), timeout_s=timeout_s
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout
