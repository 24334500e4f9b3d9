"""Test the reduction of a bucket without Spark: sessions that open, stay open, and close."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars
import pytest

from pipeline.traffic import START_US
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.ingest.task import IngestTask
from wirelake.pipeline.reports import BucketReport, SpanReport, TaskReport, read_report
from wirelake.pipeline.shuffle import read_shuffled
from wirelake.pipeline.stateful.device_keys import DeviceKeys
from wirelake.pipeline.stateful.task import ReduceTask


def reduce(task: ReduceTask, rows: Iterable[Any]) -> list[TaskReport]:
    events, texts = read_shuffled(rows)
    return task.run(0, events, [read_report(text) for text in texts])


class OneBucket:
    """Ingest and reduce the new records of the log, batch after batch."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._seq = 0
        self.states: dict[int, list[StateFile]] = {}
        self.open: dict[str, dict[int, list[FileAction]]] = {}
        self._batch = 0
        (data / "carry").mkdir(parents=True)

    def run(self, until_seq: int) -> tuple[SpanReport, BucketReport]:
        span = Span(self._seq, until_seq, START_US + until_seq * 1_000_000)
        self._seq = until_seq
        lake = LocalStore(self._data / "lake")
        rows = IngestTask(self._data / "log", lake, 1).ingest(span)
        folder, number = LocalStore(self._data / "carry"), f"{self._batch:012d}"
        bucketing = ReduceTask(lake, DeviceKeys(), folder, number, 1, self.states, self.open)
        self._batch += 1
        ingested, reduced = reduce(bucketing, rows)
        assert isinstance(ingested, SpanReport)
        assert isinstance(reduced, BucketReport)
        if reduced.states is not None:
            self.states = {0: reduced.states}
        self.open |= {name: {0: files} for name, files in reduced.open.items()}
        return ingested, reduced

    def rows(self, files: list[FileAction]) -> polars.DataFrame:
        return polars.read_parquet([self._data / "lake" / TABLES[file.table].folder / file.path for file in files])


def event(log: SegmentLog, session: str, name: str) -> int:
    seq = log.next_seq
    log.append(START_US + seq * 1_000_000, "comet", name, "", session, "me", "10.0.0.1:5", b"").wait(10)
    return seq + 1


def test_open_rows_are_replaced_until_they_are_final(log: SegmentLog, data: Path) -> None:
    bucket = OneBucket(data)
    end = event(log, "s", "open")
    landed, first = bucket.run(end)
    assert [file.table for file in landed.files] == ["bronze.frames", "silver.audit"]
    opened = first.open["silver.open_sessions"]
    assert [(file.table, file.partition) for file in opened] == [("silver.open_sessions", {})]
    assert bucket.rows(opened)["session"].to_list() == ["s"]
    assert first.final == []
    _, last = bucket.run(event(log, "s", "close"))
    assert last.open["silver.open_sessions"] == []  # in place of those before: none
    (final,) = [file for file in last.final if file.table == "silver.sessions"]
    assert list(final.partition) == ["day"]
    assert bucket.rows([final])["closed_at"].null_count() == 0


def test_a_bucket_that_nothing_happened_to_is_left_as_it_is(log: SegmentLog, data: Path) -> None:
    bucket = OneBucket(data)
    bucket.run(event(log, "s", "open"))
    before = dict(bucket.states)
    _, untouched = bucket.run(log.next_seq)  # every record is of other buckets
    assert untouched == BucketReport(0)
    assert bucket.states == before


def test_what_a_dry_run_does_leaves_no_trace(log: SegmentLog, data: Path) -> None:
    end = event(log, "s", "open")
    landing = IngestTask(data / "log", LocalStore(data / "lake"), 1, dry=True)
    rows = landing.ingest(Span(0, end, START_US))
    bucketing = ReduceTask(
        LocalStore(data / "lake"), DeviceKeys(), LocalStore(data / "carry"), "0", 1, {}, {}, dry=True
    )
    _, bucketed = reduce(bucketing, rows)
    assert bucketed == BucketReport(0)
    assert not (data / "lake").exists()
    assert not (data / "carry").exists()


def test_a_carry_that_is_gone_is_an_error(log: SegmentLog, data: Path) -> None:
    bucket = OneBucket(data)
    bucket.states = {0: [StateFile("gone.arrow")]}
    end = event(log, "s", "open")
    with pytest.raises(FileNotFoundError):
        bucket.run(end)


def test_open_rows_whose_file_is_unknown_are_written_again(log: SegmentLog, data: Path) -> None:
    bucket = OneBucket(data)
    event(log, "s", "open")
    bucket.run(event(log, "t", "open"))
    bucket.open = {}  # as after a table was moved away
    _, reduced = bucket.run(event(log, "s", "close"))
    assert bucket.rows(reduced.open["silver.open_sessions"])["session"].to_list() == ["t"]


def test_one_session_among_many_open_ones_is_written_alone(log: SegmentLog, data: Path) -> None:
    bucket = OneBucket(data)
    written = []
    for count in (2_000, 18_000):
        for number in range(count):
            log.append(START_US, "comet", "open", "", f"s-{count}-{number}", "me", "10.0.0.1:5", b"")
        _, many = bucket.run(log.next_seq)
        known = {file.path for file in many.open["silver.open_sessions"]}
        _, one = bucket.run(event(log, f"new-{count}", "open"))
        assert one.states is not None
        new = [file for file in one.open["silver.open_sessions"] if file.path not in known]
        written.append(one.states[-1].bytes + sum(file.bytes for file in new))
    assert max(written) < 16 * 1024, "however many are open"
    assert sum(file.rows for file in bucket.open["silver.open_sessions"][0]) == 20_002
