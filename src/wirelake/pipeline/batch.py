"""Run one micro-batch: one Spark job, a manifest, and a commit for each table.

spans ─▶ ingest ─▶ shuffle by bucket ─▶ reduce ─▶ reports ─▶ manifest ─▶ commits ─▶ consumer position in the log
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from msgspec.structs import astuple, replace

from wirelake.errors import MissingRecordsError, StorageError
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import BATCHES, FRAMES, TABLES
from wirelake.limits import PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.reader import Gap, LogReader
from wirelake.pipeline.commit.checkpoint import CONSUMER, StreamIdentity, sync_offsets
from wirelake.pipeline.commit.delta import DeltaWriter, commit_lock
from wirelake.pipeline.commit.files import FileAction, FileChecks, write_rows
from wirelake.pipeline.commit.manifests import (
    RECORDS_LOST,
    RECORDS_REMOVED,
    Manifest,
    ManifestStore,
    Rebucketing,
    batch_rows,
    sum_read_counts,
)
from wirelake.pipeline.gold.partials import PartialSums, clean_partials, decode_partials, write_partials
from wirelake.pipeline.ingest.log_copies import FOLDER, LogCopies
from wirelake.pipeline.ingest.spans import SPAN_SCHEMA, Span
from wirelake.pipeline.ingest.task import IngestTask
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.reports import (
    REPORT_SCHEMA,
    BatchClock,
    BucketReport,
    SpanReport,
    TaskReport,
    read_report,
)
from wirelake.pipeline.shuffle import SHUFFLE_SCHEMA
from wirelake.pipeline.spark.session import is_local
from wirelake.pipeline.stateful.device_keys import read_device_keys
from wirelake.pipeline.stateful.rebucketing import rebucket_files
from wirelake.pipeline.stateful.reduce import Rules
from wirelake.pipeline.stateful.task import ReduceTask
from wirelake.pipeline.time_ranges import HOUR_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


class BatchRunner:
    """Compute batches and commit them to the tables. Files of a batch that fails are never part of a table."""

    def __init__(
        self,
        spark: "SparkSession",
        paths: DataPaths,
        stream: StreamIdentity,
        rules: Rules | None = None,
        wait_s: float = PIPELINE_VIEW_WAIT_S,
        buckets: int = 0,
    ) -> None:
        self._spark = spark
        self._rules = rules or {}
        self._wait_s = wait_s
        self._paths = paths
        self._stream = stream
        self._buckets = buckets or stream.buckets
        self._positions = ConsumerOffsets(paths.log)
        self.delta = DeltaWriter(paths.lake, stream.app)
        self.manifests = ManifestStore(paths.checkpoint)
        self.committed = -1  # the newest batch that is known to be in every table
        # Executors that do not see the data folder read the log from the store.
        has_copies = not isinstance(paths.lake, LocalStore) and not is_local(spark.conf.get("spark.master") or "")
        self.copies = LogCopies(paths.log, paths.lake.at(FOLDER)) if has_copies else None

    def recover(self) -> None:
        """Finish batches that a crash or a power failure interrupted."""
        manifests = self.manifests.since(-1)
        clean_partials(self._paths.checkpoint, {manifest.partials for manifest in manifests})
        for manifest in manifests:
            for name in manifest.tables:
                if self.delta.last_batch(name) < manifest.batch:
                    self.delta.check_files(manifest.adds.get(name, ()))
            self._commit_tables(manifest)
        last = self.manifests.last()
        if last is not None:
            self.commit(last)
        needed = last.state_names if last is not None else set()
        self._paths.bucket_states.clean("")
        for name in self._paths.bucket_states.list():
            if name not in needed:
                self._paths.bucket_states.delete(name)
        if last is not None and (last.buckets or self._stream.buckets) != self._buckets:
            self._rebucket(last)

    def _rebucket(self, last: Manifest) -> None:
        """Divide the states into the number of buckets of this job. Nothing changes before the division is complete."""
        folder, name = self._paths.bucket_states, self.manifests.next_rebucketing(last.batch)
        states = rebucket_files(folder, last.bucket_states, self._buckets, name)
        if not self.manifests.rebucket(name, Rebucketing(last.batch, self._buckets, states)):
            raise StorageError(
                f"another process divides the states in {folder} too: only one pipeline may work on a checkpoint"
            )
        _log.info("divided the state after batch %d into %d buckets", last.batch, self._buckets)
        for each in last.state_names:
            folder.delete(each)

    def commit(self, manifest: Manifest) -> None:
        """Commit to every table that lacks the batch, and then let the log forget its records."""
        self._commit_tables(manifest)
        self._positions.commit(CONSUMER, manifest.until_seq, time.time_ns() // 1000)

    def _commit_tables(self, manifest: Manifest) -> None:
        with commit_lock(self._paths.lake):
            for name in manifest.tables:
                adds, removes = manifest.adds.get(name, ()), manifest.removes.get(name, ())
                self.delta.commit(name, manifest.batch, adds, removes)
        self.committed = max(self.committed, manifest.batch)

    def compute(
        self,
        spans: "DataFrame",
        batch: int,
        poison: frozenset[int] = frozenset(),
        isolate: bool = False,
        damaged: Sequence[Gap] = (),
    ) -> Manifest:
        """Run the Spark job and write the manifest."""
        before = self.manifests.last()
        task = self._ingest_task(poison=poison, isolate=isolate, damaged=tuple(damaged))
        reports = self.run(spans, task, batch)
        manifest = replace(build_manifest(batch, reports, before), buckets=self._buckets)
        manifest = replace(manifest, removed=self._count_removed(manifest, before))
        self._check_files(manifest, reports)
        manifest = self._with_batch_rows(manifest, before, reports)
        sync_offsets(self._paths, batch)
        manifest = self.manifests.create(manifest)
        if before is not None:
            for name in before.state_names - manifest.state_names:
                self._paths.bucket_states.delete(name)
        return manifest

    def remove_copies(self) -> None:
        """Remove copies of the log that only committed batches needed. The source does so while it runs."""
        last = self.manifests.last()
        if self.copies is not None and last is not None:
            self.copies.refresh()
            self.copies.remove_read(last.until_seq)

    def _ingest_task(self, **rest: Any) -> IngestTask:
        paths = self._paths
        return IngestTask(paths.log, paths.lake, self._buckets, wait_s=self._wait_s, **rest)

    def _check_files(self, manifest: Manifest, reports: list[TaskReport]) -> None:
        """Check that this process sees the files that the tables and the next batch will refer to."""
        checks = FileChecks(self._wait_s)
        for files in manifest.adds.values():
            checks.check_tables(self._paths.lake, files)
        for report in reports:
            if isinstance(report, BucketReport) and report.states:
                newest = report.states[-1]
                checks.check(self._paths.bucket_states, newest.name, newest.bytes, report.worker)

    def _with_batch_rows(self, manifest: Manifest, before: Manifest | None, reports: list[TaskReport]) -> Manifest:
        """Add the driver's own counts of the batch, as one more file, and what the gold tables gain by all of it."""
        if before is None:
            complete_from_us = 0
        elif before.complete_from_us is None:  # the tables are older than these counts: begin with the next hour
            complete_from_us = (manifest.now_us // HOUR_US + 1) * HOUR_US
        else:
            complete_from_us = before.complete_from_us
        counts = Counter(manifest.counts)
        counts[RECORDS_LOST] = sum(gap.rows for gap in manifest.gaps)
        counts[RECORDS_REMOVED] = manifest.removed
        counts = +counts
        rows = batch_rows(manifest, counts, complete_from_us)
        sums = PartialSums()
        for report in reports:
            if not isinstance(report, BatchClock):
                sums.merge(decode_partials(report.partials))
        sums.add(BATCHES.name, rows)
        return replace(
            manifest,
            counts=dict(counts),
            totals=dict(counts + Counter(before.totals if before is not None else {})),
            complete_from_us=complete_from_us,
            adds={**manifest.adds, BATCHES.name: write_rows(BATCHES, rows, self._paths.lake)},
            partials=write_partials(self._paths.checkpoint, manifest.batch, sums.result()),
        )

    def _count_removed(self, manifest: Manifest, before: Manifest | None) -> int:
        """Return how many records before this batch retention removed unread.

        Nothing else may be missing: a batch begins where the one before it ended.
        """
        expected_seq = manifest.from_seq if before is None else before.until_seq
        removed = manifest.from_seq - expected_seq
        if removed and not expected_seq < manifest.from_seq <= LogReader(self._paths.log).oldest_seq:
            raise MissingRecordsError(
                f"batch {manifest.batch} begins with record {manifest.from_seq}, but the one before it ended before "
                f"record {expected_seq}: the checkpoint in {self._paths.checkpoint} does not fit the tables; "
                "restore both"
            )
        return removed

    def run(self, spans: "DataFrame", task: IngestTask, batch: int = 0) -> list[TaskReport]:
        """Run the Spark job and return the reports of its tasks."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        before = self.manifests.last()
        paths = self._paths
        reduce_task = ReduceTask(
            lake=paths.lake,
            keys=read_device_keys(paths.database),
            folder=paths.bucket_states,
            batch=_attempt_name(batch, task),
            buckets=task.buckets,
            states=before.bucket_states if before is not None else {},
            open=before.open if before is not None else {},
            rebucketed=before is not None and before.rebucketed,
            dry=task.dry,
            rules=self._rules,
        )
        events = spans.mapInArrow(task.task(), from_arrow_schema(SHUFFLE_SCHEMA))
        shuffled = events.repartitionById(task.buckets, "bucket")
        rows = shuffled.mapInArrow(reduce_task.task(), from_arrow_schema(REPORT_SCHEMA)).collect()
        return [read_report(row.report) for row in rows]

    def dry_run(self, spans: list[Span], damaged: Sequence[Gap] = ()) -> None:
        """Run the job on these spans without writing anything. Raise what it fails with."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        rows = [astuple(span) for span in (spans if self.copies is None else self.copies.publish(spans))]
        frame = self._spark.createDataFrame(rows, from_arrow_schema(SPAN_SCHEMA))
        self.run(frame, self._ingest_task(dry=True, damaged=tuple(damaged)))


def build_manifest(batch: int, reports: list[TaskReport], before: Manifest | None) -> Manifest:
    """Return what the tasks wrote, and which files that replaces."""
    spans = [report for report in reports if isinstance(report, SpanReport)]
    buckets = [report for report in reports if isinstance(report, BucketReport)]
    if not spans:
        raise AssertionError("a batch has a span")
    _check_complete(spans)
    adds: dict[str, list[FileAction]] = {}
    removes: dict[str, list[FileAction]] = {}
    open_before = before.open if before is not None else {}
    is_known = before is not None and not before.rebucketed
    open_rows = {name: dict(of_table) for name, of_table in open_before.items()} if is_known else {}
    states = dict(before.bucket_states) if before is not None else {}
    for report in spans:
        _add(adds, report.files)
    for each in buckets:
        _add(adds, each.final)
        for name, files in each.open.items():
            open_rows.setdefault(name, {})[each.bucket] = files
        if each.states is not None:
            states[each.bucket] = each.states
    for name in sorted(open_before.keys() | open_rows.keys()):
        old, new = (
            [file for files in every.get(name, {}).values() for file in files] for every in (open_before, open_rows)
        )
        _add(adds, _without(new, old))
        if replaced := _without(old, new):
            removes[name] = replaced
        of_buckets = {bucket: files for bucket, files in open_rows.get(name, {}).items() if files}
        open_rows[name] = {
            bucket: [replace(file, worker="", statistics={}) for file in files] for bucket, files in of_buckets.items()
        }
    return Manifest(
        batch=batch,
        from_seq=min(report.from_seq for report in spans),
        until_seq=max(report.until_seq for report in spans),
        now_us=max(report.now_us for report in spans),
        rows=sum(report.rows for report in spans),
        poison=sorted(seq for report in spans for seq in report.poison),
        read=sum_read_counts([report.read for report in spans]),
        counts=dict(sum((Counter(each.counts) for each in buckets), Counter())),
        gaps=sorted((gap for report in spans for gap in report.gaps), key=lambda gap: gap.first_seq),
        adds=adds,
        removes=removes,
        open=open_rows,
        states=states,
    )


def _attempt_name(batch: int, task: IngestTask) -> str:
    """Return a name for the files of a batch: another one if records are left out, because the content differs."""
    left_out = (sorted(task.poison), task.isolate, sorted(astuple(gap) for gap in task.damaged))
    return f"{batch:012d}" if left_out == ([], False, []) else f"{batch:012d}-{crc32(repr(left_out).encode()):08x}"


def _without(files: Iterable[FileAction], others: Iterable[FileAction]) -> list[FileAction]:
    paths = {file.path for file in others}
    return [file for file in files if file.path not in paths]


def _check_complete(reports: list[SpanReport]) -> None:
    """Check that each record was read by one task or is known to be lost, and that what was read was written."""
    spans = sorted(reports, key=lambda report: report.from_seq)
    for report, following in zip(spans, [*spans[1:], None], strict=True):
        task = f"the task for records {report.from_seq} to {report.until_seq - 1}"
        lost = sum(gap.rows for gap in report.gaps)
        if report.rows + lost != report.until_seq - report.from_seq:
            raise MissingRecordsError(f"{task} read {report.rows} records, with {lost} lost")
        written = sum(file.rows for file in report.files if file.table == FRAMES.name)
        if written != report.rows:
            raise MissingRecordsError(f"{task} read {report.rows} records, but wrote {written} to {FRAMES.name}")
        if following is not None and following.from_seq != report.until_seq:
            raise MissingRecordsError(f"{task} is followed by one that begins with record {following.from_seq}")


def _add(adds: dict[str, list[FileAction]], files: Iterable[FileAction]) -> None:
    for file in files:
        adds.setdefault(TABLES[file.table].name, []).append(file)
