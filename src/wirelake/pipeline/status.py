"""Report how far each stage of the pipeline is behind the log, whether or not a job is running."""

import os
from pathlib import Path

from msgspec import Struct

from wirelake.lake.progress import JobError, JobProgress, mismatch, read_checkpoint, read_progress
from wirelake.lake.store import Store
from wirelake.limits import PIPELINE_FRESH_S
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.high_watermark import HighWatermark, read_data_id
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.paths import DataPaths


class PipelineStage(Struct, frozen=True):
    name: str
    next_seq: int  # the first record that it has not processed
    behind_rows: int
    behind_s: float  # from the newest record it has processed (if none, the oldest) to the newest of the log


class PipelineStatus(Struct, frozen=True):
    running: bool
    ui: str
    stages: list[PipelineStage]
    rows_s: float
    batch_s: float
    restarts: int
    errors: list[JobError]
    dropped: dict[str, int]  # what was left out or given up since the tables were created
    noted: dict[str, int]  # other counts since then
    migrating: str = ""  # which table of an earlier version is being rewritten, and how far
    phases_s: dict[str, float] = {}  # of the last batch: parts of it, and sums over its tasks
    files: int = 0  # that the last batch added
    bytes: int = 0  # their size
    state_bytes: int = 0  # of all buckets
    open_rows: dict[str, int] = {}  # by table
    problem: str = ""  # why the tables do not fit the log


def status_of(data: Path, now_ms: int, lake: Store | None = None) -> PipelineStatus:
    paths = DataPaths.of(data, lake)
    progress = read_progress(data) or JobProgress(pid=0, running=False)
    running = progress.running and is_process_running(progress.pid)
    next_seq, newest_us = newest(paths.log)
    first_us = oldest_us(paths.log)
    stages = [
        _stage("bronze, silver", progress.next_seq, progress.at_us or first_us, next_seq, newest_us),
        _stage("gold", progress.gold_seq, progress.gold_at_us or first_us, next_seq, newest_us),
    ]
    fresh = running and now_ms - progress.written_at_ms < PIPELINE_FRESH_S * 1000
    return PipelineStatus(
        running=running,
        ui=progress.ui if running else "",
        stages=stages,
        rows_s=progress.rows_s if fresh else 0.0,
        batch_s=progress.batch_s,
        restarts=progress.restarts,
        errors=progress.errors,
        dropped=progress.dropped,
        noted=progress.noted,
        migrating=progress.migrating if running else "",
        phases_s=progress.phases_s,
        files=progress.files,
        bytes=progress.bytes,
        state_bytes=progress.state_bytes,
        open_rows=progress.open_rows,
        problem=checkpoint_problem(paths),
    )


def checkpoint_problem(paths: DataPaths) -> str:
    """Return why the checkpoint does not belong to the log of the same data folder, or "" if it does."""
    checkpoint = read_checkpoint(paths.data, paths.checkpoint)  # before the log, which may grow
    log = paths.log
    return "" if checkpoint is None else mismatch(checkpoint, read_data_id(log), HighWatermark(log).seq)


def newest(log: Path) -> tuple[int, int]:
    """Return the log's end, and the time of its newest record; 0 if it has none."""
    reader = LogReader(log)
    end = reader.next_seq
    at_us = max((block.at_max_us for block in BlockIndex(log).ranges(max(reader.oldest_seq, end - 1), end)), default=0)
    return end, at_us


def oldest_us(log: Path) -> int:
    """Return the time of the oldest record in the log; 0 if it has none."""
    reader = LogReader(log)
    first = reader.oldest_seq
    return next((batch["at"].cast("int64")[0].as_py() for batch in reader.read(first, first + 1)), 0)


def is_process_running(pid: int) -> bool:
    """Return whether there is a process with this id."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stage(name: str, done_seq: int, done_us: int, next_seq: int, newest_us: int) -> PipelineStage:
    behind_rows = max(0, next_seq - done_seq)
    behind_s = max(0.0, (newest_us - done_us) / 1e6) if behind_rows else 0.0
    return PipelineStage(name, done_seq, behind_rows, behind_s)
