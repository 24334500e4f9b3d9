import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from lake.writing import write

from gateway.http.calling import BOB, calling
from gateway.running_gateway import WAIT_S
from wirelake.lake.tables import LEDGER
from wirelake.limits import GATEWAY_STOP_S, HTTP_QUERIES_MAX, LAKE_MEMORY_MIB_MAX, LAKE_ROWS_MAX, MIB

ENDLESS = "SELECT levenshtein(repeat('x', 400000), repeat('y', 400000))"  # ignores DuckDB's own interrupt

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)


async def test_tables_and_questions(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        lake = caller.gateway.folder / "lake"
        write(lake, LEDGER, *({"hour": HOUR, "protocol": name, "balanced": True} for name in ("comet", "esnp")))
        listed = (await caller.call("GET", "/api/lake/tables")).json()["tables"]
        assert {table["name"]: table["rows"] for table in listed}["gold.ledger"] == 2
        asked = {"sql": "SELECT protocol, balanced FROM gold.ledger ORDER BY protocol", "rows": 1}
        answer = (await caller.call("POST", "/api/lake/query", asked)).json()
        assert (answer["rows"], answer["truncated"]) == ([["comet", True]], True)
        assert answer["columns"] == [{"name": "protocol", "type": "VARCHAR"}, {"name": "balanced", "type": "BOOLEAN"}]


async def test_bad_questions_and_those_of_others(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        path = "/api/lake/query"
        assert "not DROP" in await caller.refused(400, "bad_request", "POST", path, {"sql": "DROP VIEW gold.ledger"})
        assert "$.rows" in await caller.refused(
            400, "bad_request", "POST", path, {"sql": "SELECT 1", "rows": LAKE_ROWS_MAX + 1}
        )
        for sql, target in (("SELECT 1", "**"), ("SELECT * FROM gold.ledger", "gold.ledger")):
            message = await caller.refused(403, "forbidden", "POST", path, {"sql": sql}, bearer=":".join(BOB))
            assert message == f"access denied: query {target}"
        assert (await caller.call("GET", "/api/lake/tables", bearer=":".join(BOB))).json() == {"tables": []}


async def test_a_query_that_needs_too_much_memory_harms_nobody_else(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        before = rss_bytes()
        bomb = asyncio.create_task(
            caller.refused(400, "bad_request", "POST", "/api/lake/query", {"sql": "SELECT repeat('x', 1000000000)"})
        )
        highest = before
        while not bomb.done():
            assert (await caller.call("GET", "/healthz")).status_code == 200
            highest = max(highest, rss_bytes())
            await asyncio.sleep(0.05)
        assert f"exceeded the memory limit of {LAKE_MEMORY_MIB_MAX} MiB" in await bomb
        assert highest - before < 100 * MIB
        assert (await caller.call("POST", "/api/lake/query", {"sql": "SELECT 1"})).json()["rows"] == [[1]]


async def test_a_query_whose_asker_left_is_ended(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for _ in range(HTTP_QUERIES_MAX + 1):
            with pytest.raises(httpx.ReadTimeout):
                await caller.call("POST", "/api/lake/query", {"sql": ENDLESS}, timeout=0.5)
            await until(lambda: caller.http.lake.limit.running == 0)
        await until(lambda: not children())
        assert (await caller.call("POST", "/api/lake/query", {"sql": "SELECT 1"})).json()["rows"] == [[1]]


async def test_queries_under_way_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        asked = [asyncio.create_task(caller.call("POST", "/api/lake/query", {"sql": ENDLESS})) for _ in range(2)]
        await until(lambda: len(children()) == 2)
        started_s = time.monotonic()
        await caller.gateway.close()
        assert time.monotonic() - started_s < GATEWAY_STOP_S
        for response in await asyncio.gather(*asked):
            assert (response.status_code, response.json()["error"]["message"]) == (503, "the query was cancelled")
        assert children() == []


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children() -> list[str]:
    """Return the ids of the query processes."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a process has ended meanwhile
            pids = (task / "children").read_text().split()
            found += [pid for pid in pids if b"query_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_damaged_table_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        lake = caller.gateway.folder / "lake"
        write(lake, LEDGER, {"hour": HOUR, "protocol": "comet", "balanced": True})
        damaged = lake / LEDGER.folder / "_delta_log" / f"{0:020d}.json"
        damaged.write_bytes(b"{noise")
        for method, path, body in (
            ("GET", "/api/lake/tables", None),
            ("POST", "/api/lake/query", {"sql": "SELECT * FROM gold.ledger"}),
            ("GET", "/tables", None),
        ):
            text = await caller.refused(500, "damaged_table", method, path, body)
            assert text.startswith(f"gold.ledger cannot be read: {damaged.relative_to(lake.parent)} is damaged"), path
