"""A phone on comet: comes and goes, and acknowledges what it is told, now or when it is back."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from wirelake.clients.comet import CometClient
from wirelake.clients.notification import Notification
from wirelake.errors import WirelakeError
from wirelake.limits import CLIENT_INBOX_MAX
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_AWAY_S, SIMULATOR_IDS_KEPT_MAX, SIMULATOR_SLOW_INBOX, SIMULATOR_SLOW_S
from wirelake.simulator.member import Member
from wirelake.simulator.topics import topic
from wirelake.simulator.world import World

NOTIFICATION = "notification"


class Phone(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        self._slow = place.slow
        self._client: CometClient | None = None
        self._listening: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._seen: OrderedDict[str, None] = OrderedDict()

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"environ": self._environ, "away": self._away}

    async def connect(self) -> None:
        host, port = self.world.address("comet")
        token = self.world.tokens[self.place.identity]
        client = CometClient(
            host,
            port,
            self.place.name,
            token,
            tls=self.world.tls,
            secret_bytes=16 if self.place.key else 0,
            inbox_max=SIMULATOR_SLOW_INBOX if self._slow else CLIENT_INBOX_MAX,
        )
        await client.open()
        self._client = client
        self.connected()
        number = self.place.number
        await self.count("subscribe", client.subscribe(topic(number), topic(number + 3)))
        self._listening = self.begin(self._listen(client))

    async def settle(self) -> None:
        """Everything that waits is taken, at full speed."""
        self._slow = False
        await self._quiet()
        if self._client is None:
            await self.connect()
            await self._quiet()
        if self._client is not None:
            async with aclosing(self._client.drain_backlog(ack=False)) as waiting:
                async for notification in waiting:
                    await self._take(self._client, notification)

    async def disconnect(self) -> None:
        await self._quiet()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _environ(self, act: Act) -> None:
        if self._client is not None:
            network = act.random().randrange(1, 5)
            await self.count("environ", self._client.report_environ(network_type=network, phone_type="simulated"))

    async def _away(self, act: Act) -> None:
        """What is published meanwhile waits at the gateway."""
        await self.disconnect()
        await asyncio.sleep(act.random().random() * SIMULATOR_AWAY_S)
        await self.connect()

    async def _quiet(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        if self._taking is not None:
            await self._taking

    async def _listen(self, client: CometClient) -> None:
        async with aclosing(client.notifications(ack=False)) as coming:
            async for notification in coming:
                if self._slow:
                    await asyncio.sleep(SIMULATOR_SLOW_S)
                # An ack under way is not broken off: whether the gateway has it would not be known.
                self._taking = asyncio.create_task(self._take(client, notification))
                await asyncio.shield(self._taking)

    async def _take(self, client: CometClient, notification: Notification) -> None:
        """Counted once, acknowledged each time: a repeat may mean that the ack was lost."""
        new = notification.id not in self._seen
        if new:
            self._seen[notification.id] = None
            self.counts(NOTIFICATION).received += 1
            if len(self._seen) > SIMULATOR_IDS_KEPT_MAX:
                self._seen.popitem(last=False)
        try:
            await client.ack(notification.id)
        except WirelakeError as error:  # it comes again
            self._seen.pop(notification.id, None)
            self.counts(NOTIFICATION).received -= new
            self.world.report.blame(f"comet ack: {error}")
        else:
            self.counts(NOTIFICATION).acknowledged += new
