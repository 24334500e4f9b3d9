"""Reduce the events of a bucket in an executor, and write the rows to disk: the second half of a batch."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.pipeline.commit.files import FileAction, mark_worker, worker_name, write_rows
from wirelake.pipeline.reports import (
    REPORT_KIND,
    SHUFFLE_SCHEMA,
    BatchClock,
    BucketReport,
    SpanReport,
    TaskReport,
    driver_reports,
    read_report,
)
from wirelake.pipeline.stateful.device_keys import DeviceKeys
from wirelake.pipeline.stateful.events import EVENT_SCHEMA
from wirelake.pipeline.stateful.reduce import Rules, reduce_bucket


class ReduceTask(Struct, frozen=True):
    """Describe how to reduce buckets. This is sent to the executors."""

    lake: Store
    keys: DeviceKeys
    folder: Store  # of bucket states
    states: dict[int, str]  # bucket → file, from the batch before
    dry: bool = False  # write nothing
    rules: Rules = {}

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over shuffled events, each partition a bucket."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

            context = TaskContext.get()
            if context is None:
                raise AssertionError("buckets are reduced by tasks")
            yield self.run(context.partitionId(), pa.Table.from_batches(batches, SHUFFLE_SCHEMA))

        return run

    def run(self, bucket: int, rows: Any) -> Any:
        """Return the reports for the driver: those of spans that were sent to this bucket, and its own."""
        is_report = pc.equal(rows["kind"], REPORT_KIND)
        reports = [read_report(text) for text in rows.filter(is_report)["report"].to_pylist()]
        now_us = max((report.now_us for report in reports if isinstance(report, BatchClock)), default=None)
        forwarded: list[TaskReport] = [report for report in reports if isinstance(report, SpanReport)]
        if now_us is not None:
            events = rows.filter(pc.invert(is_report)).select(EVENT_SCHEMA.names)
            forwarded.append(self._reduce(bucket, events, now_us))
        return driver_reports(forwarded)

    def _reduce(self, bucket: int, events: Any, now_us: int) -> BucketReport:
        before = read_state(self.folder, self.states.get(bucket))
        if before is None and not events.num_rows:
            return BucketReport(bucket)
        reduced = reduce_bucket(events, before, now_us, self.keys, self.rules)
        changed = {name for name in (*reduced.final, *reduced.dirty_us) if TABLES[name].has_open_rows}
        if self.dry or not (events.num_rows or reduced.final or changed):  # nothing happened: all stays as it is
            return BucketReport(bucket)
        name, size = write_state(self.folder, bucket, reduced.state)
        return BucketReport(
            bucket,
            state=name,
            final=[action for name, rows in reduced.final.items() for action in self._write(name, rows, True)],
            open={name: self._write(name, reduced.open.get(name), False) for name in sorted(changed)},
            dirty_us={name: sorted(minutes) for name, minutes in reduced.dirty_us.items()},
            counts=dict(reduced.counts),
            state_bytes=size,
            worker=worker_name(),
        )

    def _write(self, name: str, rows: Any, settled: bool) -> list[FileAction]:
        if rows is None:
            return []
        table = TABLES[name]
        return mark_worker(write_rows(table, _with_partition_columns(table, rows, settled), self.lake))


def read_state(folder: Store, name: str | None) -> Any:
    if name is None:
        return None
    with folder.open_input(name) as source:
        return pa.ipc.open_file(source).read_all()


def write_state(folder: Store, bucket: int, state: Any) -> tuple[str, int]:
    """Write a bucket's state to a new file, and return its name and size."""
    name = f"{bucket:04d}-{uuid.uuid4()}.arrow"
    output = folder.open_output(name)
    try:
        with pa.ipc.new_file(output.sink, state.schema) as writer:
            writer.write_table(state)
    except BaseException:
        output.discard()
        raise
    return name, output.close()


def _with_partition_columns(table: LakeTable, rows: Any, settled: bool) -> Any:
    """Return the rows with the columns that partition the table, if they lack them."""
    if table.has_open_rows and "settled" not in rows.schema.names:
        rows = rows.append_column("settled", pa.array([settled] * len(rows), pa.bool_()))
    if "day" in table.partition_by and "day" not in rows.schema.names:
        rows = rows.append_column("day", rows["at"].cast(pa.date32()))
    return rows
