"""Load for the fan-out benchmark: raw sockets that count bytes, so that the load never costs more than the server.

Every server is asked in the protocol that is its own: nats, or redis (which Wirelake speaks too).
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct


class Wire(Struct, frozen=True):
    """How to log in, subscribe and publish, and how long a delivered message is on the wire."""

    hello: bytes
    hello_done: bytes  # what the server's answer to `hello` ends with
    subscribe: bytes
    subscribed: bytes  # what its answer ends with
    publish: bytes
    delivered_bytes: int


def redis_wire(channel: bytes, payload: bytes, *, auth: bool = False) -> Wire:
    def command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])

    message = command(b"message", channel, payload)
    return Wire(
        hello=command(b"AUTH", b"bench", b"bench") if auth else command(b"PING"),
        hello_done=b"+OK\r\n" if auth else b"+PONG\r\n",
        subscribe=command(b"SUBSCRIBE", channel),
        subscribed=b":1\r\n",
        publish=command(b"PUBLISH", channel, payload),
        delivered_bytes=len(message),
    )


def nats_wire(subject: bytes, payload: bytes) -> Wire:
    message = b"MSG %b 1 %d\r\n%b\r\n" % (subject, len(payload), payload)
    return Wire(
        hello=b'CONNECT {"verbose":false,"pedantic":false,"name":"bench"}\r\nPING\r\n',
        hello_done=b"PONG\r\n",
        subscribe=b"SUB %b 1\r\nPING\r\n" % subject,
        subscribed=b"PONG\r\n",
        publish=b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload),
        delivered_bytes=len(message),
    )


class Counting(asyncio.Protocol):
    """Counts bytes until there are as many as wanted."""

    def __init__(self, done: Callable[[], None]) -> None:
        self.got = 0
        self.wanted = 0
        self.tail = b""
        self.done = done
        self.lost = False
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.wanted:
            self.tail = (self.tail + data)[-64:]
            return
        before = self.got
        self.got += len(data)
        if before < self.wanted <= self.got:
            self.done()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.wanted and self.got < self.wanted:
            self.lost = True
            self.done()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


async def connect(host: str, port: int, wire: Wire, done: Callable[[], None], *, subscribe: bool) -> Counting:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Counting(done), host, port)
    await _ask(peer, wire.hello, wire.hello_done)
    if subscribe:
        await _ask(peer, wire.subscribe, wire.subscribed)
    return peer


async def _ask(peer: Counting, question: bytes, answer: bytes) -> None:
    peer.tail = b""
    peer.transport.write(question)
    async with asyncio.timeout(20):
        while not peer.tail.endswith(answer):
            await asyncio.sleep(0.001)


async def fan_out(host: str, port: int, wire: Wire, subscribers: int, messages: int, batch: int) -> float:
    """Seconds from the first publish until every subscriber has every message."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    left = subscribers

    def done() -> None:
        nonlocal left
        left -= 1
        if not left and not finished.done():
            finished.set_result(None)

    peers = [await connect(host, port, wire, done, subscribe=True) for _ in range(subscribers)]
    publisher = await connect(host, port, wire, lambda: None, subscribe=False)
    for peer in peers:
        peer.wanted = wire.delivered_bytes * messages
    chunk = wire.publish * batch
    start = loop.time()
    for _ in range(messages // batch):
        publisher.transport.write(chunk)
        await publisher.writable.wait()
        await asyncio.sleep(0)
    async with asyncio.timeout(120):
        await finished
    took = loop.time() - start
    lost = sum(peer.lost for peer in peers)
    for peer in [*peers, publisher]:
        peer.transport.close()
    if lost:
        raise RuntimeError(f"{lost} subscribers lost their connection")
    return took
