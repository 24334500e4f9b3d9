"""Subscribers whose protocol has no acks: a notification counts as delivered only once the peer has shown so."""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import Struct
from websockets.sync.client import connect

from gateway.certificates import make_certificate
from gateway.esnp_client import data_lines, to
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.sisnet.envelope import sized

TOPIC = "@a"
COUNT = 400
MIB = 1 << 20
OPEN: dict[str, Any] = {"auth": {"open": True}}


class SubscriberBytes(Struct, frozen=True):
    """Hold the messages of a subscriber in one protocol."""

    listener: str
    login: bytes
    subscribe: bytes
    ping: bytes


def _esnp(op: str, **data: Any) -> bytes:
    head: list[lines.Line] = to("wirelake", op)
    return EsnpMessage((*head, *data_lines(**data))).encode()


def _sisnet(text: str) -> bytes:
    return sized(text.encode())


REDIS = SubscriberBytes(
    "redis",
    Command((b"AUTH", b"ann", b"t")).encode(),
    Command((b"SUBSCRIBE", TOPIC.encode())).encode(),
    Command((b"PING",)).encode(),
)
ESNP = SubscriberBytes("esnp", _esnp("login", user="ann", token="t"), _esnp("subscribe", topic=TOPIC), _esnp("ping"))
SISNET = SubscriberBytes(
    "sisnet_tcp",
    _sisnet('i:{"command":"login","ask":{"name":"ann","password":"t"}}'),
    _sisnet('s:{"service":"wirelake","command":"subscribe","ask":{"topic":"@a"}}'),
    _sisnet('p:{"service":"wirelake","command":"ping"}'),
)
every_protocol = pytest.mark.parametrize("wire", [REDIS, ESNP, SISNET], ids=lambda wire: wire.listener)


class Subscriber:
    """Subscribe over a bare socket that is read only on demand."""

    def __init__(self, running: Running, wire: SubscriberBytes) -> None:
        self._running = running
        self._wire = wire
        self._socket = socket.create_connection((HOST, running.port(wire.listener)))
        self._socket.setblocking(False)
        self.read = b""

    async def __aenter__(self) -> Self:
        before = self._running.gateway.broker.durable.sessions("ann", TOPIC)
        await self._send(self._wire.login + self._wire.subscribe)
        await until(lambda: self._running.gateway.broker.durable.sessions("ann", TOPIC) > before)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await until(lambda: not self._running.gateway.connections)

    def close(self) -> None:
        self._socket.close()

    async def ping(self) -> None:
        await self._send(self._wire.ping)

    async def contents(self, count: int) -> list[str]:
        """Return the contents of all notifications in the order of arrival, once there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(found := re.findall(rb"n\d{4};", self.read)) < count:
                data = await asyncio.get_running_loop().sock_recv(self._socket, MIB)
                assert data, "the gateway closed the connection"
                self.read += data
        return [each.decode() for each in found]

    async def _send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)


def number(index: int) -> str:
    return f"n{index:04};"


NUMBERS = [number(index) for index in range(COUNT)]


async def publish(running: Running, contents: list[str] = NUMBERS) -> None:
    """Publish these, and wait until they are written to the connected subscribers."""
    for content in contents:
        await running.publish(TOPIC, content)
    await until(lambda: not running.gateway.broker.waiting)


def unacked(running: Running) -> Callable[[], int]:
    def count() -> int:
        found = running.gateway.state.topics.delivery_counts("ann", TOPIC)
        assert found is not None
        return found.pending

    return count


@every_protocol
async def test_who_read_nothing_and_went_away_gets_all_of_it(tmp_path: Path, wire: SubscriberBytes) -> None:
    async with running_gateway(tmp_path, wire.listener, **OPEN) as running:
        async with Subscriber(running, wire):
            await publish(running)
        assert unacked(running)() == COUNT
        async with Subscriber(running, wire) as again:
            assert await again.contents(COUNT) == NUMBERS


@every_protocol
async def test_who_read_nothing_when_the_gateway_stopped_gets_all_of_it(tmp_path: Path, wire: SubscriberBytes) -> None:
    async with running_gateway(tmp_path, wire.listener, **OPEN) as running:
        subscriber = await Subscriber(running, wire).__aenter__()
        await publish(running)
    subscriber.close()
    async with running_gateway(tmp_path, wire.listener, **OPEN) as running, Subscriber(running, wire) as again:
        assert await again.contents(COUNT) == NUMBERS


@every_protocol
async def test_who_read_and_sent_a_ping_has_them(tmp_path: Path, wire: SubscriberBytes) -> None:
    async with running_gateway(tmp_path, wire.listener, **OPEN) as running:
        async with Subscriber(running, wire) as subscriber:
            await publish(running)
            assert await subscriber.contents(COUNT) == NUMBERS
            waiting = unacked(running)
            async with asyncio.timeout(WAIT_S):
                while waiting():
                    await subscriber.ping()
                    await asyncio.sleep(0.05)
        await publish(running, ["n9999;"])
        async with Subscriber(running, wire) as again:
            assert await again.contents(1) == ["n9999;"]


@every_protocol
async def test_who_stays_without_a_word_has_them_in_the_end(tmp_path: Path, wire: SubscriberBytes) -> None:
    settings = {**OPEN, "broker": {"implicit_ack_s": 0.5}}
    async with (
        running_gateway(tmp_path, wire.listener, **settings) as running,
        Subscriber(running, wire) as subscriber,
    ):
        await publish(running)
        assert await subscriber.contents(COUNT) == NUMBERS
        await until(lambda: not unacked(running)())


@every_protocol
async def test_what_does_not_fit_into_the_network_is_not_acked(tmp_path: Path, wire: SubscriberBytes) -> None:
    """Check that only what the kernels' buffers hold is written to a peer that reads nothing."""
    long = [number(index) + "x" * 200_000 for index in range(60)]
    settings = {**OPEN, "broker": {"implicit_ack_s": 0.1}}
    async with running_gateway(tmp_path, wire.listener, **settings) as running:
        durable = running.gateway.broker.durable
        async with Subscriber(running, wire) as stuck:
            for content in long:
                await running.publish(TOPIC, content)
            await asyncio.sleep(1.5)  # many times the setting
            left = unacked(running)()
            assert left > 10
            assert durable.implicit_acks.due_s is not None
            await stuck.ping()
            await asyncio.sleep(0.5)
            assert unacked(running)() == left, "nothing more has drained"
        async with Subscriber(running, wire) as again:
            assert await again.contents(left) == [number(index) for index in range(60)][-left:]


async def test_with_tls_too(tmp_path: Path) -> None:
    """Check that nothing is acked while data is in flight: the buffer of a TLS transport is not visible."""
    cert, key = make_certificate(tmp_path / "tls", HOST)
    long = [number(index) + "x" * 200_000 for index in range(60)]
    settings = {**OPEN, "broker": {"implicit_ack_s": 0.1}, "tls": {"cert": str(cert), "key": str(key)}}
    async with running_gateway(tmp_path, "redis", **settings) as running:
        reader, writer = await asyncio.open_connection(
            HOST, running.port("redis"), ssl=ssl.create_default_context(cafile=cert), limit=1024
        )
        writer.write(REDIS.login + REDIS.subscribe)
        await until(lambda: running.gateway.broker.durable.sessions("ann", TOPIC))
        for content in long:
            await running.publish(TOPIC, content)
        await asyncio.sleep(1.5)
        left = unacked(running)()
        assert left > 10
        seen = b""
        async with asyncio.timeout(WAIT_S):
            while len(re.findall(rb"n\d{4};", seen)) < len(long):
                seen += await reader.read(MIB)
        await until(lambda: not unacked(running)())
        writer.transport.abort()


async def test_a_websockets_own_ping_is_a_word_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet", **OPEN) as running:

        def converse() -> None:
            with connect(f"ws://{HOST}:{running.port('sisnet')}") as websocket:
                for message in (SISNET.login, SISNET.subscribe):
                    websocket.send(message[1:].decode())
                    websocket.recv(WAIT_S)
                subscribed.set()
                while "n0000;" not in websocket.recv(WAIT_S):
                    pass
                while not over.is_set():
                    websocket.ping()
                    over.wait(0.05)

        subscribed, over = threading.Event(), threading.Event()
        conversation = asyncio.create_task(asyncio.to_thread(converse))
        await until(subscribed.is_set)
        await publish(running, [number(0)])
        await until(lambda: not unacked(running)())
        over.set()
        await conversation
