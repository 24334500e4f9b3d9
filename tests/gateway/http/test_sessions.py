from pathlib import Path

from gateway.apostol_client import Meter, report
from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.running_gateway import until
from wirelake.protocols.comet import frames


async def test_everybody_connected_is_listed_in_order(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "comet", "apostol", identities=[BOB], devices=[("m1", 0, None)]) as caller,
        await Phone.connect(caller.port("comet"), *BOB) as phone,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await phone.ask(frames.Subscribe(("@a",)))
        meter.send(report("m1", 1, b"x")[0])
        await meter.receive()
        rows = (await caller.call("GET", "/api/sessions")).json()["sessions"]
        assert [(row["protocol"], row["identity"], row["state"]) for row in rows] == [
            ("comet", "bob", "ready"),
            ("apostol", "m1", "ready"),
        ]
        assert (rows[0]["frames_in"], rows[0]["frames_out"], rows[0]["slow"]) == (2, 2, False)
        assert rows[0]["address"].startswith("127.0.0.1:")

        first = (await caller.call("GET", "/api/sessions?limit=1")).json()
        assert first["next"] == rows[0]["id"]
        second = (await caller.call("GET", "/api/sessions", params={"after": first["next"]})).json()
        assert [row["id"] for row in second["sessions"]] == [rows[1]["id"]]
        for query in ("protocol=apostol", "identity=m1"):
            (row,) = (await caller.call("GET", f"/api/sessions?{query}")).json()["sessions"]
            assert row["id"] == rows[1]["id"]
        await caller.refused(400, "bad_request", "GET", "/api/sessions?after=xyz")


async def test_a_session_can_be_ended(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "comet", identities=[BOB]) as caller,
        await Phone.connect(caller.port("comet"), *BOB) as phone,
    ):
        (row,) = (await caller.call("GET", "/api/sessions")).json()["sessions"]
        response = await caller.call("DELETE", f"/api/sessions/{row['id']}")
        assert (response.status_code, response.content) == (204, b"")
        assert await phone.receive_error() == 3
        assert await phone.receive() is None
        await until(lambda: not caller.gateway.connections)
        (closed,) = await caller.recorded("close", protocol="comet")
        assert closed["note"]["reason"] == "ended"
        await caller.refused(404, "not_found", "DELETE", f"/api/sessions/{row['id']}")
