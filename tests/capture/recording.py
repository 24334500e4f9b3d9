"""Record real conversations between our clients and a gateway, as a capture would have seen them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from pcap_writer import STEP_US, CapturedPacket, TcpConversation, udp_packet

from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import read_json

LOGIN = ("box", "sesame-token")
CLIENT, SERVER = ("10.0.0.2", 50_000), ("10.0.0.1", 0)


class Chunk(NamedTuple):
    sender: Sender
    data: bytes


class Recording:
    """What both ends of one connection sent, in order."""

    def __init__(self, port: int, *, is_datagrams: bool) -> None:
        self.port = port  # of the server
        self.is_datagrams = is_datagrams
        self.chunks: list[Chunk] = []

    def sent(self, sender: Sender) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.sender is sender)

    def packets(self, port: int | None = None, **options: Any) -> list[CapturedPacket]:
        """Return the packets of a whole connection to this port of the server."""
        server = (SERVER[0], port or self.port)
        if self.is_datagrams:
            ends = {Sender.CLIENT: (CLIENT, server), Sender.SERVER: (server, CLIENT)}
            start_us = TcpConversation().at_us
            return [
                CapturedPacket(start_us + index * STEP_US, udp_packet(*ends[chunk.sender], chunk.data))
                for index, chunk in enumerate(self.chunks)
            ]
        talk = TcpConversation(CLIENT, server, **options)
        talk.open()
        for chunk in self.chunks:
            talk.send(chunk.sender, chunk.data)
        talk.close()
        return talk.packets


@asynccontextmanager
async def tcp_relay(port: int, recording: Recording) -> AsyncIterator[int]:
    """Pass bytes on to a port, and record them. Yield the port to connect to."""

    async def copy(sender: Sender, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            recording.chunks.append(Chunk(sender, data))
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    async def relay() -> None:
        reader, writer = await accepted
        to_reader, to_writer = await asyncio.open_connection(HOST, port)
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(Sender.CLIENT, reader, to_writer))
            both.create_task(copy(Sender.SERVER, to_reader, writer))

    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *streams: accepted.set_result(streams), HOST, 0)
    async with server, asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(relay())
        yield server.sockets[0].getsockname()[1]


class _UdpRelay(asyncio.DatagramProtocol):
    def __init__(self, port: int, recording: Recording) -> None:
        self._server = (HOST, port)
        self._client: Any = None
        self._recording = recording
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        is_server = address[1] == self._server[1]
        if not is_server:
            self._client = address
        self._recording.chunks.append(Chunk(Sender.SERVER if is_server else Sender.CLIENT, data))
        self.transport.sendto(data, self._client if is_server else self._server)


@asynccontextmanager
async def udp_relay(port: int, recording: Recording) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _UdpRelay(port, recording), local_addr=(HOST, 0))
    yield transport.get_extra_info("sockname")[1]
    transport.close()


# ── conversations


async def _comet(port: int, running: Running) -> None:
    async with CometClient(HOST, port, *LOGIN) as client:
        await client.subscribe("@news")
        for number in range(5):
            await running.publish("@news", f"item {number} " * 300)
        for _ in range(5):
            await client.ack((await client.next_notification(60)).id)
        await client.ping()


async def _magline(port: int, _: Running) -> None:
    async with MaglineClient(HOST, port, *LOGIN) as client:
        await client.publish("@news", "hidden" * 500)
        await client.ping()


async def _esnp(port: int, _: Running) -> None:
    async with EsnpClient(HOST, port, *LOGIN) as client:
        for number in range(3):
            await client.publish("@news", f"{number}" * 2000)


async def _sisnet(port: int, _: Running, scheme: str = "tcp") -> None:
    async with SisnetClient(f"{scheme}://{HOST}:{port}", *LOGIN) as client:
        for number in range(3):
            await client.publish("@news", f"{number}" * 500)


async def _websocket(port: int, running: Running) -> None:
    await _sisnet(port, running, "ws")


async def _apostol(port: int, _: Running, transport: Any = "tcp") -> None:
    async with ApostolDevice(HOST, port, "meter-1", 6, transport=transport) as meter:
        await meter.status(3, tariff=1)
        await meter.readings({1: 7, 2: 70_000, 3: 1.5})
        await meter.report(2, bytes(range(256)) * 20)


async def _apostol_udp(port: int, running: Running) -> None:
    await _apostol(port, running, "udp")


Conversing = Callable[[int, Running], Awaitable[None]]
CONVERSATIONS: dict[str, tuple[str, Conversing, bool]] = {  # listener, what is said, whether by UDP
    "comet": ("comet", _comet, False),
    "magline": ("magline", _magline, False),
    "esnp": ("esnp", _esnp, False),
    "sisnet": ("sisnet_tcp", _sisnet, False),
    "sisnet by WebSocket": ("sisnet", _websocket, False),
    "apostol by TCP": ("apostol", _apostol, False),
    "apostol by UDP": ("apostol", _apostol_udp, True),
}


async def record(name: str, folder: Path) -> tuple[Recording, list[dict[str, Any]]]:
    """Hold a conversation. Return what was sent, and the frames as the gateway logged them."""
    return await record_conversation(*CONVERSATIONS[name], folder)


async def record_conversation(
    listener: str, converse: Conversing, is_datagrams: bool, folder: Path
) -> tuple[Recording, list[dict[str, Any]]]:
    async with running_gateway(folder, listener, identities=[LOGIN], devices=[("meter-1", 6, None)]) as running:
        recording = Recording(running.port(listener), is_datagrams=is_datagrams)
        relay = udp_relay if is_datagrams else tcp_relay
        async with relay(recording.port, recording) as port:
            await converse(port, running)
    return recording, frames_of(folder / "data")


def records_of(data: Path) -> list[dict[str, Any]]:
    rows = [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]
    return [{**row, "note": read_json(row["note"].encode()) if row["note"] else {}} for row in rows]


def frames_of(data: Path) -> list[dict[str, Any]]:
    return [row for row in records_of(data) if row["event"] == "frame"]


def joined(rows: Iterable[dict[str, Any]], direction: str) -> bytes:
    return b"".join(row["frame"] for row in rows if row["direction"] == direction)
