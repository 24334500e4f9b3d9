"""`auth.open`: a client without credentials becomes anonymous, and one with a name has that name."""

import asyncio
from pathlib import Path
from typing import Any

from gateway.esnp_client import Station, values
from gateway.magline_client import Box
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from gateway.sisnet_client import Terminal

OPEN: dict[str, Any] = {"auth": {"open": True}}


def identities(running: Running) -> list[str]:
    return sorted(connection.identity for connection in running.gateway.connections.values())


async def test_esnp(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "esnp", **OPEN) as running:
        port = running.port("esnp")
        async with await Station.connect(port) as nobody, await Station.connect(port, "ann", "x") as ann:
            assert (await nobody.ask_gateway("subscribe", topic="@a")).error is None
            long = "x" * 100_000  # more than other gateways accept before the login
            assert (await ann.ask_gateway("publish", topic="@a", content=long)).error is None
            assert (await nobody.receive_message()).payload == long.encode()
            assert identities(running) == ["ann", "anonymous"]
            assert (await nobody.ask_gateway("login", user="bob", token="x")).error == "already logged in"


async def test_sisnet(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await Terminal.connect(running) as nobody,
        await Terminal.connect(running, "ann", "x") as ann,
    ):
        subscribe = {"service": "wirelake", "command": "subscribe", "ask": {"topic": "@a"}}
        assert await nobody.ask("s", **subscribe) == {"ans": 0}
        publication = {"topic": "@a", "content": "hi"}
        assert (await ann.ask("p", service="wirelake", command="publish", ask=publication))["ans"] >= 0
        assert (await nobody.receive_json("s"))["msg"]["content"] == "hi"
        assert identities(running) == ["ann", "anonymous"]


async def test_sisnets_older_words(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await Terminal.connect(running) as nobody:
        named = {"key": "k", "sdb": "t"}
        assert await nobody.ask("1", cmd="sisdb.set", **named, argv=[{"time": 1, "newp": 2}]) == {"ans": 0}
        assert await nobody.ask("2", cmd="sisdb.get", **named) == [[1, 2]]
        assert identities(running) == ["anonymous"]


async def test_magline(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "magline", **OPEN) as running,
        await Box.connect(running) as nobody,
        await Box.connect(running, "ann", "x") as ann,
    ):
        await nobody.handshake()
        assert await nobody.ask(2, topics=["@a"]) == {"ok": True}
        assert (await ann.ask(4, topic="@a", content="hi"))["ok"]
        assert (await nobody.receive_push())["content"] == "hi"
        assert identities(running) == ["ann", "anonymous"]


async def test_redis(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", **OPEN) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
        writer.write(b"SUBSCRIBE @a\r\n")
        async with asyncio.timeout(WAIT_S):
            assert await reader.readuntil(b":1\r\n") == b"*3\r\n$9\r\nsubscribe\r\n$2\r\n@a\r\n:1\r\n"
            await running.publish("@a", "hi")
            assert await reader.readuntil(b"hi\r\n") == b"*3\r\n$7\r\nmessage\r\n$2\r\n@a\r\n$2\r\nhi\r\n"
        assert identities(running) == ["anonymous"]
        writer.close()
        await until(lambda: not running.gateway.connections)


async def test_nobody_gets_in_otherwise(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "esnp") as running, await Station.connect(running.port("esnp")) as nobody:
        answer = await nobody.ask_gateway("subscribe", topic="@a")
        assert (answer.error, values(answer)) == ("not logged in", {})
