"""Attacks on the redis listener: nothing of them is executed, and everybody else is served."""

import asyncio
from pathlib import Path

import pytest

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.protocols.redis.constants import REDIS_HELD_FRAMES_MAX, REDIS_LINE_BYTES_MAX, REDIS_LOGIN_FRAME_BYTES_MAX
from wirelake.protocols.redis.frames import Command

APP = ("app", "t0ken")
AUTH = Command((b"AUTH", b"app", b"t0ken")).encode()
SET = Command((b"SET", b"stolen", b"1")).encode()
WRONG = Command((b"AUTH", b"app", b"guess")).encode()


async def response_to(running: Running, *pieces: bytes) -> bytes:
    """Send these bytes; return everything that arrives until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            try:
                return await reader.read(-1)
            except ConnectionResetError:
                return b""
    finally:
        writer.close()


async def answers(running: Running, data: bytes, count: int) -> list[bytes]:
    """Return the first lines of the answer."""
    reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
    try:
        writer.write(data)
        async with asyncio.timeout(WAIT_S):
            return [await reader.readline() for _ in range(count)]
    finally:
        writer.close()


def values_kept(running: Running) -> int:
    return len(running.gateway.state.values)


# Requests that a web page can make a browser send, with commands in the parts that the page controls.
SMUGGLED = {
    "the body of a POST": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nContent-Length: 40\r\n\r\nSET stolen 1\r\n",
    "a header after GET": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y\r\nSET stolen 1\r\n\r\n",
    "behind a login": AUTH + b"POST / HTTP/1.1\r\n" + SET,
    "lower case": b"post / HTTP/1.1\r\nset stolen 1\r\n",
    "host alone": b"hOsT: example.org\r\n" + SET,
    "as an array": Command((b"POST", b"/")).encode() + SET,
    "quoted": b'"POST" /\r\n' + SET,
    "many at once": AUTH + b"Host: a\r\n" + SET * 100,
}


@pytest.mark.parametrize("smuggled", SMUGGLED.values(), ids=SMUGGLED.keys())
@pytest.mark.parametrize("is_open", [False, True], ids=["with logins", "open to all"])
async def test_an_http_request_closes_the_connection_and_nothing_of_it_is_done(
    tmp_path: Path, smuggled: bytes, *, is_open: bool
) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP], auth={"open": is_open}) as running:
        received = await response_to(running, smuggled)
        assert b"stolen" not in received
        assert received.count(b"+OK\r\n") <= 1, "the login's at most"
        assert values_kept(running) == 0
        pieces = [smuggled[place : place + 7] for place in range(0, len(smuggled), 7)]
        assert (await response_to(running, *pieces)).count(b"+OK\r\n") <= 1
        assert values_kept(running) == 0
        assert running.gateway.counters.closed["redis", "http"] == 2


BROKEN = {
    "an endless line": (b"A" * (REDIS_LINE_BYTES_MAX + 1), b"ERR Protocol error: "),
    "a negative count": (b"*-5\r\n", b"ERR Protocol error: invalid multibulk length"),
    "a negative length": (b"*1\r\n$-1\r\n", b"ERR Protocol error: invalid bulk length"),
    "a huge length": (b"*1\r\n$99999999999999999999\r\n", b"ERR Protocol error: invalid bulk length"),
    "a huge count": (b"*2147483647\r\n", b"ERR Protocol error: invalid multibulk length"),
    "aggregates inside": (b"*1\r\n" * 100_000, b"ERR Protocol error: expected '$', got '*'"),
    "a map for a command": (b"*1\r\n%1\r\n", b"ERR Protocol error: expected '$', got '%'"),
    "a length with a sign": (b"*1\r\n$+4\r\nPING\r\n", b"ERR Protocol error: invalid bulk length"),
    "a length too short": (b"*2\r\n$3\r\nGETX\r\n$1\r\nk\r\n", b"ERR Protocol error: "),
    "an open quote": (b'SET k "open\r\n', b"ERR Protocol error: unbalanced quotes in request"),
}


@pytest.mark.parametrize(("sent", "wanted"), BROKEN.values(), ids=BROKEN.keys())
async def test_bytes_that_are_no_command_are_answered_once_and_the_connection_is_closed(
    tmp_path: Path, sent: bytes, wanted: bytes
) -> None:
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:
        received = await response_to(running, sent + b"\r\n" + SET)
        assert received.startswith(b"-" + wanted), received
        assert received.count(b"\r\n") == 1, "one error, and no word of what came behind it"
        assert values_kept(running) == 0
        assert len(await running.undecodable_records()) == 1


async def test_what_was_sent_before_a_refused_login_is_not_done(tmp_path: Path) -> None:
    publish = Command((b"PUBLISH", b"@news", b"x")).encode()
    subscribe = Command((b"SUBSCRIBE", b"@news")).encode()
    hello = Command((b"HELLO", b"3", b"AUTH", b"app", b"guess")).encode()
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        received = await answers(running, SET + publish + subscribe + WRONG + SET + publish + hello + SET, 8)
        kinds = [line.split(b" ")[0] for line in received]
        assert kinds == [b"-NOAUTH"] * 3 + [b"-WRONGPASS"] + [b"-NOAUTH"] * 2 + [b"-WRONGPASS", b"-NOAUTH"]
        assert values_kept(running) == 0
        assert running.gateway.state.topics.topics_of("app") == []
        assert running.records("publish") == []
        received = await answers(running, SET + AUTH + SET, 3)
        assert [line[:3] for line in received] == [b"-NO", b"+OK", b"+OK"], "behind the right one it is"
        assert values_kept(running) == 1


async def test_before_the_login_little_is_held(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        await running.add_identity("slow", "t0ken", at_once=False)
        long = Command((b"SET", b"k", b"x" * REDIS_LOGIN_FRAME_BYTES_MAX)).encode()
        assert (await response_to(running, long)).startswith(b"-ERR Protocol error")
        flood = Command((b"AUTH", b"slow", b"guess")).encode() + SET * REDIS_HELD_FRAMES_MAX
        received = await answers(running, flood, REDIS_HELD_FRAMES_MAX + 1)
        assert received[0].startswith(b"-WRONGPASS")
        assert all(line.startswith(b"-NOAUTH") for line in received[1:])
        assert values_kept(running) == 0


async def test_reset_takes_the_login_back(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        received = await answers(running, AUTH + b"RESET\r\n" + SET, 3)
        assert [line[:4] for line in received] == [b"+OK\r", b"+RES", b"-NOA"]
        assert values_kept(running) == 0
