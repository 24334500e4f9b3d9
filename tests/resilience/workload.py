"""Mixed load of all protocols, each sender with a number for everything it sends, and a model of what was promised.

A promise is an answer: 201, `ok`, REP, a receipt. What was promised is stored after any failure; what was sent and not
answered may be stored or not; nothing else is.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import httpx
import redis.asyncio
from cli.serving import HOST
from msgspec import Struct, field
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from resilience.process import GatewayProcess
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.client import ClientOptions
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.notification import Notification
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import WirelakeError

PHONE: Final = "phone"
SERIALS: Final = ("meter-udp", "meter-tcp")
PUBLISHERS: Final = ("http", "magline", "esnp", "sisnet", "redis")
TOPICS: Final = (*(f"@chaos/{name}" for name in PUBLISHERS), *(f"@devices/{serial}" for serial in SERIALS))
KEY: Final = "chaos"
TABLE: Final = {"key": "chaos", "sdb": "numbers"}
ROUND_NUMBERS: Final = 1_000_000  # of one round: numbers are never used twice
METER_NUMBERS: Final = 100_000  # of one meter in one round
DRAIN_S: Final = 120.0
CONNECT_S: Final = 30.0
OPTIONS: Final = ClientOptions(connect_s=CONNECT_S)
_FAILURES: Final = (WirelakeError, RedisError, httpx.HTTPError, OSError)

Send = Callable[[int], Awaitable[object]]


class Model(Struct):
    """Hold what was sent and what was promised, over all rounds."""

    sent: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # by topic, key or table
    promised: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    received: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by the phone, by topic
    acked: set[tuple[str, int]] = field(default_factory=set)  # of those, the ones whose ack was answered
    problems: list[str] = field(default_factory=list)

    def drained(self, notifications: list[Notification]) -> None:
        """Check what the gateway delivered to the phone, which had acked some of it before."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for notification in notifications:
            by_topic[topic_of(notification)].append(number_of(notification))
        for topic, numbers in by_topic.items():
            again = [number for number in numbers if (topic, number) in self.acked]
            if again:
                self.problems.append(f"{topic}: acked, and offered again: {again[:5]}")
            if numbers != sorted(set(numbers)):
                self.problems.append(f"{topic}: offered twice or out of order")
            self.received[topic] += numbers
            self.acked |= {(topic, number) for number in numbers}

    def check_topics(self) -> None:
        for topic in TOPICS:
            delivered = set(self.received[topic])
            self._compare(topic, delivered)

    def check_value(self, value: int) -> None:
        """Check the key that was set to one number after the other."""
        promised = max(self.promised[KEY], default=0)
        if value < promised or (value and value not in self.sent[KEY]):
            self.problems.append(f"the key holds {value} after {promised} was promised")

    def check_records(self, numbers: list[int]) -> None:
        self._compare(TABLE["sdb"], set(numbers))

    def _compare(self, name: str, delivered: set[int]) -> None:
        if lost := self.promised[name] - delivered:
            self.problems.append(f"{name}: {len(lost)} promised and lost: {sorted(lost)[:5]}")
        if invented := delivered - self.sent[name]:
            self.problems.append(f"{name}: {len(invented)} never sent: {sorted(invented)[:5]}")


def topic_of(notification: Notification) -> str:
    """Return the topic, which comet does not send: the content has it, and a meter has a range of numbers."""
    body = json.loads(notification.content)
    if "topic" in body:
        return str(body["topic"])
    return f"@devices/{SERIALS[number_of(notification) % ROUND_NUMBERS // METER_NUMBERS]}"


def number_of(notification: Notification) -> int:
    body = json.loads(notification.content)
    return int(body.get("number", body.get("device_time")))


class Workload:
    """Send from all clients until the gateway is gone."""

    def __init__(self, gateway: GatewayProcess, model: Model) -> None:
        self._gateway = gateway
        self._model = model

    def provide(self) -> None:
        for serial in SERIALS:
            self._gateway.post("/api/devices", {"serial": serial})

    async def prepare(self) -> None:
        """Make the phone's subscriptions, and the table of the records."""
        async with self._phone() as phone, self._sisnet() as sisnet:
            await phone.subscribe(*TOPICS)
            await sisnet.ask("sisdb", "create", {**TABLE, "fields": [["time", "U", 8, 1]]})

    async def run(self, round_: int, seconds: float, fail: Callable[[], None]) -> None:
        """Run load for some seconds, then call `fail` while all clients are sending."""
        first = (round_ + 1) * ROUND_NUMBERS
        async with AsyncExitStack() as stack:
            senders = await self._senders(stack)
            starts = {f"@devices/{serial}": first + place * METER_NUMBERS for place, serial in enumerate(SERIALS)}
            tasks = [
                asyncio.create_task(self._send(name, send, starts.get(name, first))) for name, send in senders.items()
            ]
            tasks.append(asyncio.create_task(self._listen()))
            await asyncio.sleep(seconds)
            fail()
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        self._model.problems += [repr(error) for error in ended if isinstance(error, Exception)]

    async def check(self) -> None:
        """Read what is stored after a restart, and compare it with what was promised."""
        async with asyncio.timeout(DRAIN_S), self._phone() as phone, self._sisnet() as sisnet, self._redis() as values:
            self._model.drained([notification async for notification in phone.drain_backlog()])
            self._model.check_topics()
            self._model.check_value(int(await values.get(KEY) or 0))
            records = await sisnet.ask("sisdb", "get", dict(TABLE))
            self._model.check_records([row[0] for row in records or []])

    async def _senders(self, stack: AsyncExitStack) -> dict[str, Send]:
        web = await stack.enter_async_context(httpx.AsyncClient(headers=self._gateway.headers, timeout=CONNECT_S))
        magline = await stack.enter_async_context(self._magline())
        esnp = await stack.enter_async_context(self._esnp())
        sisnet = await stack.enter_async_context(self._sisnet())
        values = await stack.enter_async_context(self._redis())
        meters = [await stack.enter_async_context(self._meter(serial)) for serial in SERIALS]

        async def post(number: int) -> None:
            url = f"{self._gateway.url}/api/topics/%40chaos%2Fhttp/notifications"
            (await web.post(url, json={"content": content("http", number)})).raise_for_status()

        def report(meter: ApostolDevice) -> Send:
            return lambda number: meter.report(1, bytes(12), device_time=number)

        return {
            "@chaos/http": post,
            "@chaos/magline": lambda number: magline.publish("@chaos/magline", content("magline", number)),
            "@chaos/esnp": lambda number: esnp.publish("@chaos/esnp", content("esnp", number)),
            "@chaos/sisnet": lambda number: sisnet.publish("@chaos/sisnet", content("sisnet", number)),
            "@chaos/redis": lambda number: values.publish("@chaos/redis", content("redis", number)),
            KEY: lambda number: values.set(KEY, number),
            TABLE["sdb"]: lambda number: sisnet.ask("sisdb", "set", {**TABLE, "data": [[number]]}),
            **{f"@devices/{meter.serial}": report(meter) for meter in meters},
        }

    async def _send(self, name: str, send: Send, number: int) -> None:
        with suppress(*_FAILURES):
            while True:
                number += 1
                self._model.sent[name].add(number)
                await send(number)
                self._model.promised[name].add(number)

    async def _listen(self) -> None:
        """Receive notifications as the phone, and ack every second one at once."""
        with suppress(*_FAILURES):
            async with self._phone() as phone:
                async for notification in phone.notifications(ack=False):
                    number, topic = number_of(notification), topic_of(notification)
                    if number % 2 or (topic, number) in self._model.acked:
                        continue
                    # An ack that was sent and not answered may count or not: the phone has the notification either way.
                    self._model.received[topic].append(number)
                    await phone.ack(notification.id)
                    self._model.acked.add((topic, number))

    def _phone(self) -> CometClient:
        return CometClient(HOST, self._gateway.ports["comet"], PHONE, "", options=OPTIONS)

    def _magline(self) -> MaglineClient:
        return MaglineClient(HOST, self._gateway.ports["magline"], "box", "", options=OPTIONS)

    def _esnp(self) -> EsnpClient:
        return EsnpClient(HOST, self._gateway.ports["esnp"], "station", "", options=OPTIONS)

    def _sisnet(self) -> SisnetClient:
        return SisnetClient(f"ws://{HOST}:{self._gateway.ports['sisnet']}", "terminal", "", options=OPTIONS)

    def _redis(self) -> redis.asyncio.Redis:
        once = Retry(NoBackoff(), 0)  # what was sent twice would have two answers
        return redis.asyncio.Redis(host=HOST, port=self._gateway.ports["redis"], retry=once)

    def _meter(self, serial: str) -> ApostolDevice:
        transport: Any = serial.rpartition("-")[2]
        return ApostolDevice(HOST, self._gateway.ports["apostol"], serial, transport=transport, options=OPTIONS)


def content(publisher: str, number: int) -> str:
    return json.dumps({"topic": f"@chaos/{publisher}", "number": number})
