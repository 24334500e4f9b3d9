"""Define the streaming query that fills the tables, and what its tasks do.

spans ─▶ ingest ─▶ shuffle by bucket ─▶ reduce ─▶ reports ─▶ sink (manifest, commits)

A query is planned once, when it starts. What differs from batch to batch (the states and open rows that the batch
before left, keys of devices) comes with the first span of a batch, and goes from there to each bucket.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
from msgspec import Struct, json
from msgspec.structs import asdict, astuple, replace

from wirelake.limits import PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.reader import Gap
from wirelake.pipeline.commit.files import file_names
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore, next_batch
from wirelake.pipeline.ingest.log_copies import LogCopies
from wirelake.pipeline.ingest.spans import SPAN_SCHEMA, Span
from wirelake.pipeline.ingest.task import IngestTask
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.reports import (
    BucketPlan,
    SpanReport,
    SpanTime,
    TaskReport,
    driver_reports,
    read_report,
    written_files,
)
from wirelake.pipeline.shuffle import SHUFFLE_SCHEMA, read_shuffled, shuffle_reports
from wirelake.pipeline.stateful.device_keys import DeviceKeys, read_device_keys
from wirelake.pipeline.stateful.reduce import Rules
from wirelake.pipeline.stateful.task import ReduceTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wirelake.pipeline.commit.checkpoint import StreamIdentity  # needs deltalake, which executors do not have

# The last two columns: the number of the batch, and with the first span of a batch the plans of its buckets.
PLANNED_SPANS: Final = pa.schema([*SPAN_SCHEMA, pa.field("batch", pa.int64()), pa.field("plans", pa.string())])
# What a bucket reports, with the figures that Spark adds up for its query progress.
RESULTS: Final = pa.schema(
    [
        ("report", pa.string()),
        ("records", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("ingest_ms", pa.int64()),
        ("reduce_ms", pa.int64()),
        ("planned_ms", pa.int64()),
        ("retried", pa.int64()),
    ]
)
OBSERVED: Final = ("records", "files", "bytes", "ingest_ms", "reduce_ms")
_plans = json.Decoder(list[BucketPlan])


class Treatment(Struct, frozen=True):
    """Describe what to do with the records of a batch that failed before. Batches after it are not affected."""

    until_seq: int = 0
    poison: frozenset[int] = frozenset()  # records that are known to break the decoder
    isolate: bool = False  # search for such records
    damaged: tuple[Gap, ...] = ()  # records that may be left out

    @property
    def label(self) -> str:
        """Return a name that differs if other records are left out; "" if none are."""
        left_out = (sorted(self.poison), self.isolate, sorted(astuple(gap) for gap in self.damaged))
        return "" if left_out == ([], False, []) else f"-{crc32(repr(left_out).encode()):08x}"


class StreamPlan(Struct, frozen=True):
    """Describe a run of the query. This is sent to Spark's Python processes, and never shown as text."""

    paths: DataPaths
    stream: "StreamIdentity"
    keys: DeviceKeys  # as they were when the query started
    run: str  # names this run
    buckets: int
    rules: Rules = {}
    wait_s: float = PIPELINE_VIEW_WAIT_S
    treatment: Treatment = Treatment()
    dry: bool = False  # write nothing

    @staticmethod
    def of(paths: DataPaths, stream: "StreamIdentity", buckets: int, **rest: Any) -> "StreamPlan":
        keys = read_device_keys(paths.database, paths.state_key)
        return StreamPlan(paths, stream, keys, uuid.uuid4().hex[:12], buckets, **rest)

    def __repr__(self) -> str:
        return f"StreamPlan({self.run})"  # a store may have credentials

    def file_prefix(self, batch: int) -> str:
        """Return how the names of a batch's files begin: no other run writes or deletes files with this prefix."""
        return f"{batch:08d}-{self.run}-"

    def bucket_plans(self, before: Manifest | None, until_seq: int) -> list[BucketPlan]:
        """Return what the buckets need to know for the batch after `before`, which ends at `until_seq`."""
        label = self.treatment.label if until_seq <= self.treatment.until_seq else ""
        states = before.bucket_states if before is not None else {}
        open_files = before.open if before is not None else {}
        keys = read_device_keys(self.paths.database, self.paths.state_key).by_serial
        known = self.keys.by_serial
        changed = {serial: key for serial, key in keys.items() if known.get(serial) != key}
        removed = dict.fromkeys(known.keys() - keys.keys(), b"")
        return [
            BucketPlan(
                f"{next_batch(before):012d}{label}",
                time.time_ns() // 1_000_000,
                states.get(bucket, []),
                {name: buckets[bucket] for name, buckets in open_files.items() if bucket in buckets},
                before is not None and before.rebucketed,
                changed | removed,
            )
            for bucket in range(self.buckets)
        ]

    def ingest_task(self) -> "PlannedIngest":
        paths, treatment = self.paths, self.treatment
        task = IngestTask(paths.log, paths.lake, self.buckets, dry=self.dry, wait_s=self.wait_s)
        treated = replace(task, poison=treatment.poison, isolate=treatment.isolate, damaged=treatment.damaged)
        return PlannedIngest(task, treated, treatment.until_seq, self.run)

    def reduce_task(self) -> "PlannedReduce":
        task = ReduceTask(
            lake=self.paths.lake,
            keys=self.keys,
            folder=self.paths.bucket_states,
            batch="",
            buckets=self.buckets,
            states={},
            open={},
            dry=self.dry,
            rules=self.rules,
        )
        return PlannedReduce(task, self.run)


class PlannedIngest(Struct, frozen=True):
    """Ingest spans. Records before `treated_until_seq` are treated as `treated` says."""

    plain: IngestTask
    treated: IngestTask
    treated_until_seq: int
    run: str

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over PLANNED_SPANS."""

        def ingest(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for row in batch.to_pylist():
                    number, plans = row.pop("batch"), row.pop("plans")
                    yield from self.ingest(Span(**row), number, plans)

        return ingest

    def ingest(self, span: Span, batch: int, plans: str | None) -> Iterator[Any]:
        """Yield the events and reports of a span and, with its first span, the plans of the batch."""
        started_s = time.perf_counter()
        task = self.treated if span.until_seq <= self.treated_until_seq else self.plain
        with file_names(f"{batch:08d}-{self.run}-"):
            yield from task.ingest(span)
        spent = SpanTime(int((time.perf_counter() - started_s) * 1000), _is_retry())
        reports: list[tuple[int, TaskReport]] = [(0, spent)]
        if plans is not None:
            reports += enumerate(_plans.decode(plans))
        yield shuffle_reports(reports)


class PlannedReduce(Struct, frozen=True):
    """Reduce the buckets of a batch, each according to its plan."""

    template: ReduceTask
    run: str

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over shuffled rows, each partition a bucket."""

        def reduce(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

            context = TaskContext.get()
            if context is None:
                raise AssertionError("buckets are reduced by tasks")
            yield from self.reduce(context.partitionId(), batches)

        return reduce

    def reduce(self, bucket: int, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the reports of a bucket, and their figures; nothing if no spans were planned."""
        started_s = time.perf_counter()
        events, texts = read_shuffled(batches)
        if not texts:
            return
        received = [read_report(text) for text in texts]
        plan = next(report for report in received if isinstance(report, BucketPlan))
        spent = [report for report in received if isinstance(report, SpanTime)]
        keys = {**self.template.keys.by_serial, **plan.keys} if plan.keys else self.template.keys.by_serial
        task = replace(
            self.template,
            batch=plan.batch,
            keys=DeviceKeys({serial: key for serial, key in keys.items() if key} if plan.keys else keys),
            states={bucket: plan.states},
            open={name: {bucket: files} for name, files in plan.open.items()},
            rebucketed=plan.rebucketed,
        )
        number = int(plan.batch.partition("-")[0])
        with file_names(f"{number:08d}-{self.run}-"):
            reports = task.run(bucket, events, received)
        files = [file for report in reports for file in written_files(report)]
        retried = _is_retry() or any(each.retried for each in spent)
        figures = {
            "records": sum(report.rows for report in reports if isinstance(report, SpanReport)),
            "files": len(files),
            "bytes": sum(file.bytes for file in files),
            "ingest_ms": sum(each.ingest_ms for each in spent),
            "reduce_ms": int((time.perf_counter() - started_s) * 1000),
            "planned_ms": plan.planned_ms,
            "retried": int(retried),
        }
        # The figures are those of all rows together: they stand in the first one.
        columns = driver_reports(reports).columns
        columns += [pa.array([figure] + [0] * (len(reports) - 1), pa.int64()) for figure in figures.values()]
        yield pa.record_batch(columns, schema=RESULTS)


def _is_retry() -> bool:
    """Return whether another attempt at this task has failed."""
    from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def reports_of(spans: "DataFrame", plan: StreamPlan) -> "DataFrame":
    """Return the reports of a batch, or of a stream of batches, as RESULTS."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

    events = spans.mapInArrow(plan.ingest_task().task(), from_arrow_schema(SHUFFLE_SCHEMA))
    buckets = events.repartitionById(plan.buckets, "bucket")
    return buckets.mapInArrow(plan.reduce_task().task(), from_arrow_schema(RESULTS))


def dry_run(spark: "SparkSession", plan: StreamPlan, copies: LogCopies | None, spans: list[Span]) -> None:
    """Run the tasks on these spans without writing anything. Raise what they fail with."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

    plan = replace(plan, dry=True)
    before = ManifestStore(plan.paths.checkpoint).last()
    plans = json.encode(plan.bucket_plans(before, spans[-1].until_seq)).decode()
    rows = [
        tuple({**asdict(span), "batch": 0, "plans": None if number else plans}.values())
        for number, span in enumerate(spans if copies is None else copies.publish(spans))
    ]
    reports_of(spark.createDataFrame(rows, from_arrow_schema(PLANNED_SPANS)), plan).collect()
