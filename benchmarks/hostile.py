"""What a well-behaved client notices of an attack: the time of its heartbeats, quiet and under each attack, in one run.

    ./dev bench hostile

A heartbeat is answered after its record is on disk, so the quiet time is that of a sync.
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table
from servers import pin_load, wirelake

from wirelake.protocols.comet.frames import Auth, Heartbeat

BEATS = 300
PAUSE_S = 0.005
PEERS = 500
SETTINGS = {"WIRELAKE_AUTH_OPEN": "false", "WIRELAKE_COMET_LOGIN_S": "30"}

Attack = Callable[[int], Awaitable[None]]


async def silent(port: int) -> None:
    """Connections that never say a word."""
    await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(PEERS)))
    await asyncio.sleep(60)


async def trickling(port: int) -> None:
    """A login, one byte at a time, from many at once."""
    peers = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(PEERS)))
    for byte in Auth("nobody", "x" * 1000).encode():
        for _, writer in peers:
            writer.write(bytes([byte]))
        await asyncio.sleep(0.05)


async def wrong_logins(port: int) -> None:
    """Guessing tokens."""
    for number in range(PEERS):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(Auth("phone", f"guess {number}").encode())
        await asyncio.sleep(0.002)
    await asyncio.sleep(60)


async def flood(port: int) -> None:
    """One connection that sends as fast as it can, and reads what it is told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    beats = Heartbeat().encode() * 1000
    while True:
        writer.write(beats)
        await writer.drain()
        await reader.read(65536)


async def beat(port: int) -> list[float]:
    """Milliseconds from each heartbeat to its ok. They are answered before a login too."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    for _ in range(BEATS):
        start = loop.time()
        writer.write(Heartbeat().encode())
        async with asyncio.timeout(30):
            await reader.readexactly(3)
        taken.append((loop.time() - start) * 1000)
        await asyncio.sleep(PAUSE_S)
    writer.close()
    return taken


async def under(port: int, attack: Attack | None) -> list[float]:
    attacking = None if attack is None else asyncio.ensure_future(attack(port))
    await asyncio.sleep(0.5)
    taken = await beat(port)
    if attacking is not None:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    return taken


def main() -> int:
    pin_load()
    attacks: dict[str, Attack | None] = {
        "quiet": None,
        f"{PEERS} silent connections": silent,
        f"{PEERS} logins, a byte at a time": trickling,
        f"{PEERS} wrong logins": wrong_logins,
        "a flood of frames": flood,
    }
    table = Table(title="a heartbeat's time, ms", title_justify="left")
    for column in ("", "p50", "p99", "longest"):
        table.add_column(column, justify="right" if column else "left")
    for name, attack in attacks.items():
        with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **SETTINGS) as ports:
            taken = sorted(uvloop.run(under(ports["comet"], attack)))
        p99 = taken[int(len(taken) * 0.99)]
        table.add_row(name, f"{statistics.median(taken):.1f}", f"{p99:.1f}", f"{taken[-1]:.1f}")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
