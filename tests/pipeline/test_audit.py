"""silver.audit: what real clients and administrators did is in the table."""

import asyncio
from pathlib import Path

from gateway.auth.audited import audit_of, audited
from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.redis_client import RedisConnection
from gateway.test_reload import changed
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import AUDIT
from wirelake.pipeline.job import Job, JobSettings
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
