"""A bare comet connection, for what well-behaved clients never do, and a gateway that listens for it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.protocols.comet import frames
from wirelake.protocols.frame import Frame, Sender

OPEN = {"auth": {"open": True}}


@asynccontextmanager
async def comet_gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """Run a gateway that listens for comet alone; it is open unless it is given identities."""
    async with running_gateway(folder, "comet", **({} if "identities" in settings else OPEN) | settings) as running:
        yield running


def comet_port(running: Running) -> int:
    return running.port("comet")


class Phone:
    """Send and receive comet frames one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(
        cls, port: int, client_id: str = "", token: str = "", *, tls: ssl.SSLContext | None = None
    ) -> Self:
        """Connect, and log in if there is a client id."""
        phone = cls(*await asyncio.open_connection(HOST, port, ssl=tls))
        if client_id:
            phone.send(frames.Auth(client_id, token))
            assert isinstance(await phone.receive(), frames.AuthSuccess)
        return phone

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, *sent: Frame) -> None:
        self.write(b"".join(frame.encode() for frame in sent))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> frames.CometFrame | None:
        """Return the next frame, or None if the gateway closed the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                head = await self._reader.readexactly(2)
                return frames.decode(head + await self._reader.readexactly(int.from_bytes(head)), Sender.SERVER)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    raise
                return None

    async def ask(self, frame: Frame) -> frames.CometFrame | None:
        self.send(frame)
        return await self.receive()

    async def receive_error(self) -> int:
        """Return the code of the next frame, which is an error."""
        frame = await self.receive()
        assert isinstance(frame, frames.Error), frame
        return frame.code

    async def receive_message(self) -> frames.Message:
        """Return the next frame, which is a notification."""
        frame = await self.receive()
        assert isinstance(frame, frames.Message), frame
        return frame

    async def fetch_backlog(self) -> tuple[frames.Message, ...]:
        """Return the notifications that wait for this client, as one list frame holds them."""
        frame = await self.ask(frames.GetMessageList())
        assert isinstance(frame, frames.MessageList), frame
        return frame.messages
