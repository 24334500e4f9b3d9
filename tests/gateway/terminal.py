"""A bare sisnet connection over TCP, message by message."""

import asyncio
from typing import Any, Self

from gateway.running import HOST, WAIT_S, Running
from wirelake.protocols.frame import Sender
from wirelake.protocols.jsontext import read_json, write_json
from wirelake.protocols.sisnet.frames import SisnetTcpSplitter, decode
from wirelake.protocols.sisnet.names import SisnetFrame
from wirelake.protocols.sisnet.sizes import sized


class Terminal:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = SisnetTcpSplitter()
        self._waiting: list[bytes] = []

    @classmethod
    async def call(cls, running: Running, name: str = "", token: str = "", **login: Any) -> Self:
        """With a name, logged in."""
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

    def write(self, message: bytes) -> None:
        self._writer.write(sized(message))

    def write_raw(self, data: bytes) -> None:
        """Bytes of the stream, as they are."""
        self._writer.write(data)

    def say(self, name: str, **keys: Any) -> None:
        self.write(name.encode() + b":" + write_json(keys))

    async def hear(self) -> bytes:
        """The next message, as it is."""
        async with asyncio.timeout(WAIT_S):
            while not self._waiting:
                data = await self._reader.read(65536)
                assert data, "the gateway closed the connection"
                self._waiting += map(self._splitter.bare, self._splitter.receive(data))
        return self._waiting.pop(0)

    async def hear_to_the_end(self) -> None:
        while True:
            await self.hear()

    async def hear_json(self, name: str) -> Any:
        """The next message, which is JSON under this name."""
        message = await self.hear()
        told, _, rest = message.partition(b":")
        assert told == name.encode(), message
        return read_json(rest)

    async def hear_frame(self) -> SisnetFrame:
        return decode(await self.hear(), Sender.SERVER)

    async def ask(self, name: str, **keys: Any) -> Any:
        self.say(name, **keys)
        return await self.hear_json(name)

    async def sisdb(self, command: str, service: str = "sisdb", **asked: Any) -> Any:
        """What a data set answers: `msg`, or the failure."""
        answer = await self.ask("q", service=service, command=command, ask=asked)
        return answer.get("msg", "ok") if answer["ans"] >= 0 else f"failed: {answer['msg']}"
