"""Run a real gateway with its HTTP listener open, and call it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.gateway.http.listener import HttpListener
from wirelake.message import Kind, Message
from wirelake.protocols.session import Closing

BOB = ("bob", "bobs-token")


class Calling(Running):
    """Call the gateway as the admin, or with another bearer token."""

    def __init__(self, running: Running, client: httpx.AsyncClient) -> None:
        super().__init__(running.gateway)
        self.client = client
        self.admin_token = running.gateway.keys.admin_token()

    @property
    def http(self) -> HttpListener:
        listener = self.gateway.listeners["http"]
        assert isinstance(listener, HttpListener)
        return listener

    async def call(
        self, method: str, path: str, body: Any = None, *, bearer: str | None = "", **rest: Any
    ) -> httpx.Response:
        headers = dict(rest.pop("headers", {}))
        if bearer is not None:
            headers["authorization"] = f"Bearer {bearer or self.admin_token}"
        if body is not None:
            rest["json"] = body
        return await self.client.request(method, path, headers=headers, **rest)

    async def refused(self, status: int, code: str, method: str, path: str, body: Any = None, **rest: Any) -> str:
        """Return the message of an error response, after checking its status, code and form."""
        response = await self.call(method, path, body, **rest)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        found = response.json()
        assert found.keys() == {"error"}
        assert found["error"].keys() == {"code", "message"}
        assert found["error"]["code"] == code
        return str(found["error"]["message"])

    async def raw(self, data: bytes) -> bytes:
        """Send these bytes, and return what the gateway sends until it closes."""
        reader, writer = await asyncio.open_connection(HOST, self.port("http"))
        writer.write(data)
        try:
            async with asyncio.timeout(WAIT_S):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def calling(
    folder: Path, *listeners: str, trust: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[Calling]:
    async with running_gateway(folder, "http", *listeners, **options) as running:
        scheme = "https" if trust else "http"
        url = f"{scheme}://{HOST}:{running.port('http')}"
        async with httpx.AsyncClient(base_url=url, verify=trust or True, timeout=WAIT_S, trust_env=False) as client:
            yield Calling(running, client)


class Provider:
    """Provide a service as a peer of the broker."""

    protocol = "test"
    identity = "provider"
    sends_acks = False
    takes_commands = False
    takes_broadcasts = False
    is_admin = False
    address = ""
    pulls_backlog = False
    encoding_key = None
    is_congested = False
    bytes_in = bytes_written = bytes_drained = 0

    def __init__(self, caller: Calling, service: str, answer: Callable[[Message], list[Message]]) -> None:
        self.id = caller.gateway.sessions.new_id()
        self.requests: list[Message] = []
        self._gateway = caller.gateway
        self._answer = answer
        caller.gateway.broker.services.register(self, service)

    def send(self, message: Message) -> None:
        self.requests.append(message)
        for answer in self._answer(message):
            self._gateway.later(0.0, partial(self._give, answer))

    def _give(self, answer: Message) -> None:
        assert self._gateway.broker.services.on_answer(self, answer)

    def encode_notification(self, message: Message) -> bytes:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, closing: Closing) -> None:
        raise NotImplementedError


def answering(message: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=message.correlation, **rest)
