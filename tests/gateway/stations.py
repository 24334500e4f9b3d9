"""A gateway with an esnp door, and stations that speak to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.running import Running, running_gateway
from gateway.wire import Station

OPEN = {"auth": {"open": True}}
ANN = ("ann", "t0ken")


@asynccontextmanager
async def gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "esnp", **({} if "identities" in settings else OPEN) | settings) as running:
        yield running


async def station(running: Running, user: str = "ann") -> Station:
    return await Station.call(running.port("esnp"), user)


@asynccontextmanager
async def providing(running: Running, *services: str, user: str = "provider") -> AsyncIterator[Station]:
    async with await station(running, user) as provider:
        for service in services:
            assert (await provider.ask_gateway("register", service=service)).error is None
        yield provider


async def closed(caller: Station) -> str | None:
    """The ERROR with which the gateway ends the connection."""
    last = await caller.message()
    assert await caller.hear() is None
    return last.error
