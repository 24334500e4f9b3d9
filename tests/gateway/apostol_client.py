"""Bare apostol devices over UDP and TCP, for what well-behaved clients never do."""

import asyncio
from typing import Any, Self

from gateway.running_gateway import HOST, WAIT_S
from wirelake.protocols.apostol.commands import DeviceCommand
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, decode
from wirelake.protocols.frame import Sender
from wirelake.protocols.splitter import Splitter


class Meter(asyncio.DatagramProtocol):
    """Send and receive apostol packets over UDP."""

    def __init__(self) -> None:
        self._packets: asyncio.Queue[Packet] = asyncio.Queue()

    @classmethod
    async def connect(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        _, meter = await loop.create_datagram_endpoint(cls, remote_addr=(HOST, port))
        return meter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    @property
    def local_port(self) -> int:
        """Return the port from which this device sends."""
        return int(self._transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, addr: Any) -> None:
        for packet in packets_in(data):
            self._packets.put_nowait(packet)

    def send(self, data: bytes) -> None:
        self._transport.sendto(data)

    async def receive(self) -> Packet:
        async with asyncio.timeout(WAIT_S):
            return await self._packets.get()

    async def is_silent(self, for_s: float = 0.1) -> bool:
        """Return whether no packet arrives for so long."""
        try:
            async with asyncio.timeout(for_s):
                await self._packets.get()
        except TimeoutError:
            return True
        return False


class StreamMeter(Meter, asyncio.Protocol):
    """Send and receive apostol packets over TCP."""

    def __init__(self) -> None:
        super().__init__()
        self._splitter: Splitter = ApostolSplitter()
        self.lost = asyncio.Event()

    @classmethod
    async def connect(cls, port: int) -> Self:
        _, meter = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return meter

    def data_received(self, data: bytes) -> None:
        for raw in self._splitter.receive(data):
            self._packets.put_nowait(decode(raw, Sender.SERVER))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def send(self, data: bytes) -> None:
        self._transport.write(data)


def packets_in(data: bytes) -> list[Packet]:
    return [decode(raw, Sender.SERVER) for raw in ApostolSplitter().receive(data)]


def report(
    serial: str,
    command_no: int,
    data: bytes,
    *,
    command_type: int = 2,
    error: int = 0,
    params: int = 0,
    device_type: int = 0,
    data_bytes: int = 1024,
    seal_with: tuple[bytes, bytes] | None = None,
) -> list[bytes]:
    """Return the encoded packets of a command from a device."""
    command = DeviceCommand(1_700_000_000, command_type, error, data).encode()
    packets = build_packets(command, params, device_type, serial, command_no, data_bytes, seal_with)
    return [packet.encode() for packet in packets]
