"""Kill Python workers in the middle of a batch, and cut commits short: the tables are those of an undisturbed run."""

import fnmatch
import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.checking import check_tables, rows_of, same_tables
from pipeline.processes import kill, python_workers_of
from pipeline.traffic import filled
from wirelake.lake.damage import commits_of
from wirelake.lake.store import Store, open_lake
from wirelake.lake.tables import TABLES
from wirelake.pipeline import job as job_module
from wirelake.pipeline.job import Job, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 2000
BATCH_ROWS = 400
KILLS = 2
WAIT_S = 120.0


@pytest.fixture(scope="module")
def undisturbed(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("undisturbed")
    filled(data, RECORDS)
    run(spark, data, open_lake(data))
    return data


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, data: Path, undisturbed: Path) -> Store:
    shutil.copytree(undisturbed / "log", data / "log")
    store: Store = open_lake(data) if request.param == "folder" else request.getfixturevalue("s3_lake")
    return store


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)


def run(spark: "SparkSession", data: Path, lake: Store) -> Job:
    job = Job(spark, data, JobSettings(once=True, batch_rows=BATCH_ROWS), gold=True, lake=lake)
    job.run()
    return job


class WorkerKiller(threading.Thread):
    """Kill all Python workers as soon as a batch has written a file, in several batches."""

    def __init__(self, lake: Store) -> None:
        super().__init__()
        self.lake = lake
        self.kills = 0

    def run(self) -> None:
        deadline_s = time.monotonic() + WAIT_S
        batch = 0
        while self.kills < KILLS and time.monotonic() < deadline_s:
            if fnmatch.filter(self.lake.list("bronze"), f"*/part-{batch:08d}-*.parquet"):
                self.kills += kill(python_workers_of(os.getpid())) > 0
                batch += 2
            time.sleep(0.01)


def check_same(data: Path, undisturbed: Path, lake: Store) -> None:
    check_tables(data, lake)
    same_tables(data, undisturbed, lake)
    assert rows_of(data, "gold.ledger", lake)["balanced"].all()


def test_python_workers_are_killed_in_a_batch(
    spark: "SparkSession", undisturbed: Path, data: Path, lake: Store
) -> None:
    killer = WorkerKiller(lake)
    killer.start()
    job = run(spark, data, lake)
    killer.join(WAIT_S)
    assert killer.kills == KILLS
    assert job.progress.restarts > 0
    assert job.progress.poisoned == 0
    check_same(data, undisturbed, lake)


def test_commits_are_cut_short(spark: "SparkSession", undisturbed: Path, data: Path, lake: Store) -> None:
    run(spark, data, lake)
    for table in TABLES.values():
        log = f"{table.folder}/_delta_log"
        for version in commits_of(lake, log)[-1:]:
            path = f"{log}/{version:020d}.json"
            lake.write(path, lake.read(path)[:40])
    commits = data / "checkpoints" / "tables" / "spark" / "commits"
    newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    newest.write_bytes(b"")
    job = run(spark, data, lake)
    assert (job.progress.rows, job.progress.restarts) == (0, 0), "nothing is computed again"
    assert newest.stat().st_size > 0
    check_same(data, undisturbed, lake)
