"""A trading desk on sisnet, by WebSocket or TCP: writes quotes, reads and follows them, asks, publishes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from wirelake.clients.feed import NotificationQueue
from wirelake.clients.sisnet import SISDB, SisnetClient
from wirelake.limits import CLIENT_INBOX_MAX
from wirelake.simulator.answers import refused, told
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_SLOW_INBOX, SIMULATOR_SLOW_S
from wirelake.simulator.member import Member
from wirelake.simulator.serving import SERVICES, Provider, question
from wirelake.simulator.topics import ADDER, FIELDS, SDB, any_topic, key, price
from wirelake.simulator.world import World


class Desk(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        self._key = key(place.number)
        self._slow = place.slow and world.provider != place.protocol  # who does not read cannot be asked either
        by_tcp = place.stream and "sisnet_tcp" in world.listeners
        schemes = ("tcp", "tls") if by_tcp else ("ws", "wss")
        host, port = world.address("sisnet_tcp" if by_tcp else "sisnet")
        self._client = SisnetClient(
            f"{schemes[world.tls is not None]}://{f'[{host}]' if ':' in host else host}:{port}",
            place.identity,
            world.tokens[place.identity],
            tls=world.tls,
            binary=place.stream and place.key is not None,
            inbox_max=SIMULATOR_SLOW_INBOX if self._slow else CLIENT_INBOX_MAX,
        )
        self._last_ms = 0

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"set": self._set, "get": self._get, "ask": self._ask, "publish": self._publish}

    async def connect(self) -> None:
        client = self._client
        await client.open()
        self.connected()
        if self.world.provider == self.place.protocol:
            provider = Provider(self.counts("served"))
            for service in SERVICES:
                await client.register(service, provider.answer)
        table = {"key": self._key, "sdb": SDB, "fields": FIELDS}
        if await self.count("create", client.ask(SISDB, "create", table)):
            followed = key(max(0, self.place.number - 1))  # one that somebody writes
            self.begin(self._follow(await client.sub(followed, SDB)))

    async def disconnect(self) -> None:
        await self._client.close()

    async def _follow(self, feed: NotificationQueue) -> None:
        async for records in feed:
            self.counts("record").received += _rows(records)
            if self._slow:
                await asyncio.sleep(SIMULATOR_SLOW_S)

    async def _set(self, act: Act) -> None:
        random = act.random()
        self._last_ms = max(self._last_ms + 1, self.world.now_ms())
        row = [self._last_ms, price(random, self.place.number), random.randrange(1, 500)]
        asked = {"key": self._key, "sdb": SDB, "data": [row]}
        await self.count("set", self._client.ask(SISDB, "set", asked))

    async def _get(self, _act: Act) -> None:
        asked = {"key": self._key, "sdb": SDB, "count": 10}
        await self.count("get", self._client.ask(SISDB, "get", asked))

    async def _ask(self, act: Act) -> None:
        asked, wanted = question(act.random())
        answer = self._client.ask(ADDER, "add", asked)
        await self.count("ask", refused(answer) if wanted is None else told(answer, wanted))

    async def _publish(self, act: Act) -> None:
        random = act.random()
        content = f"{self.place.name} {act.number} {random.random():.6f}"
        await self.count("publish", self._client.publish(any_topic(random), content))


def _rows(records: Any) -> int:
    """Of one series a list of rows; of several, such lists by name."""
    return sum(map(len, records.values())) if isinstance(records, dict) else len(records)
