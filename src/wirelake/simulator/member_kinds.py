"""Define the members of each protocol: meters, phones, terminals, desks, stations and redis publishers."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Any, Final

from wirelake.backoff import Backoff
from wirelake.clients.apostol import ApostolDevice, Data, DeviceError, DeviceRequest
from wirelake.clients.client import ClientOptions, StreamClient
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.faults import Faults
from wirelake.clients.magline import MaglineClient
from wirelake.clients.notification import Notification
from wirelake.clients.sisnet import SISDB, RecordSubscription, SisnetClient
from wirelake.errors import AnswerError, WirelakeError
from wirelake.limits import CLIENT_INBOX_MAX
from wirelake.message import Credentials, Failure, Kind, Message, Op, Topic, control
from wirelake.protocols.apostol.commands import Reading
from wirelake.protocols.apostol.constants import ENERGY, FREQUENCY, REQUEST_BIT, VOLTAGE, CommandType, ErrorCode
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.protocol import PROTOCOL as REDIS
from wirelake.protocols.session import Session
from wirelake.simulator.fleet import MemberProfile, SimulatedAction
from wirelake.simulator.limits import (
    SIMULATOR_AWAY_S,
    SIMULATOR_COMMAND_MS,
    SIMULATOR_IDS_MAX,
    SIMULATOR_PACKET_DATA_BYTES,
    SIMULATOR_RECEIPT_S,
    SIMULATOR_RESENDS_MAX,
    SIMULATOR_SLOW_INBOX,
    SIMULATOR_SLOW_S,
)
from wirelake.simulator.member import Member, Perform
from wirelake.simulator.world import (
    ADDER,
    FIELDS,
    QUOTES,
    SDB,
    SERVICES,
    USER_COMMAND,
    ServiceProvider,
    World,
    any_topic,
    call_adder,
    expect,
    key,
    price,
    topic,
)

METER_SETTINGS: Final = SessionSettings(
    receipt_s=SIMULATOR_RECEIPT_S,
    resends_max=SIMULATOR_RESENDS_MAX,
    packet_data_bytes=SIMULATOR_PACKET_DATA_BYTES,  # so that readings need several packets
)
ZIPPED: Final = 0.3  # share of the readings
NOTIFICATION: Final = "notification"
_RECONNECT_FIRST_S: Final = 0.05


class Meter(Member):
    """Report status and readings over apostol, and echo the transparent data that the gateway sends."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        probabilities = world.faults
        self._faults = Faults(
            Random(f"faults {world.seed} {profile.name}"),  # noqa: S311 (repeatable, not secret)
            lose=probabilities.loss,
            repeat=probabilities.duplicate,
            delay=probabilities.reorder,
            corrupt=0.0 if profile.stream else probabilities.corrupt,
        )
        self._energy_wh = 1000 * profile.number
        self._device = ApostolDevice(
            *world.address("apostol"),
            profile.name,
            0,
            profile.key,
            transport="tcp" if profile.stream else "udp",
            handler=self._respond,
            settings=METER_SETTINGS,
            mangle=self._faults,
            options=ClientOptions(tls=world.tls if profile.stream else None),
        )

    def performers(self) -> dict[str, Perform]:
        return {"status": self._status, "readings": self._readings, "command": self._command}

    async def connect(self) -> None:
        """Open the device, and report once so that the gateway knows its address."""
        await self._device.open()
        self.count_connection()
        await self.count("status", self._device.status(1))

    async def disconnect(self) -> None:
        await self._device.close()
        for name, count in self._faults.made.items():
            self.world.report.faults[name] += count

    async def _status(self, action: SimulatedAction) -> None:
        random = action.random()
        state, tariff = random.choice((1, 1, 1, 2)), random.randrange(4)
        await self.count("status", self._device.status(state, tariff=tariff))

    async def _readings(self, action: SimulatedAction) -> None:
        random = action.random()
        zipped = random.random() < ZIPPED
        await self.count("readings", self._device.readings(self._measure(random), zipped=zipped))

    def _measure(self, random: Random) -> list[Reading]:
        self._energy_wh += random.randrange(50)
        readings = [Reading(VOLTAGE, random.gauss(230, 3)), Reading(ENERGY, self._energy_wh, 4)]
        readings.append(Reading(FREQUENCY, random.gauss(50, 0.02)))
        return readings + [Reading(kind, random.randrange(65_536)) for kind in range(10, 10 + random.randrange(20))]

    async def _command(self, action: SimulatedAction) -> None:
        await self.count("command", self._send_command(action.random().randbytes(16)))

    async def _send_command(self, data: bytes) -> None:
        """Have the gateway send a command to this device, which echoes its data."""
        body = {"type": CommandType.TRANSPARENT | REQUEST_BIT, "data": data.hex(), "wait_ms": SIMULATOR_COMMAND_MS}
        response = await self.world.request("POST", f"/api/devices/{self.profile.name}/commands", body)
        if response.get("data") != data.hex():
            raise AnswerError("unexpected response of the device", 0)

    async def _respond(self, request: DeviceRequest) -> Data:
        self.counts("command").received += 1
        if request.command_type & ~REQUEST_BIT != CommandType.TRANSPARENT:
            raise DeviceError(ErrorCode.UNKNOWN_COMMAND)
        return request.data


class Phone(Member):
    """Disconnect and reconnect over comet, and acknowledge every notification, also those missed meanwhile."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        self._slow = profile.slow
        self._client: CometClient | None = None
        self._listening: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._seen: OrderedDict[str, None] = OrderedDict()

    def performers(self) -> dict[str, Perform]:
        return {"environ": self._environ, "away": self._away}

    async def connect(self) -> None:
        client = CometClient(
            *self.world.address("comet"),
            self.profile.name,
            self.world.tokens[self.profile.identity],
            secret_bytes=16 if self.profile.key else 0,
            options=_reader_options(self.world, slow=self._slow),
        )
        await client.open()
        self._client = client
        self.count_connection()
        number = self.profile.number
        await self.count("subscribe", client.subscribe(topic(number), topic(number + 3)))
        self._listening = self.start_task(self._listen(client))

    async def take_pending(self) -> None:
        self._slow = False
        await self._stop_listening()
        if self._client is None:
            await self.connect()
            await self._stop_listening()
        if self._client is not None:
            async with aclosing(self._client.drain_backlog(ack=False)) as pending:
                async for notification in pending:
                    await self._take(self._client, notification)

    async def disconnect(self) -> None:
        await self._stop_listening()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _environ(self, action: SimulatedAction) -> None:
        if self._client is not None:
            network = action.random().randrange(1, 5)
            await self.count("environ", self._client.report_environ(network_type=network, phone_type="simulated"))

    async def _away(self, action: SimulatedAction) -> None:
        """Disconnect for a while; the gateway keeps what is published meanwhile."""
        await self.disconnect()
        await asyncio.sleep(action.random().random() * SIMULATOR_AWAY_S)
        await self.connect()

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        if self._taking is not None:
            await self._taking

    async def _listen(self, client: CometClient) -> None:
        async with aclosing(client.notifications(ack=False)) as notifications:
            async for notification in notifications:
                if self._slow:
                    await asyncio.sleep(SIMULATOR_SLOW_S)
                # An ack in flight must not be cancelled: the report would not know whether the gateway has it.
                self._taking = asyncio.create_task(self._take(client, notification))
                await asyncio.shield(self._taking)

    async def _take(self, client: CometClient, notification: Notification) -> None:
        """Count a notification once, but acknowledge duplicates too: the first ack may have been lost."""
        is_new = notification.id not in self._seen
        if is_new:
            self._seen[notification.id] = None
            self.counts(NOTIFICATION).received += 1
            if len(self._seen) > SIMULATOR_IDS_MAX:
                self._seen.popitem(last=False)
        try:
            await client.ack(notification.id)
        except WirelakeError as error:  # the gateway delivers it again
            self._seen.pop(notification.id, None)
            self.counts(NOTIFICATION).received -= is_new
            self.world.report.add_reason(f"{self.profile.protocol} ack: {error}")
        else:
            self.counts(NOTIFICATION).acknowledged += is_new


class Terminal(Member):
    """Call a service over magline, follow quotes, publish, and resume the session after a lost connection."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        backoff = Backoff(first_s=_RECONNECT_FIRST_S, max_s=SIMULATOR_AWAY_S)
        self._client = MaglineClient(
            *world.address("magline"),
            profile.identity,
            world.tokens[profile.identity],
            little=profile.stream,
            options=ClientOptions(tls=world.tls, backoff=backoff),
        )

    def performers(self) -> dict[str, Perform]:
        return {"ask": self._ask, "publish": self._publish, "resume": self._resume}

    async def connect(self) -> None:
        await self._client.open()
        self.count_connection()
        await self.count("subscribe", self._client.subscribe(QUOTES))
        self.start_task(self._listen())

    async def disconnect(self) -> None:
        await self._client.close()

    async def _listen(self) -> None:
        async with aclosing(self._client.notifications()) as notifications:
            async for _ in notifications:
                self.counts("quote").received += 1

    async def _ask(self, action: SimulatedAction) -> None:
        if not self.world.provider:
            await self.count("ping", self._client.ping())
            return
        data = action.random().randbytes(32)
        await self.count("ask", expect(self._client.call(USER_COMMAND, data), data))

    async def _publish(self, action: SimulatedAction) -> None:
        content = f"{self.profile.name} {action.number}"
        await self.count("publish", self._client.publish(any_topic(action.random()), content))

    async def _resume(self, _action: SimulatedAction) -> None:
        await self.count("resume", self._lose_connection())

    async def _lose_connection(self) -> None:
        before = self._client.resumed
        self._client.drop()
        await self._client.ping()
        if self._client.resumed == before:
            raise AnswerError("the session was not resumed", 0)
        self.count_connection()


class Desk(Member):
    """Write, read and follow quotes over sisnet, call a service and publish; by WebSocket or TCP."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        self._key = key(profile.number)
        self._slow = profile.slow and world.provider != profile.protocol  # a provider must read to be called
        uses_tcp = profile.stream and "sisnet_tcp" in world.listeners
        schemes = ("tcp", "tls") if uses_tcp else ("ws", "wss")
        host, port = world.address("sisnet_tcp" if uses_tcp else "sisnet")
        self._client = SisnetClient(
            f"{schemes[world.tls is not None]}://{f'[{host}]' if ':' in host else host}:{port}",
            profile.identity,
            world.tokens[profile.identity],
            binary=profile.stream and profile.key is not None,
            options=_reader_options(world, slow=self._slow),
        )
        self._last_ms = 0

    def performers(self) -> dict[str, Perform]:
        return {"set": self._set, "get": self._get, "ask": self._ask, "publish": self._publish}

    async def connect(self) -> None:
        client = self._client
        await client.open()
        self.count_connection()
        if self.world.provider == self.profile.protocol:
            provider = ServiceProvider(self.counts("served"))
            for service in SERVICES:
                await client.register(service, provider.handle)
        table = {"key": self._key, "sdb": SDB, "fields": FIELDS}
        if await self.count("create", client.ask(SISDB, "create", table)):
            followed = key(max(0, self.profile.number - 1))  # a key that another desk writes
            self.start_task(self._follow(await client.sub(followed, SDB)))

    async def disconnect(self) -> None:
        await self._client.close()

    async def _follow(self, subscription: RecordSubscription) -> None:
        async for records in subscription:
            self.counts("record").received += _count_rows(records)
            if self._slow:
                await asyncio.sleep(SIMULATOR_SLOW_S)

    async def _set(self, action: SimulatedAction) -> None:
        random = action.random()
        self._last_ms = max(self._last_ms + 1, self.world.now_ms())
        row = [self._last_ms, price(random, self.profile.number), random.randrange(1, 500)]
        await self.count("set", self._client.ask(SISDB, "set", {"key": self._key, "sdb": SDB, "data": [row]}))

    async def _get(self, _action: SimulatedAction) -> None:
        await self.count("get", self._client.ask(SISDB, "get", {"key": self._key, "sdb": SDB, "count": 10}))

    async def _ask(self, action: SimulatedAction) -> None:
        await self.count("ask", call_adder(action.random(), lambda value: self._client.ask(ADDER, "add", value)))

    async def _publish(self, action: SimulatedAction) -> None:
        random = action.random()
        content = f"{self.profile.name} {action.number} {random.random():.6f}"
        await self.count("publish", self._client.publish(any_topic(random), content))


class Station(Member):
    """Provide the fleet's services over esnp, call them too, and publish."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        token = world.tokens[profile.identity]
        options = ClientOptions(tls=world.tls)
        self._client = EsnpClient(*world.address("esnp"), profile.identity, token, options=options)

    def performers(self) -> dict[str, Perform]:
        return {"ask": self._ask, "publish": self._publish}

    async def connect(self) -> None:
        await self._client.open()
        self.count_connection()
        provider = ServiceProvider(self.counts("served"))
        for service in SERVICES:
            await self._client.register(service, provider.handle)

    async def disconnect(self) -> None:
        await self._client.close()

    async def _ask(self, action: SimulatedAction) -> None:
        await self.count("ask", call_adder(action.random(), lambda value: self._client.ask(f"{ADDER}/add", value)))

    async def _publish(self, action: SimulatedAction) -> None:
        content = f"{self.profile.name} {action.number}"
        await self.count("publish", self._client.publish(any_topic(action.random()), content))


class RedisClient(StreamClient):
    """Publish over redis; other commands are not needed here."""

    protocol = REDIS

    def __init__(self, host: str, port: int, user: str, token: str, options: ClientOptions) -> None:
        super().__init__(host, port, options=options)
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
    """Publish quotes on a live channel and news on durable topics, over redis."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        super().__init__(world, profile)
        token = world.tokens[profile.identity]
        self._client = RedisClient(*world.address("redis"), profile.identity, token, ClientOptions(tls=world.tls))

    def performers(self) -> dict[str, Perform]:
        return {"quote": self._quote, "publish": self._publish}

    async def connect(self) -> None:
        await self._client.open()
        self.count_connection()

    async def disconnect(self) -> None:
        await self._client.close()

    async def _quote(self, action: SimulatedAction) -> None:
        number = action.random().randrange(100)
        await self.count("quote", self._client.publish(QUOTES, f"{number} {price(action.random(), number)}"))

    async def _publish(self, action: SimulatedAction) -> None:
        content = f"{self.profile.name} {action.number}"
        await self.count("publish", self._client.publish(any_topic(action.random()), content))


MEMBERS: Final[dict[str, Callable[[World, MemberProfile], Member]]] = {
    "apostol": Meter,
    "comet": Phone,
    "magline": Terminal,
    "sisnet": Desk,
    "esnp": Station,
    "redis": Publisher,
}


def _reader_options(world: World, *, slow: bool) -> ClientOptions:
    return ClientOptions(tls=world.tls, inbox_max=SIMULATOR_SLOW_INBOX if slow else CLIENT_INBOX_MAX)


def _count_rows(records: Any) -> int:
    """Return the number of rows: records of one series are a list, of several a dict of lists by name."""
    return sum(map(len, records.values())) if isinstance(records, dict) else len(records)
