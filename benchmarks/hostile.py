"""What a well-behaved client notices of an attack: the time of its heartbeats, and the gateway's memory, in one run.

    ./dev bench hostile            # all of them
    ./dev bench hostile KEYS SCAN  # those whose name contains one of these words

A heartbeat is answered after its record is on disk, so the quiet time is that of a sync. The client is logged in with
an identity of its own; the attack comes from another process, so that it does not delay the client itself. Add an
attack by adding a row to `ATTACKS`.
"""

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import uvloop
from _hostile_logins import LOGIN_ATTACKS
from _hostile_strangers import STRANGER_ATTACKS
from rich.console import Console
from rich.table import Table
from servers import pin_load, wirelake

from wirelake.clients.sisnet import SisnetClient
from wirelake.protocols.comet.frames import Auth, Heartbeat
from wirelake.protocols.redis.frames import Command

HOST = "127.0.0.1"
BEATS = 300
PAUSE_S = 0.005
BEAT_S = 60.0  # until a heartbeat is given up
PEERS = 500
KEYS = 200_000
PIPELINED_KEYS = 500
PIPELINED_SCANS = 200
RECORDS = 200_000
RECORDS_AT_ONCE = 5000
READERS = 16
VALUE = b"v" * (1 << 20)
UNREAD = 500
DENSE_JSON = b'{"data":[' + b",".join([b'{"a":1}'] * 2_000_000) + b"]}"
SETTINGS = {"WIRELAKE_AUTH_OPEN": "false", "WIRELAKE_COMET_LOGIN_S": "30"}
INNOCENT, HOSTILE = "innocent", "hostile"
_ATTACK = "--attack"


class Target(NamedTuple):
    """A gateway under attack. Both identities have their tokens."""

    ports: dict[str, int]
    admin_token: str
    tokens: dict[str, str]


Work = Callable[[Target], Awaitable[None]]


class Attack(NamedTuple):
    name: str
    attack: Work | None = None  # goes on until it is cancelled, or ends by itself
    prepare: Work | None = None


async def redis(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, target.ports["redis"])
    writer.write(Command((b"AUTH", HOSTILE.encode(), target.tokens[HOSTILE].encode())).encode())
    assert await reader.readline() == b"+OK\r\n"
    return reader, writer


async def swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


async def comet(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, target.ports["comet"])


# Attacks of strangers


async def silent(target: Target) -> None:
    """Connections that never say a word."""
    await asyncio.gather(*(comet(target) for _ in range(PEERS)))
    await asyncio.sleep(60)


async def trickling(target: Target) -> None:
    """A login, one byte at a time, from many at once."""
    peers = await asyncio.gather(*(comet(target) for _ in range(PEERS)))
    for byte in Auth("nobody", "x" * 1000).encode():
        for _, writer in peers:
            writer.write(bytes([byte]))
        await asyncio.sleep(0.05)


async def wrong_logins(target: Target) -> None:
    """Guessing tokens."""
    for number in range(PEERS):
        _, writer = await comet(target)
        writer.write(Auth("phone", f"guess {number}").encode())
        await asyncio.sleep(0.002)
    await asyncio.sleep(60)


async def flood(target: Target) -> None:
    """One connection that sends as fast as it can, and reads what it is told."""
    reader, writer = await comet(target)
    beats = Heartbeat().encode() * 1000
    while True:
        writer.write(beats)
        await writer.drain()
        await reader.read(65536)


# Attacks of an identity


async def set_keys(target: Target) -> None:
    reader, writer = await redis(target)
    for start in range(0, KEYS, 1000):
        writer.write(b"".join(Command((b"SET", b"key:%d" % each, b"")).encode() for each in range(start, start + 1000)))
        for _ in range(1000):
            await reader.readline()
    writer.close()


async def pipelined_keys(target: Target) -> None:
    reader, writer = await redis(target)
    writer.write(Command((b"KEYS", b"*")).encode() * PIPELINED_KEYS)
    await swallow(reader)


async def pipelined_scans(target: Target) -> None:
    reader, writer = await redis(target)
    scan = Command((b"SCAN", b"0", b"COUNT", b"100000")).encode() * PIPELINED_SCANS
    swallowing = asyncio.ensure_future(swallow(reader))
    while not swallowing.done():
        writer.write(scan)
        await writer.drain()
        await asyncio.sleep(0.05)


async def bad_patterns(target: Target) -> None:
    reader, writer = await redis(target)
    for number in range(PIPELINED_KEYS):
        pattern = b"*" + b"?" * 900 + b"%d" % number
        writer.write(Command((b"KEYS", pattern)).encode())
    await swallow(reader)


async def sisnet(target: Target) -> SisnetClient:
    return SisnetClient(f"tcp://{HOST}:{target.ports['sisnet_tcp']}", HOSTILE, target.tokens[HOSTILE])


async def set_records(target: Target) -> None:
    async with await sisnet(target) as client:
        fields = [["time", "I", 8], ["price", "F", 8], ["volume", "I", 8]]
        await client.ask("sisdb", "create", {"sdb": "tick", "fields": fields})
        for start in range(0, RECORDS, RECORDS_AT_ONCE):
            data = [[time, 1.5, time] for time in range(start, start + RECORDS_AT_ONCE)]
            await client.ask("sisdb", "set", {"key": "k", "sdb": "tick", "data": data})


async def range_reads(target: Target) -> None:
    """All records of a series, from several connections, in a loop."""

    async def read() -> None:
        async with await sisnet(target) as client:
            while True:
                await client.ask("sisdb", "get", {"key": "k", "sdb": "tick", "format": "json"})

    await asyncio.gather(*(read() for _ in range(READERS)))


async def dense_json(target: Target) -> None:
    """Bodies of 16 MB that would become two million objects."""
    head = (
        f"POST /api/services/sisdb/set HTTP/1.1\r\nHost: {HOST}:{target.ports['http']}\r\n"
        f"Authorization: Bearer {HOSTILE}:{target.tokens[HOSTILE]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(DENSE_JSON)}\r\n\r\n"
    )
    while True:
        reader, writer = await asyncio.open_connection(HOST, target.ports["http"])
        with contextlib.suppress(ConnectionError):
            writer.write(head.encode() + DENSE_JSON)
            await writer.drain()
            await reader.readline()
        writer.close()


async def set_large(target: Target) -> None:
    reader, writer = await redis(target)
    writer.write(Command((b"SET", b"large", VALUE)).encode())
    await reader.readline()
    writer.close()


async def unread_answers(target: Target) -> None:
    """Small requests for large values, whose answers nobody reads."""
    writers = []
    for _ in range(10):
        _, writer = await redis(target)
        writer.write(Command((b"GET", b"large")).encode() * UNREAD)
        writers.append(writer)
    await asyncio.sleep(60)


ATTACKS = (
    Attack("quiet"),
    Attack(f"{PEERS} silent connections", silent),
    Attack(f"{PEERS} logins, a byte at a time", trickling),
    Attack(f"{PEERS} wrong logins", wrong_logins),
    Attack("a flood of frames", flood),
    Attack(f"{PIPELINED_KEYS} KEYS over {KEYS:,} keys, pipelined", pipelined_keys, set_keys),
    Attack(f"{PIPELINED_SCANS} SCAN COUNT 100000, pipelined", pipelined_scans, set_keys),
    Attack(f"{PIPELINED_KEYS} KEYS with bad patterns", bad_patterns, set_keys),
    Attack(f"{READERS} × sisdb get of {RECORDS:,} records", range_reads, set_records),
    Attack("16 MB of JSON in 2,000,000 objects", dense_json),
    Attack(f"10 × {UNREAD} GET of 1 MiB, unread", unread_answers, set_large),
    *(Attack(name, attack) for name, attack in (*STRANGER_ATTACKS, *LOGIN_ATTACKS)),
)


async def beat(target: Target) -> list[float]:
    """Milliseconds from each heartbeat to its ok."""
    loop = asyncio.get_running_loop()
    reader, writer = await comet(target)
    writer.write(Auth(INNOCENT, target.tokens[INNOCENT]).encode())
    await reader.readexactly(int.from_bytes(await reader.readexactly(2)))  # it is let in
    taken = []
    for _ in range(BEATS):
        start = loop.time()
        writer.write(Heartbeat().encode())
        async with asyncio.timeout(BEAT_S):
            await reader.readexactly(3)
        taken.append((loop.time() - start) * 1000)
        await asyncio.sleep(PAUSE_S)
    writer.close()
    return taken


async def watch_memory(pid: int, seen: list[int]) -> None:
    """MB that are resident, every tenth of a second."""
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        seen.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1000)
        await asyncio.sleep(0.1)


async def under(target: Target, row: Attack) -> tuple[list[float], int]:
    if row.prepare is not None:
        await row.prepare(target)
    memory: list[int] = []
    watching = asyncio.ensure_future(watch_memory(target.ports["pid"], memory))
    attacker = None
    if row.attack is not None:
        attacker = await asyncio.create_subprocess_exec(
            "nice", sys.executable, __file__, _ATTACK, row.name, json.dumps(target._asdict())
        )
    try:
        await asyncio.sleep(2.0)  # for it to begin
        return await beat(target), max(memory)
    finally:
        watching.cancel()
        if attacker is not None and attacker.returncode is None:
            attacker.kill()
            await attacker.wait()


def attack(name: str, target: Target) -> int:
    """What the other process does."""
    work = next(row.attack for row in ATTACKS if row.name == name)
    assert work is not None

    async def run() -> None:
        await work(target)

    uvloop.run(run())
    return 0


def identity(port: int, admin_token: str, name: str) -> str:
    """Add one; answers its token."""
    request = urllib.request.Request(
        f"http://{HOST}:{port}/api/identities",
        json.dumps({"name": name}).encode(),
        {"Authorization": f"Bearer {admin_token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 our own
        return str(json.loads(answer.read())["token"])


def main() -> int:
    pin_load()
    if sys.argv[1:2] == [_ATTACK]:
        return attack(sys.argv[2], Target(**json.loads(sys.argv[3])))
    words = [word.lower() for word in sys.argv[1:]]
    table = Table(title="a heartbeat's time, ms, and the gateway's memory, MB", title_justify="left")
    for column in ("", "p50", "p99", "longest", "RSS"):
        table.add_column(column, justify="right" if column else "left")
    for row in ATTACKS:
        if words and not any(word in row.name.lower() for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **SETTINGS) as ports:
            admin_token = (Path(folder) / "keys" / "admin.token").read_text().strip()
            tokens = {name: identity(ports["http"], admin_token, name) for name in (INNOCENT, HOSTILE)}
            times, rss = uvloop.run(under(Target(ports, admin_token, tokens), row))
        taken = sorted(times)
        p99 = taken[int(len(taken) * 0.99)]
        table.add_row(row.name, f"{statistics.median(taken):.1f}", f"{p99:.1f}", f"{taken[-1]:.1f}", str(rss))
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
