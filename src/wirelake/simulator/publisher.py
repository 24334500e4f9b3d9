"""A redis client: publishes quotes on a live channel, and news on durable topics."""

import ssl
from collections.abc import Awaitable, Callable

from wirelake.clients.stream import StreamClient
from wirelake.message import Credentials, Failure, Kind, Message, Op, Topic, control
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.session import Session
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.member import Member
from wirelake.simulator.topics import QUOTES, any_topic, price
from wirelake.simulator.world import World


class RedisClient(StreamClient):
    """As much of one as publishing takes."""

    protocol = PROTOCOL

    def __init__(self, host: str, port: int, user: str, token: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port, tls=tls)
        self._credentials = Credentials(user, token)

    async def publish(self, topic: str, content: str) -> None:
        await self.request(Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=content.encode()))

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s)

    def _login(self) -> Message:
        return control(Op.LOGIN, credentials=self._credentials)

    def _final(self, failure: Failure) -> bool:
        return failure.text.startswith("WRONGPASS")


class Publisher(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        self._client = RedisClient(*world.address("redis"), place.identity, world.tokens[place.identity], world.tls)

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"quote": self._quote, "publish": self._publish}

    async def connect(self) -> None:
        await self._client.open()
        self.connected()

    async def disconnect(self) -> None:
        await self._client.close()

    async def _quote(self, act: Act) -> None:
        number = act.random().randrange(100)
        await self.count("quote", self._client.publish(QUOTES, f"{number} {price(act.random(), number)}"))

    async def _publish(self, act: Act) -> None:
        content = f"{self.place.name} {act.number}"
        await self.count("publish", self._client.publish(any_topic(act.random()), content))
