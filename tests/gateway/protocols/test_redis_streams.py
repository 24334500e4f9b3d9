"""Durable topics as redis streams: published and read in any protocol, and what XREAD waits for."""

from pathlib import Path
from typing import Any

import pytest

from gateway.redis_client import RedisConnection
from gateway.running_gateway import Running, running_gateway, until
from wirelake.services.redis import streams

OPEN: dict[str, Any] = {"auth": {"open": True}}


def waiting(running: Running) -> int:
    return len(running.gateway.broker.durable.readers)


async def test_entries_and_notifications_are_the_same_things(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
        await RedisConnection.connect(running) as subscriber,
    ):
        assert (await subscriber.ask("SUBSCRIBE @news")).startswith(b"*3")
        assert await connection.ask("XADD @news * title hello by ann") == b"$3\r\n1-0\r\n"
        assert await connection.ask("XADD @news * content plain") == b"$3\r\n2-0\r\n"
        received = [await subscriber.receive() for _ in range(2)]
        assert received[0].endswith(b'$28\r\n{"title":"hello","by":"ann"}\r\n')
        assert received[1].endswith(b"$5\r\nplain\r\n")
        await running.publish("@news", b"\xff from elsewhere")
        await running.publish("@news", b'{"a":"1","b":"2"}')
        await running.publish("@news", b'{"a":1}')
        wanted = [
            [b"1-0", [b"title", b"hello", b"by", b"ann"]],
            [b"2-0", [b"content", b"plain"]],
            [b"3-0", [b"content", b"\xff from elsewhere"]],
            [b"4-0", [b"a", b"1", b"b", b"2"]],
            [b"5-0", [b"content", b'{"a":1}']],
        ]
        assert await connection.ask_plain("XRANGE @news - +") == wanted
        assert await connection.ask_plain("XREAD STREAMS @news 0") == [[b"@news", wanted]]


@pytest.mark.parametrize("content", [b"{" * 5000, b'{"a":' * 5000, b"{}", b'{"a":"b"', b"[]", b"", b'{"a":["b"]}'])
async def test_a_content_that_holds_no_fields_is_one(tmp_path: Path, content: bytes) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        connection.send(b"XADD", b"@s", b"*", b"content", content)
        assert await connection.receive() == b"$3\r\n1-0\r\n"
        assert await connection.ask_plain("XRANGE @s - +") == [[b"1-0", [b"content", content]]]


async def test_a_stream_is_kept_over_sweeps_and_restarts(tmp_path: Path) -> None:
    async def before() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            for number in range(20):
                connection.send(b"XADD", b"@s", b"*", b"n", b"%d" % number)
            for _ in range(20):
                await connection.receive()
            running.gateway.sweeper.step(running.gateway.now_ms())
            await running.gateway.state.barrier()
            answer = await connection.ask_plain("XRANGE @s - +")
            assert isinstance(answer, list)
            assert len(answer) == 20

    async def after() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            running.gateway.sweeper.step(running.gateway.now_ms())
            await running.gateway.state.barrier()
            assert await connection.ask_plain("XRANGE @s 19 +") == [[b"19-0", [b"n", b"18"]], [b"20-0", [b"n", b"19"]]]
            assert await connection.ask("XADD @s * n 20") == b"$4\r\n21-0\r\n"

    await before()
    await after()


async def test_xread_waits_for_what_is_published(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as reader,
        await RedisConnection.connect(running) as other,
    ):
        reader.send(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"@a", b"@b", b"$", b"$")
        reader.send(b"SET", b"k", b"v")
        await until(lambda: waiting(running) == 2)
        assert await other.ask("GET k") == b"$-1\r\n", "what is sent behind it waits, as with redis"
        assert await other.ask("XADD @c * n 0") == b"$3\r\n1-0\r\n"
        assert await other.ask("XADD @b * n 1") == b"$3\r\n1-0\r\n"
        assert await reader.receive() == (
            b"*1\r\n*2\r\n$2\r\n@b\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nn\r\n$1\r\n1\r\n"
        )
        assert await reader.receive() == b"+OK\r\n"
        assert waiting(running) == 0
        reader.send(b"XREAD", b"BLOCK", b"600000", b"STREAMS", b"@a", b"0")
        await until(lambda: waiting(running) == 1)
        await running.publish("@a", b"from elsewhere")
        assert b"from elsewhere" in await reader.receive()


async def test_xread_waits_no_longer_than_asked_nor_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "VALUES_BLOCK_S_MAX", 0.2)
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        for command in ("10", "0", "999999999"):
            assert await connection.ask(f"XREAD BLOCK {command} STREAMS @s $") == b"*-1\r\n"
            assert waiting(running) == 0


async def test_nobody_waits_for_who_went_away(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", **OPEN) as running:
        async with await RedisConnection.connect(running) as connection:
            connection.send(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"@a", b"@b", b"$", b"$")
            await until(lambda: waiting(running) == 2)
        await until(lambda: waiting(running) == 0)
        await until(lambda: len(running.gateway.jobs) == 0)


async def test_one_xread_gives_a_bounded_number_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STATE_READ_ROWS_MAX", 300)
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        for number in range(700):
            connection.send(b"XADD", b"@s", b"*", b"n", b"%d" % number)
        for _ in range(700):
            await connection.receive()
        seen: list[Any] = []
        sizes = []
        while answer := await connection.ask_plain(f"XREAD STREAMS @s {len(seen)}"):
            assert isinstance(answer, list)
            sizes.append(len(answer[0][1]))
            seen += answer[0][1]
        assert sizes == [300, 300, 100]
        assert seen == [[b"%d-0" % (number + 1), [b"n", b"%d" % number]] for number in range(700)]
        everything = await connection.ask_plain("XRANGE @s - +")
        assert everything == seen, "a range is whole"
        many = " ".join(["@s"] * 65), " ".join(["0"] * 65)
        assert (await connection.ask(f"XREAD STREAMS {many[0]} {many[1]}")).startswith(b"-ERR 65 streams at once")


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("XADD s * f v", b"-ERR a stream is a durable topic here, and its name begins with @\r\n"),
        ("XADD @s 5-0 f v", b"-ERR the ids of a durable topic are given by the gateway: use *\r\n"),
        (
            "XADD @s MAXLEN ~ 5 * f v",
            b"-ERR MAXLEN is not served here: entries of a durable topic expire by their age\r\n",
        ),
        ("XADD @\x01 * f v", b"-ERR a topic's name has printable characters only\r\n"),
        (
            "XGROUP CREATE @s g $",
            b"-ERR unknown command 'XGROUP', with args beginning with: 'CREATE' '@s' 'g' '$' \r\n",
        ),
    ],
)
async def test_what_a_durable_topic_cannot_do_is_refused(tmp_path: Path, command: str, refusal: bytes) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask(command) == refusal
        assert not running.gateway.state.topics.names()
