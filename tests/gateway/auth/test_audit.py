"""Who did what, and from where, is in the log: over sockets, HTTP and the console, and after a kill."""

from pathlib import Path
from typing import Any

import httpx

from gateway.apostol_client import Meter, report
from gateway.auth.audited import audit_of, audited
from gateway.auth.test_client_certificates import certified_gateway
from gateway.comet_client import Phone
from gateway.gateway_process import ServeProcess
from gateway.http.calling import BOB, calling
from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S, running_gateway, until
from gateway.test_reload import changed
from wirelake.limits import AUDIT_SQL_CHARS_MAX, GATEWAY_QUOTA_BURST_S
from wirelake.log.audit import audit_rows
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.comet import frames

PHONE = ("phone", "t0ken-of-phone")
ROOT = ("root", "roots-token", "admin")
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


def summary(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["identity"], row["outcome"], row["target"]


def is_local(row: dict[str, Any]) -> bool:
    return str(row["peer"]).startswith(f"{HOST}:")


async def test_a_login_a_failed_one_and_the_end_of_a_session(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE]) as running:
        async with await Phone.connect(running.port("comet")) as phone:
            assert isinstance(await phone.ask(frames.Auth(*PHONE)), frames.AuthSuccess)
            (login,) = await audited(running, "login")
        (end,) = await audited(running, "disconnect")
        assert summary(login) == ("phone", "ok", "")
        assert (login["protocol"], login["session"], is_local(login)) == ("comet", end["session"], True)
        assert (end["identity"], end["detail"]["reason"]) == ("phone", "peer_closed")
        async with await Phone.connect(running.port("comet")) as phone:
            await phone.ask(frames.Auth("phone", "wr0ng-token"))
            (_, refused) = await audited(running, "login", 2)
        assert summary(refused) == ("", "refused", "phone")
        assert refused["detail"] == {"reason": "wrong_token"}
        await until(lambda: not running.gateway.connections)
        assert [row["action"] for row in audit_of(running)] == ["login", "disconnect", "login"], "nobody was in"
        secrets = [text for row in audit_of(running) for text in PHONE[1:] if text in str(row)]
        assert not secrets
        assert "wr0ng-token" not in str(audit_of(running))


async def test_a_login_names_the_certificate(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        tls = authority.client("ann")
        async with await RedisConnection.connect(running, tls=tls) as connection:
            assert await connection.ask("AUTH ann anns-token") == b"+OK\r\n"
            (login,) = await audited(running, "login")
            ann = running.gateway.state.identities.find("ann")
        assert ann is not None
        assert login["detail"] == {"certificate": "ann", "token_id": ann.tokens[0].id}


async def test_a_refusal_names_the_target(tmp_path: Path) -> None:
    roles = {"silent": {"subscribe": ["news"]}}
    async with running_gateway(tmp_path, "redis", identities=[("eve", "eves-token", "silent")], roles=roles) as running:
        async with await RedisConnection.connect(running) as connection:
            await connection.ask("AUTH eve eves-token")
            assert (await connection.ask("GET secret")).startswith(b"-NOPERM")
            (row,) = await audited(running, "read")
        assert summary(row) == ("eve", "refused", "redis/secret")
        assert (row["protocol"], is_local(row)) == ("redis", True)


async def test_administration_over_http(tmp_path: Path) -> None:
    roles = {"reader": {"query": ["gold.*"]}}
    async with calling(tmp_path, "comet", identities=[ROOT, PHONE], roles=roles) as caller:
        root = ":".join(ROOT[:2])
        assert (await caller.call("POST", "/api/identities", {"name": "a b", "roles": ["reader"]})).status_code == 201
        assert (await caller.call("PUT", "/api/identities/a%20b/roles", {"roles": []}, bearer=root)).is_success
        assert (await caller.call("DELETE", "/api/identities/a%20b", bearer=root)).is_success
        assert (await caller.call("DELETE", "/api/identities/a%20b")).status_code == 404
        device: dict[str, Any] = {"serial": "77", "type": 6, "key": "000102030405060708090a0b0c0d0e0f"}
        assert (await caller.call("POST", "/api/devices", device)).status_code == 201
        assert (await caller.call("DELETE", "/api/devices/77")).is_success
        async with await Phone.connect(caller.port("comet")) as phone:
            assert isinstance(await phone.ask(frames.Auth(*PHONE)), frames.AuthSuccess)
            (session,) = caller.gateway.connections
            assert (await caller.call("DELETE", f"/api/sessions/{session}")).is_success
            (end,) = await audited(caller, "disconnect", identity="phone")
        rows = [row for row in audit_of(caller) if "." in row["action"]]
        assert [(row["action"], *summary(row)) for row in rows] == [
            ("identity.add", "admin", "ok", "a b"),
            ("identity.roles", "root", "ok", "a b"),
            ("identity.remove", "root", "ok", "a b"),
            ("identity.remove", "admin", "failed", "a b"),
            ("device.add", "admin", "ok", "77"),
            ("device.remove", "admin", "ok", "77"),
            ("session.end", "admin", "ok", session),
        ]
        assert all(row["protocol"] == "http" and is_local(row) for row in rows)
        details = [row["detail"] for row in rows]
        assert details[0] == {"status": 201, "roles": ["reader"]}
        assert details[1] == {"status": 204, "before": ["reader"], "after": []}
        assert details[3] == {"status": 404}
        assert details[4] == {"status": 201, "type": 6, "has_key": True}
        assert details[6]["identity"] == "phone"
        assert (end["detail"]["reason"], end["detail"]["text"]) == ("ended", "ended by the administrator")
        assert device["key"] not in str(rows)


async def test_who_is_no_administrator_is_recorded_too(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        bob = ":".join(BOB)
        await caller.refused(403, "forbidden", "POST", "/api/identities", {"name": "x"}, bearer=bob)
        await caller.refused(403, "forbidden", "DELETE", "/api/sessions/abc-1", bearer=bob)
        await caller.refused(401, "unauthorized", "GET", "/api/topics", bearer="bob:wr0ng")
        (administer,) = await audited(caller, "administer")
        assert summary(administer) == ("bob", "refused", "POST /api/identities")
        (ended,) = await audited(caller, "session.end")
        assert summary(ended) == ("bob", "refused", "abc-1")
        (login,) = await audited(caller, "login")
        assert (summary(login), login["detail"]) == (("", "refused", "bob"), {"reason": "wrong_token"})
        assert is_local(login)
        assert "wr0ng" not in str(audit_of(caller))


async def test_the_console(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        form = f"token={caller.admin_token}&to=/"
        entered = await caller.call("POST", "/login", content=form, headers=FORM, bearer=None)
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        added = await caller.call(
            "POST", "/api/identities", {"name": "new"}, headers=cookie | {"sec-fetch-site": "same-origin"}, bearer=None
        )
        assert added.status_code == 201
        await caller.call("POST", "/logout", headers=cookie | FORM, bearer=None)
        rows = [(row["action"], *summary(row)) for row in audit_of(caller)]
        assert rows == [
            ("login", "admin", "ok", ""),
            ("identity.add", "admin", "ok", "new"),
            ("logout", "admin", "ok", ""),
        ]
        assert caller.admin_token not in str(audit_of(caller))
        assert added.json()["token"] not in str(audit_of(caller))


async def test_sql(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        path, long = "/api/lake/query", "SELECT 1 /* " + "x" * AUDIT_SQL_CHARS_MAX + " */"
        answers = [
            await caller.call("POST", path, {"sql": sql}, bearer=bearer)
            for sql, bearer in (
                ("SELECT * FROM range(3)", ""),
                ("SELECT nothing", ""),
                ("SELECT * FROM gold.ledger", ":".join(BOB)),
                (long, ""),
            )
        ]
        assert [answer.status_code for answer in answers] == [200, 400, 403, 200]
        rows = await audited(caller, "sql", 4)
        assert [(row["identity"], row["outcome"]) for row in rows] == [
            ("admin", "ok"),
            ("admin", "failed"),
            ("bob", "refused"),
            ("admin", "ok"),
        ]
        assert all(is_local(row) and row["detail"]["ms"] >= 0 for row in rows)
        details = [row["detail"] for row in rows]
        assert (details[0]["sql"], details[0]["rows"]) == ("SELECT * FROM range(3)", 3)
        assert "nothing" in details[1]["error"]
        assert details[3]["sql"] == long[:AUDIT_SQL_CHARS_MAX]
        (denied,) = await audited(caller, "query")
        assert summary(denied) == ("bob", "refused", "gold.ledger")


async def test_commands_to_devices_and_a_broadcast(tmp_path: Path) -> None:
    async with calling(tmp_path, "apostol", devices=[("7", 6, None), ("8", 6, None)]) as caller:
        async with await Meter.connect(caller.port("apostol")) as meter:
            for serial in ("7", "8"):
                (packet,) = report(serial, 1, STATUS, device_type=6)
                meter.send(packet)
            await until(lambda: len(caller.gateway.broker.devices) == 2)
            body = {"type": 130, "data": "0a0b", "wait_ms": 50}
            await caller.call("POST", "/api/devices/7/commands", body)
            await caller.call("POST", "/api/devices/*/commands", body)
            rows = await audited(caller, "command", 2)
        assert [summary(row) for row in rows] == [("admin", "ok", "7"), ("admin", "ok", "*")]
        assert rows[0]["detail"] == {"type": 130, "bytes": 2}
        assert [row["identity"] for row in await audited(caller, "connect", 2)] == ["7", "8"]


async def test_a_flush_of_redis(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", identities=[ROOT, PHONE]) as running:
        for name, token, *_ in (ROOT, PHONE):
            async with await RedisConnection.connect(running) as connection:
                await connection.ask(f"AUTH {name} {token}")
                await connection.ask("FLUSHDB")
        rows = await audited(running, "redis.flush", 2)
        assert [summary(row) for row in rows] == [("root", "ok", ""), ("phone", "refused", "")]
        assert all(row["protocol"] == "redis" and is_local(row) for row in rows)


async def test_a_reload(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as running:
        running.gateway.reload(changed(running, roles={"phone": {"publish": ["a"]}}))
        running.gateway.audit.reload_failed("wirelake.toml: broken")
        rows = await audited(running, "settings.reload", 2)
        assert [summary(row) for row in rows] == [("", "ok", ""), ("", "failed", "")]
        (change,) = rows[0]["detail"]["applied"]
        assert change.startswith("roles.phone")
        assert rows[1]["detail"] == {"error": "wirelake.toml: broken"}


async def test_refusals_stay_within_the_quota_of_an_address(tmp_path: Path) -> None:
    limits = {"unauthenticated_records": 20}
    async with calling(tmp_path, identities=[BOB], limits=limits) as caller:
        attempts = int(20 * GATEWAY_QUOTA_BURST_S) + 50
        for _ in range(attempts):
            await caller.refused(403, "forbidden", "GET", "/api/identities", bearer=":".join(BOB))
        rows = await audited(caller, "administer")
        dropped = caller.gateway.recorder.dropped["http", "deny"]
        assert dropped
        assert len(rows) + dropped == attempts == caller.gateway.counters.denied["bob", "administer"]


def test_what_an_administrator_did_survives_a_kill_after_the_answer(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path)
    with served.running() as process:
        url = f"http://{HOST}:{served.ports['http']}/api/identities"
        answer = httpx.post(url, json={"name": "new"}, headers=served.admin(), timeout=WAIT_S)
        process.kill()
        process.wait()
        assert answer.status_code == 201
    rows = [row for batch in LogReader(tmp_path / "log").read() for row in audit_rows(batch).to_pylist()]
    assert [(row["action"], *summary(row)) for row in rows] == [("identity.add", "admin", "ok", "new")]
