"""The event log beside other durable stores: records of 100 bytes, appended with a sync before each acknowledgement.

    ./dev bench log [-- --seconds 1]

"In flight" is how many records may be unacknowledged. Ours are appended one by one from an event loop, and again in
runs of 16, as a socket's read brings them; SQLite commits a transaction of that many rows; JetStream gets that many
messages ahead of its acknowledgements, over loopback, from a bare client that only counts them. Ours and SQLite keep
all eleven columns, JetStream and redis only the 100 bytes. Each figure is the best of a few rounds, taken in turn, in
one run on one disk: read the ratios.
"""

import argparse
import asyncio
import gc
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from rich.console import Console
from rich.table import Table

from wirelake.commit import Commit
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader

FRAME_BYTES = 100
IN_FLIGHT = (1, 64, 4096)
SESSIONS = 64
RUN = 16
ROUNDS = 2
READ_ROUNDS = 3
NATS_START_S = 10.0
SQLITE_CACHE_KIB = 64 * 1024

FRAMES = [os.urandom(FRAME_BYTES) for _ in range(4096)]
FIELDS = [
    ("apostol", "frame", "in", f"{number:016x}", f"device-{number:05d}", f"203.0.113.{number}:51234")
    for number in range(SESSIONS)
]
# Made beforehand, for ours and for SQLite: the stores are measured, not the making of records.
RECORDS = [(FIELDS[number % SESSIONS], frame, FRAMES[number : number + RUN]) for number, frame in enumerate(FRAMES)]
RECORDS[-RUN:] = RECORDS[:RUN]

Run = Callable[[Path, int, float], float]  # folder, in flight, seconds → records a second


def now_us() -> int:
    return time.time_ns() // 1000


class Filling:
    """Keeps so many records unacknowledged: what a block confirms is appended anew at once."""

    def __init__(self, log: SegmentLog, in_flight: int, seconds: float, run: int) -> None:
        self._log = log
        self._in_flight = in_flight
        self._seconds = seconds
        self._run = min(run, in_flight)
        self._open: dict[Commit, int] = {}
        self._last: Commit | None = None
        self.done = 0

    async def go(self) -> float:
        self._finished = asyncio.Event()
        start = time.perf_counter()
        self._end = start + self._seconds
        self._append(self._in_flight)
        await self._finished.wait()
        return self.done / (time.perf_counter() - start)

    def _append(self, count: int) -> None:
        at_us, append, append_many, run = now_us(), self._log.append, self._log.append_many, self._run
        appended = counted = 0
        last = self._last
        while appended < count:
            for fields, frame, frames in RECORDS[: (count - appended + run - 1) // run]:
                commit = append(at_us, *fields, frame) if run == 1 else append_many(at_us, *fields, frames)
                if commit is not last:
                    self._count(last, appended - counted)
                    counted, last = appended, commit
                appended += run
        self._last = last
        self._count(last, appended - counted)

    def _count(self, commit: Commit | None, count: int) -> None:
        """So many more records wait for this commit."""
        if commit is None or not count:
            return
        if commit not in self._open:
            self._open[commit] = count
            commit.add_done_callback(self._refill)
        else:
            self._open[commit] += count

    def _refill(self, commit: Commit) -> None:
        commit.result()
        count = self._open.pop(commit)
        self.done += count
        if time.perf_counter() < self._end:
            self._append(count)
        elif not self._open:
            self._finished.set()


def wirelake_log(folder: Path, in_flight: int, seconds: float, run: int = 1) -> float:
    log = SegmentLog(folder / "log")
    rate = asyncio.run(Filling(log, in_flight, seconds, run).go())
    log.close()
    return rate


def wirelake_runs(folder: Path, in_flight: int, seconds: float) -> float:
    return wirelake_log(folder, in_flight, seconds, RUN)


def sqlite(folder: Path, in_flight: int, seconds: float) -> float:
    with_rows = sqlite3.connect(folder / "log.db", isolation_level=None)
    with_rows.executescript(
        f"""PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-{SQLITE_CACHE_KIB};
        CREATE TABLE frames (seq INTEGER PRIMARY KEY, at INTEGER, node TEXT, protocol TEXT, event TEXT, direction TEXT,
        session TEXT, identity TEXT, peer TEXT, frame BLOB, note TEXT)"""
    )
    insert = "INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        at_us = now_us()
        rows = [
            (number, at_us, "local", *fields, frame, "")
            for number, (fields, frame, _) in enumerate(RECORDS[:in_flight], done)
        ]
        with_rows.execute("BEGIN")
        with_rows.executemany(insert, rows)
        with_rows.execute("COMMIT")
        done += in_flight
    with_rows.close()
    return done / spent


@contextmanager
def nats_server(folder: Path, sync: str) -> Iterator[int]:
    """nats-server with JetStream on file storage, on a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    config = folder / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}"\n{sync} }}\n')
    program = Path(sys.executable).parent / "nats-server"
    server = subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + NATS_START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if time.monotonic() > end_s:
                raise RuntimeError("nats-server did not start")
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


async def nats_publish(port: int, in_flight: int, seconds: float) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    await reader.readline()  # INFO
    writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB acks.> 1\r\n')
    body = b'{"name":"frames","subjects":["frames"],"storage":"file","num_replicas":1,"retention":"limits"}'
    writer.write(b"PUB $JS.API.STREAM.CREATE.frames acks.made %d\r\n%b\r\n" % (len(body), body))
    text = b""
    while b"stream_create_response" not in text:
        text += await reader.read(65536)
    assert b'"error"' not in text, text
    messages = [b"PUB frames acks.0 %d\r\n%b\r\n" % (FRAME_BYTES, frame) for frame in FRAMES]
    done, rest = 0, b""
    start = time.perf_counter()
    end = start + seconds
    writer.write(b"".join(messages[:in_flight]))
    open_ = in_flight
    while open_:
        data = rest + await reader.read(1 << 20)
        acks = data.count(b'{"stream"')
        rest = data[-8:] if not data.endswith(b"\r\n") else b""
        acks -= rest.count(b'{"stream"')
        if b"PING\r\n" in data:
            writer.write(b"PONG\r\n")
        done += acks
        open_ -= acks
        if time.perf_counter() < end and acks:
            writer.write(b"".join(messages[:acks]))
            open_ += acks
    rate = done / (time.perf_counter() - start)
    writer.close()
    await writer.wait_closed()
    return rate


def jetstream_always(folder: Path, in_flight: int, seconds: float) -> float:
    with nats_server(folder, "sync_interval: always") as port:
        return asyncio.run(nats_publish(port, in_flight, seconds))


def jetstream_default(folder: Path, in_flight: int, seconds: float) -> float:
    with nats_server(folder, "") as port:
        return asyncio.run(nats_publish(port, in_flight, seconds))


def redis_always(folder: Path, in_flight: int, seconds: float) -> float:
    path = folder / "redis.sock"
    words = [
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--dir",
        str(folder),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]
    server = subprocess.Popen(["redis-server", *words, "--save", ""], stdout=subprocess.DEVNULL)  # noqa: S607
    try:
        while not path.exists():
            time.sleep(0.02)
        client = Redis(unix_socket_path=str(path))
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            pipe = client.pipeline(transaction=False)
            for number in range(in_flight):
                pipe.xadd("frames", {"frame": FRAMES[number & 4095]})
            pipe.execute()
            done += in_flight
        client.close()
        return done / spent
    finally:
        server.terminate()
        server.wait()


RIVALS: dict[str, Run] = {
    "wirelake, one by one": wirelake_log,
    f"wirelake, runs of {RUN}": wirelake_runs,
    "SQLite, WAL, FULL": sqlite,
    "JetStream, sync always": jetstream_always,
    "JetStream, default (no sync)": jetstream_default,
    "redis stream, fsync always": redis_always,
}


def measure(rival: Run, in_flight: int, seconds: float) -> float:
    folder = Path(tempfile.mkdtemp(prefix="wirelake-bench-", dir=Path.cwd()))
    gc.collect()
    try:
        return rival(folder, in_flight, seconds)
    finally:
        shutil.rmtree(folder)


def read_back(seconds: float) -> tuple[float, float, int]:
    """Records and bytes of frames a second read by one process, from the page cache; and how many there were."""
    folder = Path(tempfile.mkdtemp(prefix="wirelake-bench-", dir=Path.cwd()))
    try:
        wirelake_runs(folder, IN_FLIGHT[-1], 2 * seconds)
        best, rows = float("inf"), 0
        for _ in range(READ_ROUNDS):
            reader, rows, size = LogReader(folder / "log"), 0, 0
            start = time.perf_counter()
            for batch in reader.read():
                rows += batch.num_rows
                size += batch.column("frame").nbytes
            best = min(best, time.perf_counter() - start)
        return rows / best, rows * FRAME_BYTES / best, rows
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure of each round")
    seconds: float = parser.parse_args().seconds
    rivals = dict(RIVALS)
    if shutil.which("redis-server") is None:
        del rivals["redis stream, fsync always"]
    console = Console(width=140)
    rates: dict[str, dict[int, float]] = {name: {} for name in rivals}
    for in_flight in IN_FLIGHT:
        for _ in range(ROUNDS):
            for name, rival in rivals.items():
                rate = measure(rival, in_flight, seconds)
                rates[name][in_flight] = max(rate, rates[name].get(in_flight, 0.0))
    base = next(iter(rivals))
    title = f"records of {FRAME_BYTES} bytes a second; × is how many times the first row is"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for in_flight in IN_FLIGHT:
        table.add_column(f"{in_flight} in flight", justify="right")
        table.add_column("MB/s", justify="right")
        table.add_column("×", justify="right")
    for name, found in rates.items():
        cells = []
        for in_flight in IN_FLIGHT:
            rate = found[in_flight]
            cells += [f"{rate:,.0f}", f"{rate * FRAME_BYTES / 1e6:.1f}", f"{rates[base][in_flight] / rate:.1f}"]
        table.add_row(name, *cells)
    console.print(table)
    if "redis stream, fsync always" not in rivals:
        console.print("redis-server is not installed: left out")
    records, size, rows = read_back(seconds)
    console.print(
        f"read back by one process: {records / 1e6:.1f} M records/s, {size / 1e6:,.0f} MB/s ({rows:,} records)"
    )


if __name__ == "__main__":
    main()
