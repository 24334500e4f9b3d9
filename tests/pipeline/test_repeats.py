"""Test frames that the log stores once although they were sent many times: the tables have each of them."""

import asyncio
import shutil
from pathlib import Path
from random import Random

from gateway.redis_client import RedisConnection
from gateway.running_gateway import running_gateway
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from wirelake.limits import KIB
from wirelake.log.segments.format import HEADER_BYTES, MISSING_TAIL_BYTES, segment_path
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import MappedSegment
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.job import Job, JobSettings

VALUE = Random(4).randbytes(200 * KIB)
ANSWER = b"$%d\r\n%s\r\n" % (len(VALUE), VALUE)


async def send_requests(folder: Path, count: int) -> None:
    async with (
        running_gateway(folder, "redis", auth={"open": True}) as running,
        await RedisConnection.connect(running) as line,
    ):
        line.send(b"SET", b"key", VALUE)
        assert await line.receive() == b"+OK\r\n"
        for _ in range(count):
            assert await line.ask("GET key") == ANSWER


def test_the_tables_hold_whole_frames_and_the_ledger_balances(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):  # the second after a restart
        asyncio.run(send_requests(tmp_path, 20))
    assert sum(path.stat().st_size for path in (data / "log").glob("*.seg")) < 10 * len(VALUE)
    Job(spark, data, JobSettings(once=True, batch_rows=30), gold=True).run()
    check_tables(data)
    frames = rows_of(data, "bronze.frames")
    assert frames["frame"].to_list().count(ANSWER) == 40
    assert not frames["note"].str.contains(MISSING_TAIL_BYTES).any()
    messages = rows_of(data, "silver.messages")
    assert len(rows_of(data, "silver.quarantine")) == 0
    assert len(messages.filter(messages["direction"] == "out")) == 42
    ledger = rows_of(data, "gold.ledger")
    assert ledger["balanced"].all(), ledger["why"].to_list()
    assert ledger["received"].sum() == ledger["counted"].sum() == 42  # what came in


def test_a_frame_whose_tail_is_lost_is_in_exactly_one_table(spark: SparkSession, tmp_path: Path) -> None:
    data, living = tmp_path / "data", tmp_path / "living"
    log = SegmentLog(living / "log", LogSettings(keep_days=None))
    for number in range(3):
        frame = b"*2\r\n$1\r\n%d\r\n%s" % (number, ANSWER)
        log.append(1_700_000_000_000_000, "redis", "frame", "out", "s", "me", "peer", frame).wait(30)
    shutil.copytree(living, data)  # as a process leaves it that was killed
    log.close()
    path = segment_path(data / "log", 0)
    first_block = MappedSegment(path, 0, None).first_block_offset
    with path.open("r+b") as file:
        file.seek(first_block + HEADER_BYTES + 100 * KIB)
        file.write(b"damage")
    SegmentLog(data / "log", LogSettings(keep_days=None)).close()  # makes a hole of the first block
    Job(spark, data, JobSettings(once=True), gold=True).run()
    check_tables(data)
    quarantined = rows_of(data, "silver.quarantine").sort("seq")
    assert quarantined["seq"].to_list() == [1, 2]
    bronze = rows_of(data, "bronze.frames").sort("seq")
    assert bronze["note"].str.contains(MISSING_TAIL_BYTES).all()
