"""The redis door's values, byte by byte: every command and every refusal, as redis words them."""

import asyncio
from pathlib import Path

import pytest

from gateway.running import HOST, WAIT_S, Running, running_gateway
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.frames import Command, Value
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.splitter import ValueSplitter
from wirelake.protocols.redis.values import to_plain


class Line:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = ValueSplitter()
        self._waiting: list[bytes] = []

    @classmethod
    async def call(cls, running: Running) -> "Line":
        return cls(*await asyncio.open_connection(HOST, running.port("redis")))

    async def __aenter__(self) -> "Line":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def say(self, *words: bytes) -> None:
        self._writer.write(Command(words).encode())

    async def hear(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            while not self._waiting:
                self._waiting += self._splitter.receive(await self._reader.read(65536))
        return self._waiting.pop(0)

    async def ask(self, line: str | bytes) -> bytes:
        """Words with spaces between them; the answer as it is on the wire."""
        self.say(*(line.encode() if isinstance(line, str) else line).split(b" "))
        return await self.hear()

    async def plain(self, line: str) -> object:
        value = decode(await self.ask(line), Sender.SERVER)
        assert isinstance(value, Value)
        return to_plain(value)


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
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
        for asked, wanted in STORY:
            assert await line.ask(asked) == wanted, asked
        assert (await line.ask(b"SET " + b"k" * 1025 + b" 1")).startswith(b"-ERR a key has 1025 bytes")
        assert await line.ask(b"SET \x00\xff \xff\x00\r\n") == b"+OK\r\n"
        assert await line.ask(b"GET \x00\xff") == b"$4\r\n\xff\x00\r\n\r\n"


async def test_in_resp_3_there_are_nulls_and_maps(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
        assert (await line.ask("HELLO 3")).startswith(b"%7\r\n")
        assert await line.ask("GET none") == b"_\r\n"
        assert await line.ask("MGET none") == b"*1\r\n_\r\n"
        assert await line.plain("CONFIG GET save") == {"save": b""}
        info = await line.plain("INFO server")
        assert isinstance(info, bytes)
        assert b"redis_mode:standalone\r\n" in info
        assert b"redis_version:7." in info
        assert (await line.ask("HELLO 2")).startswith(b"*14\r\n")
        assert await line.ask("GET none") == b"$-1\r\n"


async def test_values_outlive_the_gateway_and_their_ends_too(tmp_path: Path) -> None:
    async def before() -> None:
        async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
            for number in range(100):
                line.say(b"SET", b"k%d" % number, b"v%d" % number)
            assert [await line.hear() for _ in range(100)] == [b"+OK\r\n"] * 100
            assert await line.ask("SET short 1 PX 1") == b"+OK\r\n"
            assert await line.ask("SET long 1 EX 1000") == b"+OK\r\n"
            assert await line.ask("DEL k0 k1") == b":2\r\n"

    async def after() -> None:
        async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
            assert await line.ask("MGET k0 k2 k99 short") == b"*4\r\n$-1\r\n$2\r\nv2\r\n$3\r\nv99\r\n$-1\r\n"
            left = await line.plain("TTL long")
            assert isinstance(left, int)
            assert 0 < left <= 1000

    await before()
    await after()


async def test_a_scan_gives_every_key_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
        for number in range(250):
            line.say(b"SET", b"k%d" % number, b"v")
        for _ in range(250):
            await line.hear()
        cursor, seen, calls = b"0", list[bytes](), 0
        while calls == 0 or cursor != b"0":
            answer = await line.plain(f"SCAN {cursor.decode()} COUNT 7")
            assert isinstance(answer, list)
            cursor, keys = answer
            seen += keys
            calls += 1
        assert sorted(seen) == sorted(b"k%d" % number for number in range(250))
        assert calls > 30


async def test_a_question_behind_a_write_is_answered_behind_it(tmp_path: Path) -> None:
    """And so is one of somebody else, who would otherwise be told what may not survive."""
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await Line.call(running) as one,
        await Line.call(running) as other,
    ):
        for number in range(200):
            one.say(b"SET", b"k", b"%d" % number)
            one.say(b"GET", b"k")
            other.say(b"GET", b"k")
        answers = [await one.hear() for _ in range(400)]
        assert answers[0::2] == [b"+OK\r\n"] * 200
        assert answers[1::2] == [b"$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(200)]
        seen = [await other.hear() for _ in range(200)]
        numbers = [-1 if answer == b"$-1\r\n" else int(answer.split(b"\r\n")[1]) for answer in seen]
        assert numbers == sorted(numbers)


async def test_when_the_disk_fails_the_write_is_refused_and_the_old_value_stands(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running, await Line.call(running) as line:
        assert await line.ask("SET k old") == b"+OK\r\n"
        database = running.gateway.state.database.write_connection
        database.execute("CREATE TRIGGER full BEFORE INSERT ON redis_values BEGIN SELECT RAISE(FAIL, 'full'); END")
        line.say(b"SET", b"k", b"new")
        line.say(b"GET", b"k")
        answers = [await line.hear(), await line.hear()]
        assert all(answer.startswith(b"-ERR") for answer in answers), answers
        assert await line.ask("GET k") == b"$3\r\nold\r\n"


@pytest.mark.parametrize("service", ["redis", "sisdb"])
async def test_the_gateways_own_services_cannot_be_taken_over(tmp_path: Path, service: str) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", auth={"open": True}) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet_tcp"))
        login = b'in:{"command":"login","ask":{"name":"x","password":"y"}}'
        register = b'r:{"service":"wirelake","command":"register","ask":{"service":"%b"}}' % service.encode()
        writer.write(bytes([len(login)]) + login + bytes([len(register)]) + register)
        async with asyncio.timeout(WAIT_S):
            assert b"r:" in (told := await reader.readuntil(b"own"))
        assert b'"ans":-1' in told
        writer.close()
