"""Long requests run in steps: others are answered in between, and each has one whole answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.comet_client import Phone
from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.clients.sisnet import SisnetClient
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import STATE_PATTERN_BYTES_MAX
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.redis.frames import Command
from wirelake.state.notifications import BacklogLimits
from wirelake.state.records import LayoutField, SeriesRecord

KEYS = 20_000
PIPELINED = 40
APP, PHONE = ("app", "t0ken"), ("phone", "token")
AUTH = Command((b"AUTH", b"app", b"t0ken")).encode()


@asynccontextmanager
async def gateway(tmp_path: Path, *listeners: str, keys: int = KEYS, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(tmp_path, "redis", "comet", *listeners, identities=[APP, PHONE], **settings) as running:
        values = running.gateway.state.values
        for number in range(keys):
            commit = values.set(b"key:%06d" % number, b"", running.gateway.now_ms())
            if number % 5000 == 4999 and commit is not None:
                await commit
        yield running


async def phone(running: Running) -> Phone:
    return await Phone.connect(running.port("comet"), *PHONE)


async def hog(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Connection]:
    reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
    writer.write(AUTH)
    assert await reader.readline() == b"+OK\r\n"
    (connection,) = [each for each in running.gateway.connections.values() if each.protocol == "redis"]
    return reader, writer, connection


async def read_keys(reader: asyncio.StreamReader) -> list[bytes]:
    async with asyncio.timeout(4 * WAIT_S):
        count = int((await reader.readline())[1:])
        keys = []
        for _ in range(count):
            await reader.readline()
            keys.append((await reader.readline())[:-2])
        return keys


async def test_others_are_answered_between_pipelined_keys(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await phone(running) as innocent:
        reader, writer, connection = await hog(running)
        for number in range(PIPELINED):
            writer.write(Command((b"KEYS", b"*")).encode() + Command((b"PING", b"%d" % number)).encode())
        await until(lambda: len(running.gateway.jobs) == 1)
        assert await innocent.ask(comet.Heartbeat()) == comet.Ok()
        assert connection.frames_out < PIPELINED, "it did not have to wait until all were answered"
        expected = [b"key:%06d" % number for number in range(KEYS)]
        for number in range(PIPELINED):
            assert await read_keys(reader) == expected
            assert await reader.readline() == b"$%d\r\n" % len(str(number))
            assert await reader.readline() == b"%d\r\n" % number
        assert len(running.gateway.jobs) == 0
        writer.close()


async def test_others_are_answered_between_large_scans(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await phone(running) as innocent:
        reader, writer, connection = await hog(running)
        before = connection.frames_out
        writer.write(Command((b"SCAN", b"0", b"COUNT", b"100000")).encode() * PIPELINED)
        await until(lambda: connection.frames_in > PIPELINED)
        assert await innocent.ask(comet.Heartbeat()) == comet.Ok()
        assert connection.frames_out - before < PIPELINED
        for _ in range(PIPELINED):
            assert await reader.readline() == b"*2\r\n"
            await reader.readline()
            cursor = int(await reader.readline())
            keys = await read_keys(reader)
            assert cursor > 0, "COUNT is a hint: one call looks at fewer"
            assert keys == [b"key:%06d" % number for number in range(len(keys))]
        writer.close()


async def test_a_scan_in_large_steps_finds_each_key_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await RedisConnection.connect(running) as client:
        await client.ask("AUTH app t0ken")
        cursor, found = b"0", list[bytes]()
        while True:
            answer = await client.ask_plain(f"SCAN {cursor.decode()} COUNT 100000 MATCH key:0*")
            cursor, keys = cast(tuple[bytes, list[bytes]], answer)
            found += keys
            if cursor == b"0":
                break
        assert found == [b"key:%06d" % number for number in range(KEYS)]


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("SCAN " + "9" * 5000, b"-ERR invalid cursor\r\n"),
        ("SCAN 99999999999999999999", b"-ERR invalid cursor\r\n"),
        ("KEYS " + "*a" * STATE_PATTERN_BYTES_MAX, b"-ERR a pattern has at most 1024 bytes\r\n"),
        ("SCAN 0 MATCH " + "*a" * STATE_PATTERN_BYTES_MAX, b"-ERR a pattern has at most 1024 bytes\r\n"),
    ],
    ids=["a cursor of 5000 digits", "a cursor over 64 bits", "a long pattern", "a long pattern to scan with"],
)
async def test_what_would_take_too_long_is_refused(tmp_path: Path, command: str, refusal: bytes) -> None:
    async with gateway(tmp_path, keys=10) as running, await RedisConnection.connect(running) as client:
        await client.ask("AUTH app t0ken")
        assert await client.ask(command) == refusal
        assert await client.ask("PING") == b"+PONG\r\n"


async def test_many_values_and_many_keys_at_once(tmp_path: Path) -> None:
    """Run commands on thousands of keys in steps, and answer each of them once."""
    async with gateway(tmp_path) as running, await RedisConnection.connect(running) as client:
        await client.ask("AUTH app t0ken")
        names = " ".join(f"key:{number:06}" for number in range(5000))
        values = await client.ask_plain(f"MGET {names} missing")
        assert values == [b""] * 5000 + [None]
        assert await client.ask(f"DEL {names} missing") == b":5000\r\n"
        assert await client.ask("DBSIZE") == b":%d\r\n" % (KEYS - 5000)


async def test_an_answer_that_would_be_too_large_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, keys=0) as running, await RedisConnection.connect(running) as client:
        await client.ask("AUTH app t0ken")
        client.send(b"SET", b"large", b"x" * (1 << 20))
        assert await client.receive() == b"+OK\r\n"
        answer = await client.ask("MGET" + " large" * 100)
        assert answer.startswith(b"-ERR the answer is over the limit of")


async def test_who_goes_away_takes_its_long_requests_with_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        _, writer, connection = await hog(running)
        writer.write(Command((b"KEYS", b"*")).encode() * PIPELINED)
        await until(lambda: len(running.gateway.jobs) == 1)
        connection.abort()
        await until(lambda: not running.gateway.connections)
        assert len(running.gateway.jobs) == 0
        async with await RedisConnection.connect(running) as client:
            await client.ask("AUTH app t0ken")
            assert await client.ask("DBSIZE") == b":%d\r\n" % KEYS
        writer.close()


async def test_commands_held_until_the_login_are_done_one_after_the_other(tmp_path: Path) -> None:
    """Send commands that all become messages at once when the login is decided."""
    async with gateway(tmp_path) as running, await phone(running) as innocent:
        reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
        writer.write(AUTH + Command((b"KEYS", b"*")).encode() * PIPELINED + Command((b"PING",)).encode())
        assert await reader.readline() == b"+OK\r\n"
        await until(lambda: len(running.gateway.jobs) == 1)
        assert await innocent.ask(comet.Heartbeat()) == comet.Ok()
        assert len(running.gateway.jobs) <= 1, "one at a time"
        for _ in range(PIPELINED):
            assert len(await read_keys(reader)) == KEYS
        assert await reader.readline() == b"+PONG\r\n"
        writer.close()


async def test_others_are_answered_between_range_reads(tmp_path: Path) -> None:
    async with gateway(tmp_path, "sisnet_tcp", keys=0) as running, await phone(running) as innocent:
        records = [SeriesRecord(time, b"[%d,1.5]" % time) for time in range(5000)]
        layout = (LayoutField("time", "J", 0), LayoutField("price", "J", 0))
        for key in range(20):
            await running.gateway.state.records.set_many("sisdb", {"tick": layout}, {(f"k{key}", "tick"): records})
        async with SisnetClient(f"tcp://{HOST}:{running.port('sisnet_tcp')}", *APP) as client:
            request = {"sdb": "tick", "format": "json"}
            reads = [
                asyncio.ensure_future(client.ask("sisdb", "get", request | {"key": f"k{key}"})) for key in range(20)
            ]
            await until(lambda: len(running.gateway.jobs) > 0)
            assert await innocent.ask(comet.Heartbeat()) == comet.Ok()
            assert not all(read.done() for read in reads), "it did not have to wait for all of them"
            for answer in await asyncio.gather(*reads):
                assert answer == [{"time": time, "price": 1.5} for time in range(5000)]


async def test_a_long_list_of_waiting_notifications_is_put_together_bit_by_bit(tmp_path: Path) -> None:
    async with gateway(tmp_path, keys=0) as running:
        topics, state = 1000, running.gateway.state
        for number in range(topics):
            commit = state.topics.subscribe(PHONE[0], f"@{number:04}")
        await commit
        for number in range(topics):
            await_it = state.topics.publish(f"@{number:04}", b"%d" % number, number)[1]
        await await_it
        slices = state.topics.read_backlog_in_steps(PHONE[0], BacklogLimits(rows_max=5))
        turns = sum(1 for _ in slices)
        assert turns == topics, "others may have their turn after each topic"
        async with await phone(running) as member:
            listed = await member.ask(comet.GetMessageList())
            assert isinstance(listed, comet.MessageList)
            assert [each.content for each in listed.messages[:5]] == [b"0", b"1", b"2", b"3", b"4"]
