"""Hold what the members of a fleet share: addresses, tokens, the report, names, and the services they provide."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

from msgspec import Struct, field

from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.errors import AnswerError, InputError
from wirelake.simulator.limits import SIMULATOR_HTTP_MAX, SIMULATOR_KEYS, SIMULATOR_TOPICS
from wirelake.simulator.report import Report, SimulationCounts

Http = Callable[[str, str, Any], Any]  # method, path, body → the response's JSON. Blocks, so it is called in a thread

QUOTES: Final = "sim/quotes"  # a live topic
SDB: Final = "sim_quote"
FIELDS: Final = [["time", "U", 8, 1], ["newp", "F", 8, 1], ["vol", "U", 4, 1]]  # newp: the newest price
ADDER: Final = "sim-adder"
USER_COMMAND: Final = 16  # the first business_cmd of magline that is free for users
USER_SERVICE: Final = f"magline/{USER_COMMAND}"
SERVICES: Final = (ADDER, USER_SERVICE)
_INVALID_REQUESTS: Final = 0.1  # share of requests that the adder must refuse
_TOO_FEW_NUMBERS: Final = "add needs two numbers"


class NetworkFaults(Struct, frozen=True):
    """Give the probability of each fault, from 0 to 1, per packet of a meter."""

    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0  # over UDP only: on TCP it would break the connection


class World(Struct, kw_only=True):
    """Give the members of a fleet access to one gateway."""

    http: Http
    listeners: dict[str, tuple[str, int]]  # by the setting's name
    seed: int = 0
    faults: NetworkFaults = NetworkFaults()
    tokens: dict[str, str] = field(default_factory=dict)  # by identity
    report: Report = field(default_factory=Report)
    tls: ssl.SSLContext | None = None
    provider: str = ""  # the protocol whose members provide the services
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(SIMULATOR_HTTP_MAX, "simulator"))

    def address(self, setting: str) -> tuple[str, int]:
        """Return host and port of a listener of the gateway."""
        if setting not in self.listeners:
            raise InputError(f"the gateway has no {setting} listener: set listen.{setting}")
        return self.listeners[setting]

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the HTTP API."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.http, method, path, body)


def topic(number: int) -> str:
    return f"@sim/news/{number % SIMULATOR_TOPICS}"


def any_topic(random: Random) -> str:
    return topic(random.randrange(SIMULATOR_TOPICS))


def key(number: int) -> str:
    return f"sim{number % SIMULATOR_KEYS:04}"


def price(random: Random, number: int) -> float:
    """Return a price around the level of this key, in hundredths."""
    return round(10 + number % SIMULATOR_KEYS + random.gauss(0, 0.25), 2)


class ServiceProvider:
    """Handle the requests of the fleet: one service adds numbers, the other echoes."""

    def __init__(self, counts: SimulationCounts) -> None:
        self._counts = counts

    async def handle(self, request: ServiceRequest) -> Any:
        self._counts.received += 1
        if request.service == ADDER and isinstance(request.value, dict):
            numbers = request.value.get("numbers", [])
            if len(numbers) < 2:
                raise ServiceError(_TOO_FEW_NUMBERS, 400)
            self._counts.acknowledged += 1
            return {"sum": sum(numbers)}
        if request.service == USER_SERVICE:
            self._counts.acknowledged += 1
            return request.value
        raise ServiceError("invalid request", 400)


async def call_adder(random: Random, ask: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
    """Call the adder with `ask` and check the response; some requests are invalid and must be refused."""
    if random.random() < _INVALID_REQUESTS:
        await expect_refusal(ask({"numbers": [1]}))
    else:
        numbers = [random.randrange(1000) for _ in range(5)]
        await expect(ask({"numbers": numbers}), {"sum": sum(numbers)})


async def expect(response: Awaitable[Any], wanted: Any) -> None:
    """Raise AnswerError unless the response is the wanted one."""
    if await response != wanted:
        raise AnswerError("unexpected response", 0)


async def expect_refusal(response: Awaitable[Any]) -> None:
    """Raise AnswerError unless the service itself refuses."""
    try:
        await response
    except AnswerError as error:
        if _TOO_FEW_NUMBERS in error.text:
            return
        raise
    raise AnswerError("the service accepted an invalid request", 0)
