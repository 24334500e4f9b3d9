"""What a row costs when the lake holds a day, ten days, a hundred days: a batch, the gold tables, a redecode.

A day of history is a batch of its own, with sessions, commands of devices, messages and publishes all through the day.
Then some more comes in at the pace of a busy gateway, and is measured. History makes the tables' own logs longer too: a
commit is measured beside, on a table with as many versions and files as a stream leaves after that many hours.
"""

import time
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.json import encode
from rich.table import Table

from lakeside.bench import Bench
from lakeside.frames import KINDS, SAMPLES
from wirelake.lake.progress import JobProgress
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import MESSAGES
from wirelake.limits import MIB
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.commit.delta import DeltaWriter, open_table
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode
from wirelake.protocols.frame import Sender

TIMES = (1, 10, 100)
DAY_ROWS = 40  # a day has so many times fewer rows than the benchmark was asked for
FLAT = 1.25  # a row may cost so many times what it costs with the shortest history
BATCHES = 3  # in a row, of one day's rows; the best one counts
COMMITS = 60  # with three checkpoints of the Delta log
VERSIONS = 36  # for each of TIMES: of an hour at most, one a second; older ones are forgotten
FILES = 30  # for each of TIMES: some protocols, some days
SESSIONS = 20  # of a day
PACE_US = 200  # between two rows of the measured batches
DAY_US = 86_400_000_000
START_US = 1_700_006_400_000_000  # a midnight
_APPENDED = 500
_SEGMENT_BYTES = 4 * MIB  # many of them, as in a long log
_COMMIT_S = 60.0
_MIX = ("message", "readings", "message", "publish", "message_ack")
_REDECODED = ("comet", "apostol")


class Traffic:
    """A log that grows by a day, or by a stretch of the day after."""

    def __init__(self, folder: Path) -> None:
        self._log = SegmentLog(folder / "log", LogSettings(fsync=False, keep_days=None, segment_bytes=_SEGMENT_BYTES))
        made = {
            what: (protocol, "out" if sender is Sender.SERVER else "in", [make(number) for number in range(KINDS)])
            for protocol, what, make, sender in SAMPLES
            if what in _MIX
        }
        self._mix = [made[what] for what in _MIX]
        self._at_us = START_US
        self._sessions = 0

    def day(self, rows: int) -> None:
        """From one midnight to the next."""
        end_us = self._at_us + DAY_US
        self._append(rows, DAY_US // rows)
        self._at_us = end_us

    def stretch(self, rows: int) -> None:
        self._append(rows, PACE_US)

    def close(self) -> None:
        self._log.close()

    def _append(self, rows: int, step_us: int) -> None:
        every = max(1, rows // _APPENDED // SESSIONS)
        for number, start in enumerate(range(0, rows, _APPENDED)):
            protocol, direction, frames = self._mix[number % len(self._mix)]
            session = f"{self._sessions:016x}"
            if number % every == 0:
                self._event("counters", "", "", '{"hours":{}}')  # as a gateway does; hours without them stay open
                self._event("close", protocol, session, '{"reason":"bye"}')
                self._sessions += 1
                session = f"{self._sessions:016x}"
                self._event("open", protocol, session, "")
            part = frames[: min(_APPENDED, rows - start)]
            commit = self._log.append_many(self._at_us, protocol, "frame", direction, session, "me", "10.0.0.1:1", part)
            self._at_us += step_us * len(part)
        commit.wait(_COMMIT_S)

    def _event(self, event: str, protocol: str, session: str, note: str) -> None:
        self._log.append(self._at_us, protocol, event, "", session, "me", "10.0.0.1:1", b"", note)


class Watch:
    """The job's own pace: when its batches ended, and how long gold took after them."""

    def __init__(self) -> None:
        self._batches: list[tuple[float, int]] = []
        self.gold_s = 0.0

    def on_progress(self, progress: JobProgress) -> None:
        if not self._batches or progress.rows > self._batches[-1][1]:
            self._batches.append((time.perf_counter(), progress.rows))

    @property
    def batch_us(self) -> float:
        """For a row of the best batch, from the end of the one before: all that Spark does between is in it."""
        steps = zip(self._batches, self._batches[1:], strict=False)
        return min((end_s - start_s) / (rows - before) for (start_s, before), (end_s, rows) in steps) * 1e6

    @property
    def gold_us(self) -> float:
        return self.gold_s / self._batches[-1][1] * 1e6


def run(bench: Bench) -> None:
    data, rows = bench.folder / "data", bench.rows // DAY_ROWS
    traffic = Traffic(data)
    costs: dict[str, list[float]] = {}
    days = 0
    for times in TIMES:
        for _ in range(times - days):
            traffic.day(rows)
        _fill(bench, data, rows)
        watches = []
        for _ in range(bench.rounds):
            for _ in range(BATCHES):
                traffic.stretch(rows)
            watches.append(_work(bench, data, rows))
        costs.setdefault("a batch", []).append(min(watch.batch_us for watch in watches))
        costs.setdefault("gold", []).append(min(watch.gold_us for watch in watches))
        for protocol in _REDECODED:
            costs.setdefault(f"redecode, {protocol}", []).append(_redecoded_us(bench, data, protocol))
        days = times + 1  # the one that has begun ends, too
        traffic.day(rows)
        costs.setdefault("a commit", []).append(_commit_us(bench.folder / f"commits-{times}", times))
    traffic.close()
    _show(bench, costs, rows)


def _fill(bench: Bench, data: Path, batch_rows: int) -> None:
    Job(bench.spark, data, JobSettings(once=True, batch_rows=batch_rows), gold=True).run()


def _work(bench: Bench, data: Path, batch_rows: int) -> Watch:
    """Some batches, and then gold, as a running job merges it: its tables are open since the refresh before."""
    watch = Watch()
    paths = DataPaths.of(data)
    gold = GoldTables(paths.lake, paths.checkpoint, open_stream(paths).app)
    gold.refresh()
    Job(bench.spark, data, JobSettings(once=True, batch_rows=batch_rows), on_progress=watch.on_progress).run()
    started_s = time.perf_counter()
    gold.refresh()
    watch.gold_s = time.perf_counter() - started_s
    return watch


def _redecoded_us(bench: Bench, data: Path, protocol: str) -> float:
    """For a row that is decoded; frames of other protocols are read as well."""
    started_s = time.perf_counter()
    done = redecode(bench.spark, data, RedecodeRequest(protocol=protocol))
    if done.replaced:
        raise AssertionError(f"the same decoder says something else: {done.tables}")
    return (time.perf_counter() - started_s) / done.frames * 1e6


def _commit_us(path: Path, times: int) -> float:
    """The median of some. A checkpoint that one leaves to a thread ends before the next, as batches are far apart."""
    lake = LocalStore(path)
    table = open_table(lake, MESSAGES)
    folder = path / MESSAGES.folder / "_delta_log"
    files = FILES // VERSIONS + 1
    for version in range(1, VERSIONS * times + 1):
        adds = [_file(f"{version}-{number}") for number in range(files if version <= FILES * times else 0)]
        (folder / f"{version:020d}.json").write_bytes(b"\n".join(map(encode, [*map(_add, adds), _NOTHING])))
    table.update_incremental()
    table.create_checkpoint()
    commits = DeltaWriter(lake, "benchmark")
    taken_s = []
    for batch in range(COMMITS):
        started_s = time.perf_counter()
        commits.commit(MESSAGES.name, batch, [_file(f"new-{batch}")], [])
        taken_s.append(time.perf_counter() - started_s)
        commits.wait()
    return median(taken_s) * 1e6


_NOTHING = {"commitInfo": {"timestamp": START_US // 1000, "operation": "WRITE"}}


def _file(name: str) -> FileAction:
    return FileAction(MESSAGES.name, f"part-{name}.parquet", 1, 1, {"protocol": "comet", "day": "2026-01-31"})


def _add(file: FileAction) -> dict[str, Any]:
    common = {"path": file.path, "size": file.bytes, "partitionValues": file.partition}
    return {"add": {**common, "modificationTime": START_US // 1000, "dataChange": True, "stats": '{"numRecords": 1}'}}


def _show(bench: Bench, costs: dict[str, list[float]], day_rows: int) -> None:
    table = Table(title="what a row costs, by the days that are there already; µs", title_justify="left")
    table.add_column("")
    for times in TIMES:
        table.add_column(f"{times} ({times * day_rows:,} rows)", justify="right")
    table.add_column("last to first", justify="right")
    table.add_column("goal", justify="right")
    for name, found in costs.items():
        ratio = found[-1] / found[0]
        judged = f"≤ {FLAT:g} {'✓' if ratio <= FLAT else '✗'}"
        table.add_row(name, *(f"{cost:,.1f}" for cost in found), f"{ratio:.2f}", judged)
    bench.console.print(table)
