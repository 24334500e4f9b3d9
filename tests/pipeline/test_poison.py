from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline.checking import rows_of
from pipeline.traffic import START_US, fill

from wirelake.errors import StorageError
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline import job as job_module
from wirelake.pipeline.batch import Batches
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.poison import NotTheRecordsError, find_poison
from wirelake.pipeline.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "pause_s", lambda _: 0.01)


def brittle(log: SegmentLog, frame: bytes) -> int:
    seq = log.next_seq
    log.append(START_US + seq, "brittle", "frame", "in", "s", "me", "10.0.0.1:5", frame).wait(10)
    return seq


@pytest.mark.parametrize("frame", [b"raise", b"die"])
def test_a_record_that_breaks_the_job_goes_to_quarantine_and_the_rest_is_processed(
    spark: "SparkSession", log: SegmentLog, data: Path, frame: bytes
) -> None:
    fill(log, 20)
    bad = [brittle(log, frame), brittle(log, b"fine"), brittle(log, frame + b" again")]
    good = bad.pop(1)
    fill(log, 20)
    job = Job(spark, data, JobSettings(once=True))
    job.run()
    assert job.progress.poisoned == 2
    assert job.progress.restarts == 1  # tried once more as it was, then looked into
    quarantine = rows_of(data, "silver.quarantine").filter(reason="poison").sort("seq")
    assert quarantine["seq"].to_list() == bad
    assert quarantine["frame"].to_list() == [frame, frame + b" again"]
    messages = rows_of(data, "silver.messages")
    assert messages.filter(protocol="brittle")["seq"].to_list() == [good]
    assert sorted(rows_of(data, "bronze.frames")["seq"].to_list()) == list(range(43))


def test_a_fault_of_the_machine_is_not_blamed_on_the_records(
    spark: "SparkSession", log: SegmentLog, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 20)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Batches, "run", fail)
    with pytest.raises(StorageError, match=r"fails even without its records.*no space left"):
        Job(spark, data, JobSettings(once=True)).run()
    monkeypatch.undo()
    job = Job(spark, data, JobSettings(once=True))
    job.run()
    assert job.progress.poisoned == 0


def failing(*seqs: int) -> list[Span]:
    """What was tried is kept, to see that it is not everything."""
    tried: list[Span] = []

    def try_out(spans: list[Span]) -> None:
        tried.extend(spans)
        if any(span.from_seq <= seq < span.until_seq for span in spans for seq in seqs):
            raise ValueError(spans)

    failing.try_out = try_out  # type: ignore[attr-defined]
    return tried


def test_halving_finds_each_in_few_steps(log: SegmentLog, data: Path) -> None:
    fill(log, 1000)
    tried = failing(3, 997)
    assert find_poison(data / "log", Span(0, 1000, 7), failing.try_out) == [3, 997]  # type: ignore[attr-defined]
    assert len(tried) < 50
    assert {span.now_us for span in tried} == {7}  # the batch's clock, whatever part of it is tried


def test_what_fails_only_together_is_not_isolated(log: SegmentLog, data: Path) -> None:
    fill(log, 100)

    def try_out(spans: list[Span]) -> None:
        if sum(span.rows for span in spans) == 100:
            raise ValueError

    with pytest.raises(NotTheRecordsError, match="fail together"):
        find_poison(data / "log", Span(0, 100), try_out)


def test_nobody_is_blamed_for_a_fault_that_comes_and_goes(log: SegmentLog, data: Path) -> None:
    fill(log, 4)
    tried: list[int] = []

    def try_out(spans: list[Span]) -> None:
        tried.append(sum(span.rows for span in spans))
        if tried.count(tried[-1]) == 1 and tried[-1]:
            raise OSError("busy")

    with pytest.raises(NotTheRecordsError, match="failed once, and then did not"):
        find_poison(data / "log", Span(0, 4), try_out)
