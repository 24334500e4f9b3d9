"""silver.audit: what real clients and administrators did is in the table, and redecoding fills it for the past."""

import asyncio
import shutil
from pathlib import Path

import polars
from gateway.auth.audited import audit_of, audited
from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.redis_client import RedisConnection
from gateway.test_reload import changed
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from pipeline.traffic import START_US
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import AUDIT
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode
from wirelake.protocols.comet import frames
from wirelake.protocols.text import read_json

COLUMNS = ("seq", "protocol", "action", "outcome", "identity", "peer", "session", "target", "detail")


async def acted(folder: Path) -> list[dict[str, object]]:
    """Do something of every kind, and return what the log says about it."""
    async with calling(folder, "comet", "redis", identities=[BOB]) as caller:
        async with await Phone.connect(caller.port("comet")) as phone:
            await phone.ask(frames.Auth(*BOB))
        async with await RedisConnection.connect(caller) as connection:
            await connection.ask("AUTH bob wr0ng")
            await connection.ask("AUTH bob bobs-token")
            await connection.ask("FLUSHDB")
        await caller.call("PUT", "/api/identities/bob/roles", {"roles": ["observer"]})
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer=":".join(BOB))
        await caller.call("POST", "/api/lake/query", {"sql": "SELECT 'é' AS \"a\""})
        caller.gateway.reload(changed(caller, roles={"phone": {"publish": ["a"]}}))
        await audited(caller, "disconnect", 2)
        await audited(caller, "settings.reload")
        return audit_of(caller)


def table(data: Path) -> list[dict[str, object]]:
    rows = rows_of(data, AUDIT.name).sort("seq").to_dicts()
    assert all(row["day"] == row["received_at"].date() for row in rows)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def append_frame(data: Path) -> None:
    log = SegmentLog(data / "log")
    log.append(START_US, "comet", "frame", "in", "s", "bob", "10.0.0.1:5", b"").wait(60.0)
    log.close()


def test_who_did_what_is_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    logged = asyncio.run(acted(tmp_path))
    data = tmp_path / "data"
    Job(spark, data, JobSettings(once=True), gold=True).run()
    check_tables(data)
    assert rows_of(data, "gold.ledger")["balanced"].all()
    rows = table(data)
    parsed = [row | {"detail": read_json(str(row["detail"]).encode()) if row["detail"] else {}} for row in rows]
    assert parsed == [{name: row[name] for name in COLUMNS} for row in logged]
    assert [(row["action"], row["outcome"], row["identity"], row["target"]) for row in rows] == [
        ("login", "ok", "bob", ""),
        ("disconnect", "ok", "bob", ""),
        ("login", "refused", "", "bob"),
        ("login", "ok", "bob", ""),
        ("redis.flush", "refused", "bob", ""),
        ("disconnect", "ok", "bob", ""),
        ("identity.roles", "ok", "admin", "bob"),
        ("administer", "refused", "bob", "GET /api/identities"),
        ("sql", "ok", "admin", ""),
        ("settings.reload", "ok", "", ""),
    ]
    found = query(LocalStore(data / "lake"), "SELECT detail ->> 'sql' FROM silver.audit WHERE action = 'sql'")
    assert found.rows == [["SELECT 'é' AS \"a\""]]

    append_frame(data)  # a batch without anything for the audit
    Job(spark, data, JobSettings(once=True)).run()
    assert table(data) == rows
    shutil.rmtree(data / "lake" / AUDIT.folder)  # as in a lake of an earlier version
    for protocol, count in (("http", 3), ("comet", 2), ("redis", 4)):
        done = redecode(spark, data, RedecodeRequest(protocol=protocol), gold=True)
        assert done.tables[AUDIT.name].new == count
    assert table(data) == [row for row in rows if row["protocol"]]
    done = redecode(spark, data, RedecodeRequest(protocol="http"))
    assert (done.tables[AUDIT.name].same, done.replaced) == (3, {})
    assert rows_of(data, "gold.ledger").filter(~polars.col("balanced")).is_empty()
