from datetime import UTC, datetime
from pathlib import Path

from lake.writing import write

from gateway.http.calling import BOB, Calling, run
from wirelake.lake.tables import LEDGER
from wirelake.limits import LAKE_ROWS_MAX

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)


def test_tables_and_questions(tmp_path: Path) -> None:
    async def test(caller: Calling) -> None:
        lake = caller.gateway.folder / "lake"
        write(lake, LEDGER, *({"hour": HOUR, "protocol": name, "balanced": True} for name in ("comet", "esnp")))
        listed = (await caller.call("GET", "/api/lake/tables")).json()["tables"]
        assert {table["name"]: table["rows"] for table in listed}["gold.ledger"] == 2
        asked = {"sql": "SELECT protocol, balanced FROM gold.ledger ORDER BY protocol", "rows": 1}
        answer = (await caller.call("POST", "/api/lake/query", asked)).json()
        assert (answer["rows"], answer["truncated"]) == ([["comet", True]], True)
        assert answer["columns"] == [{"name": "protocol", "type": "VARCHAR"}, {"name": "balanced", "type": "BOOLEAN"}]

    run(tmp_path, test)


def test_bad_questions_and_those_of_others(tmp_path: Path) -> None:
    async def test(caller: Calling) -> None:
        path = "/api/lake/query"
        assert "not DROP" in await caller.refused(400, "bad_request", "POST", path, {"sql": "DROP VIEW gold.ledger"})
        assert "$.rows" in await caller.refused(
            400, "bad_request", "POST", path, {"sql": "SELECT 1", "rows": LAKE_ROWS_MAX + 1}
        )
        response = await caller.call("POST", path, {"sql": "SELECT 1"}, bearer=":".join(BOB))
        assert response.status_code == 403

    run(tmp_path, test, identities=[BOB])
