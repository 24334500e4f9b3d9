"""The same commands to the gateway and to redis itself have the same answers and refusals, in the same order."""

import asyncio
import random
import re
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S, running_gateway

COMMANDS = 2500
KEYS = [b"a", b"b", b"c", b"d:1", b"[x]", b"", b"\xff"]
CONTENTS = [b"", b"1", b"9223372036854775800", b"x y", b"\r\n", b"\x00\xff"]
FIELDS = [b"f", b"g", b"", b"\xff"]
BAD_NUMBERS = [b"0", b"-1", b"x", b"1.5", b"9223372036854775807", b"9223372036854775808", b"+5", b"05", b"", b" 5"]
NUMBERS = [*BAD_NUMBERS, b"100000", b"200000"]  # nothing expires while the test runs
ENDS = {
    b"EX": NUMBERS,
    b"PX": [*BAD_NUMBERS, b"99999999"],
    b"EXAT": [b"0", b"x", b"99999999999"],
    b"PXAT": [b"0", b"x"],
}
ODD = [
    *([word] for word in (b"FLY", b"GET", b"SET", b"CLIENT", b"UNSUBSCRIBE", b"DBSIZE", b"HSET", b"XADD", b"INCR")),
    *([b"CLIENT", b"LIST", *rest] for rest in ([b"TYPE", b"x"], [b"ID"], [b"ID", b"x"], [b"x"], [b"TYPE"])),
    *([b"FLUSHDB", *rest] for rest in ([b"x"], [b"ASYNC", b"SYNC"])),
    *([b"HELLO", version] for version in (b"9", b"x", b"")),
    *([b"CLIENT", *rest] for rest in ([b"SETNAME", b"a b"], [b"SETNAME", b"n"], [b"GETNAME"], [b"ZZZ"], [b"SETNAME"])),
    *([b"SELECT", number] for number in (b"0", b"x", b"-1", b"99", b"00")),
    [b"PUBLISH", b"x"],
    [b"PUNSUBSCRIBE", b"q"],
]

REFUSED_IN_TRANSACTIONS = {b"HELLO", b"UNSUBSCRIBE", b"PUNSUBSCRIBE"}  # redis queues them, and a misused PING


def command(dice: random.Random) -> list[bytes]:
    return dice.choice([value_command, value_command, newer_command, hash_command, transaction_command])(dice)


def newer_command(dice: random.Random) -> list[bytes]:
    key, content, number = dice.choice(KEYS), dice.choice(CONTENTS), dice.choice(NUMBERS)
    match dice.randint(0, 5):
        case 0:
            return [dice.choice([b"INCR", b"DECR", b"GETDEL"]), key]
        case 1:
            return [dice.choice([b"INCRBY", b"DECRBY"]), key, dice.choice([*NUMBERS, b"-9223372036854775808"])]
        case 2:
            return [b"MSET", *(dice.choice(KEYS) for _ in range(dice.randint(1, 6)))]
        case 3:
            return [dice.choice([b"SETEX", b"PSETEX"]), key, dice.choice([number, b"100000"]), content]
        case 4:
            return [dice.choice([b"GETSET", b"APPEND"]), key, content]
    return [b"WATCH", key]


def hash_command(dice: random.Random) -> list[bytes]:
    key, fields = dice.choice(KEYS), [dice.choice(FIELDS) for _ in range(dice.randint(1, 4))]
    match dice.randint(0, 4):
        case 0 | 1:
            return [b"HSET", key, *fields, dice.choice(CONTENTS)]
        case 2:
            return [dice.choice([b"HMGET", b"HDEL"]), key, *fields]
        case 3:
            return [b"HGET", key, *fields[: dice.choice([1, 1, 1, 2])]]
    return [b"HGETALL", key]


def transaction_command(dice: random.Random) -> list[bytes]:
    return [dice.choice([b"MULTI", b"MULTI", b"EXEC", b"EXEC", b"EXEC", b"DISCARD", b"UNWATCH", b"WATCH"])]


def value_command(dice: random.Random) -> list[bytes]:  # noqa: PLR0911 (one return a kind)
    key, some = dice.choice(KEYS), [dice.choice(KEYS) for _ in range(dice.randint(0, 3))]
    match dice.randint(0, 9):
        case 0 | 1:
            words = [b"SET", key, dice.choice(CONTENTS)]
            for _ in range(dice.choice([0, 0, 1, 1, 2, 3])):
                option = dice.choice([b"NX", b"xx", b"GET", b"KEEPTTL", b"FLY", *ENDS])
                words += [option, *([dice.choice(ENDS[option])] if option in ENDS and dice.random() < 0.9 else [])]
            return words
        case 2:
            return [dice.choice([b"MGET", b"DEL", b"UNLINK", b"EXISTS"]), *some]
        case 3 | 4:
            conditions = [dice.choice([b"NX", b"XX", b"GT", b"LT", b"FLY"]) for _ in range(dice.choice([0, 0, 1, 2]))]
            return [b"EXPIRE", key, dice.choice(NUMBERS), *conditions]
        case 5:
            return [b"KEYS", dice.choice([b"*", b"?", b"[a-b]", b"\\[x\\]", b"d:*", b"[^a]", b"", b"[", b"*\\"])]
        case 6:
            options = [
                [],
                [b"MATCH", b"?"],
                [b"COUNT", b"0"],
                [b"COUNT", b"x"],
                [b"TYPE", b"list"],
                [b"TYPE", b"hash"],
                [b"MATCH"],
                [b"a", b"1"],
            ]
            return [b"SCAN", dice.choice([b"0", b"x"]), *dice.choice(options), b"COUNT", b"100000"]
        case 7:
            return [dice.choice([b"ECHO", b"PING"]), *some]
        case 8:
            return dice.choice(ODD)
    return [dice.choice([b"GET", b"TTL", b"PERSIST", b"STRLEN", b"TYPE"]), key]


def comparable(command_words: list[bytes], answer: bytes) -> object:
    """Return the answer without what depends on the time or has no order."""
    if command_words[0] in {b"KEYS", b"SCAN", b"HGETALL"}:
        return sorted(answer.split(b"\r\n"))
    if command_words[0] == b"EXEC":
        return sorted(re.sub(rb"^:\d{5,6}$", b"a while", connection) for connection in answer.split(b"\r\n"))
    if command_words[0] == b"TTL" and answer[:1] == b":" and int(answer[1:]) > 0:
        return "a while"
    return answer


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisConnection]:
    program = shutil.which("redis-server")
    assert program is not None, "redis-server is missing: the package of that name has it"
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    words = ["--port", str(port), "--bind", HOST, "--save", "", "--dir", str(folder), "--databases", "1"]
    server = await asyncio.create_subprocess_exec(program, *words, stdout=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    streams = await asyncio.open_connection(HOST, port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
        async with RedisConnection(*streams) as connection:
            yield connection
    finally:
        server.terminate()
        await server.wait()


async def compare(ours: RedisConnection, theirs: RedisConnection, command_words: list[bytes]) -> None:
    ours.send(*command_words)
    theirs.send(*command_words)
    answer, wanted = await ours.receive(), await theirs.receive()
    assert comparable(command_words, answer) == comparable(command_words, wanted), command_words


@pytest.mark.parametrize("seed", range(3))
async def test_answers_are_those_of_redis(tmp_path: Path, seed: int) -> None:
    """Compare in both versions of the protocol."""
    dice = random.Random(seed)
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as ours,
        redis_server(tmp_path) as theirs,
    ):
        if seed:
            for connection in (ours, theirs):
                assert (await connection.ask("HELLO 3")).startswith(b"%7")
        is_queueing = False
        for _ in range(COMMANDS):
            command_words = command(dice)
            if is_queueing and (
                command_words[0] in REFUSED_IN_TRANSACTIONS
                or len(command_words) > {b"PING": 2}.get(command_words[0], 99)
            ):
                continue
            await compare(ours, theirs, command_words)
            is_queueing = command_words == [b"MULTI"] or (
                is_queueing and command_words not in ([b"EXEC"], [b"DISCARD"])
            )


TRANSACTIONS = """
EXEC
DISCARD
MULTI
MULTI
WATCH a
SET a 1
INCR a
HSET a f 1
GET a
PING
ECHO hi
SELECT 0
CLIENT GETNAME
EXEC
GET a
MULTI
SET a 2
FLY
GET a
EXEC
GET a
MULTI
SET a
EXEC
MULTI
SET a 3
DISCARD
GET a
DISCARD
WATCH a b
MULTI
SET b 1
EXEC
WATCH a
SET a 4
MULTI
SET a 5
EXEC
GET a
WATCH nothing
SET nothing 1
DEL nothing
MULTI
EXEC
WATCH a
SET a 4
UNWATCH
MULTI
GET a
MGET a b nothing
DEL a b
KEYS *
HSET h f 1 g 2
HGETALL h
HGET h none
EXEC
WATCH a
MULTI
FLY
EXEC
SET a 6
MULTI
GET a
EXEC
WATCH a
SET a 7
MULTI
DISCARD
MULTI
GET a
EXEC
MULTI
PUBLISH nobody here
EXPIRE a 100
PERSIST a
TYPE h
SCAN 0 COUNT 1000 TYPE hash
STRLEN h
EXEC
MULTI
RESET
EXEC
"""


@pytest.mark.parametrize("version", [2, 3])
async def test_transactions_are_those_of_redis(tmp_path: Path, version: int) -> None:
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as ours,
        redis_server(tmp_path) as theirs,
    ):
        for connection in (ours, theirs):
            assert (await connection.ask(f"HELLO {version}"))[:1] in b"*%"
        for command_words in TRANSACTIONS.strip().split("\n"):
            await compare(ours, theirs, command_words.encode().split(b" "))


STREAM = """
TYPE @s
XRANGE @s - +
XREAD STREAMS @s 0
XADD @s NOMKSTREAM * f v
XADD @s * f v g w
XADD @s * f v f w
XADD @s * content plain
XADD @s * content {"a":"b"}
XADD @s * \xff \x00 \" "
TYPE @s
XRANGE @s - +
XRANGE @s - + COUNT 2
XRANGE @s - + COUNT 0
XRANGE @s - + COUNT -5
XRANGE @s 2 3
XRANGE @s (2 (4
XRANGE @s (2 (4-0
XRANGE @s 2-1 3-5
XRANGE @s + -
XRANGE @s 9 +
XREAD STREAMS @s 0
XREAD COUNT 1 STREAMS @s 3
XREAD COUNT 2 STREAMS @s @none @s 0 0 4-0
XREAD STREAMS @s $
XREAD BLOCK 1 STREAMS @s $
XREAD COUNT 1 BLOCK 1 STREAMS @s 5-0
XREAD STREAMS @s 007
MULTI
XREAD BLOCK 0 STREAMS @s $
XREAD COUNT 1 STREAMS @s 0
XRANGE @s 1 1
XADD @s * f last
EXEC
XRANGE @s 6 +
XADD @s 0-0 f v
XADD @s 1-1 f v
XADD @s 0-* f v
XADD @s x f v
XADD @s - f v
XADD @s * f
XADD @s * f v w
XADD @s *
XRANGE @s x +
XRANGE @s ( +
XRANGE @s - (0-0
XRANGE @s (18446744073709551615-18446744073709551615 +
XRANGE @s 18446744073709551616 +
XRANGE @s - + COUNT
XRANGE @s - + COUNT x
XRANGE @s - + FLY 1
XREAD STREAMS @s
XREAD STREAMS @s a 1
XREAD COUNT x STREAMS @s 0
XREAD BLOCK x STREAMS @s 0
XREAD BLOCK -1 STREAMS @s 0
XREAD FLY STREAMS @s 0
XREAD COUNT 1 FLY @s
XREAD GROUP g c STREAMS @s 0
XREAD NOACK STREAMS @s 0
XREAD STREAMS @s >
XREAD STREAMS @s -
XREAD STREAMS @s 1-
XREAD STREAMS @s 1-x
XREAD STREAMS @s -5
SET string 1
XADD string * f v
XADD string 0-0 f v
XRANGE string - +
XRANGE string x +
XREAD STREAMS string 0
XREAD STREAMS string x
HSET hash f v
XADD hash * f v
"""


@pytest.mark.parametrize("version", [2, 3])
async def test_streams_are_those_of_redis(tmp_path: Path, version: int) -> None:
    """Give redis ids of its own, because it derives them from the time."""
    given = 0
    async with (
        running_gateway(tmp_path, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as ours,
        redis_server(tmp_path) as theirs,
    ):
        for connection in (ours, theirs):
            assert (await connection.ask(f"HELLO {version}"))[:1] in b"*%"
        for text in STREAM.strip().split("\n"):
            command_words = text.encode("latin-1").decode("unicode_escape").encode("latin-1").split(b" ")
            if command_words[0] != b"XADD" or b"*" not in command_words:
                await compare(ours, theirs, command_words)
                continue
            ours.send(*command_words)
            theirs.send(*(b"%d-0" % (given + 1) if word == b"*" else word for word in command_words))
            answer, wanted = await ours.receive(), await theirs.receive()
            assert answer == wanted, command_words
            given += answer == b"+QUEUED\r\n" or answer.endswith(b"-0\r\n")
