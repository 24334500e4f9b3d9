"""Values and records, beside redis, in one run.

    ./dev bench records

1. GET and SET with redis-benchmark.
2. sisdb records, written a hundred at a time and read by range, against a sorted set of the same bytes by score.

Wirelake's answer to a write comes after the sync, of the event log with both frames and of the state. redis is measured
as near to that as it can be set (`appendfsync always`), and as most run it, in memory.
The server has one core, the load the other.
"""

import asyncio
import csv
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table
from servers import LOAD_CORE, missing, pin_load, redis, wirelake

from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.splitter import ValueSplitter
from wirelake.protocols.sisnet.envelope import sized
from wirelake.protocols.sisnet.frames import SisnetTcpSplitter
from wirelake.protocols.splitter import Splitter

VALUE_BYTES = 64
REQUESTS = {16: 100_000, 1: 20_000}  # by how many each client sends without waiting
CLIENTS = 50
RECORD = struct.Struct("<Qddq")
FIELDS = '[["time","U",8],["price","F",8],["high","F",8],["volume","I",8]]'
RECORDS = 100_000
A_SET = 100
RANGES = (1, 100, 1000)
WINDOW = 16
SECONDS = 2.0
SETTINGS = {
    "WIRELAKE_AUTH_OPEN": "true",
    "WIRELAKE_LIMITS_PENDING_BYTES": str(256 << 20),
    "WIRELAKE_LIMITS_FRAMES_PER_SECOND": "100000000",
    "WIRELAKE_LIMITS_BYTES_PER_SECOND": str(1 << 40),
}
Rates = dict[str, float]


def values(port: int) -> Rates:
    """Requests a second, as redis-benchmark finds them."""
    rates: Rates = {}
    for pipelined, requests in REQUESTS.items():
        command = ["taskset", "-c", str(LOAD_CORE), "redis-benchmark", "-p", str(port), "--csv", "-t", "set,get"]
        command += [
            "-n",
            str(requests),
            "-c",
            str(CLIENTS),
            "-P",
            str(pipelined),
            "-d",
            str(VALUE_BYTES),
            "-r",
            "10000",
        ]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        rows = [row for row in csv.reader(StringIO(printed)) if row and row[0] in {"SET", "GET"}]
        rates |= {f"{name}, {pipelined} at a time": float(rate) for name, rate, *_ in rows}
    return rates


class Answers(asyncio.Protocol):
    """Waits for so many answers."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self.left = 0
        self.last = b""
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        frames = self.splitter.receive(data)
        self.left -= len(frames)
        if frames:
            self.last = frames[-1]
        if self.left <= 0 and self.done is not None and not self.done.done():
            self.done.set_result(None)

    async def ask(self, *questions: bytes) -> bytes:
        self.left = len(questions)
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(b"".join(questions))
        async with asyncio.timeout(60):
            await self.done
        return self.last


class Door:
    """How one server is asked to keep and give records."""

    def __init__(
        self, splitter: Callable[[], Splitter], hello: list[bytes], write: Callable[[int], bytes], read: bytes
    ) -> None:
        self.splitter, self.hello, self.write, self.read = splitter, hello, write, read


def packed(first: int) -> list[bytes]:
    return [RECORD.pack(time, time / 3, time / 2, time) for time in range(first, first + A_SET)]


def sisnet(*messages: str) -> list[bytes]:
    return [sized(message.encode()) for message in messages]


SISDB = Door(
    SisnetTcpSplitter,
    sisnet(
        'in:{"command":"login","ask":{"name":"bench","password":"x"}}',
        f'd:{{"cmd":"dict","argv":{{"tick":{{"fields":{FIELDS}}}}}}}',
    ),
    lambda first: sized(b"n:set:k:tick:" + b"".join(packed(first))),
    b'n:{"command":"get","ask":{"key":"k","sdb":"tick","min":%d,"max":%d,"format":"%s"}}',
)
REDIS = Door(
    ValueSplitter,
    [],
    lambda first: Command(
        (b"ZADD", b"k", *[part for n, data in enumerate(packed(first), first) for part in (b"%d" % n, data)])
    ).encode(),
    b"",
)


def read_sisdb(low: int, high: int, form: bytes) -> bytes:
    return sized(SISDB.read % (low, high, form))


def read_redis(low: int, high: int, _form: bytes) -> bytes:
    return Command((b"ZRANGEBYSCORE", b"k", b"%d" % low, b"%d" % high)).encode()


async def records(port: int, door: Door, read: Callable[[int, int, bytes], bytes], forms: list[bytes]) -> Rates:
    """Records a second."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Answers(door.splitter()), "127.0.0.1", port)
    for hello in door.hello:
        await peer.ask(hello)
    rates: Rates = {}
    start = loop.time()
    for first in range(0, RECORDS, A_SET * WINDOW):
        told = await peer.ask(*[door.write(first + A_SET * number) for number in range(WINDOW)])
    assert b"-1" not in told, told
    rates[f"written, {A_SET} at a time"] = RECORDS / (loop.time() - start)
    for length in RANGES:
        for form in forms:
            asked, start = 0, loop.time()
            while loop.time() - start < SECONDS:
                lows = [(asked + number) * 7919 % (RECORDS - length) for number in range(WINDOW)]
                await peer.ask(*[read(low, low + length - 1, form) for low in lows])
                asked += WINDOW
            rates[f"read, {length} in a range, {form.decode()}"] = asked * length / (loop.time() - start)
    peer.transport.close()
    return rates


def measured(
    port: int, redis_port: int, door: Door, read: Callable[[int, int, bytes], bytes], forms: list[bytes]
) -> Rates:
    return values(redis_port) | uvloop.run(records(port, door, read, forms))


def main() -> int:
    absent = missing()
    if absent:
        print(f"install first: apt-get install {' '.join(absent)}", file=sys.stderr)
        return 1
    pin_load()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with wirelake(folder / "wirelake", **SETTINGS) as ports:
            ours = measured(ports["sisnet_tcp"], ports["redis"], SISDB, read_sisdb, [b"array", b"bytes"])
        (folder / "redis").mkdir()
        with redis(folder / "redis") as port:
            synced = measured(port, port, REDIS, read_redis, [b"bytes"])
        with redis() as port:
            in_memory = measured(port, port, REDIS, read_redis, [b"bytes"])
    table = Table(title="requests or records a second", title_justify="left")
    for column in ("", "wirelake", "redis, synced", "ratio", "redis, in memory", "ratio"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for what, rate in ours.items():
        rival = what.replace("array", "bytes")
        others = [f"{other[rival]:,.0f}|{rate / other[rival]:.2f}" for other in (synced, in_memory)]
        table.add_row(what, f"{rate:,.0f}", *"|".join(others).split("|"))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
