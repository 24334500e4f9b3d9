"""Reduce the events of a bucket in an executor, and write the rows to disk: the second half of a batch."""

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES
from wirelake.pipeline.commit.files import FileAction, mark_worker, worker_name, write_rows
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.gold.partials import PartialSums, encode_partials
from wirelake.pipeline.reports import (
    BatchClock,
    BucketReport,
    SpanReport,
    TaskReport,
)
from wirelake.pipeline.stateful.bucket_state import BucketState
from wirelake.pipeline.stateful.device_keys import DeviceKeys
from wirelake.pipeline.stateful.open_files import OpenFiles, OpenRowsError
from wirelake.pipeline.stateful.reduce import ReducedBucket, Rules, open_rows, reduce_bucket
from wirelake.pipeline.stateful.state_files import read_state, state_name, write_state

_log = logging.getLogger(__name__)


class ReduceTask(Struct, frozen=True):
    """Describe how to reduce buckets. This is sent to the executors."""

    lake: Store
    keys: DeviceKeys
    folder: Store  # of bucket states
    batch: str  # names the files of bucket states
    buckets: int
    states: dict[int, list[StateFile]]  # by bucket, from the batch before
    open: dict[str, dict[int, list[FileAction]]]  # table → bucket → files of open rows, from the batch before
    rebucketed: bool = False  # since the batch before: write all open rows again
    dry: bool = False  # write nothing
    rules: Rules = {}

    def run(self, bucket: int, events: Any, reports: Sequence[TaskReport]) -> list[TaskReport]:
        """Return the reports for the driver: those of spans that were sent to this bucket, and its own."""
        now_us = max((report.now_us for report in reports if isinstance(report, BatchClock)), default=None)
        forwarded: list[TaskReport] = [report for report in reports if isinstance(report, SpanReport)]
        if now_us is not None:
            forwarded.append(self._reduce(bucket, events, now_us))
        return forwarded

    def _reduce(self, bucket: int, events: Any, now_us: int) -> BucketReport:
        files = self.states.get(bucket, [])
        if not files and not events.num_rows:
            return BucketReport(bucket)
        before = read_state(self.folder, files)
        reduced = reduce_bucket(events, before, now_us, self.keys, self.rules)
        is_same = not (events.num_rows or reduced.final or reduced.is_changed or self.rebucketed)
        if self.dry or is_same:
            return BucketReport(bucket)
        sums = PartialSums()
        for table, rows in reduced.final.items():
            sums.add(table, rows)
        name = state_name(bucket, self.buckets, self.batch)
        final = [action for name, rows in reduced.final.items() for action in write_rows(TABLES[name], rows, self.lake)]
        return BucketReport(
            bucket,
            states=write_state(self.folder, name, before, files, reduced.state),
            final=mark_worker(final),
            open=self._write_open(before, reduced) if self.rebucketed else self._update_open(bucket, before, reduced),
            partials=encode_partials(sums.result()),
            counts=dict(reduced.counts),
            worker=worker_name(),
        )

    def _update_open(self, bucket: int, before: BucketState, reduced: ReducedBucket) -> dict[str, list[FileAction]]:
        """Return the files of open rows from now on, by their tables, for the tables that changed."""
        found = {}
        for name in sorted(reduced.open.keys() | reduced.closed.keys()):
            table = TABLES[name].open_table
            files = self.open.get(table.name, {}).get(bucket, [])
            nothing = table.schema.empty_table()
            closed, opened = reduced.closed.get(name, nothing), reduced.open.get(name, nothing)
            try:
                after = OpenFiles(self.lake, table, files).update(closed, opened)
            except OpenRowsError as error:
                _log.warning("%s: writing the open rows of bucket %d again", error, bucket)
                found[table.name] = self._write_open(before, reduced).get(table.name, [])
                continue
            known = {file.path for file in files}
            new = mark_worker(file for file in after if file.path not in known)
            found[table.name] = [*(file for file in after if file.path in known), *new]
        return found

    def _write_open(self, before: BucketState, reduced: ReducedBucket) -> dict[str, list[FileAction]]:
        """Write all open rows to new files."""
        found = {}
        for name, rows in sorted(open_rows(before.apply(reduced.state), self.rules).items()):
            table = TABLES[name].open_table
            found[table.name] = mark_worker(OpenFiles(self.lake, table, []).update(rows.slice(0, 0), rows))
        return found
