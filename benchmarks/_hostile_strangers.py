"""Attacks of peers that never log in, for the table in hostile.py: what they might take of memory and disk."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final

from _hostile_logins import HOST, Target

from wirelake.protocols.sisnet.envelope import write_size

PROMISING = 160
PROMISED_BYTES = 16_000_000
SENT_BYTES = 15_000_000
SILENT_STREAMS = 400
DATAGRAM_BYTES = 1200
DATAGRAMS_AT_ONCE = 50
DATAGRAM_PAUSE_S = 0.001  # or what is measured is how busy this process is, which also beats the innocent's heart


async def promised_frames(target: Target) -> None:
    """Most of a frame that is never finished, from many at once, and again when one is cut off."""
    piece = b"x" * 100_000

    async def send() -> None:
        while True:
            _, writer = await asyncio.open_connection(HOST, target.ports["sisnet_tcp"])
            with contextlib.suppress(OSError):
                writer.write(write_size(PROMISED_BYTES))
                for _ in range(SENT_BYTES // len(piece)):
                    writer.write(piece)
                    await writer.drain()
            writer.close()
            await asyncio.sleep(0.2)

    await asyncio.gather(*(send() for _ in range(PROMISING)))


async def silent_streams(target: Target) -> None:
    """Device connections that bring no packet."""
    connect = asyncio.open_connection
    await asyncio.gather(*(connect(HOST, target.ports["apostol"]) for _ in range(SILENT_STREAMS)))
    await asyncio.sleep(60)


async def garbage_datagrams(target: Target) -> None:
    """Datagrams that are no packets, as fast as one socket can."""
    loop = asyncio.get_running_loop()
    address = (HOST, target.ports["apostol"])
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
    while True:
        for _ in range(DATAGRAMS_AT_ONCE):
            transport.sendto(os.urandom(DATAGRAM_BYTES))
        await asyncio.sleep(DATAGRAM_PAUSE_S)


STRANGER_ATTACKS: Final[tuple[tuple[str, Callable[[Target], Awaitable[None]]], ...]] = (
    (f"{PROMISING} × 15 of a promised 16 MB", promised_frames),
    (f"{SILENT_STREAMS} silent device streams", silent_streams),
    ("a flood of garbage datagrams", garbage_datagrams),
)
