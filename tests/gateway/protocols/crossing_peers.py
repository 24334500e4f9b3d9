"""One peer of each protocol, with the interface that test_crossing.py needs: publish, subscribe, ask, provide."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import quote

import redis.asyncio
from websockets.asyncio.client import connect

from gateway.comet_client import Phone
from gateway.esnp_client import Station, data_lines, to, values
from gateway.http.calling import Calling
from gateway.magline_client import Box
from gateway.running_gateway import HOST, WAIT_S
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.protocols.comet import frames
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.magline import frames as magline

TOKEN = "t0ken"
DOORS = ("comet", "magline", "apostol", "esnp", "sisnet", "redis")
NAMES = ("comet", "magline", "esnp", "sisnet", "redis", "http")
IDENTITIES = [(name, TOKEN) for name in NAMES]


class Subscriber(Protocol):
    async def subscribe(self, topic: str) -> str:
        """Subscribe; return the reason for refusal, or "" if accepted."""
        ...

    async def receive(self) -> bytes:
        """Return the content of the next notification."""
        ...


class ByClient:
    """Subscribe with Wirelake's own clients."""

    def __init__(self, client: CometClient | MaglineClient | EsnpClient | SisnetClient, caller: Calling) -> None:
        self._client = client
        self._caller = caller
        self._coming = client.notifications()

    async def subscribe(self, topic: str) -> str:
        if isinstance(self._client, CometClient) and not topic.startswith("@"):
            return await self._refusal(topic)
        await self._client.subscribe(topic)
        return ""

    async def _refusal(self, topic: str) -> str:
        """Return how the gateway refuses a subscription that the client itself would not send."""
        async with await Phone.connect(self._caller.port("comet"), "redis", TOKEN) as phone:
            frame = await phone.ask(frames.Subscribe((topic,)))
            assert isinstance(frame, frames.Error), frame
            return f"error {frame.code}"

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return (await anext(self._coming)).content

    async def close(self) -> None:
        await self._coming.aclose()


class ByRedis:
    def __init__(self, pubsub: redis.asyncio.client.PubSub) -> None:
        self._pubsub = pubsub

    async def subscribe(self, topic: str) -> str:
        await self._pubsub.subscribe(topic)
        async with asyncio.timeout(WAIT_S):
            while (parts := await self._pubsub.get_message(timeout=1.0)) is None or parts["type"] != "subscribe":
                pass
        return ""

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            while (parts := await self._pubsub.get_message(timeout=1.0)) is None:
                pass
            assert parts["type"] == "message"
            data: bytes = parts["data"]
            return data


class ByHttp:
    """Subscribe over HTTP, with a stream for each subscription."""

    def __init__(self, caller: Calling, stack: AsyncExitStack) -> None:
        self._caller = caller
        self._stack = stack
        self._lines: AsyncIterator[str] | None = None

    async def subscribe(self, topic: str) -> str:
        headers = {"authorization": f"Bearer http:{TOKEN}"}
        path = f"/api/subscribe?topic={quote(topic, safe='')}"
        response = await self._stack.enter_async_context(self._caller.client.stream("GET", path, headers=headers))
        assert response.status_code == 200
        self._lines = response.aiter_lines()
        return ""

    async def receive(self) -> bytes:
        assert self._lines is not None
        async with asyncio.timeout(WAIT_S):
            async for line in self._lines:
                if line.startswith("data: "):
                    reply = json.loads(line.removeprefix("data: "))
                    content: str = reply["content"]
                    return base64.b64decode(content) if reply.get("encoding") == "base64" else content.encode()
        raise EOFError


Publish = Callable[[str, bytes], Awaitable[Any]]


class Peers:
    """Hold the connected peers by the name of their protocol."""

    def __init__(self) -> None:
        self.subscribers: dict[str, Subscriber] = {}
        self.publish: dict[str, Publish] = {}


@asynccontextmanager
async def connected(caller: Calling) -> AsyncIterator[Peers]:
    """Connect a publisher and a subscriber of each protocol: one identity, two connections."""
    async with AsyncExitStack() as stack:
        peers = Peers()
        websocket = f"ws://{HOST}:{caller.port('sisnet')}"
        for client in (
            CometClient(HOST, caller.port("comet"), "comet", TOKEN),
            MaglineClient(HOST, caller.port("magline"), "magline", TOKEN),
            EsnpClient(HOST, caller.port("esnp"), "esnp", TOKEN),
            SisnetClient(websocket, "sisnet", TOKEN),
        ):
            await stack.enter_async_context(client)
            subscriber = peers.subscribers[client.protocol.name] = ByClient(client, caller)
            stack.push_async_callback(subscriber.close)
        app = redis.asyncio.Redis(host=HOST, port=caller.port("redis"), username="redis", password=TOKEN)
        await stack.enter_async_context(app)
        pubsub = app.pubsub()
        await stack.enter_async_context(pubsub)
        peers.subscribers["redis"] = ByRedis(pubsub)
        peers.subscribers["http"] = ByHttp(caller, stack)
        box = await stack.enter_async_context(MaglineClient(HOST, caller.port("magline"), "magline", TOKEN))
        station = await stack.enter_async_context(EsnpClient(HOST, caller.port("esnp"), "esnp", TOKEN))
        terminal = await stack.enter_async_context(SisnetClient(websocket, "sisnet", TOKEN))
        peers.publish = {
            "magline": box.publish,
            "esnp": station.publish,
            "sisnet": terminal.publish,
            "redis": app.publish,
            "http": lambda topic, content: _post(caller, topic, content),
        }
        yield peers


async def _post(caller: Calling, topic: str, content: bytes) -> None:
    body = {"content": base64.b64encode(content).decode(), "encoding": "base64"}
    response = await caller.call("POST", f"/api/topics/{quote(topic, safe='')}/notifications", body)
    assert response.status_code == 201


# ── requests: each requester returns the text of the answer as its wire has it

Ask = Callable[[str, str, str, dict[str, Any], bytes, int], Coroutine[Any, Any, str]]


@asynccontextmanager
async def requesters(caller: Calling) -> AsyncIterator[dict[str, Ask]]:
    """Connect the requesters: `ask(service, op, object, fields, payload, timeout_ms)`."""
    async with (
        await Station.connect(caller.port("esnp"), "esnp", TOKEN) as station,
        await Box.connect(caller, "magline", TOKEN) as box,
        connect(f"ws://{HOST}:{caller.port('sisnet')}") as socket,
    ):
        await socket.send(f"in:{json.dumps({'command': 'login', 'ask': {'name': 'sisnet', 'password': TOKEN}})}")
        assert json.loads(str(await socket.recv()).partition(":")[2])["ans"] == 0

        async def by_esnp(
            service: str, op: str, about: str, fields: dict[str, Any], payload: bytes, timeout_ms: int
        ) -> str:
            head = [*to(service, op), *([lines.address_line(10, about)] if about else [])]
            body = [lines.header_line("to", var_of(timeout_ms)), *data_lines(**fields)]
            station.send(*head, *body, *([lines.payload_line(payload)] if payload else []))
            parts: list[str] = []
            while True:
                message = await station.receive_message()
                if message.error is not None:
                    return f"ERROR {message.error}"
                reply = [f"DATA {name}={_words(value)}" for name, value in values(message).items()]
                parts += reply + ([f"PAYLOAD {_words(message.payload)}"] if message.payload else [])
                if message.seq_no is None or not message.seq_no.more:
                    return ", ".join(parts) or "empty"

        async def by_sisnet(
            service: str, op: str, about: str, fields: dict[str, Any], payload: bytes, timeout_ms: int
        ) -> str:
            ask = {**fields, **({"payload": base64.b64encode(payload).decode()} if payload else {})}
            ask |= {"serial": about} if about else {}
            await socket.send(f"q:{json.dumps({'service': service, 'command': op, 'ask': ask})}")
            parts: list[str] = []
            while True:
                async with asyncio.timeout(WAIT_S):
                    name, _, rest = str(await socket.recv()).partition(":")
                assert name == "q"
                reply = json.loads(rest)
                parts.append(f"ans {reply['ans']} {_words(reply.get('msg', ''))}".strip())
                if not int(reply.get("fuc", 0)):
                    return ", ".join(parts)

        async def by_magline(
            service: str, op: str, about: str, fields: dict[str, Any], payload: bytes, timeout_ms: int
        ) -> str:
            if about:
                req = box.req(7, json.dumps({"serial": about, **fields}).encode())
            else:
                req = box.req(int(service.removeprefix("magline/")), json.dumps(fields).encode() if fields else payload)
            box.send(req)
            frame = await box.receive()
            if isinstance(frame, magline.Err):
                return f"ERR {frame.error_number}"
            assert isinstance(frame, magline.Rep), frame
            return f"REP {_words(frame.data)}".strip()

        async def by_http(
            service: str, op: str, about: str, fields: dict[str, Any], payload: bytes, timeout_ms: int
        ) -> str:
            if about:
                response = await caller.call("POST", f"/api/devices/{about}/commands", fields)
            else:
                body = {**fields, **({"payload": base64.b64encode(payload).decode()} if payload else {})}
                path = f"/api/services/{quote(service, safe='')}/{op}?timeout_ms={timeout_ms}"
                response = await caller.call("POST", path, body)
            reply = response.json()
            if "error" in reply and isinstance(reply["error"], dict):
                return f"{response.status_code} {reply['error']['message']}"
            return f"{response.status_code} {_words(reply)}"

        yield {"esnp": by_esnp, "sisnet": by_sisnet, "magline": by_magline, "http": by_http}


def _words(value: Any) -> str:
    """Return a value for a table: bytes in hex unless they are plain text."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return text if text.isprintable() and "\ufffd" not in text else value.hex()
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
