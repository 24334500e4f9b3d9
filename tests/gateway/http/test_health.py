from pathlib import Path

import pytest

from gateway.http.calling import Calling, run
from wirelake.errors import StorageError


async def reasons(caller: Calling) -> list[str]:
    response = await caller.call("GET", "/readyz", bearer=None)
    assert response.status_code == 503
    found = response.json()
    assert found["error"] == {"code": "not_ready", "message": "; ".join(found["reasons"])}
    return list(found["reasons"])


def test_a_healthy_gateway(tmp_path: Path) -> None:
    async def test(caller: Calling) -> None:
        assert (await caller.call("GET", "/healthz", bearer=None)).json() == {"status": "ok"}
        assert (await caller.call("HEAD", "/healthz", bearer=None)).status_code == 200
        ready = await caller.call("GET", "/readyz", bearer=None)
        assert ready.status_code == 200
        assert ready.json()["doors"].keys() == {"http", "comet", "apostol"}
        assert ready.json()["doors"]["comet"] == f"127.0.0.1:{caller.port('comet')}"

    run(tmp_path, test, "comet", "apostol")


def test_each_reason_not_to_be_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(caller: Calling) -> None:
        gateway = caller.gateway
        gateway.doors["comet"].close()
        gateway.doors["apostol"].close()
        assert await reasons(caller) == ["the comet door is closed", "the apostol door is closed"]
        monkeypatch.setattr(type(gateway.log), "refusal", "the log cannot be written: full")
        monkeypatch.setattr(gateway.state.writer, "_trouble", StorageError("the state cannot be written: full"))
        assert (await reasons(caller))[:2] == ["the log cannot be written: full", "the state cannot be written: full"]
        monkeypatch.undo()
        monkeypatch.setattr(gateway, "stopping", True)
        assert (await reasons(caller))[0] == "shutting down"
        monkeypatch.undo()
        assert (await caller.call("GET", "/healthz", bearer=None)).status_code == 200

    run(tmp_path, test, "comet", "apostol")
