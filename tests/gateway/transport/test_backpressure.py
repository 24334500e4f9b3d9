"""Peers that do not read their answers: the gateway stops reading them, and their answers stay bounded."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.certificates import make_certificate, unverified_context
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import KIB, MIB
from wirelake.protocols.redis.frames import Command

ASKED = 300
VALUE = b"v" * (256 * KIB)
GET = Command((b"GET", b"large")).encode()
OPEN = {"open": True}


async def silent_asker(running: Running, *, tls: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with small buffers, so that unread answers stay in the gateway."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, (HOST, running.port("redis")))
    context = unverified_context() if tls else None
    return await asyncio.open_connection(sock=link, ssl=context, server_hostname=HOST if tls else None, limit=64 * KIB)


def connection_of(running: Running) -> Connection:
    (connection,) = running.gateway.connections.values()
    return connection


async def settled(read: Callable[[], int]) -> int:
    """Wait until a number no longer changes, and return it."""
    last = -1
    async with asyncio.timeout(WAIT_S):
        while (now := read()) != last:
            last = now
            await asyncio.sleep(0.3)
    return last


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("behind_a_write", [False, True], ids=["at once", "behind a write"])
async def test_answers_in_memory_are_bounded_and_none_is_lost(
    tmp_path: Path, *, secure: bool, behind_a_write: bool
) -> None:
    tls = {}
    if secure:
        cert, key = make_certificate(tmp_path / "tls", "gateway")
        tls = {"cert": str(cert), "key": str(key)}
    async with running_gateway(tmp_path, "redis", auth=OPEN, tls=tls) as running:
        reader, writer = await silent_asker(running, tls=secure)
        writer.write(Command((b"SET", b"large", VALUE)).encode())
        assert await reader.readline() == b"+OK\r\n"
        connection = connection_of(running)
        first = Command((b"SET", b"small", b"1")).encode() if behind_a_write else b""
        writer.write(first + GET * ASKED + Command((b"PING",)).encode())
        await settled(lambda: connection.frames_out)
        largest = running.gateway.settings.limits.pending_bytes + 2 * len(VALUE)
        assert connection.frames_out < ASKED, "the rest is not even read"
        assert 0 < connection.pending_bytes <= largest
        async with asyncio.timeout(4 * WAIT_S):
            if behind_a_write:
                assert await reader.readline() == b"+OK\r\n"
            for _ in range(ASKED):
                assert await reader.readline() == b"$%d\r\n" % len(VALUE)
                assert await reader.readexactly(len(VALUE) + 2) == VALUE + b"\r\n"
                assert connection.pending_bytes <= largest
            assert await reader.readline() == b"+PONG\r\n"
        writer.close()


async def test_who_never_reads_is_closed_and_counted(tmp_path: Path) -> None:
    limits = {"stall_s": 0.5}
    async with running_gateway(tmp_path, "redis", auth=OPEN, limits=limits) as running:
        reader, writer = await silent_asker(running)
        writer.write(Command((b"SET", b"large", VALUE)).encode())
        assert await reader.readline() == b"+OK\r\n"
        writer.write(GET * ASKED)
        await until(lambda: not running.gateway.connections)
        assert running.gateway.counters.closed["redis", "stalled"] == 1
        assert running.gateway.stalls.bytes == 0
        (closed,) = await running.recorded("close")
        assert closed["note"]["reason"] == "stalled"
        writer.close()


async def test_all_who_do_not_read_share_one_limit(tmp_path: Path) -> None:
    limits = {"unread_bytes": 4 * MIB}
    async with running_gateway(tmp_path, "redis", auth=OPEN, limits=limits) as running:
        requesters = [await silent_asker(running) for _ in range(10)]
        reader, writer = requesters[0]
        writer.write(Command((b"SET", b"large", VALUE)).encode())
        assert await reader.readline() == b"+OK\r\n"
        for _, writer in requesters:
            writer.write(GET * ASKED)
        await until(lambda: running.gateway.counters.closed["redis", "unread_bytes"] >= 5)
        await settled(lambda: running.gateway.stalls.bytes)
        assert 0 < running.gateway.stalls.bytes <= 4 * MIB
        held = sum(connection.pending_bytes for connection in running.gateway.connections.values())
        assert held <= 4 * MIB + 10 * (MIB + 2 * len(VALUE)) // 2
        for _, writer in requesters:
            writer.close()


async def test_who_is_not_read_is_not_taken_for_silent(tmp_path: Path) -> None:
    """Check that a peer whose input is paused does not time out: it may have sent pings."""
    async with running_gateway(tmp_path, "redis", auth=OPEN, redis={"idle_s": 0.3}) as running:
        reader, writer = await silent_asker(running)
        writer.write(Command((b"SET", b"large", VALUE)).encode())
        assert await reader.readline() == b"+OK\r\n"
        writer.write(GET * ASKED)
        connection = connection_of(running)
        await settled(lambda: connection.frames_out)
        await asyncio.sleep(1.0)
        assert connection.closing is None
        writer.close()


async def test_an_http_answer_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    limits = {"stall_s": 0.5}
    async with running_gateway(tmp_path, "http", auth=OPEN, limits=limits) as running:
        await running.gateway.state.values.set(b"large", b"v" * (8 * MIB), running.gateway.now_ms())  # type: ignore[misc]
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        link.setblocking(False)
        await asyncio.get_running_loop().sock_connect(link, (HOST, running.port("http")))
        _, writer = await asyncio.open_connection(sock=link, limit=64 * KIB)
        body = b'{"args":["large"]}'
        head = b"POST /api/services/redis/get HTTP/1.1\r\nHost: %b:%d\r\nContent-Length: %d\r\n"
        head += b"Content-Type: application/json\r\n\r\n"
        writer.write(head % (HOST.encode(), running.port("http"), len(body)) + body)
        await until(lambda: running.gateway.counters.closed["http", "stalled"] == 1)
        assert len(running.gateway.stalls) == 0
        writer.close()
