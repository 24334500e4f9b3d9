"""The same commands to the redis door and to redis itself: the same answers, refusals and their order included."""

import asyncio
import random
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.running import HOST, WAIT_S, running_gateway
from gateway.test_redis_values import Line

COMMANDS = 1500
KEYS = [b"a", b"b", b"c", b"d:1", b"[x]", b"", b"\xff"]
CONTENTS = [b"", b"1", b"x y", b"\r\n", b"\x00\xff"]
BAD_NUMBERS = [b"0", b"-1", b"x", b"1.5", b"9223372036854775807", b"9223372036854775808", b"+5", b"05", b"", b" 5"]
NUMBERS = [*BAD_NUMBERS, b"100000", b"200000"]  # nothing ends while the test runs
ENDS = {
    b"EX": NUMBERS,
    b"PX": [*BAD_NUMBERS, b"99999999"],
    b"EXAT": [b"0", b"x", b"99999999999"],
    b"PXAT": [b"0", b"x"],
}
ODD = [
    *([word] for word in (b"FLY", b"GET", b"SET", b"CLIENT", b"UNSUBSCRIBE", b"DBSIZE")),
    *([b"HELLO", version] for version in (b"9", b"x", b"")),
    *([b"CLIENT", *rest] for rest in ([b"SETNAME", b"a b"], [b"SETNAME", b"n"], [b"GETNAME"], [b"ZZZ"], [b"SETNAME"])),
    *([b"SELECT", number] for number in (b"0", b"x", b"-1", b"99", b"00")),
    [b"PUBLISH", b"x"],
    [b"PUNSUBSCRIBE", b"q"],
]


def command(dice: random.Random) -> list[bytes]:  # noqa: PLR0911 (one return a kind)
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
                [b"MATCH"],
                [b"a", b"1"],
            ]
            return [b"SCAN", dice.choice([b"0", b"x"]), *dice.choice(options), b"COUNT", b"100000"]
        case 7:
            return [dice.choice([b"ECHO", b"PING"]), *some]
        case 8:
            return dice.choice(ODD)
    return [dice.choice([b"GET", b"TTL", b"PERSIST", b"STRLEN", b"TYPE"]), key]


def comparable(asked: list[bytes], answer: bytes) -> object:
    """Without what depends on the time, or has no order."""
    if asked[0] in {b"KEYS", b"SCAN"}:
        return sorted(answer.split(b"\r\n"))
    if asked[0] == b"TTL" and answer[:1] == b":" and int(answer[1:]) > 0:
        return "a while"
    return answer


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[Line]:
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
        async with Line(*streams) as line:
            yield line
    finally:
        server.terminate()
        await server.wait()


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_redis(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        dice = random.Random(seed)
        async with (
            running_gateway(tmp_path, "redis", auth={"open": True}) as running,
            await Line.call(running) as ours,
            redis_server(tmp_path) as theirs,
        ):
            for _ in range(COMMANDS):
                asked = command(dice)
                ours.say(*asked)
                theirs.say(*asked)
                answer, wanted = await ours.hear(), await theirs.hear()
                assert comparable(asked, answer) == comparable(asked, wanted), asked

    asyncio.run(story())
