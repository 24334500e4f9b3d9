"""One run of the pipeline for the part `gold`, in a process of its own: with the code that PYTHONPATH names.

    python gold_run.py WARM_DATA DATA silver|gold

It warms up with one data folder, says so, waits for a line, works on the other, says so again, and waits. In the end it
says how many seconds the slowest refresh took, and the CPU-seconds of the partials.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakeside.whole_run import CORES, DRIVER_MEMORY
from wirelake.lake.tables import TABLES
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.commit.delta import live_files, open_table
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.gold import refresh
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.spark.session import open_session

try:
    from wirelake.pipeline.gold.partials import SUMMARIES, PartialSums, encode_partials
    from wirelake.pipeline.gold.summarize import read_batches
except ImportError:  # an earlier version
    SUMMARIES = {}  # type: ignore[misc]

BATCH_RECORDS = 20_000  # one second
EVERY_BATCHES = 4  # as often as a running job refreshes


def main() -> None:
    warm, data, what = sys.argv[1:]
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": DRIVER_MEMORY}
    spark = open_session(f"local[{CORES}]", "benchmark", settings)
    work(spark, Path(warm), what)
    print("warm", flush=True)
    sys.stdin.readline()
    records, slowest_s = work(spark, Path(data), what)
    print(f"done {records}", flush=True)
    sys.stdin.readline()
    print(slowest_s, partials_s(Path(data)))
    spark.stop()


def work(spark: Any, data: Path, what: str) -> tuple[int, float]:
    """Run the job; return its records, and how long the slowest refresh took."""
    slowest_s, batches = 0.0, 0
    refresh_gold: Callable[[], object] = lambda: None  # noqa: E731 (until there are tables)

    def timed() -> None:
        nonlocal slowest_s
        started_s = time.perf_counter()
        refresh_gold()
        slowest_s = max(slowest_s, time.perf_counter() - started_s)

    def on_progress(progress: Any) -> None:
        nonlocal batches
        if progress.batches > batches:
            batches = progress.batches
            if batches % EVERY_BATCHES == 0:
                timed()

    job = Job(spark, data, JobSettings(once=True, batch_rows=BATCH_RECORDS), on_progress=on_progress)
    if what == "gold":
        refresh_gold = refresh_of(spark, data)
    job.run()
    timed()
    return job.progress.rows, slowest_s


def refresh_of(spark: Any, data: Path) -> Callable[[], object]:
    """Return the function that refreshes the gold tables of a data folder."""
    tables: Any = getattr(refresh, "GoldTables", None)
    if tables is None:
        return refresh_before(spark, data)
    paths = DataPaths.of(data)
    gold = tables(paths.lake, paths.checkpoint, open_stream(paths).app)
    return lambda: gold.refresh(spark)


def refresh_before(spark: Any, data: Path) -> Callable[[], object]:
    """Return the same for versions without partials, which compute the minutes that changed again."""
    manifests: Any = ManifestStore(data / "checkpoints" / "tables")  # type: ignore[arg-type] # a folder then
    groups: Any = refresh.GOLD  # type: ignore[attr-defined]
    positions, due_s = {group.name: -1 for group in groups}, {group.name: 0.0 for group in groups}
    now_s = 0.0

    def run() -> None:
        nonlocal now_s
        now_s += EVERY_BATCHES
        for group in groups:
            if now_s >= due_s[group.name]:
                due_s[group.name] = now_s + group.every_s
                dirty: dict[str, set[int]] = {}
                for manifest in manifests.since(positions[group.name]):
                    positions[group.name] = manifest.batch
                    for name, minutes in manifest.dirty_us.items():
                        dirty.setdefault(name, set()).update(minutes)
                if dirty:
                    group.refresh(spark, data / "lake", dirty)

    return run


def partials_s(data: Path) -> float:
    """Return the CPU-seconds of summing all rows, batch by batch, without reading them."""
    if not SUMMARIES:
        return 0.0
    lake, used_s = DataPaths.of(data).lake, 0.0
    for name in SUMMARIES:
        table = TABLES[name]
        for file in live_files(open_table(lake, table), name):
            for rows in read_batches(lake, table, file, table.schema.names):
                started_s = time.thread_time()
                sums = PartialSums()
                sums.add(name, rows)
                encode_partials(sums.result())
                used_s += time.thread_time() - started_s
    return used_s


if __name__ == "__main__":
    main()
