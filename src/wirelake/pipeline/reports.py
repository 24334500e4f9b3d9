"""Define what tasks report to the driver, and to each other, as JSON in rows next to the events."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field, json

from wirelake.log.segments.reader import Gap
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import ReadCount, StateFile
from wirelake.pipeline.stateful.events import EVENT_SCHEMA

REPORT_KIND: Final = ""  # sorts before every kind of event
SHUFFLE_SCHEMA: Final = pa.schema([*EVENT_SCHEMA, pa.field("report", pa.string())])
REPORT_SCHEMA: Final = pa.schema([("report", pa.string())])


class BatchClock(Struct, frozen=True, tag="clock"):
    """Tell every bucket the time of the batch."""

    now_us: int


class SpanReport(Struct, frozen=True, tag="span"):
    """Report what became of a span of the log."""

    from_seq: int
    until_seq: int
    now_us: int
    rows: int  # fewer than the span has, if records are lost
    files: list[FileAction] = []
    dirty_us: dict[str, list[int]] = {}
    poison: list[int] = []  # records that break the decoder
    gaps: list[Gap] = []  # records that are lost in the log
    read: list[ReadCount] = []  # by hour and protocol


class BucketReport(Struct, frozen=True, tag="bucket"):
    """Report what became of a bucket."""

    bucket: int
    states: list[StateFile] | None = None  # the files of its new state; None: as before
    final: list[FileAction] = []
    open: dict[str, list[FileAction]] = {}  # by table: every file from now on; other tables stay as they are
    dirty_us: dict[str, list[int]] = {}
    counts: dict[str, int] = field(default_factory=dict)
    worker: str = ""


TaskReport = BatchClock | SpanReport | BucketReport
_decoder = json.Decoder(TaskReport)


def shuffle_reports(bucket_reports: Sequence[tuple[int, Struct]]) -> Any:
    """Return reports to buckets as rows to be shuffled."""
    count = len(bucket_reports)
    known = {
        "bucket": [bucket for bucket, _ in bucket_reports],
        "kind": [REPORT_KIND] * count,
        "key": [""] * count,
        "seq": [0] * count,
        "report": [json.encode(report).decode() for _, report in bucket_reports],
    }
    columns = [pa.array(known.get(each.name, [None] * count), each.type) for each in SHUFFLE_SCHEMA]
    return pa.record_batch(columns, schema=SHUFFLE_SCHEMA)


def shuffle_events(events: Any) -> Any:
    """Return events as rows to be shuffled."""
    return pa.record_batch([*events.columns, pa.nulls(events.num_rows, pa.string())], schema=SHUFFLE_SCHEMA)


def driver_reports(reports: Sequence[Struct]) -> Any:
    """Return reports to the driver as rows."""
    texts = pa.array([json.encode(report).decode() for report in reports], pa.string())
    return pa.record_batch([texts], schema=REPORT_SCHEMA)


def read_report(text: str) -> TaskReport:
    report: TaskReport = _decoder.decode(text)
    return report
