"""GET /api/audit: who did what, newest first, for those who may see it."""

from pathlib import Path
from typing import Any

from gateway.http.calling import BOB, Calling, calling
from wirelake.limits import HTTP_LOG_SEARCHED_MAX
from wirelake.log.audit_search import AuditFilter, search
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader

ANN = ("ann", "anns-token", "observer")


async def events(caller: Calling, **wanted: Any) -> list[dict[str, Any]]:
    response = await caller.call("GET", "/api/audit", params=wanted)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["events"]
    return found


async def test_the_newest_first_by_filter(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ANN]) as caller:
        for name in ("x", "y"):
            await caller.call("POST", "/api/identities", {"name": name})
        await caller.call("DELETE", "/api/identities/nobody", bearer=":".join(ANN[:2]))
        await caller.call("DELETE", "/api/identities/nobody")
        rows = await events(caller)
        found = [(row["action"], row["identity"], row["outcome"], row["target"]) for row in rows]
        assert found == [
            ("identity.remove", "admin", "failed", "nobody"),
            ("administer", "ann", "refused", "DELETE /api/identities/nobody"),
            ("identity.add", "admin", "ok", "y"),
            ("identity.add", "admin", "ok", "x"),
        ]
        assert rows[0]["detail"] == {"status": 404}
        failed, refused, y, x = rows
        for wanted, expected in (
            ({"identity": "ann"}, [refused]),
            ({"action": "identity.add"}, [y, x]),
            ({"action": "identity.add", "target": "x"}, [x]),
            ({"action": "!identity.add"}, [failed, refused]),
            ({"outcome": "failed"}, [failed]),
            ({"since": y["at_ms"] + 60_000}, []),
            ({"since": x["at_ms"] - 60_000}, rows),
            ({"until": x["at_ms"] - 60_000}, []),
            ({"before": y["seq"]}, [x]),
        ):
            assert await events(caller, **wanted) == expected, wanted
        page = (await caller.call("GET", "/api/audit", params={"limit": 2})).json()
        assert (page["events"], page["before"]) == ([failed, refused], refused["seq"])
        rest = (await caller.call("GET", "/api/audit", params={"before": page["before"]})).json()
        assert (rest["events"], rest["before"]) == ([y, x], None)


async def test_who_may_see_it(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ANN, BOB]) as caller:
        message = await caller.refused(403, "forbidden", "GET", "/api/audit", bearer=":".join(BOB))
        assert message == "access denied: see audit"
        await caller.recorded("deny")
        seen = await caller.call("GET", "/api/audit", bearer=":".join(ANN[:2]))
        (row,) = seen.json()["events"]
        assert (row["identity"], row["action"], row["target"], row["outcome"]) == ("bob", "see", "audit", "refused")
        assert "outcome is" in await caller.refused(400, "bad_request", "GET", "/api/audit?outcome=great")


def test_a_search_says_where_to_go_on(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    for number in range(10):
        event = "login" if number in (0, 7) else "frame"
        commit = log.append(number, "comet", event, "", "s", "anna", "10.0.0.1:9", b"", "")
    commit.wait(60.0)
    reader, anybody = LogReader(tmp_path), AuditFilter()

    def seqs(before: int | None, searched_max: int, wanted: AuditFilter = anybody) -> tuple[list[int], int | None]:
        page = search(reader, wanted, 10, before, searched_max)
        return [row["seq"] for row in page.rows], page.before

    assert seqs(None, 4) == ([7], 6)
    assert seqs(6, 4) == ([], 2)
    assert seqs(2, 4) == ([0], None)
    assert seqs(None, HTTP_LOG_SEARCHED_MAX) == ([7, 0], None)
    assert seqs(None, HTTP_LOG_SEARCHED_MAX, AuditFilter(since_us=1)) == ([7], None)
    log.close()
