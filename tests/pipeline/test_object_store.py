"""Run the pipeline on tables in S3: they equal those in a folder, and one of two drivers fills them."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest

from pipeline.batches import Run
from pipeline.checking import check_tables, rows_of, seqs_of
from pipeline.redecode.test_redecode import plugin, say
from pipeline.traffic import fill
from wirelake.errors import InputError, InUseError, StorageError
from wirelake.lake.object_store import ObjectStore
from wirelake.lake.query import query
from wirelake.lake.store import Store, open_lake
from wirelake.lake.tables import TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline import job as job_module
from wirelake.pipeline.commit.compaction import compact
from wirelake.pipeline.commit.delta import live_files, read_table
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode
from wirelake.pipeline.status import status_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["plugin"]  # a fixture


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)


def once(spark: "SparkSession", data: Path, lake: Store, **rest: Any) -> None:
    Job(spark, data, JobSettings(once=True, **rest), gold=True, lake=lake).run()


def test_tables_in_s3_equal_those_in_a_folder(
    spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path, s3_lake: ObjectStore, codec: Path
) -> None:
    local = tmp_path / "local"
    for seed in (1, 2):
        fill(log, 1500, seed=seed)
        seqs = say(log)
        shutil.copytree(data / "log", local / "log", dirs_exist_ok=True)
        once(spark, data, s3_lake, batch_rows=1000)
        once(spark, local, open_lake(local), batch_rows=1000)
        check_tables(data, s3_lake)
    assert not (data / "lake").exists()
    _check_equal(data, s3_lake, local)

    codec.write_text("2")
    done = redecode(spark, data, RedecodeRequest(protocol="mended"), gold=True, lake=s3_lake)
    redecode(spark, local, RedecodeRequest(protocol="mended"), gold=True)
    assert done.replaced
    assert s3_lake.list("checkpoints/tables/redecoding") == []
    _check_equal(data, s3_lake, local)

    joined = compact(s3_lake)
    assert joined["bronze.frames"].files_joined > 0
    _check_equal(data, s3_lake, local)
    assert query(s3_lake, f"SELECT count(*) FROM silver.messages WHERE seq IN ({seqs[0]}, {seqs[1]})").rows == [[2]]
    status = status_of(data, 0, s3_lake)
    assert (status.problem, {stage.behind_rows for stage in status.stages}) == ("", {0})


def _check_equal(data: Path, lake: Store, local: Path) -> None:
    for name in TABLES:
        found, expected = rows_of(data, name, lake), rows_of(local, name)
        assert len(found) == len(expected), name
        names = [column for column in expected.columns if expected.schema[column] != polars.Binary]
        columns = names if name.startswith("gold.") else expected.columns  # sketches choose what they forget by chance
        assert found.sort(names).select(columns).equals(expected.sort(names).select(columns)), name
    for name in ("silver.messages", "gold.ledger", "gold.traffic_minute"):
        assert rows_of(local, name).height > 0


def test_one_of_two_drivers_fills_a_lake(
    spark: "SparkSession", log: SegmentLog, data: Path, s3_lake: ObjectStore
) -> None:
    fill(log, 300)
    job = Job(spark, data, JobSettings(once=True), lake=s3_lake)
    with pytest.raises(InUseError, match=r"another pipeline is running on .*, in process \d+ on "):
        Job(spark, data, lake=s3_lake)
    job.run()
    check_tables(data, s3_lake)


def test_of_two_drivers_both_commit_the_files_of_the_first(log: SegmentLog, data: Path, s3_lake: ObjectStore) -> None:
    fill(log, 300)
    first, second = Run(data, s3_lake), Run(data, s3_lake)
    messages, others = first.compute(0, 0, 300), second.compute(0, 0, 300)
    first.writer.commit(messages, 0)
    second.writer.commit(others, 0)
    check_tables(data, s3_lake)
    manifests = ManifestStore(s3_lake.at("checkpoints/tables"))
    manifest = manifests.last()
    assert manifest is not None
    for name, files in manifest.adds.items():
        live = {file.path for file in live_files(read_table(s3_lake, TABLES[name]), name)}
        assert live == {file.path for file in files}, "both commit the files of the first"
        assert not any(second.plan.run in path for path in live)
    with pytest.raises(StorageError, match="another pipeline wrote batch 0 with records 0 to 299"):
        manifests.create(Manifest(batch=0, from_seq=0, until_seq=9, now_us=1, rows=9))


def test_a_data_folder_that_is_not_the_lakes_is_refused(
    spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path, s3_lake: ObjectStore
) -> None:
    fill(log, 100)
    once(spark, data, s3_lake)
    other = tmp_path / "other"
    shutil.copytree(data / "log", other / "log")
    with pytest.raises(InputError, match="lacks Spark's own part of the checkpoint"):
        Job(spark, other, lake=s3_lake)
    assert seqs_of(data, "bronze.frames", s3_lake) == list(range(100))
