"""Transactions, watched keys and hashes at the redis port: atomic, durable before they are answered, and bounded."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.redis_client import RedisConnection
from gateway.running_gateway import running_gateway, until
from wirelake.limits import VALUES_PAIRS_MAX, VALUES_TRANSACTION_KEYS_MAX
from wirelake.protocols.redis.constants import REDIS_QUEUED_COMMANDS_MAX
from wirelake.services.redis import service

OPEN: dict[str, Any] = {"auth": {"open": True}}


async def test_a_transaction_is_on_disk_as_one_or_not_at_all(tmp_path: Path) -> None:
    """Let the second write of a transaction fail: nothing of it is stored, also after a restart."""

    async def before() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            assert await connection.ask("MSET a old b old") == b"+OK\r\n"
            database = running.gateway.state.database.write_connection
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON redis_values WHEN NEW.key = x'62'"
                " BEGIN SELECT RAISE(FAIL, 'full'); END"
            )
            for words in ("MULTI", "SET a new", "HSET h f v", "XADD @s * f v", "SET b new", "EXEC"):
                connection.send(*words.encode().split())
            answers = [await connection.receive() for _ in range(6)]
            assert answers[-1].startswith(b"-ERR")
            assert await connection.ask("MGET a b") == b"*2\r\n$3\r\nold\r\n$3\r\nold\r\n"
            assert await connection.ask("HGETALL h") == b"*0\r\n"
            assert await connection.ask("XRANGE @s - +") == b"*0\r\n"

    async def after() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            running.gateway.state.database.write_connection.execute("DROP TRIGGER full")
            assert await connection.ask("MGET a b") == b"*2\r\n$3\r\nold\r\n$3\r\nold\r\n"
            assert await connection.ask("HGETALL h") == b"*0\r\n"

    await before()
    await after()


async def test_a_transaction_is_one_commit_and_outlives_the_gateway(tmp_path: Path) -> None:
    async def before() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            assert await connection.ask("PING") == b"+PONG\r\n"
            written = running.gateway.state.writer.batches_written
            connection.send(b"MULTI")
            for number in range(500):
                connection.send(b"SET", b"k%d" % number, b"v")
                connection.send(b"HSET", b"h", b"f%d" % number, b"v")
            connection.send(b"EXEC")
            answers = [await connection.receive() for _ in range(1002)]
            assert answers[-1] == b"*1000\r\n" + b"+OK\r\n:1\r\n" * 500
            assert running.gateway.state.writer.batches_written <= written + 2

    async def after() -> None:
        async with (
            running_gateway(tmp_path, "redis", **OPEN) as running,
            await RedisConnection.connect(running) as connection,
        ):
            assert await connection.ask("DBSIZE") == b":501\r\n"
            answer = await connection.ask("HGETALL h")
            assert answer.startswith(b"*1000\r\n$2\r\nf0\r\n$1\r\nv\r\n")

    await before()
    await after()


async def test_a_watched_key_that_another_changes_stops_the_transaction(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as one,
        await RedisConnection.connect(running) as other,
    ):
        for change in (
            "SET k 1",
            "APPEND k 1",
            "DEL k",
            "HSET k f v",
            "HDEL k f",
            "MSET j 0 k 1",
            "PEXPIRE k 99999",
        ):
            assert await one.ask("WATCH k none") == b"+OK\r\n"
            assert not (await other.ask(change)).startswith(b"-"), change
            assert await one.ask("MULTI") == b"+OK\r\n"
            assert await one.ask("SET mine 1") == b"+QUEUED\r\n"
            assert await one.ask("EXEC") == b"*-1\r\n", change
            assert await one.ask("EXISTS mine") == b":0\r\n"
        assert await one.ask("WATCH k") == b"+OK\r\n"
        assert await other.ask("SET j 1") == b"+OK\r\n"
        assert await one.ask("MULTI") == b"+OK\r\n"
        assert await one.ask("EXEC") == b"*0\r\n"


async def test_a_watched_key_that_ends_meanwhile_stops_the_transaction(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
        await RedisConnection.connect(running) as other,
    ):
        is_watched = False
        while not is_watched:  # otherwise this machine was too slow: the key expired before
            assert await connection.ask("UNWATCH") == b"+OK\r\n"
            assert await connection.ask("SET k 1 PX 300") == b"+OK\r\n"
            assert await connection.ask("WATCH k") == b"+OK\r\n"
            is_watched = await connection.ask("EXISTS k") == b":1\r\n"
        while await other.ask("EXISTS k") == b":1\r\n":
            await asyncio.sleep(0.01)
        assert await connection.ask("MULTI") == b"+OK\r\n"
        assert await connection.ask("EXEC") == b"*-1\r\n"


async def test_nothing_is_left_of_who_watched_and_went_away(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", **OPEN) as running:
        values = running.gateway.state.values
        async with await RedisConnection.connect(running) as connection:
            assert await connection.ask("WATCH a b c") == b"+OK\r\n"
            assert values.on_change is not None
            assert await connection.ask("RESET") == b"+RESET\r\n"
            await until(lambda: values.on_change is None)
            assert await connection.ask("WATCH a b c") == b"+OK\r\n"
            assert values.on_change is not None
        await until(lambda: values.on_change is None)


async def test_what_is_queued_and_watched_is_bounded(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        connection.send(b"MULTI")
        for _ in range(REDIS_QUEUED_COMMANDS_MAX + 1):
            connection.send(b"INCR", b"n")
        connection.send(b"EXEC")
        answers = [await connection.receive() for _ in range(REDIS_QUEUED_COMMANDS_MAX + 3)]
        assert answers[-2].startswith(b"-ERR a transaction has at most"), answers[-2]
        assert answers[-1].startswith(b"-EXECABORT")
        assert await connection.ask("EXISTS n") == b":0\r\n"
        connection.send(b"WATCH", *(b"%d" % number for number in range(VALUES_TRANSACTION_KEYS_MAX + 1)))
        assert (await connection.receive()).startswith(b"-ERR a connection watches at most")
        for command in (b"MSET", b"HSET"):
            connection.send(command, *([b"key"] if command == b"HSET" else []), *[b"x"] * 2 * (VALUES_PAIRS_MAX + 1))
            assert (await connection.receive()).startswith(b"-ERR"), command
        assert await connection.ask("DBSIZE") == b":0\r\n"


async def test_a_hash_has_a_bounded_number_of_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.values.STATE_HASH_FIELDS_MAX", 3)
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask("HSET h a 1 b 2 c 3") == b":3\r\n"
        assert await connection.ask("HSET h a 2") == b":0\r\n"
        assert (await connection.ask("HSET h a 3 d 4")) == b"-ERR a hash has at most 3 fields\r\n"
        assert await connection.ask("HGET h a") == b"$1\r\n2\r\n"


async def test_an_answer_to_exec_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "VALUES_ANSWER_BYTES_MAX", 1000)
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask("SET k " + 600 * "x") == b"+OK\r\n"
        for words in ("MULTI", "GET k", "GET k", "SET k 1", "EXEC"):
            connection.send(*words.encode().split())
        answer = [await connection.receive() for _ in range(5)][-1]
        assert answer.startswith(b"*3\r\n$600\r\n")
        assert b"-ERR the answer is over the limit of 1000 bytes" in answer
        assert await connection.ask("GET k") == b"$1\r\n1\r\n", (
            "redis does all commands, whatever becomes of the others"
        )


@pytest.mark.parametrize("version", [2, 3])
async def test_large_hashes_are_whole(tmp_path: Path, version: int) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert (await connection.ask(f"HELLO {version}"))[:1] in b"*%"
        pairs = [b"f%d" % number for number in range(4000)]
        connection.send(b"HSET", b"h", *pairs)
        assert await connection.receive() == b":2000\r\n"
        answer = await connection.ask("HGETALL h")
        head = b"*4000\r\n" if version == 2 else b"%2000\r\n"
        assert answer == head + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in pairs)
        connection.send(b"HDEL", b"h", *pairs)
        assert await connection.receive() == b":2000\r\n"
        assert await connection.ask("EXISTS h") == b":0\r\n"
        assert running.gateway.state.values.size_bytes == 0


async def test_only_the_administrator_removes_all_values(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", "http", identities=[("app", "t0ken")]) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask("AUTH app t0ken") == b"+OK\r\n"
        assert await connection.ask("MSET a 1 b 2") == b"+OK\r\n"
        assert await connection.ask("HSET h f v") == b":1\r\n"
        assert await connection.ask("XADD @s * f v") == b"$3\r\n1-0\r\n"
        refusal = b"-NOPERM User app has no permissions to run the 'flushdb' command\r\n"
        assert await connection.ask("FLUSHDB") == refusal
        assert await connection.ask("DBSIZE") == b":3\r\n"
        token = running.gateway.keys.admin_token()
        assert await post(running.port("http"), token, "/api/services/redis/flushdb") == 200
        assert await connection.ask("DBSIZE") == b":0\r\n"
        assert await connection.ask("KEYS *") == b"*0\r\n"
        assert await connection.ask("TYPE @s") == b"+stream\r\n", "topics are no values"
        assert await connection.ask("HSET h g w") == b":1\r\n"
        assert await connection.ask("HGETALL h") == b"*2\r\n$1\r\ng\r\n$1\r\nw\r\n"
        await running.assign("app", "admin")
        assert await connection.ask("FLUSHDB") == b"+OK\r\n"
        assert await connection.ask("DBSIZE") == b":0\r\n"


async def test_the_name_of_the_administrator_is_not_enough(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", **OPEN) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask("AUTH admin anything") == b"+OK\r\n"
        assert (await connection.ask("FLUSHDB")).startswith(b"-NOPERM User admin has no permissions")


async def post(port: int, token: str, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ")[1])
