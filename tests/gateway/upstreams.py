"""Two gateways, one behind the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.quotes import Quotes
from gateway.running import HOST, Running, running_gateway, until
from gateway.web_terminal import IDENTITY

GATEWAY = ("front", "fr0nt")
DOORS = {"ws": "sisnet", "tcp": "sisnet_tcp"}
SUB = {"service": "quotes", "command": "sub", "ask": {"key": "sh600600", "sdb": "info"}}
UNSUB = SUB | {"command": "unsub"}


def upstream(port: int, scheme: str = "ws", **rest: Any) -> dict[str, Any]:
    user, password = GATEWAY
    settings = {"name": "back", "url": f"{scheme}://{HOST}:{port}", "services": ["quotes"]}
    return settings | {"user": user, "password": password} | rest


async def connected(running: Running, name: str = "back") -> None:
    await until(lambda: running.gateway.upstreams.all[name].ready)


@asynccontextmanager
async def two_gateways(
    folder: Path, *doors: str, scheme: str = "ws", **sisnet: Any
) -> AsyncIterator[tuple[Running, Running, Quotes]]:
    """The front one, the one behind it, and the service there."""
    async with running_gateway(folder / "back", DOORS[scheme], identities=[GATEWAY]) as back:
        quotes = Quotes(back)
        upstreams = [upstream(back.port(DOORS[scheme]), scheme)]
        async with running_gateway(
            folder / "front", "sisnet", *doors, identities=[IDENTITY], sisnet={"upstreams": upstreams, **sisnet}
        ) as front:
            await connected(front)
            yield front, back, quotes
