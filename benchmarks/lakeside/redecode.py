"""History decoded once more: rows a second, and what a row costs when there is ten times as much of it.

Frames of comet, which need no memory, and packets of apostol, whose commands are put together again from the beginning.
Each history goes through the whole pipeline first. A first run warms the workers; a run in which nothing changes does
all the work but the commits, so it can be measured again and again.
"""

import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from lakeside.bench import Bench
from lakeside.frames import KINDS, SAMPLES
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode

TIMES = (1, 10)
GOAL = 300_000  # rows a second
FLAT = 1.25  # a row of the longer history may cost so many times what one of the shorter costs
_APPENDED = 4096
_STEP_US = 250
_START_US = 1_700_000_000_000_000
_COMMIT_S = 60.0


def write_log(data: Path, protocol: str, make: Callable[[int], bytes], direction: str, rows: int) -> None:
    """So many frames at the rate of a busy gateway, through midnight if there are enough."""
    log = SegmentLog(data / "log", LogSettings(fsync=False, keep_days=None))
    frames = [make(number) for number in range(KINDS)] * (_APPENDED // KINDS + 1)
    for start in range(0, rows, _APPENDED):
        part = frames[: min(_APPENDED, rows - start)]
        at_us = _START_US + start * _STEP_US
        log.append_many(at_us, protocol, "frame", direction, f"{start % 64:016x}", "me", "10.0.0.1:1", part).wait(
            _COMMIT_S
        )
    log.close()


def measured(bench: Bench, data: Path, protocol: str) -> float:
    """Rows a second, the best of the rounds."""
    best = 0.0
    for _ in range(bench.rounds + 1):
        started_s = time.perf_counter()
        done = redecode(bench.spark, data, RedecodeRequest(protocol=protocol))
        if done.replaced:
            raise AssertionError(f"the same decoder says something else: {done.tables}")
        best = max(best, done.frames / (time.perf_counter() - started_s))
    return best


def run(bench: Bench) -> None:
    table = Table(title="history decoded once more", title_justify="left")
    for heading in ("", "rows", "rows/s", "µs a row", "times the cost of the shortest", "goal"):
        table.add_column(heading, justify="left" if not heading else "right")
    select_rows = [
        (name, what, make, sender) for name, what, make, sender in SAMPLES if what in ("message", "readings")
    ]
    for protocol, what, make, sender in select_rows:
        first = 0.0
        for times in TIMES:
            data = bench.folder / f"{protocol}-{times}"
            rows = bench.rows // max(TIMES) * times
            write_log(data, protocol, make, "out" if sender.value == "server" else "in", rows)
            Job(bench.spark, data, JobSettings(once=True)).run()
            rate = measured(bench, data, protocol)
            first = first or rate
            ratio = first / rate
            judged = f"≥ {GOAL:,} {'✓' if rate >= GOAL else '✗'}"
            if times > 1:
                judged += f", ≤ {FLAT:g} {'✓' if ratio <= FLAT else '✗'}"
            table.add_row(
                f"{protocol} {what}", f"{rows:,}", f"{rate:,.0f}", f"{1e6 / rate:.2f}", f"{ratio:.2f}", judged
            )
    bench.console.print(table)
