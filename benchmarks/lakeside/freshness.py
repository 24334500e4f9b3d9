"""From a socket to a row that can be asked for: a gateway, a steady load, the pipeline, and somebody who looks.

The age of a row is taken when the commit that holds it is seen: that moment minus the row's own time.
"""

import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from rich.table import Table
from servers import BIN, wirelake

from lakeside.bench import Bench
from wirelake.lake.progress import read_progress
from wirelake.lake.tables import MESSAGES
from wirelake.pipeline.time_ranges import time_column
from wirelake.protocols.redis.frames import Command

RATE = 20_000  # frames a second
STEP_S = 0.02
WARM_BATCHES = 8  # Spark compiles, and the workers start
WARM_S_MAX = 120.0
MEASURED_S = 30.0
LOOK_S = 0.05
END_S = 60.0
GOAL_P50_S = 1.0
GOAL_P99_S = 2.0


def run(bench: Bench) -> None:
    data = bench.folder / "data"
    ages: list[Any] = []
    with wirelake(data, WIRELAKE_AUTH_OPEN="true") as ports:
        load = Load(ports["redis"])
        load.start()
        words = [str(BIN / "wirelake"), "pipeline", "run", "--data", str(data)]
        with (bench.folder / "pipeline.txt").open("w") as output:
            pipeline = subprocess.Popen(words, stdout=output, stderr=output)
            try:
                _warm(bench)
                ages = _watch(data)
            finally:
                load.stop()
                pipeline.send_signal(signal.SIGTERM)
                pipeline.wait(END_S)
    _show(bench, np.concatenate(ages), load)


def _warm(bench: Bench) -> None:
    deadline_s = time.monotonic() + WARM_S_MAX
    while time.monotonic() < deadline_s:
        progress = read_progress(bench.folder / "data")
        if progress is not None and progress.batches >= WARM_BATCHES:
            return
        time.sleep(0.2)
    told = (bench.folder / "pipeline.txt").read_text()
    raise RuntimeError(f"no {WARM_BATCHES} batches within {WARM_S_MAX:g} s: {told}")


def _watch(data: Path) -> list[Any]:
    """The ages, in seconds, of every row that comes to silver.messages."""
    folder = data / "lake" / "silver" / "messages"
    table = DeltaTable(folder)
    known = set(table.file_uris())
    ages: list[Any] = []
    column = time_column(MESSAGES)
    deadline_s = time.monotonic() + MEASURED_S
    while time.monotonic() < deadline_s:
        version = table.version()
        table.update_incremental()
        if table.version() == version:
            time.sleep(LOOK_S)
            continue
        seen_us = time.time_ns() // 1000
        files = set(table.file_uris())
        for path in files - known:
            at_us = pq.ParquetFile(path).read([column])[column].cast(pa.int64()).to_numpy()
            fresh = (seen_us - at_us) / 1e6
            if fresh.size and fresh.max() < MEASURED_S:  # not a join of older files
                ages.append(fresh)
        known = files
    return ages


class Load(threading.Thread):
    """Publishes at a steady rate; what is answered is thrown away."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._over = threading.Event()
        self.sent = 0
        self.late_s = 0.0

    def run(self) -> None:
        frames = Command((b"PUBLISH", b"quotes", b"x" * 60)).encode() * int(RATE * STEP_S)
        threading.Thread(target=self._drain, daemon=True).start()
        due_s = time.monotonic()
        while not self._over.is_set():
            self._socket.sendall(frames)
            self.sent += int(RATE * STEP_S)
            due_s += STEP_S
            self.late_s = max(self.late_s, time.monotonic() - due_s)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._socket.close()

    def _drain(self) -> None:
        try:
            while self._socket.recv(1 << 16):
                pass
        except OSError:
            return


def _show(bench: Bench, ages: Any, load: Load) -> None:
    p50, p95, p99 = np.percentile(ages, [50, 95, 99])
    table = Table(title=f"from the socket to a row that can be asked for, {RATE} frames/s", title_justify="left")
    for name in ("rows seen", "p50", "p95", "p99", "goal"):
        table.add_column(name, justify="right")
    reached = p50 < GOAL_P50_S and p99 < GOAL_P99_S
    verdict = f"p50 < {GOAL_P50_S:g} s, p99 < {GOAL_P99_S:g} s {'✓' if reached else '✗'}"
    table.add_row(f"{ages.size:,}", f"{p50:.2f} s", f"{p95:.2f} s", f"{p99:.2f} s", verdict)
    bench.console.print(table)
    bench.console.print(f"{load.sent:,} frames sent, the load at most {load.late_s:.2f} s late")
