"""Record what crosses the sockets between our own clients and a gateway, and return it as packets of a capture."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pcap_writer import START_US, STEP_US, CapturedPacket, TcpConversation, udp_packet

from wirelake.protocols.frame import Sender

HOST = "127.0.0.1"
_READ_BYTES = 65_536
_CLIENT_PORT = 50_000


class Recorder:
    """A relay in front of a listener. `sent` has the bytes that passed, in the order in which they did."""

    def __init__(self, is_udp: bool) -> None:
        self.sent: list[tuple[Sender, bytes]] = []
        self.is_udp = is_udp
        self.port = 0

    def stream(self, sender: Sender) -> bytes:
        return b"".join(data for by, data in self.sent if by is sender)

    def packets(self, server_port: int) -> list[CapturedPacket]:
        """Return the packets as if the server had this port."""
        ends = {Sender.CLIENT: (HOST, _CLIENT_PORT), Sender.SERVER: (HOST, server_port)}
        if self.is_udp:
            return [
                CapturedPacket(START_US + number * STEP_US, udp_packet(ends[sender], ends[sender.other], data))
                for number, (sender, data) in enumerate(self.sent)
            ]
        conversation = TcpConversation(ends[Sender.CLIENT], ends[Sender.SERVER])
        conversation.open()
        for sender, data in self.sent:
            conversation.send(sender, data)
        conversation.close()
        return conversation.packets


@asynccontextmanager
async def recorded_tcp(target_port: int) -> AsyncIterator[Recorder]:
    """Relay one connection to a listener."""
    recorder = Recorder(is_udp=False)
    tasks: list[asyncio.Task[None]] = []

    async def relay(sender: Sender, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            recorder.sent.append((sender, data))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, target_port)
        tasks.append(asyncio.create_task(relay(Sender.CLIENT, reader, server_writer)))
        tasks.append(asyncio.create_task(relay(Sender.SERVER, server_reader, writer)))

    server = await asyncio.start_server(accept, HOST, 0)
    recorder.port = server.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        server.close()
        await asyncio.gather(*tasks)
        await server.wait_closed()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, sender: Sender, recorder: Recorder) -> None:
        self._sender = sender
        self._recorder = recorder
        self.other: asyncio.DatagramTransport | None = None
        self.target: Any = None  # where the other end's datagrams go; None if its socket is connected
        self.peer: Any = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.peer = addr
        self._recorder.sent.append((self._sender, data))
        assert self.other is not None
        self.other.sendto(data, self.target() if self.target is not None else None)


@asynccontextmanager
async def recorded_udp(target_port: int) -> AsyncIterator[Recorder]:
    """Relay the datagrams of one client to a listener."""
    recorder = Recorder(is_udp=True)
    loop = asyncio.get_running_loop()
    from_client, from_server = _Datagrams(Sender.CLIENT, recorder), _Datagrams(Sender.SERVER, recorder)
    inner, _ = await loop.create_datagram_endpoint(lambda: from_client, local_addr=(HOST, 0))
    outer, _ = await loop.create_datagram_endpoint(lambda: from_server, remote_addr=(HOST, target_port))
    from_client.other, from_server.other = outer, inner
    from_server.target = lambda: from_client.peer
    recorder.port = inner.get_extra_info("sockname")[1]
    try:
        yield recorder
    finally:
        inner.close()
        outer.close()
