"""Test that every loss is visible: in the job's progress, in the status and in the ledger."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from deltalake import DeltaTable
from log.segments.test_range_reader import damage

from pipeline.checking import logged, rows_of, seqs_of
from pipeline.histories import encoded
from pipeline.traffic import START_US, fill
from wirelake.errors import StorageError
from wirelake.lake.progress import JobProgress
from wirelake.lake.tables import FRAMES
from wirelake.log.segments.log import SegmentLog
from wirelake.message import Op, control
from wirelake.pipeline import job as job_module
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.status import status_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)


def once(spark: "SparkSession", data: Path, **rest: Any) -> JobProgress:
    job = Job(spark, data, JobSettings(once=True, view_wait_s=0.1, **rest), gold=True)
    job.run()
    return job.progress


def counters(log: SegmentLog, at_us: int, received: int | None) -> None:
    """Write counters as a gateway does; None is for its first ones."""
    hour = str(at_us // HOUR_US * 3600)
    note: dict[str, Any] = {"start": True} if received is None else {}
    note["hours"] = {} if received is None else {hour: {"comet": {"in": received}}}
    log.append(at_us, "", "counters", "", "", "", "", b"", write_json(note).decode()).wait(10)


def ping(log: SegmentLog, at_us: int) -> None:
    frame = encoded("comet", control(Op.PING), Sender.CLIENT)
    log.append(at_us, "comet", "frame", "in", "s1", "me", "10.0.0.1:5", frame).wait(10)


def ledger(data: Path, *columns: str, **only: str) -> list[tuple[Any, ...]]:
    rows = rows_of(data, "gold.ledger").filter(**only).sort("hour", "protocol")
    return rows.select(*columns).rows()


def gold_tables(data: Path) -> GoldTables:
    paths = DataPaths.of(data)
    return GoldTables(paths.lake, paths.checkpoint, open_stream(paths).app)


def test_damaged_records_are_left_out_once_the_driver_finds_them_damaged_too(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    for _ in range(6):
        fill(log, 500)
    gap = damage(data / "log", 1000)
    progress = once(spark, data)
    assert progress.dropped == {"records_lost": gap.rows}
    assert 0 < gap.rows < 3000
    assert progress.restarts  # it was tried once more as it was
    assert (progress.rows, progress.next_seq) == (3000 - gap.rows, 3000)
    assert seqs_of(data, "bronze.frames") == [row["seq"] for row in logged(data)]
    assert status_of(data, 0).dropped == {"records_lost": gap.rows}
    reason = "1 record was damaged in the log" if gap.rows == 1 else f"{gap.rows} records were damaged in the log"
    assert ledger(data, "lost", "balanced", "why", protocol="") == [(gap.rows, False, reason)]


def test_what_a_limit_dropped_is_told_and_remembered(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    ping(log, START_US)  # nobody answers
    ping(log, START_US + 2 * HOUR_US)
    assert once(spark, data).dropped == {"calls_given_up": 1}
    ping(log, START_US + 4 * HOUR_US)
    assert once(spark, data).dropped == {"calls_given_up": 2}
    assert once(spark, data).dropped == {"calls_given_up": 2}  # a job that finds nothing new
    assert status_of(data, 0).dropped == {"calls_given_up": 2}
    found = ledger(data, "dropped", "dropped_by", "balanced", protocol="")
    assert found == [(1, "calls_given_up 1", True)] * 2  # in the hour of the batch
    assert [
        row[1:] for row in ledger(data, "hour", "received", "scanned", "committed", "balanced", protocol="comet")
    ] == [(1, 1, 1, True)] * 3


def test_records_that_the_gateway_counted_and_nobody_read_show(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    counters(log, START_US, None)
    for number in range(4):
        ping(log, START_US + number)
    counters(log, START_US + 10, 5)
    once(spark, data)
    columns = ("counted", "received", "scanned", "committed", "balanced", "why")
    assert ledger(data, *columns) == [(5, 4, 4, 4, False, "received 4, but counted + uncounted = 5")]


def test_rows_and_files_that_are_taken_from_the_tables_show(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 500)
    once(spark, data)
    assert rows_of(data, "gold.ledger")["balanced"].all()
    lost = DeltaTable(str(data / "lake" / FRAMES.folder)).delete("event = 'publish'")["num_deleted_rows"]
    assert lost
    gold_tables(data).check(recount=False)
    (row,) = ledger(data, "records", "records_committed", "why", protocol="")
    assert row == (0, lost, f"records 0, but records_committed = {lost}")
    path = next(Path(uri) for uri in DeltaTable(str(data / "lake" / FRAMES.folder)).file_uris())
    path.unlink()
    gold_tables(data).check(recount=False)
    (found,) = ledger(data, "files_missing", "balanced", "why", protocol="")
    assert found[:2] == (1, False)
    assert f"1 file is missing: bronze.frames/{path.parent.name}/{path.name}" in found[2]
    wrong = rows_of(data, "gold.ledger").filter(
        polars.col("protocol") != "", polars.col("received") < polars.col("scanned")
    )
    assert len(wrong)


def test_tables_by_the_minute_are_not_made_of_part_of_the_rows(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    fill(log, 200)
    once(spark, data)
    path = min((data / "lake" / "silver" / "messages" / "protocol=comet").rglob("*.parquet"))
    path.unlink()
    with pytest.raises(StorageError, match=f"cannot compute gold.traffic_minute: .*{path.name} .* is missing"):
        gold_tables(data).rebuild(spark, ["silver.messages"], rows_of(data, "bronze.frames")["day"].unique())
