"""A system clock that jumps while a gateway runs expires nothing."""

import asyncio
import time
from pathlib import Path

import redis.asyncio

from gateway.running_gateway import HOST, running_gateway, until
from wirelake.clock import SteadyClock

DAY_S = 86_400
APP = ("app", "t0ken")


async def test_a_jump_of_three_days_expires_nothing(tmp_path: Path) -> None:
    ahead_s = [0]
    clock = SteadyClock(lambda: time.time_ns() + ahead_s[0] * 1_000_000_000)
    async with (
        running_gateway(tmp_path, "redis", identities=[APP], clock=clock) as running,
        redis.asyncio.Redis(host=HOST, port=running.port("redis"), username=APP[0], password=APP[1], protocol=2) as app,
    ):
        gateway = running.gateway
        await gateway.state.topics.subscribe("ann", "@a")
        for number in range(60):
            await running.publish("@a", str(number))
        await app.set("k", "v", ex=DAY_S)
        ahead_s[0] = 3 * DAY_S
        await asyncio.sleep(0.2)
        for _ in range(5):
            gateway.sweeper.step(gateway.now_ms())
            await gateway.state.barrier()
        assert await app.get("k") == b"v"
        assert DAY_S - 60 < await app.ttl("k") <= DAY_S
        ahead_s[0] = 0
        await asyncio.sleep(0.2)
        gateway.sweeper.step(gateway.now_ms())
        assert len(running.waiting("ann")) == 60
        await until(lambda: gateway.clock.steps == 2)


async def test_a_start_with_a_clock_that_went_back_is_reported(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as running:
        folder = running.gateway.folder
    (folder / "clock").write_text(f"{time.time_ns() // 1_000_000 + 3600_000}\n")
    async with running_gateway(tmp_path) as running:
        assert running.gateway.clock.steps == 1
    assert int((folder / "clock").read_text()) < time.time_ns() // 1_000_000 + 1000, "the next start has the new time"
