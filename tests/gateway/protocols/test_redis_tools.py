"""redis's own tools and Python library, unchanged, against the gateway."""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
import redis.asyncio

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway

APP = ("app", "t0ken")
TOOL_S = 60.0  # a tool's whole run; only a failing test waits so long
Version = Literal[2, 3]


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: the package redis-tools has it"
    return found


async def run(running: Running, name: str, *words: str, piped: bytes = b"") -> str:
    """Run a tool, which must succeed, and return what it printed."""
    command = [program(name), "-h", HOST, "-p", str(running.port("redis")), "--user", APP[0], "-a", APP[1], *words]
    pipe = asyncio.subprocess.PIPE
    tool = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(TOOL_S):
            printed, complaints = await tool.communicate(piped)
    except TimeoutError:
        tool.kill()
        await tool.wait()
        raise
    assert tool.returncode == 0, (printed, complaints)
    return printed.decode()


async def cli(running: Running, *words: str, piped: bytes = b"") -> str:
    return await run(running, "redis-cli", "--no-auth-warning", *words, piped=piped)


@pytest.mark.parametrize("version", ["-2", "-3"])
async def test_redis_cli(tmp_path: Path, version: str) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        assert await cli(running, version, "PING") == "PONG\n"
        assert await cli(running, version, "SET", "greeting", "hello world", "EX", "100") == "OK\n"
        assert await cli(running, version, "GET", "greeting") == "hello world\n"
        assert await cli(running, version, "TTL", "greeting") in {"100\n", "99\n"}
        assert await cli(running, version, "GET", "none") == "\n"
        assert await cli(running, version, "SELECT", "1") == "ERR DB index is out of range\n\n"
        many = b"".join(b"SET key:%d %d\r\n" % (number, number) for number in range(300))
        assert await cli(running, version, piped=many) == "OK\n" * 300
        scanned = (await cli(running, version, "--scan", "--pattern", "key:*")).split()
        assert sorted(scanned) == sorted(f"key:{number}" for number in range(300))
        assert "# Server" in await cli(running, version, "INFO")
        piped = await cli(running, version, "--pipe", piped=b"SET piped 1\r\nSET piped 2\r\n")
        assert "errors: 0, replies: 2" in piped
        assert await cli(running, version, "GET", "piped") == "2\n"


@pytest.mark.parametrize("version", ["-2", "-3"])
async def test_redis_cli_subscribes(tmp_path: Path, version: str) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        command = [program("redis-cli"), "-h", HOST, "-p", str(running.port("redis")), version]
        command += ["--user", APP[0], "-a", APP[1], "--no-auth-warning", "SUBSCRIBE", "news"]
        listener = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert listener.stdout is not None
        try:
            async with asyncio.timeout(TOOL_S):
                assert [await listener.stdout.readline() for _ in range(3)] == [b"subscribe\n", b"news\n", b"1\n"]
                assert await cli(running, "PUBLISH", "news", "one") == "1\n"
                assert [await listener.stdout.readline() for _ in range(3)] == [b"message\n", b"news\n", b"one\n"]
        finally:
            listener.terminate()
            await listener.wait()


async def benchmark(running: Running, *words: str) -> dict[str, float]:
    """Return the requests per second of each test; the tool stops at the first error."""
    printed = await run(running, "redis-benchmark", "--csv", *words)
    return {name: float(rate) for name, rate in re.findall(r'^"([^"]+)","([0-9.]+)"', printed, re.MULTILINE)}


@pytest.mark.parametrize("pipelined", [["-P", "8"], []], ids=["pipelined", "one by one"])
async def test_redis_benchmark(tmp_path: Path, pipelined: list[str]) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        rates = await benchmark(running, "-t", "ping,set,get", "-n", "2000", "-c", "20", *pipelined)
        assert set(rates) == {"PING_INLINE", "PING_MBULK", "SET", "GET"}
        assert all(rate > 0 for rate in rates.values())
        assert await cli(running, "GET", "key:__rand_int__") == "VXK\n"
        rates = await benchmark(
            running, "-r", "100", "-n", "1000", "-c", "20", *pipelined, "SET", "k:__rand_int__", "v"
        )
        assert len(rates) == 1
        keys = int(await cli(running, "DBSIZE"))
        assert 50 < keys <= 101


async def test_redis_benchmark_publishes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", identities=[APP]) as running,
        library(running, 3) as app,
        app.pubsub() as pubsub,
    ):
        await pubsub.subscribe("live")
        await receive_message(pubsub, ignore=False)
        await benchmark(running, "-n", "1000", "-c", "5", "-P", "8", "PUBLISH", "live", "x")
        contents = [(await receive_message(pubsub))["data"] for _ in range(1000)]
        assert contents == [b"x"] * 1000


def library(running: Running, version: Version) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(
        host=HOST, port=running.port("redis"), username=APP[0], password=APP[1], protocol=version, client_name="app"
    )


async def receive_message(pubsub: redis.asyncio.client.PubSub, *, ignore: bool = True) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=ignore, timeout=1.0)
            if message is not None:
                return dict(message)


@pytest.mark.parametrize("version", [2, 3])
async def test_redis_py_with_asyncio(tmp_path: Path, version: Version) -> None:
    async with (
        running_gateway(tmp_path, "redis", identities=[APP]) as running,
        library(running, version) as app,
        app.pubsub() as pubsub,
    ):
        await values(app)
        await pubsub.subscribe("live")
        await pubsub.psubscribe("pr*")
        assert [(await receive_message(pubsub, ignore=False))["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
        assert await app.publish("live", b"\x00\xff") == 1
        assert (await receive_message(pubsub))["data"] == b"\x00\xff"
        assert await app.publish("prices", "1") == 1
        message = await receive_message(pubsub)
        assert (message["type"], message["pattern"], message["channel"]) == ("pmessage", b"pr*", b"prices")
        await pubsub.unsubscribe("live")
        assert (await receive_message(pubsub, ignore=False))["type"] == "unsubscribe"
        assert await app.publish("live", "nobody") == 0


@pytest.mark.parametrize("version", [2, 3])
async def test_redis_py_without_asyncio(tmp_path: Path, version: Version) -> None:
    """Call the library from a thread, while the gateway's event loop runs."""

    def program(port: int) -> None:
        with redis.Redis(HOST, port, username=APP[0], password=APP[1], protocol=version, socket_timeout=WAIT_S) as app:
            asyncio.run(values(Waited(app)))
            with app.pubsub() as pubsub:
                pubsub.subscribe("live")
                assert pubsub.get_message(timeout=WAIT_S) is not None
                assert app.publish("live", "hi") == 1
                message = pubsub.get_message(timeout=WAIT_S)
                assert message is not None
                assert message["data"] == b"hi"

    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        await asyncio.to_thread(program, running.port("redis"))


class Waited:
    """Wrap the library without asyncio, so that its calls can be awaited too."""

    def __init__(self, app: redis.Redis) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._app, name)

        def call(*args: Any, **options: Any) -> Any:
            if name in {"scan_iter", "pipeline"}:
                return method(*args, **options)
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(method(*args, **options))
            return done

        return call


async def values(app: Any) -> None:
    assert await app.ping() is True
    assert await app.set("a", "1") is True
    assert await app.get("a") == b"1"
    assert await app.set("a", "2", nx=True) is None
    assert await app.set("b", b"\x00\r\n", ex=100) is True
    assert await app.ttl("b") in {99, 100}
    assert 0 < await app.pttl("b") <= 100_000
    assert await app.expire("a", 200) == 1
    assert await app.mget("a", "none", "b") == [b"1", None, b"\x00\r\n"]
    assert await app.exists("a", "b", "none") == 2
    pipeline = app.pipeline(transaction=False)
    for number in range(50):
        pipeline.set(f"n{number}", number)
    pipeline.get("n7")
    done = pipeline.execute()
    results = await done if isinstance(done, Awaitable) else done
    assert results == [True] * 50 + [b"7"]
    scanned = app.scan_iter(match="n*", count=9)
    found = [key async for key in scanned] if hasattr(scanned, "__aiter__") else list(scanned)
    assert sorted(found) == sorted(b"n%d" % number for number in range(50))
    assert sorted(await app.keys("[ab]")) == [b"a", b"b"]
    assert await app.delete("a", "b", "none") == 2
    assert await app.dbsize() == 50
    assert (await app.info())["role"] == "master"
    assert await app.client_setname("me") is True
    assert await app.client_getname() in {"me", b"me"}
    assert [each["name"] for each in await app.client_list()] == ["me"]
    assert await app.echo("hi") == b"hi"
    assert "get" in await app.command()
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await app.execute_command("FLY")
