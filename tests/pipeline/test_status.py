import os
from pathlib import Path

from click.testing import CliRunner

from pipeline.traffic import START_US, fill
from wirelake.cli.commands.pipeline import pipeline
from wirelake.lake.progress import JobError, JobProgress, read_progress, write_progress
from wirelake.limits import PIPELINE_ERRORS_SHOWN
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.status import status_of

NOW_MS = START_US // 1000 + 5000


def test_before_a_job_ever_ran_everything_is_behind(log: SegmentLog, data: Path) -> None:
    fill(log, 100, step_us=1_000_000)
    status = status_of(data, NOW_MS)
    assert not status.running
    stages = [(stage.name, stage.behind_rows, stage.behind_s) for stage in status.stages]
    assert stages == [("bronze, silver", 100, 99.0), ("gold", 100, 99.0)]


def test_a_log_without_records(log: SegmentLog, data: Path) -> None:
    assert [(stage.behind_rows, stage.behind_s) for stage in status_of(data, NOW_MS).stages] == [(0, 0.0), (0, 0.0)]


def test_each_stage_is_behind_by_rows_and_seconds(log: SegmentLog, data: Path) -> None:
    fill(log, 100, step_us=1_000_000)
    progress = JobProgress(pid=os.getpid(), ui="http://here", written_at_ms=NOW_MS, rows_s=12.5, batch_s=0.4)
    progress.next_seq, progress.at_us = 90, START_US + 89_000_000
    progress.gold_seq, progress.gold_at_us = 40, START_US + 39_000_000
    progress.dropped, progress.noted = {"calls_given_up": 4}, {"acks_repeated": 2}
    progress.files, progress.bytes, progress.state_bytes = 7, 2_500_000, 300_000
    progress.phases_s, progress.open_rows = {"ingest": 0.25, "delta": 0.1}, {"silver.open_calls": 3, "silver.x": 0}
    write_progress(data, progress)
    status = status_of(data, NOW_MS)
    assert (status.running, status.ui, status.rows_s) == (True, "http://here", 12.5)
    assert (status.dropped, status.noted) == ({"calls_given_up": 4}, {"acks_repeated": 2})
    shown = CliRunner().invoke(pipeline, ["status", "--data", str(data)])
    assert "Dropped so far: calls_given_up 4." in shown.output
    assert "Noted so far: acks_repeated 2." in shown.output
    assert "It added 7 files of 2.5 MB: ingest 0.25 s, delta 0.10 s." in shown.output
    assert "State: 0.3 MB; open rows: silver.open_calls 3." in shown.output
    assert [(stage.behind_rows, stage.behind_s) for stage in status.stages] == [(10, 10.0), (60, 60.0)]


def test_a_job_that_was_killed_does_not_run(log: SegmentLog, data: Path) -> None:
    fill(log, 10)
    write_progress(data, JobProgress(pid=2**22 + 1, ui="http://gone", next_seq=10, rows_s=5.0))
    status = status_of(data, NOW_MS)
    assert (status.running, status.ui, status.rows_s) == (False, "", 0.0)
    assert [stage.behind_rows for stage in status.stages] == [0, 10]


def test_only_the_last_errors_are_kept(data: Path) -> None:
    progress = JobProgress(pid=1)
    for number in range(10):
        progress.add_error(number, f"error {number}")
    write_progress(data, progress)
    read = read_progress(data)
    assert read is not None
    assert read.errors == [JobError(n, f"error {n}") for n in range(10 - PIPELINE_ERRORS_SHOWN, 10)]


def test_a_file_of_another_version_is_as_good_as_none(data: Path) -> None:
    write_progress(data, JobProgress(pid=1))
    (data / "checkpoints" / "tables" / "metrics.json").write_text('{"other": 1')
    assert read_progress(data) is None
