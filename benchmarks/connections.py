"""Ten thousand quiet comet connections: memory for each, CPU while they are idle, and the time from start to ready.

./dev bench connections
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from servers import pin_load, wirelake

from wirelake.protocols.comet.frames import Auth

CONNECTIONS = 10_000
IDLE_S = 10.0
SETTINGS = {"WIRELAKE_AUTH_OPEN": "true"}


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Quiet(asyncio.Protocol):
    """Logs in and says no more."""

    __slots__ = ("heard", "transport")

    def __init__(self, heard: asyncio.Future[None]) -> None:
        self.heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.heard.done():
            self.heard.set_result(None)


async def hold(port: int, pid: int) -> tuple[float, float]:
    """Bytes a connection, and the share of a core that all of them cost while idle."""
    loop = asyncio.get_running_loop()
    before = resident_bytes(pid)
    peers = []
    for number in range(CONNECTIONS):
        heard: asyncio.Future[None] = loop.create_future()
        _, peer = await loop.create_connection(lambda heard=heard: Quiet(heard), "127.0.0.1", port)  # type: ignore[misc]
        peer.transport.write(Auth(f"phone-{number}", "").encode())
        peers.append(peer)
        if number % 200 == 199:
            await asyncio.gather(*(peer.heard for peer in peers[-200:]))
    await asyncio.sleep(2)
    each = (resident_bytes(pid) - before) / CONNECTIONS
    start = cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    idle = (cpu_s(pid) - start) / IDLE_S
    for peer in peers:
        peer.transport.close()
    await asyncio.sleep(0.5)
    return each, idle


def main() -> int:
    pin_load()
    console = Console()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **SETTINGS) as ports:
        ready_s = time.perf_counter() - start
        each, idle = uvloop.run(hold(ports["comet"], ports["pid"]))
    console.print(f"start to listening: {ready_s:.2f} s (goal: under 1)")
    console.print(f"{CONNECTIONS:,} idle comet connections: {each / 1024:.1f} KiB each (goal: 6)")
    console.print(f"while they are idle: {idle:.1%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
