"""Roles over HTTP: what each route allows and refuses, and that eve sees nothing of alice."""

from pathlib import Path
from typing import Any, Final

import pytest
from lake.writing import write

from gateway.apostol_client import Meter, report
from gateway.comet_client import Phone
from gateway.http.calling import Calling, calling
from gateway.running_gateway import until
from wirelake.lake.tables import LEDGER, MESSAGES, QUARANTINE, READINGS
from wirelake.protocols.comet import frames
from wirelake.roles import Action

ALICE: Final = ("alice", "alices-token", "private")
EVE: Final = ("eve", "eves-token", "private")
OWN: Final = ["@{identity}/**", "{identity}/**"]
ROLES: Final[dict[str, dict[str, Any]]] = {
    "private": {
        "publish": OWN,
        "subscribe": OWN,
        "command": ["{identity}-*"],
        "see": ["topics/@{identity}/**", "devices/{identity}-*"],
        "query": ["silver.readings", "fields.*"],
    },
    "tracer": {"see": ["traces/**"]},
    "auditor": {"see": ["log", "ledger", "overview", "metrics"]},
    "reader": {"query": ["gold.*"]},
}
TOPIC: Final = "/api/topics/%40alice%2Fsecret"


def bearer(name: str) -> str:
    return f"{name}:{name}s-token"


async def denied(caller: Calling, action: Action, target: str, method: str, path: str, body: Any = None) -> None:
    """Check that eve is refused, and that the refusal is counted and recorded."""
    before = caller.gateway.counters.denied["eve", action]
    message = await caller.refused(403, "forbidden", method, path, body, bearer=bearer("eve"))
    assert message == f"access denied: {action} {target}"
    assert caller.gateway.counters.denied["eve", action] == before + 1


async def test_topics(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ALICE, EVE], roles=ROLES) as caller:
        await caller.publish("@alice/secret", "hers")
        await caller.publish("@eve/own", "eves")
        assert (await caller.call("GET", TOPIC, bearer=bearer("alice"))).json()["last"][0]["content"] == "hers"
        await denied(caller, Action.SEE, "topics/@alice/secret", "GET", TOPIC)
        await denied(caller, Action.SUBSCRIBE, "@alice/secret", "GET", "/api/subscribe?topic=%40alice%2Fsecret")
        await denied(caller, Action.PUBLISH, "@alice/secret", "POST", f"{TOPIC}/notifications", {"content": "x"})
        for name, seen in (("alice", "@alice/secret"), ("eve", "@eve/own")):
            listed = (await caller.call("GET", "/api/topics", bearer=bearer(name))).json()["topics"]
            assert [row["topic"] for row in listed] == [seen]
        assert caller.gateway.state.topics.head("@alice/secret") == 1
        refusals = [row["note"] for row in await caller.recorded("deny", 3)]
        assert refusals[0] == {"action": "see", "target": "topics/@alice/secret"}


async def test_a_subscription_that_is_no_longer_allowed_shows_nothing(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ALICE, ("eve", "eves-token")], roles=ROLES) as caller:
        await caller.gateway.state.topics.subscribe("eve", "@alice/secret")
        id_ = await caller.publish("@alice/secret", "hers")
        trace = f"/api/messages/{id_}"
        assert (await caller.call("GET", TOPIC, bearer=bearer("eve"))).json()["last"][0]["content"] == "hers"
        assert (await caller.call("GET", trace, bearer=bearer("eve"))).json()["content"] == "hers"
        await caller.assign("eve", "private")
        await denied(caller, Action.SEE, "topics/@alice/secret", "GET", TOPIC)
        await denied(caller, Action.SEE, f"traces/{id_}", "GET", trace)
        assert (await caller.call("GET", "/api/topics", bearer=bearer("eve"))).json()["topics"] == []
        await caller.assign("eve")
        assert (await caller.call("GET", TOPIC, bearer=bearer("eve"))).json()["lag"] == 1, "nothing is lost"


async def test_traces(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ALICE, EVE], roles=ROLES) as caller:
        body = {"content": "hers"}
        id_ = (await caller.call("POST", f"{TOPIC}/notifications", body, bearer=bearer("alice"))).json()["id"]
        (publish,) = await caller.recorded("publish")
        trace, record = f"/api/messages/{id_}", f"/api/messages/{publish['seq']}"
        session = f"/api/messages/{caller.records('frame')[0]['session']}"
        assert (await caller.call("GET", trace, bearer=bearer("alice"))).json()["content"] == "hers"
        await denied(caller, Action.SEE, f"traces/{id_}", "GET", trace)
        await caller.assign("eve", "private", "tracer")
        await denied(caller, Action.SEE, f"traces/{id_}", "GET", trace)  # the topic is none of hers
        for path in (record, session):
            await denied(caller, Action.SEE, "log", "GET", path)
        await caller.refused(404, "not_found", "GET", "/api/messages/a-1-1", bearer=bearer("eve"))
        await caller.assign("alice", "private", "tracer")
        seen = (await caller.call("GET", trace, bearer=bearer("alice"))).json()
        assert "frame" in [event["what"] for event in seen["timeline"]]
        await caller.assign("eve", "observer")
        for path in (trace, record, session):
            assert (await caller.call("GET", path, bearer=bearer("eve"))).status_code == 200


async def test_rows_of_a_trace_are_those_of_tables_that_one_may_query(tmp_path: Path) -> None:
    roles = {"wide": {"see": ["**"]}, "doctor": {"query": ["silver.quarantine"]}}
    async with calling(tmp_path, identities=[(*EVE[:2], "wide")], roles=roles) as caller:
        await caller.publish("@alice/secret", "hers")
        (publish,) = await caller.recorded("publish")
        at = publish["at"]
        row = {"seq": publish["seq"], "received_at": at, "day": at.date(), "identity": "alice"}
        for table in (MESSAGES, QUARANTINE):
            write(caller.gateway.folder / "lake", table, row)
        path = f"/api/messages/{publish['seq']}"
        assert set((await caller.call("GET", path)).json()["rows"]) == {"silver.messages", "silver.quarantine"}
        assert (await caller.call("GET", path, bearer=bearer("eve"))).json()["rows"] == {}
        await caller.assign("eve", "wide", "doctor")
        assert set((await caller.call("GET", path, bearer=bearer("eve"))).json()["rows"]) == {"silver.quarantine"}


async def test_devices(tmp_path: Path) -> None:
    devices = [("alice-1", 0, None), ("eve-1", 0, None)]
    async with (
        calling(tmp_path, "apostol", identities=[ALICE, EVE], devices=devices, roles=ROLES) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        meter.send(report("alice-1", 1, b"x")[0])
        await meter.receive()
        for name in ("alice", "eve"):
            listed = (await caller.call("GET", "/api/devices", bearer=bearer(name))).json()["devices"]
            assert [row["serial"] for row in listed] == [f"{name}-1"]
        assert (await caller.call("GET", "/api/devices/alice-1", bearer=bearer("alice"))).json()["heard"]
        command = {"type": 130, "wait_ms": 50}
        await denied(caller, Action.SEE, "devices/alice-1", "GET", "/api/devices/alice-1")
        await denied(caller, Action.SEE, "devices/nobody", "GET", "/api/devices/nobody")
        await denied(caller, Action.COMMAND, "alice-1", "POST", "/api/devices/alice-1/commands", command)
        await denied(caller, Action.COMMAND, "nobody", "POST", "/api/devices/nobody/commands", command)
        own = await caller.call("POST", "/api/devices/eve-1/commands", command, bearer=bearer("eve"))
        assert (own.status_code, own.json()["error"]["code"]) == (409, "not_heard"), "allowed, but offline"
        for path in ("/api/devices/*/commands", "/api/devices/%2A/commands"):
            await denied(caller, Action.COMMAND, "*", "POST", path, command)
        assert "admin only" in await caller.refused(
            403, "forbidden", "POST", "/api/devices", {"serial": "eve-2"}, bearer=bearer("eve")
        )


async def test_sessions(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "comet", identities=[ALICE, EVE], roles=ROLES) as caller,
        await Phone.connect(caller.port("comet"), *ALICE[:2]) as alice,
        await Phone.connect(caller.port("comet"), *EVE[:2]) as eve,
    ):
        ids = {row["identity"]: row["id"] for row in (await caller.call("GET", "/api/sessions")).json()["sessions"]}
        assert ids.keys() == {"alice", "eve"}
        for query in ("", "?identity=alice"):
            rows = (await caller.call("GET", f"/api/sessions{query}", bearer=bearer("eve"))).json()["sessions"]
            assert [row["id"] for row in rows] == ([] if query else [ids["eve"]])
        for id_ in (ids["alice"], "a1b2c3-ffff"):
            path = f"/api/sessions/{id_}"
            assert "admin only" in await caller.refused(403, "forbidden", "DELETE", path, bearer=bearer("eve"))
        await caller.assign("eve", "observer")
        rows = (await caller.call("GET", "/api/sessions", bearer=bearer("eve"))).json()["sessions"]
        assert len(rows) == 2
        await caller.refused(403, "forbidden", "DELETE", f"/api/sessions/{ids['alice']}", bearer=bearer("eve"))
        assert await alice.ask(frames.Subscribe(("@alice/secret",))) == frames.Ok()
        ended = await caller.call("DELETE", f"/api/sessions/{ids['eve']}", bearer=bearer("eve"))
        assert ended.status_code == 204
        await until(lambda: ids["eve"] not in caller.gateway.connections)
        assert await eve.receive_error() == 3


async def test_tables(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[EVE], roles=ROLES) as caller:
        write(caller.gateway.folder / "lake", READINGS, {"seq": 1, "serial": "m1", "value": 1.5})
        tables = (await caller.call("GET", "/api/lake/tables", bearer=bearer("eve"))).json()["tables"]
        assert [table["name"] for table in tables] == ["silver.readings"]
        path = "/api/lake/query"
        for sql, rows in (
            ("SELECT serial FROM silver.readings", [["m1"]]),
            ("WITH messages AS (SELECT value FROM Silver.READINGS) SELECT * FROM messages", [[1.5]]),
            ("SELECT count(*) FROM fields.comet_report_environ", [[0]]),
            ("SELECT 1", [[1]]),
        ):
            asked = await caller.call("POST", path, {"sql": sql}, bearer=bearer("eve"))
            assert (asked.status_code, asked.json().get("rows")) == (200, rows), asked.text
        for sql, table in (
            ("SELECT * FROM silver.messages", "silver.messages"),
            ("FROM memory.Silver.MESSAGES", "silver.messages"),
            ("SELECT (SELECT max(seq) FROM bronze.frames) FROM silver.readings", "bronze.frames"),
            ("SELECT * FROM silver.readings JOIN silver.sessions USING (seq)", "silver.sessions"),
            ("SELECT 1 UNION ALL SELECT seq FROM silver.messages", "silver.messages"),
            ("WITH a AS (SELECT * FROM silver.messages) SELECT 1", "silver.messages"),
            ("DESCRIBE silver.messages", "silver.messages"),
            ("SUMMARIZE silver.messages", "silver.messages"),
            ("SELECT * FROM information_schema.tables", "bronze.frames"),
            ("SHOW TABLES", "bronze.frames"),
        ):
            await denied(caller, Action.QUERY, table, "POST", path, {"sql": sql})
        # A process that ran a query of the admin has views of all tables.
        assert (await caller.call("POST", path, {"sql": "SELECT * FROM silver.messages"})).status_code == 200
        await denied(caller, Action.QUERY, "silver.messages", "POST", path, {"sql": "SELECT * FROM silver.messages"})
        await caller.assign("eve", "reader")
        write(caller.gateway.folder / "lake", LEDGER, {"protocol": "comet", "balanced": True})
        asked = await caller.call("POST", path, {"sql": "SELECT protocol FROM gold.ledger"}, bearer=bearer("eve"))
        assert asked.json()["rows"] == [["comet"]]
        await denied(caller, Action.QUERY, "silver.readings", "POST", path, {"sql": "SELECT * FROM silver.readings"})


async def test_rows_of_tables(tmp_path: Path) -> None:
    roles = {
        "meter": {
            "query": ["**"],
            "see": ["**"],
            "rows": {"silver.readings": {"serial": "{identity}-*"}, "silver.messages": {"identity": "{identity}"}},
        }
    }
    identities = [(*ALICE[:2], "meter"), (*EVE[:2], "meter")]
    async with calling(tmp_path, identities=identities, roles=roles) as caller:
        lake = caller.gateway.folder / "lake"
        serials = ("alice-1", "alice-2", "eve-1", "alices-3")
        write(lake, READINGS, *({"seq": n, "serial": serial, "value": 1.5} for n, serial in enumerate(serials)))
        sql = {"sql": "SELECT serial FROM silver.readings ORDER BY serial"}
        for name, rows in (("alice", [["alice-1"], ["alice-2"]]), ("eve", [["eve-1"]])):
            asked = await caller.call("POST", "/api/lake/query", sql, bearer=bearer(name))
            assert asked.json()["rows"] == rows
        asked = await caller.call("POST", "/api/lake/query", sql)
        assert len(asked.json()["rows"]) == len(serials), "the admin reads all"
        await caller.publish("@alice/secret", "hers")
        (publish,) = await caller.recorded("publish")
        at = publish["at"]
        row = {"seq": publish["seq"], "received_at": at, "day": at.date(), "identity": "alice"}
        for table in (MESSAGES, QUARANTINE):
            write(lake, table, row)
        traced = await caller.call("GET", f"/api/messages/{publish['seq']}", bearer=bearer("eve"))
        assert set(traced.json()["rows"]) == {"silver.quarantine"}, "a trace has no rows of limited tables"


@pytest.mark.parametrize(
    ("path", "target"), [("/api/log", "log"), ("/api/log/0", "log"), ("/api/ledger", "ledger"), ("/metrics", "metrics")]
)
async def test_what_the_gateway_has_of_everybody(tmp_path: Path, path: str, target: str) -> None:
    async with calling(tmp_path, identities=[EVE], roles=ROLES, http={"metrics": "token"}) as caller:
        await caller.publish("@alice/secret", "hers")
        await denied(caller, Action.SEE, target, "GET", path)
        for role in ("auditor", "observer", "admin"):
            await caller.assign("eve", role)
            assert (await caller.call("GET", path, bearer=bearer("eve"))).status_code == 200


async def test_who_has_the_role_admin_may_do_what_the_admin_may(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ALICE, EVE], roles=ROLES) as caller:
        assign = ("PUT", "/api/identities/eve/roles", {"roles": ["admin"]})
        assert "admin only" in await caller.refused(403, "forbidden", *assign, bearer=bearer("eve"))
        await caller.assign("alice", "admin")
        assert (await caller.call(*assign, bearer=bearer("alice"))).status_code == 204
        for method, path, body in (
            ("GET", "/api/identities", None),
            ("GET", "/api/roles", None),
            ("GET", "/api/access?identity=eve&action=see&target=log", None),
            ("POST", "/api/devices", {"serial": "m1"}),
            ("DELETE", "/api/devices/m1", None),
            ("POST", "/api/lake/query", {"sql": "SELECT * FROM silver.messages"}),
        ):
            response = await caller.call(method, path, body, bearer=bearer("eve"))
            assert response.is_success, (path, response.text)
        await caller.assign("eve", "observer")
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer=bearer("eve"))


async def test_a_revoked_role_ends_the_stream_of_an_admin(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[(*EVE[:2], "admin")], roles=ROLES) as caller:
        headers = {"authorization": f"Bearer {bearer('eve')}"}
        async with caller.client.stream("GET", "/api/subscribe?topic=%40alice%2Fsecret", headers=headers) as stream:
            lines = stream.aiter_lines()
            await caller.publish("@alice/secret", "1")
            assert any([line.startswith("data:") async for line in _up_to(lines, "data:")])
            await caller.assign("eve", "private")
            rest = [line async for line in lines]
        assert any("access denied: subscribe @alice/secret" in line for line in rest), rest


async def _up_to(lines: Any, prefix: str) -> Any:
    async for line in lines:
        yield line
        if line.startswith(prefix):
            return


async def test_where_everybody_is_admitted_a_name_has_no_roles(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[("root", "roots-token", "admin")], auth={"open": True}) as caller:
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer="root:anything")
        assert caller.gateway.broker.access.rights("root").roles == ("member",)


async def test_an_identity_of_the_same_name_does_not_inherit_roles(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[("root", "roots-token", "admin")]) as caller:
        await caller.call("GET", "/api/identities", bearer="root:roots-token")
        await caller.call("DELETE", "/api/identities/root")
        added = (await caller.call("POST", "/api/identities", {"name": "root"})).json()
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer=f"root:{added['token']}")
