"""Test that a checkpoint of another log is an error, never a pipeline that reads nothing."""

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway.running_gateway import running_gateway

from pipeline.checking import rows_of
from pipeline.traffic import filled
from wirelake.errors import LossError
from wirelake.lake.progress import read_checkpoint
from wirelake.log.segments.high_watermark import read_data_id
from wirelake.pipeline.ingest.source import WirelakeSource
from wirelake.pipeline.job import Job, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def once(spark: "SparkSession", data: Path) -> int:
    job = Job(spark, data, JobSettings(once=True))
    job.run()
    return job.progress.rows


async def lived(folder: Path, *contents: str, accept_loss: bool = False) -> int:
    async with running_gateway(folder, accept_loss=accept_loss, log={"segment_mb": 1}) as running:
        for content in contents:
            await running.publish("@news", content)
        return running.gateway.log.next_seq


def test_a_log_that_begins_anew_is_refused_and_one_that_continues_is_read(
    spark: "SparkSession", tmp_path: Path
) -> None:
    data = tmp_path / "data"
    asyncio.run(lived(tmp_path, "one", "two"))
    assert once(spark, data) > 0
    checkpoint = read_checkpoint(data)
    assert checkpoint is not None
    assert checkpoint.data_id == read_data_id(data / "log") != ""
    asyncio.run(lived(tmp_path, "never read"))
    shutil.rmtree(data / "log")
    filled(data, 2)
    with pytest.raises(LossError, match="but the log ends at 2"):
        once(spark, data)
    shutil.rmtree(data / "log")
    with pytest.raises(LossError):
        asyncio.run(lived(tmp_path))
    asyncio.run(lived(tmp_path, "after", accept_loss=True))
    assert once(spark, data) > 0, "new records are read, and what is lost is stepped over"
    assert set(rows_of(data, "silver.notifications")["content"]) == {b"one", b"two", b"after"}


def test_a_stream_of_the_source_beyond_the_end_of_the_log_fails(tmp_path: Path) -> None:
    filled(tmp_path / "data", 5)
    reader = WirelakeSource({"path": str(tmp_path / "data")}).streamReader(None)  # type: ignore[arg-type]
    with pytest.raises(LossError, match=r"the checkpoint is at record 9, but the log in .* ends at 5"):
        reader.latestOffset({"seq": 9}, reader.getDefaultReadLimit())
