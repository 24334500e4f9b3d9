"""What a batch with one new session costs while a thousand, 25,000 and 250,000 others are open: CPU and bytes.

The tasks of a batch run one after the other in this process, without Spark. Only what changes is written, so the bytes
do not depend on what is open; of the CPU, the search for what the batch mentions does.
"""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from rich.table import Table

from lakeside.bench import Bench
from wirelake.lake.store import LocalStore
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.batch import build_manifest
from wirelake.pipeline.commit.manifests import Manifest
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.ingest.task import IngestTask
from wirelake.pipeline.reports import TaskReport, read_report
from wirelake.pipeline.shuffle import SHUFFLE_SCHEMA, read_shuffled
from wirelake.pipeline.stateful.device_keys import DeviceKeys
from wirelake.pipeline.stateful.task import ReduceTask

OPEN = (1_000, 25_000, 250_000)
BUCKETS = 4
BATCHES = 20
FLAT = 1.25  # bytes may be so many times those with the fewest open sessions
START_US = 1_700_006_400_000_000
_COMMIT_S = 60.0
_APPENDED = 10_000


class Cost(Struct):
    cpu_s: float
    bytes: float


class Pipeline:
    """Runs the tasks of batches, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._log = SegmentLog(folder / "log", LogSettings(fsync=False, keep_days=None))
        self._folder = folder
        self._lake, self._states = LocalStore(folder / "lake"), LocalStore(folder / "carry")
        self._manifest: Manifest | None = None
        self._batch = 0

    def open_sessions(self, count: int) -> Cost:
        """One batch with so many new sessions: what its buckets cost."""
        first = self._log.next_seq
        for number in range(first, first + count):
            commit = self._log.append(START_US + number, "comet", "open", "", f"{number:016x}", "", "10.0.0.1:5", b"")
            if number % _APPENDED == 0:  # the log refuses records that the disk cannot keep up with
                commit.wait(_COMMIT_S)
        commit.wait(_COMMIT_S)
        ingest = IngestTask(self._folder / "log", self._lake, BUCKETS)
        rows = pa.Table.from_batches(list(ingest.ingest(Span(first, first + count, START_US + first))), SHUFFLE_SCHEMA)
        before = self._manifest
        task = ReduceTask(
            lake=self._lake,
            keys=DeviceKeys(),
            folder=self._states,
            batch=f"{self._batch:012d}",
            buckets=BUCKETS,
            states=before.bucket_states if before is not None else {},
            open=before.open if before is not None else {},
        )
        parts = [rows.filter(pc.equal(rows["bucket"], bucket)).to_batches() for bucket in range(BUCKETS)]
        known, started_s = self._files(), time.process_time()
        reports: list[TaskReport] = []
        for bucket, part in enumerate(parts):
            events, texts = read_shuffled(part)
            reports += task.run(bucket, events, [read_report(text) for text in texts])
        cpu_s = time.process_time() - started_s
        self._manifest = build_manifest(self._batch, reports, before)
        self._batch += 1
        return Cost(cpu_s, sum(size for path, size in self._files().items() if path not in known))

    def _files(self) -> dict[Path, int]:
        folders = (self._folder / "lake" / "silver", self._folder / "carry")
        return {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}


def measure(folder: Path, count: int) -> Cost:
    """The least CPU of some batches, and their average bytes."""
    folder.mkdir()
    pipeline = Pipeline(folder)
    pipeline.open_sessions(count)
    costs = [pipeline.open_sessions(1) for _ in range(BATCHES)]
    return Cost(min(cost.cpu_s for cost in costs), sum(cost.bytes for cost in costs) / BATCHES)


def run(bench: Bench) -> None:
    costs = {count: measure(bench.folder / str(count), count) for count in OPEN}
    table = Table(title="a batch with one new session", title_justify="left")
    for heading in ("open sessions", "CPU, ms", "bytes", "bytes, last to first", "goal"):
        table.add_column(heading, justify="right")
    for count, cost in costs.items():
        ratio = cost.bytes / costs[OPEN[0]].bytes
        judged = f"≤ {FLAT:g} {'✓' if ratio <= FLAT else '✗'}"
        table.add_row(f"{count:,}", f"{cost.cpu_s * 1000:,.1f}", f"{cost.bytes:,.0f}", f"{ratio:.2f}", judged)
    bench.console.print(table)
