"""A bare esnp connection, for what well-behaved clients never do, and a gateway that listens for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage, EsnpSplitter, decode
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Sender

OPEN = {"auth": {"open": True}}
ANN = ("ann", "t0ken")


class Station:
    """Send and receive esnp messages one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = EsnpSplitter()
        self._received: list[EsnpMessage] = []

    @classmethod
    async def connect(cls, port: int, user: str = "", token: str = "") -> Self:
        """Connect, and log in if there is a user."""
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

    def send(self, *message_lines: lines.Line) -> None:
        """Send one message of these lines."""
        self.write(EsnpMessage(message_lines).encode())

    async def receive(self) -> EsnpMessage | None:
        """Return the next message, or None if the gateway closed the connection."""
        async with asyncio.timeout(WAIT_S):
            while not self._received:
                data = await self._reader.read(65536)
                if not data:
                    assert not self._splitter.rest
                    return None
                self._received += [decode(raw, Sender.SERVER) for raw in self._splitter.receive(data)]
                assert self._splitter.failure is None
        return self._received.pop(0)

    async def receive_message(self) -> EsnpMessage:
        """Return the next message; fail if the gateway closed the connection."""
        message = await self.receive()
        assert message is not None, "the gateway closed"
        return message

    async def receive_last_error(self) -> str | None:
        """Return the ERROR of the next message, which is the last before the gateway closes the connection."""
        last = await self.receive_message()
        assert await self.receive() is None
        return last.error

    async def ask(self, *message_lines: lines.Line) -> EsnpMessage:
        self.send(*message_lines)
        return await self.receive_message()

    async def ask_gateway(self, op: str, **data: Any) -> EsnpMessage:
        return await self.ask(*to("wirelake", op), *data_lines(**data))

    def answer(self, request: EsnpMessage, *message_lines: lines.Line) -> None:
        """Answer a request as the provider of a service."""
        assert request.message_id is not None
        self.send(lines.flag_line(3), lines.source_message_id_line(request.message_id), *message_lines)


def to(service: str, op: str, *, flag: int = 4, number: int | None = None) -> list[lines.Line]:
    """Return the head of an esnp message to a service."""
    head = [lines.flag_line(flag), lines.address_line(20, op), lines.address_line(30, service)]
    return head if number is None else [*head, lines.message_id_line(number)]


def data_lines(**data: Any) -> list[lines.Line]:
    return [lines.data_line(name, var_of(value)) for name, value in data.items()]


def values(message: EsnpMessage) -> dict[str, Any]:
    """Return the DATA of an esnp message."""
    return {name: var.plain() for name, var in message.data}


@asynccontextmanager
async def esnp_gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """Run a gateway that listens for esnp alone; it is open unless it is given identities."""
    async with running_gateway(folder, "esnp", **({} if "identities" in settings else OPEN) | settings) as running:
        yield running


async def connect_station(running: Running, user: str = "ann") -> Station:
    return await Station.connect(running.port("esnp"), user)


@asynccontextmanager
async def service_provider(running: Running, *services: str, user: str = "provider") -> AsyncIterator[Station]:
    """Connect a station that provides these services."""
    async with await connect_station(running, user) as provider:
        for service in services:
            assert (await provider.ask_gateway("register", service=service)).error is None
        yield provider
