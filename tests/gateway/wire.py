"""Bare sockets that speak comet, esnp and apostol frame by frame, for what well-behaved clients never do."""

import asyncio
from typing import Any, Self

from gateway.running import HOST, WAIT_S
from wirelake.protocols.apostol.commands import DeviceCommand
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, decode
from wirelake.protocols.comet import frames
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage, EsnpSplitter
from wirelake.protocols.esnp.frames import decode as decode_esnp
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.splitter import Splitter


class Phone:
    """comet. `hear` answers the next frame, or None where the gateway closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def call(cls, port: int, client_id: str = "", token: str = "") -> Self:
        phone = cls(*await asyncio.open_connection(HOST, port))
        if client_id:
            phone.say(frames.Auth(client_id, token))
            assert isinstance(await phone.hear(), frames.AuthSuccess)
        return phone

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def say(self, *said: Frame) -> None:
        self.write(b"".join(frame.encode() for frame in said))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> frames.CometFrame | None:
        async with asyncio.timeout(WAIT_S):
            try:
                head = await self._reader.readexactly(2)
                return frames.decode(head + await self._reader.readexactly(int.from_bytes(head)), Sender.SERVER)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    raise
                return None

    async def ask(self, frame: Frame) -> frames.CometFrame | None:
        self.say(frame)
        return await self.hear()

    async def error(self) -> int:
        """The code of the next frame, which is an error."""
        heard = await self.hear()
        assert isinstance(heard, frames.Error), heard
        return heard.code


class Station:
    """esnp. `hear` answers the next message, or None where the gateway closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = EsnpSplitter()
        self._heard: list[EsnpMessage] = []

    @classmethod
    async def call(cls, port: int, user: str = "", token: str = "") -> Self:
        station = cls(*await asyncio.open_connection(HOST, port))
        if user:
            answer = await station.ask_gateway("login", user=user, token=token)
            assert (answer.flags, answer.error) == ((3, 4), None)
        return station

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def say(self, *said: lines.Line) -> None:
        """One message of these lines."""
        self.write(EsnpMessage(said).encode())

    async def hear(self) -> EsnpMessage | None:
        async with asyncio.timeout(WAIT_S):
            while not self._heard:
                data = await self._reader.read(65536)
                if not data:
                    assert not self._splitter.rest
                    return None
                self._heard += [decode_esnp(raw, Sender.SERVER) for raw in self._splitter.receive(data)]
                assert self._splitter.failure is None
        return self._heard.pop(0)

    async def message(self) -> EsnpMessage:
        heard = await self.hear()
        assert heard is not None, "the gateway closed"
        return heard

    async def ask(self, *said: lines.Line) -> EsnpMessage:
        self.say(*said)
        return await self.message()

    def answer(self, asked: EsnpMessage, *said: lines.Line) -> None:
        """As the provider of a service."""
        assert asked.message_id is not None
        self.say(lines.flag_line(3), lines.source_message_id_line(asked.message_id), *said)

    async def ask_gateway(self, op: str, **data: Any) -> EsnpMessage:
        return await self.ask(*to("wirelake", op), *data_lines(**data))


def to(service: str, op: str, *, flag: int = 4, number: int | None = None) -> list[lines.Line]:
    """The head of an esnp message to a service."""
    head = [lines.flag_line(flag), lines.address_line(20, op), lines.address_line(30, service)]
    return head if number is None else [*head, lines.message_id_line(number)]


def data_lines(**data: Any) -> list[lines.Line]:
    return [lines.data_line(name, var_of(value)) for name, value in data.items()]


def values(message: EsnpMessage) -> dict[str, Any]:
    """The DATA of an esnp message."""
    return {name: var.plain() for name, var in message.data}


class Meter(asyncio.DatagramProtocol):
    """apostol over UDP. `hear` answers the next packet."""

    def __init__(self) -> None:
        self._packets: asyncio.Queue[Packet] = asyncio.Queue()

    @classmethod
    async def call(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        _, meter = await loop.create_datagram_endpoint(cls, remote_addr=(HOST, port))
        return meter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        for packet in packets_in(data):
            self._packets.put_nowait(packet)

    def send(self, data: bytes) -> None:
        self._transport.sendto(data)

    async def hear(self) -> Packet:
        async with asyncio.timeout(WAIT_S):
            return await self._packets.get()

    async def silent(self, for_s: float = 0.1) -> bool:
        """Whether nothing comes."""
        try:
            async with asyncio.timeout(for_s):
                await self._packets.get()
        except TimeoutError:
            return True
        return False


class StreamMeter(Meter, asyncio.Protocol):
    """apostol over TCP."""

    def __init__(self) -> None:
        super().__init__()
        self._splitter: Splitter = ApostolSplitter()
        self.lost = asyncio.Event()

    @classmethod
    async def call(cls, port: int) -> Self:
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
    """The packets of a command from a device."""
    command = DeviceCommand(1_700_000_000, command_type, error, data).encode()
    packets = build_packets(command, params, device_type, serial, command_no, data_bytes, seal_with)
    return [packet.encode() for packet in packets]
