"""A station on esnp: provides the fleet's services, asks them too, and publishes."""

from collections.abc import Awaitable, Callable

from wirelake.clients.esnp import EsnpClient
from wirelake.simulator.answers import refused, told
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.member import Member
from wirelake.simulator.serving import SERVICES, Provider, question
from wirelake.simulator.topics import ADDER, any_topic
from wirelake.simulator.world import World


class Station(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        self._client = EsnpClient(*world.address("esnp"), place.identity, world.tokens[place.identity], tls=world.tls)

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"ask": self._ask, "publish": self._publish}

    async def connect(self) -> None:
        await self._client.open()
        self.connected()
        provider = Provider(self.counts("served"))
        for service in SERVICES:
            await self._client.register(service, provider.answer)

    async def disconnect(self) -> None:
        await self._client.close()

    async def _ask(self, act: Act) -> None:
        asked, wanted = question(act.random())
        answer = self._client.ask(f"{ADDER}/add", asked)
        await self.count("ask", refused(answer) if wanted is None else told(answer, wanted))

    async def _publish(self, act: Act) -> None:
        content = f"{self.place.name} {act.number}"
        await self.count("publish", self._client.publish(any_topic(act.random()), content))
