from pathlib import Path

from gateway.http.calling import BOB, Calling, run

EVE = ("eve", "eves-token")


def test_who_has_acked_a_message(tmp_path: Path) -> None:
    async def test(caller: Calling) -> None:
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

    run(tmp_path, test, identities=[BOB, EVE])


def test_an_identity_sees_what_it_published_and_nothing_of_others(tmp_path: Path) -> None:
    async def test(caller: Calling) -> None:
        path = "/api/topics/%40a/notifications"
        id_ = (await caller.call("POST", path, {"content": "x"}, bearer=":".join(BOB))).json()["id"]
        assert (await caller.call("GET", f"/api/messages/{id_}", bearer=":".join(BOB))).status_code == 200
        await caller.refused(404, "not_found", "GET", f"/api/messages/{id_}", bearer=":".join(EVE))
        for unknown in ("nonsense", id_ + "0", "a-b-c"):
            await caller.refused(404, "not_found", "GET", f"/api/messages/{unknown}")

    run(tmp_path, test, identities=[BOB, EVE])
