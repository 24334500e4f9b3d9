from pathlib import Path

from gateway.http.calling import BOB, calling


async def test_the_newest_records_and_one_of_them(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for number in range(5):
            await caller.call("POST", "/api/topics/%40news/notifications", {"content": f"n{number}"})
        listed = (await caller.call("GET", "/api/log?event=publish&limit=3")).json()
        assert [bytes.fromhex(record["hex"]) for record in listed["records"]] == [b"n2", b"n3", b"n4"]
        seq = listed["records"][0]["seq"]
        assert (await caller.call("GET", f"/api/log/{seq}")).json() == listed["records"][0]
        earlier = (await caller.call("GET", f"/api/log?event=publish&before={seq}")).json()["records"]
        assert [bytes.fromhex(record["hex"]) for record in earlier] == [b"n0", b"n1"]
        frames = (await caller.call("GET", "/api/log?protocol=http&limit=1")).json()["records"]
        assert (frames[0]["direction"], frames[0]["identity"]) == ("out", "admin")
        assert (await caller.call("GET", "/api/log/0")).json()["event"] == "counters"


async def test_records_that_are_not_there(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        for seq in ("999", "-1", "x", "9" * 40):
            assert "it holds 0 to" in await caller.refused(404, "not_found", "GET", f"/api/log/{seq}")
        assert "limit" in await caller.refused(400, "bad_request", "GET", "/api/log?limit=0")
        assert (await caller.call("GET", "/api/log", bearer=":".join(BOB))).status_code == 403
