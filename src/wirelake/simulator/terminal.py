"""A terminal on magline: asks a users' service, follows quotes, publishes, takes up its session after a loss."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

from wirelake.backoff import Backoff
from wirelake.clients.magline import MaglineClient
from wirelake.errors import AnswerError
from wirelake.simulator.answers import told
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_AWAY_S
from wirelake.simulator.member import Member
from wirelake.simulator.topics import QUOTES, USER_COMMAND, any_topic
from wirelake.simulator.world import World

_FIRST_PAUSE_S: Final = 0.05


class Terminal(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        self._client = MaglineClient(
            *world.address("magline"),
            place.identity,
            world.tokens[place.identity],
            little=place.stream,
            tls=world.tls,
            backoff=Backoff(first_s=_FIRST_PAUSE_S, max_s=SIMULATOR_AWAY_S),
        )

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"ask": self._ask, "publish": self._publish, "resume": self._resume}

    async def connect(self) -> None:
        await self._client.open()
        self.connected()
        await self.count("subscribe", self._client.subscribe(QUOTES))
        self.begin(self._listen())

    async def disconnect(self) -> None:
        await self._client.close()

    async def _listen(self) -> None:
        async with aclosing(self._client.notifications()) as coming:
            async for _ in coming:
                self.counts("quote").received += 1

    async def _ask(self, act: Act) -> None:
        if not self.world.provider:
            await self.count("ping", self._client.ping())
            return
        data = act.random().randbytes(32)
        await self.count("ask", told(self._client.call(USER_COMMAND, data), data))

    async def _publish(self, act: Act) -> None:
        content = f"{self.place.name} {act.number}"
        await self.count("publish", self._client.publish(any_topic(act.random()), content))

    async def _resume(self, _act: Act) -> None:
        await self.count("resume", self._resumed())

    async def _resumed(self) -> None:
        before = self._client.resumed
        self._client.drop()
        await self._client.ping()
        if self._client.resumed == before:
            raise AnswerError("the session was not resumed", 0)
        self.connected()
