"""A WebSocket client as the protocol's authors wrote theirs: no Host, a key of 24 characters, nothing masked."""

import asyncio
from typing import Self

from websockets.frames import Frame, Opcode

from gateway.running import HOST, WAIT_S

KEY = b"ILQL3ApAfaDHTncMRryNsbza"
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + KEY + b"\r\n\r\n"
)
_U16_LENGTH = 126


class AuthorsClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def call(cls, port: int, name: str, password: str) -> Self:
        client = cls(*await asyncio.open_connection(HOST, port))
        client._writer.write(HANDSHAKE)
        async with asyncio.timeout(WAIT_S):
            assert b" 101 " in await client._reader.readuntil(b"\r\n\r\n")  # which is all that the authors look for
        client.send(b'0:{"cmd":"login","ask":{"username":"%s","password":"%s"}}' % (name.encode(), password.encode()))
        assert await client.receive() == b'0:{"ans":0}'
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, message: bytes, *, binary: bool = False) -> None:
        self._writer.write(Frame(Opcode.BINARY if binary else Opcode.TEXT, message).serialize(mask=False))

    async def receive(self) -> bytes:
        """The next message, of less than 64 KiB."""
        async with asyncio.timeout(WAIT_S):
            head = await self._reader.readexactly(2)
            assert head[0] in {0x80 | Opcode.TEXT, 0x80 | Opcode.BINARY}, head
            size = head[1]
            if size == _U16_LENGTH:
                size = int.from_bytes(await self._reader.readexactly(2))
            return await self._reader.readexactly(size)
