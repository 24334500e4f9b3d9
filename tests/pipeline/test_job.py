import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.checking import check_tables, rows_of, seqs_of
from pipeline.traffic import fill
from wirelake.errors import InputError, InUseError, StorageError
from wirelake.lake.progress import JobProgress, read_progress
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import FRAMES, TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline import job as job_module
from wirelake.pipeline.commit.checkpoint import CONSUMER
from wirelake.pipeline.commit.delta import DeltaWriter
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.job import Job, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)


def once(spark: "SparkSession", data: Path, **rest: Any) -> JobProgress:
    job = Job(spark, data, JobSettings(once=True, **rest))
    job.run()
    return job.progress


def test_everything_in_the_log_is_in_the_tables_once(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 3000)
    progress = once(spark, data, batch_rows=1000)
    check_tables(data)
    assert (progress.rows, progress.next_seq, progress.running) == (3000, 3000, False)
    assert progress.batches >= 3  # whole blocks of the log, a thousand records at most
    assert log.committed_offset(CONSUMER) == 3000  # retention may go on
    assert once(spark, data).batches == 0
    fill(log, 500, seed=1)
    assert once(spark, data).rows == 500
    check_tables(data)
    stored = read_progress(data)
    assert stored is not None
    assert (stored.next_seq, stored.errors) == (3500, [])


def test_a_running_job_takes_what_comes_until_it_is_stopped(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 100)
    arrived = {100: threading.Event(), 300: threading.Event()}

    def on_batch(progress: JobProgress) -> None:
        for seq, event in arrived.items():
            if progress.next_seq >= seq:
                event.set()

    job = Job(spark, data, JobSettings(trigger_s=0.1), on_progress=on_batch)
    running = threading.Thread(target=job.run)
    running.start()
    assert arrived[100].wait(WAIT_S)
    fill(log, 200)
    assert arrived[300].wait(WAIT_S)
    with pytest.raises(InUseError, match="another pipeline is running"):
        Job(spark, data)
    job.stop()
    running.join(WAIT_S)
    assert not running.is_alive()
    check_tables(data)


def test_a_crash_between_two_tables_heals(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 500)
    obstacle = data / "lake" / TABLES["silver.messages"].folder / "_delta_log"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("not a folder")  # as good as a full disk, in whatever process the commit runs
    with pytest.raises(StorageError, match="cannot commit batch 0"):
        once(spark, data)
    assert len(seqs_of(data, "bronze.frames")) == 500
    assert log.committed_offset(CONSUMER) == 0
    files = set((data / "lake" / FRAMES.folder).rglob("*.parquet"))
    obstacle.unlink()
    assert seqs_of(data, "silver.messages") == []
    fill(log, 100)
    assert once(spark, data).batches == 1
    check_tables(data)
    batches = {path.name.split("-")[1] for path in (data / "lake" / FRAMES.folder).rglob("*.parquet")}
    assert batches == {"00000000", "00000001"}
    assert files <= set((data / "lake" / FRAMES.folder).rglob("*.parquet"))
    assert len(files) == len(list((data / "lake" / FRAMES.folder).rglob("part-00000000-*")))  # not again


def test_commits_that_a_power_failure_took_back_are_done_again(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    fill(log, 500)
    once(spark, data, batch_rows=250)
    newest = data / "lake" / FRAMES.folder / "_delta_log" / f"{2:020d}.json"
    newest.unlink()
    assert len(seqs_of(data, "bronze.frames")) == 250
    once(spark, data)
    check_tables(data)


def test_a_fresh_checkpoint_over_filled_tables_is_refused(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 50)
    once(spark, data)
    (data / "checkpoints").rename(data / "elsewhere")
    with pytest.raises(InputError, match=r"the tables in .*/lake have rows, but there is no checkpoint"):
        once(spark, data)
    (data / "elsewhere" / "tables" / "spark").rename(data / "spark")
    shutil.rmtree(data / "checkpoints")
    (data / "elsewhere").rename(data / "checkpoints")
    with pytest.raises(InputError, match="lacks Spark's own part of the checkpoint"):
        once(spark, data)


def test_tables_that_were_taken_away_are_missed(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 50)
    once(spark, data)
    (data / "lake").rename(data / "elsewhere")
    with pytest.raises(StorageError, match="which the checkpoint says was written, is missing"):
        once(spark, data)


def test_what_retention_took_first_is_an_error_or_left_out(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 200)
    once(spark, data)
    for _ in range(20):
        fill(log, 200)
    for path in sorted((data / "log").glob("*.seg"))[:3]:  # also what the job has not read: the disk was full
        path.unlink()
    oldest = int(min((data / "log").glob("*.seg")).stem)
    with pytest.raises(StorageError, match=f"the oldest left is {oldest}"):
        once(spark, data)
    progress = once(spark, data, gone="oldest")
    assert seqs_of(data, "bronze.frames") == [*range(200), *range(oldest, 4200)]
    assert progress.dropped == {"records_removed": oldest - 200}


def test_gold_is_refreshed_again_after_a_failure_and_not_without_need(
    spark: "SparkSession", log: SegmentLog, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 400, step_us=1_000_000)
    commit, written = DeltaWriter.commit, []

    def fail_once(self: DeltaWriter, name: str, *rest: Any) -> bool:
        if name.startswith("gold."):
            written.append(name)
            if len(written) == 2:
                raise StorageError("not today")
        return commit(self, name, *rest)

    monkeypatch.setattr(DeltaWriter, "commit", fail_once)
    with pytest.raises(StorageError, match="not today"):
        Job(spark, data, JobSettings(once=True, batch_rows=200), gold=True).run()
    job = Job(spark, data, JobSettings(once=True), gold=True)
    job.run()
    assert job.progress.gold_seq == 400
    frames = len(rows_of(data, "silver.messages")) + len(rows_of(data, "silver.quarantine"))
    assert rows_of(data, "gold.traffic_minute")["frames"].sum() == frames
    done = len(written)
    Job(spark, data, JobSettings(once=True), gold=True).run()
    assert len(written) == done  # nothing new, nothing to do


def test_old_intents_are_forgotten_once_gold_has_them(
    spark: "SparkSession", log: SegmentLog, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirelake.pipeline.commit import manifests

    monkeypatch.setattr(manifests, "PIPELINE_MANIFESTS_KEPT", 2)
    fill(log, 100)
    once(spark, data, batch_rows=20)
    batches = ManifestStore(LocalStore(data / "checkpoints" / "tables")).batches()
    assert len(batches) == 2
    assert once(spark, data).batch == batches[-1]
    check_tables(data)
