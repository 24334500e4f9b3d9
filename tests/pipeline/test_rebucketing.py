"""Test that jobs with other numbers of buckets continue one another, also after a crash in between."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.chance import history
from pipeline.checking import rows_of
from wirelake.lake.tables import BATCHES, TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = (2, 3, 1, 4)
WAIT_S = 60.0
_COLUMNS = ("at", "protocol", "event", "direction", "session", "identity", "peer", "frame", "note")


def tables_of(data: Path) -> dict[str, list[Any]]:
    names = [name for name in TABLES if not name.startswith("gold.") and name != BATCHES.name]
    return {name: sorted(rows_of(data, name).rows(), key=repr) for name in names}


def last_manifest(data: Path) -> Manifest:
    last = ManifestStore(DataPaths.of(data).checkpoint).last()
    assert last is not None
    return last


def test_the_tables_do_not_show_how_many_buckets_there_were(
    spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = history(7, 800)
    part = len(records) // len(NUMBERS) + 1
    for number, buckets in enumerate(NUMBERS):
        for record in records[number * part : (number + 1) * part]:
            commit = log.append(*(record[name] for name in _COLUMNS))
        commit.wait(WAIT_S)
        job = JobSettings(once=True, buckets=buckets)
        if buckets == 1:  # the process ends when the states are divided, but nothing refers to them yet

            def fail(*_: object) -> bool:
                raise OSError("no space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(ManifestStore, "rebucket", fail)
                with pytest.raises(OSError, match="no space"):
                    Job(spark, data, job).run()
            assert last_manifest(data).buckets == 3
        Job(spark, data, job).run()
        last = last_manifest(data)
        assert (last.buckets, last.rebucketed) == (buckets, False)
        assert set(last.states) <= set(range(buckets))
        found = {path.name for path in (data / "checkpoints" / "tables" / "carry").iterdir()}
        assert found == last.state_names, "nothing is left of other divisions"
    steady = tmp_path / "steady"
    shutil.copytree(data / "log", steady / "log")
    Job(spark, steady, JobSettings(once=True, buckets=2)).run()
    expected = tables_of(steady)
    assert all(expected[name] for name in ("silver.calls", "silver.deliveries", "silver.sessions", "silver.records"))
    assert tables_of(data) == expected


def test_a_division_that_no_batch_followed_is_divided_again(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    for record in history(3, 200):
        commit = log.append(*(record[name] for name in _COLUMNS))
    commit.wait(WAIT_S)
    Job(spark, data, JobSettings(once=True, buckets=2)).run()
    before = tables_of(data)
    for buckets in (3, 4):
        Job(spark, data, JobSettings(once=True, buckets=buckets)).run()
        assert (last_manifest(data).buckets, last_manifest(data).rebucketed) == (buckets, True)
        assert tables_of(data) == before
    log.append(1_900_000_000_000_000, "", "counters", "", "", "", "", b"", "{}").wait(WAIT_S)
    Job(spark, data, JobSettings(once=True, buckets=4)).run()
    assert not last_manifest(data).rebucketed
    after = tables_of(data)
    assert len(after["bronze.frames"]) == len(before["bronze.frames"]) + 1
    for name in ("sessions", "deliveries"):
        rows = [len(tables[f"silver.{name}"]) for tables in (before, after)]  # with those that are open
        assert rows[0] == rows[1] > 0, name
