"""Bare sisnet connections over TCP and WebSocket, message by message.

`UnmaskedClient` is the client of the protocol's authors: no Host header, a key of 24 characters, nothing masked.
"""

import asyncio
import json
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode

from gateway.running_gateway import HOST, WAIT_S, Running
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.envelope import SisnetFrame, sized
from wirelake.protocols.sisnet.frames import SisnetTcpSplitter, decode
from wirelake.protocols.text import read_json, write_json

IDENTITY = ("terminal", "t0ken")
UNMASKED_KEY = b"ILQL3ApAfaDHTncMRryNsbza"
UNMASKED_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + UNMASKED_KEY + b"\r\n\r\n"
)
_U16_LENGTH = 126


class Terminal:
    """Send and receive sisnet messages over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = SisnetTcpSplitter()
        self._received: list[bytes] = []

    @classmethod
    async def connect(cls, running: Running, name: str = "", token: str = "", **login: Any) -> Self:
        """Connect, and log in if there is a name."""
        terminal = cls(*await asyncio.open_connection(HOST, running.port("sisnet_tcp")))
        if name:
            answer = await terminal.ask("in", command="login", ask={"name": name, "password": token}, **login)
            assert answer == {"ans": 0}
        return terminal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def pause(self) -> None:
        """Read nothing for a while, as a slow program would."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def resume(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.resume_reading()

    def send(self, message: bytes) -> None:
        self._writer.write(sized(message))

    def write(self, data: bytes) -> None:
        """Write bytes to the stream, without a size before them."""
        self._writer.write(data)

    def send_json(self, name: str, **keys: Any) -> None:
        self.send(name.encode() + b":" + write_json(keys))

    async def receive(self) -> bytes:
        """Return the next message as it is on the wire."""
        async with asyncio.timeout(WAIT_S):
            while not self._received:
                data = await self._reader.read(65536)
                assert data, "the gateway closed the connection"
                self._received += map(self._splitter.bare, self._splitter.receive(data))
        return self._received.pop(0)

    async def receive_until_closed(self) -> None:
        while True:
            await self.receive()

    async def receive_json(self, name: str) -> Any:
        """Return the JSON of the next message, which has this name."""
        message = await self.receive()
        received_name, _, rest = message.partition(b":")
        assert received_name == name.encode(), message
        return read_json(rest)

    async def receive_frame(self) -> SisnetFrame:
        return decode(await self.receive(), Sender.SERVER)

    async def ask(self, name: str, **keys: Any) -> Any:
        self.send_json(name, **keys)
        return await self.receive_json(name)

    async def sisdb(self, command: str, service: str = "sisdb", **arguments: Any) -> Any:
        """Return what a data set answers: `msg`, or the failure."""
        answer = await self.ask("q", service=service, command=command, ask=arguments)
        return answer.get("msg", "ok") if answer["ans"] >= 0 else f"failed: {answer['msg']}"


class WebTerminal:
    """Send and receive sisnet messages with the WebSocket client of the websockets library."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def connect(cls, port: int, identity: tuple[str, str] = IDENTITY) -> Self:
        terminal = cls(await connect(f"ws://{HOST}:{port}", max_queue=None, compression=None, max_size=None))
        answer = await terminal.ask("in", command="login", ask={"name": identity[0], "password": identity[1]})
        assert answer == {"ans": 0}
        return terminal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()

    async def send_json(self, name: str, **keys: Any) -> None:
        await self._socket.send(f"{name}:{json.dumps(keys)}")

    async def send(self, message: str | bytes) -> None:
        await self._socket.send(message)

    async def ask(self, name: str, **keys: Any) -> Any:
        await self.send_json(name, **keys)
        return await self.receive_json(name)

    async def receive_json(self, name: str) -> Any:
        """Return the JSON of the next message, which has this name."""
        message = await self.receive()
        assert isinstance(message, str), f"JSON comes as text: {message!r}"
        assert message.startswith(f"{name}:"), f"expected {name}, received {message[:200]}"
        return json.loads(message[len(name) + 1 :])

    async def receive(self) -> str | bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._socket.recv()


class UnmaskedClient:
    """Send and receive sisnet messages as the protocol's authors' WebSocket client does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int, name: str, password: str) -> Self:
        client = cls(*await asyncio.open_connection(HOST, port))
        client._writer.write(UNMASKED_HANDSHAKE)
        async with asyncio.timeout(WAIT_S):
            assert b" 101 " in await client._reader.readuntil(b"\r\n\r\n")  # the authors' client checks nothing else
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
        """Return the next message, of less than 64 KiB."""
        async with asyncio.timeout(WAIT_S):
            head = await self._reader.readexactly(2)
            assert head[0] in {0x80 | Opcode.TEXT, 0x80 | Opcode.BINARY}, head
            size = head[1]
            if size == _U16_LENGTH:
                size = int.from_bytes(await self._reader.readexactly(2))
            return await self._reader.readexactly(size)


def websocket_url(running: Running) -> str:
    return f"ws://{HOST}:{running.port('sisnet')}"


async def ask_over(socket: ClientConnection, name: str, **keys: Any) -> dict[str, Any]:
    await socket.send(f"{name}:{json.dumps(keys)}")
    return await receive_from(socket, name)


async def receive_from(socket: ClientConnection, name: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        message = await socket.recv()
    assert isinstance(message, str), "JSON is sent as text"
    received_name, _, rest = message.partition(":")
    assert received_name == name
    answer: dict[str, Any] = json.loads(rest)
    return answer


async def receive_until_closed(socket: ClientConnection) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            await socket.recv()


async def log_in(socket: ClientConnection) -> None:
    answer = await ask_over(socket, "in", command="login", ask={"name": IDENTITY[0], "password": IDENTITY[1]})
    assert answer["ans"] == 0
