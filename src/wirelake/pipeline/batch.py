"""Commit one micro-batch: from the reports of its tasks to a manifest, and a commit for each table.

reports ─▶ manifest ─▶ commits ─▶ consumer position in the log
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from msgspec.structs import replace

from wirelake.errors import MissingRecordsError, StorageError
from wirelake.lake.tables import BATCHES, FRAMES, TABLES
from wirelake.limits import LAKE_COMMIT_THREADS, PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.commit.checkpoint import CONSUMER, StreamIdentity, sync_offsets
from wirelake.pipeline.commit.delta import DeltaWriter, commit_lock
from wirelake.pipeline.commit.files import FileAction, FileChecks, file_names, find_files, write_rows
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
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.reports import BucketReport, SpanReport, TaskReport
from wirelake.pipeline.stateful.rebucketing import rebucket_files
from wirelake.pipeline.time_ranges import HOUR_US

_log = logging.getLogger(__name__)


class BatchCommitter:
    """Commit batches to the tables, in whatever process: manifests are the only truth.

    The files of a batch that fails are never part of a table.
    """

    def __init__(
        self, paths: DataPaths, stream: StreamIdentity, wait_s: float = PIPELINE_VIEW_WAIT_S, buckets: int = 0
    ) -> None:
        self._wait_s = wait_s
        self._paths = paths
        self._stream = stream
        self._buckets = buckets or stream.buckets
        self._positions = ConsumerOffsets(paths.log)
        self.delta = DeltaWriter(paths.lake, stream.app)
        self.manifests = ManifestStore(paths.checkpoint)
        self.committed = -1  # the newest batch that is known to be in every table
        self.phases_s: dict[str, float] = {}  # how long the parts of the last commit took

    def recover(self) -> None:
        """Finish batches that a crash or a power failure interrupted."""
        manifests = self.manifests.since(-1)
        clean_partials(self._paths.checkpoint, {manifest.partials for manifest in manifests})
        for manifest in manifests:
            lacking = [name for name in manifest.tables if self.delta.last_batch(name) < manifest.batch]
            for name in lacking:
                self.delta.check_files(manifest.adds.get(name, ()))
            if lacking:
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
            tables = manifest.tables
            with ThreadPoolExecutor(LAKE_COMMIT_THREADS, "commit") as pool:
                commits = [pool.submit(self._commit_table, manifest, name) for name in tables]
            for commit in commits:
                commit.result()
        self.committed = max(self.committed, manifest.batch)

    def _commit_table(self, manifest: Manifest, name: str) -> None:
        self.delta.commit(name, manifest.batch, manifest.adds.get(name, ()), manifest.removes.get(name, ()))

    def commit_reports(self, batch: int, reports: list[TaskReport], prefix: str) -> Manifest:
        """Write the manifest of a batch from the reports of its tasks, unless there is one, and commit to the tables.

        A batch that has a manifest is not computed again: what another driver has written counts. New files get names
        that begin with `prefix`.
        """
        manifest = self.manifests.get(batch)
        if manifest is None:
            with self._measure("manifest"), file_names(prefix):
                manifest = self._write_manifest(batch, reports)
        with self._measure("delta"):
            self.commit(manifest)
        return manifest

    def discard(self, prefix: str, manifest: Manifest | None) -> int:
        """Delete the files whose names begin with `prefix`, except those of the manifest. Return how many."""
        needed = manifest.paths if manifest is not None else set()
        orphans = [path for path in find_files(self._paths.lake, prefix) if path not in needed]
        for path in orphans:
            self._paths.lake.delete(path)
        return len(orphans)

    def _write_manifest(self, batch: int, reports: list[TaskReport]) -> Manifest:
        before = self.manifests.last()
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

    @contextmanager
    def _measure(self, phase: str) -> Iterator[None]:
        started_s = time.perf_counter()
        yield
        self.phases_s[phase] = time.perf_counter() - started_s

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
            if isinstance(report, SpanReport | BucketReport):
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
