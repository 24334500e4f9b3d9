from pathlib import Path
from random import Random

import pytest

from gateway.http.calling import Calling, calling
from gateway.running_gateway import until
from wirelake.errors import StorageError


async def reasons(caller: Calling) -> list[str]:
    response = await caller.call("GET", "/readyz", bearer=None)
    assert response.status_code == 503
    found = response.json()
    assert found["error"] == {"code": "not_ready", "message": "; ".join(found["reasons"])}
    return list(found["reasons"])


async def test_a_healthy_gateway(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", "apostol") as caller:
        assert (await caller.call("GET", "/healthz", bearer=None)).json() == {"status": "ok"}
        assert (await caller.call("HEAD", "/healthz", bearer=None)).status_code == 200
        ready = await caller.call("GET", "/readyz", bearer=None)
        assert ready.status_code == 200
        assert ready.json()["listeners"] == ready.json()["doors"]
        assert ready.json()["doors"].keys() == {"http", "comet", "apostol"}
        assert ready.json()["doors"]["comet"] == f"127.0.0.1:{caller.port('comet')}"


async def test_each_reason_not_to_be_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, "comet", "apostol") as caller:
        gateway = caller.gateway
        gateway.listeners["comet"].close()
        gateway.listeners["apostol"].close()
        assert await reasons(caller) == ["the apostol listener is closed", "the comet listener is closed"]
        monkeypatch.setattr(type(gateway.log), "refusal", "the log cannot be written: full")
        monkeypatch.setattr(type(gateway.state), "error", StorageError("the state cannot be written: full"))
        assert (await reasons(caller))[:2] == ["the log cannot be written: full", "the state cannot be written: full"]
        monkeypatch.undo()
        monkeypatch.setattr(gateway, "stopping", True)
        assert (await reasons(caller))[0] == "shutting down"
        monkeypatch.undo()
        assert (await caller.call("GET", "/healthz", bearer=None)).status_code == 200


async def test_a_log_at_its_limit_says_which_consumer_is_behind(tmp_path: Path) -> None:
    async with calling(tmp_path, log={"segment_mb": 1, "disk_bytes_max": 3 * 1024 * 1024}) as caller:
        log = caller.gateway.log
        log.commit_offset("pipeline", 0)
        chance = Random(1)  # contents that differ: repeated ones are stored once
        for _ in range(100):
            content = {"content": chance.randbytes(100_000).hex()}
            response = await caller.call("POST", "/api/topics/%40news/notifications", content)
            if response.status_code != 201:
                break
        assert response.status_code == 503
        assert "consumer pipeline" in response.json()["error"]["message"]
        (reason,) = await reasons(caller)
        assert "log.disk_bytes_max = 3145728; consumer pipeline has read only up to record 0" in reason
        metrics = (await caller.call("GET", "/metrics")).text
        values = {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in metrics.splitlines() if line[0] != "#")
        }
        assert values["wirelake_log_bytes"] <= values["wirelake_log_bytes_limit"] == 3 * 1024 * 1024
        assert (values["wirelake_log_oldest_seq"], values["wirelake_log_refusing"]) == (0, 1)
        log.commit_offset("pipeline", log.next_seq)
        await until(lambda: not log.refusal)
        assert (await caller.call("POST", "/api/topics/%40news/notifications", content)).status_code == 201
        assert (await caller.call("GET", "/readyz", bearer=None)).status_code == 200
        metrics = (await caller.call("GET", "/metrics")).text
        assert "wirelake_log_oldest_seq 0.0" not in metrics
