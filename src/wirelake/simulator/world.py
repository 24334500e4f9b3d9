"""Hold what the members of a fleet share: the gateway's addresses, their tokens, and the report."""

import asyncio
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct, field

from wirelake.errors import InputError
from wirelake.simulator.limits import SIMULATOR_HTTP_MAX
from wirelake.simulator.report import Report

Http = Callable[[str, str, Any], Any]  # method, path, body → the response's JSON. Blocks, so it is called in a thread


class NetworkFaults(Struct, frozen=True):
    """Give the probability of each fault, from 0 to 1, per packet of a meter."""

    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0  # over UDP only: on TCP it would break the connection


class World(Struct, kw_only=True):
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
        if setting not in self.listeners:
            raise InputError(f"the gateway has no {setting} listener: set listen.{setting}")
        return self.listeners[setting]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.http, method, path, body)
