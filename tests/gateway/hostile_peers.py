"""Sockets for peers that attack the gateway, and checks that it serves the others meanwhile."""

import asyncio
import os
from pathlib import Path

from gateway.running_gateway import HOST, WAIT_S, Running
from wirelake.clients.comet import CometClient
from wirelake.protocols.apostol.frames import ApostolSplitter

PHONE = ("phone", "t0ken")  # the identity that must be served


def resident_bytes() -> int:
    """Return how much memory this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return everything that arrives until the gateway closes the connection."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read(-1)
        except ConnectionResetError:
            return b""


async def check_still_served(running: Running) -> None:
    """Check that a well-behaved client can log in, subscribe and receive what is published."""
    async with asyncio.timeout(WAIT_S), CometClient(HOST, running.port("comet"), *PHONE) as phone:
        await phone.subscribe("@news")
        await running.publish("@news", b"still here")
        async for notification in phone.notifications():
            assert notification.content == b"still here"
            break


class DeviceSocket(asyncio.DatagramProtocol):
    """Collect the packets that the gateway sends to a device over UDP."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Split a datagram, which may hold several packets."""
        self.packets += ApostolSplitter().receive(data)


async def open_device_socket(running: Running) -> tuple[asyncio.DatagramTransport, DeviceSocket]:
    loop = asyncio.get_running_loop()
    return await loop.create_datagram_endpoint(DeviceSocket, remote_addr=(HOST, running.port("apostol")))


async def wait_for_packets(device: DeviceSocket, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(device.packets) < count:
            await asyncio.sleep(0.01)
