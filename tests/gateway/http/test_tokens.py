from pathlib import Path

from gateway.auth.audited import audited
from gateway.http.calling import BOB, calling
from wirelake.limits import STATE_TOKENS_PER_IDENTITY_MAX

TOKENS = "/api/identities/bob/tokens"


async def test_tokens_are_added_listed_and_revoked(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        response = await caller.call("POST", TOKENS, {"expires_s": 60, "keep_s": 10})
        assert response.status_code == 201
        added = response.json()
        assert added.keys() == {"id", "token", "expires_at_ms"}
        listed = await caller.call("GET", TOKENS)
        old, new = listed.json()["tokens"]
        assert new == {
            "id": added["id"],
            "kind": "generated",
            "added_at_ms": added["expires_at_ms"] - 60_000,
            "expires_at_ms": added["expires_at_ms"],
        }
        assert (old["kind"], old["expires_at_ms"]) == ("chosen", new["added_at_ms"] + 10_000)
        assert added["token"] not in listed.text
        (row,) = (await caller.call("GET", "/api/identities")).json()["identities"]
        assert (row["tokens"], row["expires_at_ms"]) == (2, new["expires_at_ms"])
        for bearer in (":".join(BOB), f"bob:{added['token']}", added["token"]):
            assert (await caller.call("GET", "/api/topics", bearer=bearer)).status_code == 200
        assert (await caller.call("DELETE", f"{TOKENS}/{new['id']}")).status_code == 204
        await caller.refused(401, "unauthorized", "GET", "/api/topics", bearer=f"bob:{added['token']}")
        assert (await caller.call("GET", "/api/topics", bearer=":".join(BOB))).status_code == 200
        assert "has no token" in await caller.refused(404, "not_found", "DELETE", f"{TOKENS}/{new['id']}")
        kept = [row["frame"] for row in caller.records("frame", protocol="http")]
        assert kept[1] == f'{{"id":"{new["id"]}","token":"…","expires_at_ms":{new["expires_at_ms"]}}}'.encode()


async def test_a_token_is_added_without_a_change_to_the_others(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        assert (await caller.call("POST", TOKENS, {"token": "another"})).json()["token"] == "another"
        assert [row["expires_at_ms"] for row in (await caller.call("GET", TOKENS)).json()["tokens"]] == [None, None]
        for token in (BOB[1], "another"):
            assert (await caller.call("GET", "/api/topics", bearer=f"bob:{token}")).status_code == 200
        assert not any(b"another" in row["frame"] for row in caller.records())


async def test_an_identity_is_added_with_a_token_that_expires(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        await caller.call("POST", "/api/identities", {"name": "eve", "expires_s": 60.5})
        (row,) = (await caller.call("GET", "/api/identities")).json()["identities"]
        assert row["expires_at_ms"] == row["added_at_ms"] + 60_500


async def test_what_cannot_be_added(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        for body in ({"expires_s": 0}, {"keep_s": -1}, {"expires_s": 1e12}, {"token": ""}, {"id": "x"}):
            await caller.refused(400, "bad_request", "POST", TOKENS, body)
        assert "already" in await caller.refused(409, "conflict", "POST", TOKENS, {"token": BOB[1]})
        for method, path in (("POST", ""), ("GET", ""), ("DELETE", "/x")):
            assert "no identity 'eve'" in await caller.refused(
                404, "not_found", method, f"/api/identities/eve/tokens{path}", {} if method == "POST" else None
            )
        for _ in range(STATE_TOKENS_PER_IDENTITY_MAX - 1):
            assert (await caller.call("POST", TOKENS, {})).status_code == 201
        assert "revoke one first" in await caller.refused(409, "conflict", "POST", TOKENS, {})
        assert len((await caller.call("GET", TOKENS)).json()["tokens"]) == STATE_TOKENS_PER_IDENTITY_MAX


async def test_who_changed_tokens_is_in_the_audit(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        token_id = (await caller.call("POST", TOKENS, {"keep_s": 10})).json()["id"]
        await caller.call("DELETE", f"{TOKENS}/{token_id}")
        (added,), (revoked,) = await audited(caller, "token.add"), await audited(caller, "token.revoke")
        for row in (added, revoked):
            assert (row["identity"], row["outcome"], row["target"]) == ("admin", "ok", "bob")
        assert added["detail"] == {"status": 201, "token_id": token_id, "expires_at_ms": None, "keep_s": 10.0}
        assert revoked["detail"] == {"status": 204, "token_id": token_id}
