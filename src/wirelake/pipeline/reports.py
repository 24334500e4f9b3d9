"""Define what tasks report to the driver, and to each other, as JSON in rows (next to the events: see `shuffle.py`)."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field, json

from wirelake.log.segments.reader import Gap
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import ReadCount, StateFile

REPORT_SCHEMA: Final = pa.schema([("report", pa.string())])


class BatchClock(Struct, frozen=True, tag="clock"):
    """Tell every bucket the time of the batch."""

    now_us: int


class BucketPlan(Struct, frozen=True, tag="plan"):
    """Tell a bucket which batch this is, and where the batch before it ended."""

    batch: str  # names the files of bucket states
    planned_ms: int
    states: list[StateFile] = []
    open: dict[str, list[FileAction]] = {}  # by table
    rebucketed: bool = False  # since the batch before
    keys: dict[str, bytes] = {}  # of devices whose keys changed since the query started; empty: removed


class SpanTime(Struct, frozen=True, tag="time"):
    """Report how long a span took, and whether this was not the first attempt."""

    ingest_ms: int
    retried: bool


class SpanReport(Struct, frozen=True, tag="span"):
    """Report what became of a span of the log."""

    from_seq: int
    until_seq: int
    now_us: int
    rows: int  # fewer than the span has, if records are lost
    files: list[FileAction] = []
    partials: bytes = b""  # what the gold tables gain
    poison: list[int] = []  # records that break the decoder
    gaps: list[Gap] = []  # records that are lost in the log
    read: list[ReadCount] = []  # by hour and protocol


class BucketReport(Struct, frozen=True, tag="bucket"):
    """Report what became of a bucket."""

    bucket: int
    states: list[StateFile] | None = None  # the files of its new state; None: as before
    final: list[FileAction] = []
    open: dict[str, list[FileAction]] = {}  # by table: every file from now on; other tables stay as they are
    partials: bytes = b""  # what the gold tables gain
    counts: dict[str, int] = field(default_factory=dict)
    worker: str = ""


TaskReport = BatchClock | BucketPlan | SpanTime | SpanReport | BucketReport
_decoder = json.Decoder(TaskReport)


def driver_reports(reports: Sequence[Struct]) -> Any:
    """Return reports to the driver as rows."""
    texts = pa.array([json.encode(report).decode() for report in reports], pa.string())
    return pa.record_batch([texts], schema=REPORT_SCHEMA)


def written_files(report: TaskReport) -> list[FileAction]:
    """Return the files of tables that a task has written."""
    if isinstance(report, SpanReport):
        return report.files
    if isinstance(report, BucketReport):
        return [*report.final, *(file for files in report.open.values() for file in files if file.worker)]
    return []


def read_report(text: str) -> TaskReport:
    report: TaskReport = _decoder.decode(text)
    return report
