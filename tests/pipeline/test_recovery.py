from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.checking import rows_of
from pipeline.traffic import START_US, fill
from wirelake.errors import StorageError
from wirelake.lake.store import LocalStore
from wirelake.limits import PIPELINE_ERROR_CHARS_MAX, PIPELINE_RESTART_FIRST_S, PIPELINE_RESTART_MAX_S
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline import job as job_module
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.recovery import FailureLog, NoPoisonRecordError, find_poison, restart_delay_s, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_failures_of_one_batch_are_counted_across_processes(tmp_path: Path) -> None:
    FailureLog(LocalStore(tmp_path)).add(3, "no memory")
    FailureLog(LocalStore(tmp_path)).add(3, "no memory again")
    failures = FailureLog(LocalStore(tmp_path))
    assert failures.times(3) == 2
    assert failures.times(4) == 0
    last = failures.last()
    assert last is not None
    assert last.text == "no memory again"
    failures.add(4, "another")
    assert failures.times(4) == 1
    failures.clear()
    assert failures.last() is None


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [restart_delay_s(times) for times in range(1, 20)]
    assert pauses[0] == PIPELINE_RESTART_FIRST_S
    assert pauses == sorted(pauses)
    assert pauses[3] == 8 * PIPELINE_RESTART_FIRST_S
    assert pauses[-1] == PIPELINE_RESTART_MAX_S


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StorageError("the disk is full\nreally"), "the disk is full\nreally"),
        (
            RuntimeError(
                "[STREAM_FAILED] Query terminated with exception: no such thing SQLSTATE: XXKST\n=== Plan ===\nScan x"
            ),
            "[STREAM_FAILED] Query terminated with exception: no such thing SQLSTATE: XXKST",
        ),
        (
            RuntimeError("Job aborted\njava.lang.Thread\n  ValueError: the frame is too long\n\tat java.base"),
            "ValueError: the frame is too long",
        ),
        (
            RuntimeError("Failed\nTraceback\nwirelake.pipeline.sink.CommitError: cannot commit batch 3: why"),
            "cannot commit batch 3: why",
        ),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 9_999), "x" * PIPELINE_ERROR_CHARS_MAX),
    ],
)
def test_one_sentence_says_what_went_wrong(error: Exception, sentence: str) -> None:
    assert summarize_error(error) == sentence


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)


def brittle(log: SegmentLog, frame: bytes) -> int:
    seq = log.next_seq
    log.append(START_US + seq, "brittle", "frame", "in", "s", "me", "10.0.0.1:5", frame).wait(10)
    return seq


@pytest.mark.parametrize(
    ("frame", "reason", "poisoned", "restarts"),
    [
        (b"raise", "codec_fault", 0, 0),  # what an added codec raises refuses the frame at once
        (b"die", "poison", 2, 1),  # tried once more as it was, then looked into
    ],
)
def test_a_record_that_breaks_the_job_goes_to_quarantine_and_the_rest_is_processed(
    spark: "SparkSession", log: SegmentLog, data: Path, frame: bytes, reason: str, poisoned: int, restarts: int
) -> None:
    fill(log, 20)
    bad = [brittle(log, frame), brittle(log, b"fine"), brittle(log, frame + b" again")]
    good = bad.pop(1)
    fill(log, 20)
    job = Job(spark, data, JobSettings(once=True))
    job.run()
    assert (job.progress.poisoned, job.progress.restarts) == (poisoned, restarts)
    quarantine = rows_of(data, "silver.quarantine").filter(reason=reason).sort("seq")
    assert quarantine["seq"].to_list() == bad
    assert quarantine["frame"].to_list() == [frame, frame + b" again"]
    messages = rows_of(data, "silver.messages")
    assert messages.filter(protocol="brittle")["seq"].to_list() == [good]
    assert sorted(rows_of(data, "bronze.frames")["seq"].to_list()) == list(range(43))


def test_a_fault_of_the_machine_is_not_blamed_on_the_records(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    fill(log, 20)
    obstacle = data / "checkpoints" / "tables" / "carry"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("not a folder")  # no task can write the state of its bucket
    with pytest.raises(StorageError, match=r"fail together, but not in halves.*Not a directory"):
        Job(spark, data, JobSettings(once=True)).run()
    obstacle.unlink()
    job = Job(spark, data, JobSettings(once=True))
    job.run()
    assert job.progress.poisoned == 0


def failing(*seqs: int) -> list[Span]:
    """Record the attempts, to check that not everything is tried."""
    tried: list[Span] = []

    def dry_run(spans: list[Span]) -> None:
        tried.extend(spans)
        if any(span.from_seq <= seq < span.until_seq for span in spans for seq in seqs):
            raise ValueError(spans)

    failing.dry_run = dry_run  # type: ignore[attr-defined]
    return tried


def test_halving_finds_each_in_few_steps(log: SegmentLog, data: Path) -> None:
    fill(log, 1000)
    tried = failing(3, 997)
    assert find_poison(data / "log", Span(0, 1000, 7), failing.dry_run) == [3, 997]  # type: ignore[attr-defined]
    assert len(tried) < 50
    assert {span.now_us for span in tried} == {7}  # the batch's clock, whatever part of it is tried


def test_what_fails_only_together_is_not_isolated(log: SegmentLog, data: Path) -> None:
    fill(log, 100)

    def dry_run(spans: list[Span]) -> None:
        if sum(span.rows for span in spans) == 100:
            raise ValueError

    with pytest.raises(NoPoisonRecordError, match="fail together"):
        find_poison(data / "log", Span(0, 100), dry_run)


def test_nobody_is_blamed_for_a_fault_that_comes_and_goes(log: SegmentLog, data: Path) -> None:
    fill(log, 4)
    tried: list[int] = []

    def dry_run(spans: list[Span]) -> None:
        tried.append(sum(span.rows for span in spans))
        if tried.count(tried[-1]) == 1 and tried[-1]:
            raise OSError("busy")

    with pytest.raises(NoPoisonRecordError, match="failed once, and then did not"):
        find_poison(data / "log", Span(0, 4), dry_run)
