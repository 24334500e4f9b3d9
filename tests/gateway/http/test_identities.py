import asyncio
from pathlib import Path

from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from wirelake.protocols.comet import frames


async def test_a_token_is_made_shown_once_and_works_everywhere(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet") as caller:
        response = await caller.call("POST", "/api/identities", {"name": "phone-1"})
        assert response.status_code == 201
        made = response.json()
        assert made.keys() == {"name", "token"}
        assert len(made["token"]) > 20
        async with await Phone.connect(caller.port("comet"), made["name"], made["token"]):
            pass
        topics = await caller.call("GET", "/api/topics", bearer=f"phone-1:{made['token']}")
        assert topics.status_code == 200

        listed = await caller.call("GET", "/api/identities")
        (row,) = listed.json()["identities"]
        assert (row["name"], row["topics"]) == ("phone-1", 0)
        assert made["token"] not in listed.text
        frames_kept = [row["frame"] for row in caller.records("frame", protocol="http")]
        assert frames_kept == [b'{"name":"phone-1"}', '{"name":"phone-1","token":"…"}'.encode()]


async def test_a_given_token_is_taken_and_not_kept(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("POST", "/api/identities", {"name": "eve", "token": "chosen-by-eve"})
        assert response.json() == {"name": "eve", "token": "chosen-by-eve"}
        assert (await caller.call("GET", "/api/topics", bearer="eve:chosen-by-eve")).status_code == 200
        assert not any(b"chosen-by-eve" in row["frame"] for row in caller.records())


async def test_what_cannot_be_added(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        assert "bob" in await caller.refused(409, "conflict", "POST", "/api/identities", {"name": "bob"})
        assert "admin" in await caller.refused(409, "conflict", "POST", "/api/identities", {"name": "admin"})
        await caller.refused(400, "bad_request", "POST", "/api/identities", {"name": ""})
        await caller.refused(400, "bad_request", "POST", "/api/identities", {"name": "x", "token": ""})
        await caller.refused(400, "bad_request", "POST", "/api/identities", {})
        two = [caller.call("POST", "/api/identities", {"name": "twice"}) for _ in range(2)]
        assert sorted(response.status_code for response in await asyncio.gather(*two)) == [201, 409]
        names = [row["name"] for row in (await caller.call("GET", "/api/identities")).json()["identities"]]
        assert names == ["bob", "twice"]


async def test_removing_one_ends_its_sessions_and_its_rights(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", identities=[BOB]) as caller:
        async with await Phone.connect(caller.port("comet"), *BOB) as phone:
            assert (await caller.call("DELETE", "/api/identities/bob")).status_code == 204
            assert isinstance(await phone.receive(), frames.Error)
            assert await phone.receive() is None
        await caller.refused(401, "unauthorized", "GET", "/api/topics", bearer=":".join(BOB))
        await caller.refused(404, "not_found", "DELETE", "/api/identities/bob")
        statuses = [row["note"]["status"] for row in caller.records("frame", protocol="http", direction="out")]
        assert statuses == [204, 404]


async def test_the_list_is_paged(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for name in "cab":
            await caller.add_identity(name, "token")
        first = (await caller.call("GET", "/api/identities?limit=2")).json()
        assert ([row["name"] for row in first["identities"]], first["next"]) == (["a", "b"], "b")
        second = (await caller.call("GET", "/api/identities?after=b")).json()
        assert ([row["name"] for row in second["identities"]], second["next"]) == (["c"], None)
