"""A bare redis connection, for answers byte by byte."""

import asyncio
import ssl
from typing import Self

from gateway.running_gateway import HOST, WAIT_S, Running
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.frames import Command, Value
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.splitter import ValueSplitter
from wirelake.protocols.redis.values import to_plain


class RedisConnection:
    """Send commands and receive values one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = ValueSplitter()
        self._received: list[bytes] = []

    @classmethod
    async def connect(cls, running: Running, *, tls: ssl.SSLContext | None = None) -> Self:
        return cls(*await asyncio.open_connection(HOST, running.port("redis"), ssl=tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, *words: bytes) -> None:
        self._writer.write(Command(words).encode())

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            while not self._received:
                self._received += self._splitter.receive(await self._reader.read(65536))
        return self._received.pop(0)

    async def ask(self, command: str | bytes) -> bytes:
        """Send the words of a command, which spaces separate; return the answer as it is on the wire."""
        self.send(*(command.encode() if isinstance(command, str) else command).split(b" "))
        return await self.receive()

    async def ask_plain(self, command: str) -> object:
        """Send a command, and return the answer as a Python value."""
        value = decode(await self.ask(command), Sender.SERVER)
        assert isinstance(value, Value)
        return to_plain(value)
