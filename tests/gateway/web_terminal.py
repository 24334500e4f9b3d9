"""A sisnet terminal on the websockets library's own client: names, JSON and bytes as they are on the wire."""

import asyncio
import json
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect

from gateway.running import HOST, WAIT_S

IDENTITY = ("terminal", "t0ken")


class WebTerminal:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def call(cls, port: int, identity: tuple[str, str] = IDENTITY) -> Self:
        terminal = cls(await connect(f"ws://{HOST}:{port}", max_queue=None, compression=None, max_size=None))
        answer = await terminal.ask("in", command="login", ask={"name": identity[0], "password": identity[1]})
        assert answer == {"ans": 0}
        return terminal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()

    async def say(self, name: str, **keys: Any) -> None:
        await self._socket.send(f"{name}:{json.dumps(keys)}")

    async def send(self, message: str | bytes) -> None:
        await self._socket.send(message)

    async def ask(self, name: str, **keys: Any) -> Any:
        await self.say(name, **keys)
        return await self.hear(name)

    async def hear(self, name: str) -> Any:
        """The next JSON message, which has this name."""
        message = await self.next()
        assert isinstance(message, str), f"JSON comes as text: {message!r}"
        assert message.startswith(f"{name}:"), f"expected {name}, heard {message[:200]}"
        return json.loads(message[len(name) + 1 :])

    async def next(self) -> str | bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._socket.recv()
