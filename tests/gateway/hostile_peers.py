"""Sockets for peers that attack the gateway, and checks that it serves the others meanwhile."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from gateway.gateway_process import ServeProcess
from gateway.running_gateway import HOST, WAIT_S, Running
from wirelake.clients.comet import CometClient
from wirelake.limits import KIB
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, receipt_for

PHONE = ("phone", "t0ken")  # the identity that must be served
REPEAT_S = 1.0  # a device sends a packet again after so long without a receipt


def resident_bytes() -> int:
    """Return how much memory this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has used so far."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * KIB


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


async def open_device_socket(running: Running | ServeProcess) -> tuple[asyncio.DatagramTransport, DeviceSocket]:
    port = running.ports["apostol"] if isinstance(running, ServeProcess) else running.port("apostol")
    return await asyncio.get_running_loop().create_datagram_endpoint(DeviceSocket, remote_addr=(HOST, port))


async def wait_for_packets(device: DeviceSocket, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(device.packets) < count:
            await asyncio.sleep(0.01)


async def send_packet(transport: asyncio.DatagramTransport, device: DeviceSocket, packet: Packet) -> None:
    """Send a packet again and again until its receipt arrives, as devices do: a datagram may be lost."""
    receipt = receipt_for(packet).encode()
    async with asyncio.timeout(WAIT_S):
        while receipt not in device.packets:
            transport.sendto(packet.encode())
            with suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S):
                    while receipt not in device.packets:
                        await asyncio.sleep(0.002)
