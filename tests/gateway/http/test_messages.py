from pathlib import Path

import pytest

from gateway.http.calling import BOB, calling
from gateway.running_gateway import HOST
from wirelake.clients.comet import CometClient
from wirelake.gateway.http.routes import messages as messages_module

EVE = ("eve", "eves-token")


async def test_who_has_acked_a_message(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB, EVE]) as caller:
        topics = caller.gateway.state.topics
        for name in ("bob", "eve"):
            await topics.subscribe(name, "@a")
        first, second = await caller.publish("@a", "1"), await caller.publish("@a", b"\xff", 9)
        await topics.subscribe("late", "@a")
        await topics.ack("bob", [second])

        found = (await caller.call("GET", f"/api/messages/{second}")).json()
        assert (found["topic"], found["position"], found["type"], found["publisher"]) == ("@a", 2, 9, "test")
        assert (found["content"], found["encoding"]) == ("/w==", "base64")
        states = {delivery["identity"]: delivery["state"] for delivery in found["deliveries"]}
        assert states == {"bob": "acked", "eve": "pending"}, "who subscribed later does not get it"
        found = (await caller.call("GET", f"/api/messages/{first}")).json()
        assert {delivery["state"] for delivery in found["deliveries"]} == {"pending"}
        assert "encoding" not in found

        own = (await caller.call("GET", f"/api/messages/{second}", bearer=":".join(BOB))).json()
        assert own["deliveries"] == [{"identity": "bob", "state": "acked"}]


async def test_an_identity_sees_what_it_published_and_nothing_of_others(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB, EVE]) as caller:
        path = "/api/topics/%40a/notifications"
        id_ = (await caller.call("POST", path, {"content": "x"}, bearer=":".join(BOB))).json()["id"]
        assert (await caller.call("GET", f"/api/messages/{id_}", bearer=":".join(BOB))).status_code == 200
        for others in (id_, id_ + "0", "nonsense"):
            message = await caller.refused(403, "forbidden", "GET", f"/api/messages/{others}", bearer=":".join(EVE))
            assert message == f"access denied: see traces/{others}", "whether it exists or not"
        for unknown in ("nonsense", id_ + "0", "a-b-c"):
            await caller.refused(404, "not_found", "GET", f"/api/messages/{unknown}")


async def test_the_whole_way_of_a_message(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", identities=[BOB]) as caller:
        await caller.gateway.state.topics.subscribe("bob", "@a")
        id_ = (await caller.call("POST", "/api/topics/%40a/notifications", {"content": "hello"})).json()["id"]
        async with CometClient(HOST, caller.port("comet"), *BOB) as phone:
            await anext(phone.notifications())
            await phone.ack(id_)
            (ack,) = await caller.recorded("ack")
        found = (await caller.call("GET", f"/api/messages/{id_}")).json()
        events = [(event["what"], event["protocol"], event["direction"]) for event in found["timeline"]]
        assert events[:3] == [("frame", "http", "in"), ("publish", "", ""), ("route", "", "")]
        assert events[-4:] == [
            ("frame", "comet", "out"),
            ("deliver", "", "out"),
            ("frame", "comet", "in"),
            ("ack", "", ""),
        ]
        delivered, last = found["timeline"][-3], found["timeline"][-1]
        assert [each["identity"] for each in delivered["to"]] == ["bob"]
        assert (last["seq"], last["identity"]) == (ack["seq"], "bob")
        assert (found["kind"], found["kept"], found["rows"], found["caveats"]) == ("notification", True, {}, [])

        hers = (await caller.call("GET", f"/api/messages/{id_}", bearer=":".join(BOB))).json()
        whats = [event["what"] for event in hers["timeline"]]
        assert whats == ["publish", "frame", "deliver", "frame", "ack"], "not the request of somebody else"
        session = (await caller.call("GET", f"/api/messages/{delivered['to'][0]['session']}")).json()
        assert (session["kind"], session["timeline"][0]["what"]) == ("session", "open")
        record = (await caller.call("GET", f"/api/messages/{ack['seq']}")).json()
        assert (record["kind"], [event["what"] for event in record["timeline"]]) == ("record", ["ack"])
        assert "topic" not in record
        for others in (str(ack["seq"]), delivered["to"][0]["session"]):
            message = await caller.refused(403, "forbidden", "GET", f"/api/messages/{others}", bearer=":".join(BOB))
            assert message == f"access denied: see traces/{others}"


async def test_so_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_module, "HTTP_TRACES_MAX", 0)
    async with calling(tmp_path) as caller:
        assert "HTTP_TRACES_MAX" in await caller.refused(429, "busy", "GET", "/api/messages/a-1-1")
