"""The redis listener's values, byte by byte: every command and every refusal, as redis words them."""

import asyncio
from pathlib import Path

import pytest

from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S, running_gateway

NUMBER = b"-ERR value is not an integer or out of range\r\n"
SYNTAX = b"-ERR syntax error\r\n"

STORY: list[tuple[str, bytes]] = [
    ("GET a", b"$-1\r\n"),
    ("SET a 1", b"+OK\r\n"),
    ("GET a", b"$1\r\n1\r\n"),
    ("SET empty ", b"+OK\r\n"),
    ("GET empty", b"$0\r\n\r\n"),
    ("STRLEN a", b":1\r\n"),
    ("TYPE a", b"+string\r\n"),
    ("TYPE none", b"+none\r\n"),
    ("SET a 2 NX", b"$-1\r\n"),
    ("SET b 3 XX", b"$-1\r\n"),
    ("SET b 3 nx", b"+OK\r\n"),
    ("SET a 2 xx", b"+OK\r\n"),
    ("SET a 4 GET", b"$1\r\n2\r\n"),
    ("MGET a none b", b"*3\r\n$1\r\n4\r\n$-1\r\n$1\r\n3\r\n"),
    ("EXISTS a b a none", b":3\r\n"),
    ("TTL a", b":-1\r\n"),
    ("TTL none", b":-2\r\n"),
    ("PTTL none", b":-2\r\n"),
    ("SET a 5 EX 100", b"+OK\r\n"),
    ("TTL a", b":100\r\n"),
    ("SET a 6 KEEPTTL", b"+OK\r\n"),
    ("TTL a", b":100\r\n"),
    ("SET a 7 PX 100000", b"+OK\r\n"),
    ("TTL a", b":100\r\n"),
    ("EXPIRE a 50 GT", b":0\r\n"),
    ("EXPIRE a 50 LT", b":1\r\n"),
    ("EXPIRE a 50 NX", b":0\r\n"),
    ("EXPIRE b 50 XX", b":0\r\n"),
    ("TTL a", b":50\r\n"),
    ("PERSIST a", b":1\r\n"),
    ("PERSIST a", b":0\r\n"),
    ("TTL a", b":-1\r\n"),
    ("EXPIRE none 5", b":0\r\n"),
    ("EXPIRE a 0", b":1\r\n"),
    ("EXISTS a", b":0\r\n"),
    ("PEXPIRE b 50000", b":1\r\n"),
    ("TTL b", b":50\r\n"),
    ("DBSIZE", b":2\r\n"),
    ("KEYS *", b"*2\r\n$5\r\nempty\r\n$1\r\nb\r\n"),
    ("KEYS e?p*", b"*1\r\n$5\r\nempty\r\n"),
    ("SCAN 0", b"*2\r\n$1\r\n0\r\n*2\r\n$5\r\nempty\r\n$1\r\nb\r\n"),
    ("SCAN 0 MATCH b COUNT 100 TYPE string", b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n"),
    ("SCAN 0 TYPE list", b"*2\r\n$1\r\n0\r\n*0\r\n"),
    ("DEL b none empty", b":2\r\n"),
    ("UNLINK b", b":0\r\n"),
    ("CONFIG GET appendonly nothing", b"*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n"),
    # Refusals
    ("SET a 1 EX", SYNTAX),
    ("SET a 1 EX 5 PX 5", SYNTAX),
    ("SET a 1 NX XX", SYNTAX),
    ("SET a 1 FLY", SYNTAX),
    ("SET a 1 EX x", NUMBER),
    ("SET a 1 EX 0", b"-ERR invalid expire time in 'set' command\r\n"),
    ("SET a 1 EX 9223372036854775807", b"-ERR invalid expire time in 'set' command\r\n"),
    ("SET a 1 EX 99999999999999999999", NUMBER),
    ("SET a", b"-ERR wrong number of arguments for 'set' command\r\n"),
    ("SET a 1 NX NX", b"+OK\r\n"),
    ("DEL a", b":1\r\n"),
    ("SET a 1 EX x FLY", SYNTAX),
    ("SET a 1 KEEPTTL EX 5", SYNTAX),
    ("SET a 1 EX 05", NUMBER),
    ("EXPIRE a x", NUMBER),
    ("EXPIRE a +5", NUMBER),
    ("EXPIRE a x FLY", b"-ERR Unsupported option FLY\r\n"),
    ("EXPIRE a x NX GT", b"-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"),
    ("EXPIRE a x GT LT", b"-ERR GT and LT options at the same time are not compatible\r\n"),
    ("SELECT 00", NUMBER),
    ("EXPIRE a 9223372036854775807", b"-ERR invalid expire time in 'expire' command\r\n"),
    ("SCAN x", b"-ERR invalid cursor\r\n"),
    ("SCAN -1", b"-ERR invalid cursor\r\n"),
    ("SCAN 0 COUNT 0", SYNTAX),
    ("SCAN 0 COUNT", SYNTAX),
    ("SCAN 0 FLY 1", SYNTAX),
    ("CONFIG SET save x", b"-ERR CONFIG SET is not served here\r\n"),
    ("EXISTS a", b":0\r\n"),
]


async def test_every_command_and_refusal(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as connection,
    ):
        for command, wanted in STORY:
            assert await connection.ask(command) == wanted, command
        assert (await connection.ask(b"SET " + b"k" * 1025 + b" 1")).startswith(b"-ERR a key has 1025 bytes")
        assert await connection.ask(b"SET \x00\xff \xff\x00\r\n") == b"+OK\r\n"
        assert await connection.ask(b"GET \x00\xff") == b"$4\r\n\xff\x00\r\n\r\n"


async def test_in_resp_3_there_are_nulls_and_maps(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert (await connection.ask("HELLO 3")).startswith(b"%7\r\n")
        assert await connection.ask("GET none") == b"_\r\n"
        assert await connection.ask("MGET none") == b"*1\r\n_\r\n"
        assert await connection.ask_plain("CONFIG GET save") == {"save": b""}
        info = await connection.ask_plain("INFO server")
        assert isinstance(info, bytes)
        assert b"redis_mode:standalone\r\n" in info
        assert b"redis_version:7." in info
        assert (await connection.ask("HELLO 2")).startswith(b"*14\r\n")
        assert await connection.ask("GET none") == b"$-1\r\n"


async def test_values_outlive_the_gateway_and_their_ends_too(tmp_path: Path) -> None:
    async def before() -> None:
        async with (
            running_gateway(tmp_path, "redis", auth={"open": True}) as running,
            await RedisConnection.connect(running) as connection,
        ):
            for number in range(100):
                connection.send(b"SET", b"k%d" % number, b"v%d" % number)
            assert [await connection.receive() for _ in range(100)] == [b"+OK\r\n"] * 100
            assert await connection.ask("SET short 1 PX 1") == b"+OK\r\n"
            assert await connection.ask("SET long 1 EX 1000") == b"+OK\r\n"
            assert await connection.ask("DEL k0 k1") == b":2\r\n"

    async def after() -> None:
        async with (
            running_gateway(tmp_path, "redis", auth={"open": True}) as running,
            await RedisConnection.connect(running) as connection,
        ):
            assert await connection.ask("MGET k0 k2 k99 short") == b"*4\r\n$-1\r\n$2\r\nv2\r\n$3\r\nv99\r\n$-1\r\n"
            left = await connection.ask_plain("TTL long")
            assert isinstance(left, int)
            assert 0 < left <= 1000

    await before()
    await after()


async def test_a_scan_gives_every_key_once(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as connection,
    ):
        for number in range(250):
            connection.send(b"SET", b"k%d" % number, b"v")
        for _ in range(250):
            await connection.receive()
        cursor, seen, calls = b"0", list[bytes](), 0
        while calls == 0 or cursor != b"0":
            answer = await connection.ask_plain(f"SCAN {cursor.decode()} COUNT 7")
            assert isinstance(answer, list)
            cursor, keys = answer
            seen += keys
            calls += 1
        assert sorted(seen) == sorted(b"k%d" % number for number in range(250))
        assert calls > 30


async def test_a_question_behind_a_write_is_answered_behind_it(tmp_path: Path) -> None:
    """Delay the reads of other clients too, which could otherwise see a value that does not survive."""
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as one,
        await RedisConnection.connect(running) as other,
    ):
        for number in range(200):
            one.send(b"SET", b"k", b"%d" % number)
            one.send(b"GET", b"k")
            other.send(b"GET", b"k")
        answers = [await one.receive() for _ in range(400)]
        assert answers[0::2] == [b"+OK\r\n"] * 200
        assert answers[1::2] == [b"$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(200)]
        seen = [await other.receive() for _ in range(200)]
        numbers = [-1 if answer == b"$-1\r\n" else int(answer.split(b"\r\n")[1]) for answer in seen]
        assert numbers == sorted(numbers)


async def test_when_the_disk_fails_the_write_is_refused_and_the_old_value_stands(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as connection,
    ):
        assert await connection.ask("SET k old") == b"+OK\r\n"
        database = running.gateway.state.database.write_connection
        database.execute("CREATE TRIGGER full BEFORE INSERT ON redis_values BEGIN SELECT RAISE(FAIL, 'full'); END")
        connection.send(b"SET", b"k", b"new")
        connection.send(b"GET", b"k")
        answers = [await connection.receive(), await connection.receive()]
        assert all(answer.startswith(b"-ERR") for answer in answers), answers
        assert await connection.ask("GET k") == b"$3\r\nold\r\n"


@pytest.mark.parametrize("service", ["redis", "sisdb"])
async def test_the_gateways_own_services_cannot_be_taken_over(tmp_path: Path, service: str) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", auth={"open": True}) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet_tcp"))
        login = b'in:{"command":"login","ask":{"name":"x","password":"y"}}'
        register = b'r:{"service":"wirelake","command":"register","ask":{"service":"%b"}}' % service.encode()
        writer.write(bytes([len(login)]) + login + bytes([len(register)]) + register)
        async with asyncio.timeout(WAIT_S):
            assert b"r:" in (listed := await reader.readuntil(b"own"))
        assert b'"ans":-1' in listed
        writer.close()
