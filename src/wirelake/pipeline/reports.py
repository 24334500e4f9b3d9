"""What tasks tell the driver, and each other: rows beside the items, with a text of JSON."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field, json

from wirelake.log.segments.range_reader import Gap
from wirelake.pipeline.accounts import ReadCount
from wirelake.pipeline.items import ITEMS
from wirelake.pipeline.parquet import FileAction

REPORT_KIND: Final = ""  # sorts before every kind of item
SHUFFLED: Final = pa.schema([*ITEMS, pa.field("report", pa.string())])
REPORTS: Final = pa.schema([("report", pa.string())])


class Tick(Struct, frozen=True, tag="tick"):
    """To every bucket: what the batch's clock shows."""

    now_us: int


class Landed(Struct, frozen=True, tag="landed"):
    """What became of a span."""

    from_seq: int
    until_seq: int
    now_us: int
    rows: int  # less than the span has, where records are lost
    files: list[FileAction] = []
    dirty_us: dict[str, list[int]] = {}
    poison: list[int] = []  # records that no codec survived
    gaps: list[Gap] = []  # records that are lost in the log
    read: list[ReadCount] = []  # by hour and protocol


class Bucketed(Struct, frozen=True, tag="bucketed"):
    """What became of a bucket."""

    bucket: int
    carry: str | None = None  # None: as before
    final: list[FileAction] = []
    open: dict[str, list[FileAction]] = {}  # by table, in place of those before; tables not named are as before
    dirty_us: dict[str, list[int]] = {}
    counts: dict[str, int] = field(default_factory=dict)
    carry_bytes: int = 0
    worker: str = ""


Report = Tick | Landed | Bucketed
_decoder = json.Decoder(Report)


def shuffled(bucket_reports: Sequence[tuple[int, Struct]]) -> Any:
    """Reports on their way to a bucket."""
    count = len(bucket_reports)
    known = {
        "bucket": [bucket for bucket, _ in bucket_reports],
        "kind": [REPORT_KIND] * count,
        "key": [""] * count,
        "seq": [0] * count,
        "report": [json.encode(report).decode() for _, report in bucket_reports],
    }
    columns = [pa.array(known.get(each.name, [None] * count), each.type) for each in SHUFFLED]
    return pa.record_batch(columns, schema=SHUFFLED)


def delivered(reports: Sequence[Struct]) -> Any:
    """Reports on their way to the driver."""
    return pa.record_batch(
        [pa.array([json.encode(report).decode() for report in reports], pa.string())], schema=REPORTS
    )


def read_report(text: str) -> Report:
    report: Report = _decoder.decode(text)
    return report
