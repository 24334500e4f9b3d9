"""Two gateways, one the upstream of the other, and the service that the upstream provides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.running_gateway import HOST, Running, running_gateway, until
from gateway.sisnet_client import IDENTITY
from wirelake.broker.peer import Peer
from wirelake.message import Failure, Kind, Message, Operation

GATEWAY = ("front", "fr0nt")
LISTENERS = {"ws": "sisnet", "tcp": "sisnet_tcp"}
SUB = {"service": "quotes", "command": "sub", "ask": {"key": "sh600600", "sdb": "info"}}
UNSUB = SUB | {"command": "unsub"}


class QuoteService:
    """Provide a service that records its requests.

    It answers `get` at once, `parts` in three packets, `hold` when `answer` is called, and pushes to `sub`.
    """

    def __init__(self, running: Running, service: str = "quotes") -> None:
        self.requests: list[Message] = []
        self.subscribed: list[tuple[Peer, Message]] = []
        self._held: list[tuple[Peer, Message]] = []
        running.gateway.broker.register_builtin(service, self)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        self.requests.append(message)
        target = message.target
        assert isinstance(target, Operation)
        match target.op:
            case "get":
                peer.send(_answer(message, fields={"key": message.fields.get("key"), "price": 7}))
            case "fail":
                peer.send(_answer(message, failure=Failure("no such key", -1)))
            case "bytes":
                peer.send(_answer(message, payload=b"\x00\xff\x80"))
            case "parts":
                for more in (2, 1, 0):
                    peer.send(_answer(message, fields={"part": 3 - more}, more=more))
            case "sub":
                self.subscribed.append((peer, message))
                peer.send(_answer(message))
            case "unsub":
                self.subscribed = [
                    each for each in self.subscribed if (each[0].id, each[1].fields) != (peer.id, message.fields)
                ]
                peer.send(_answer(message))
            case _:
                self._held.append((peer, message))

    def count(self, op: str) -> int:
        return sum(isinstance(each.target, Operation) and each.target.op == op for each in self.requests)

    async def wait_for(self, op: str, count: int) -> None:
        await until(lambda: self.count(op) >= count)
        await asyncio.sleep(0)

    def answer(self, *, more: int = 0, **fields: object) -> None:
        """Answer all requests that are held."""
        for peer, message in self._held:
            peer.send(_answer(message, fields=fields, more=more))
        if not more:
            self._held.clear()

    def push(self, *row: object) -> None:
        for peer, message in self.subscribed:
            peer.send(Message(kind=Kind.NOTIFICATION, correlation=message.correlation, fields={"msg": [list(row)]}))


def _answer(message: Message, **rest: object) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=message.correlation, **rest)  # type: ignore[arg-type]


def upstream(port: int, scheme: str = "ws", **rest: Any) -> dict[str, Any]:
    user, password = GATEWAY
    settings = {"name": "back", "url": f"{scheme}://{HOST}:{port}", "services": ["quotes"]}
    return settings | {"user": user, "password": password} | rest


async def wait_until_connected(running: Running, name: str = "back") -> None:
    await until(lambda: running.gateway.upstreams.all[name].ready)


@asynccontextmanager
async def two_gateways(
    folder: Path, *listeners: str, scheme: str = "ws", **sisnet: Any
) -> AsyncIterator[tuple[Running, Running, QuoteService]]:
    """Run two gateways; yield the front one, its upstream, and the service of the upstream."""
    async with running_gateway(folder / "back", LISTENERS[scheme], identities=[GATEWAY]) as back:
        quotes = QuoteService(back)
        upstreams = [upstream(back.port(LISTENERS[scheme]), scheme)]
        async with running_gateway(
            folder / "front", "sisnet", *listeners, identities=[IDENTITY], sisnet={"upstreams": upstreams, **sisnet}
        ) as front:
            await wait_until_connected(front)
            yield front, back, quotes
