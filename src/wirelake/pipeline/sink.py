"""Provide both ends of the streaming query as a Spark data source: the spans of a batch, and the commit of its files.

Spark calls the reader and the writer's `commit` and `abort` in Python processes of its own, next to the driver: they
share nothing with the job but the checkpoint. A row for the writer is a report of a task, not a row of a table.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import DecodeError, Struct, json
from msgspec.structs import astuple
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake.errors import StorageError
from wirelake.files import replace_file
from wirelake.lake.damage import find_damage
from wirelake.lake.progress import FOLDER
from wirelake.pipeline.commit.manifests import ManifestStore, next_batch
from wirelake.pipeline.ingest.source import SourceOptions, WirelakeStreamReader
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.query import PLANNED_SPANS, StreamPlan
from wirelake.pipeline.recovery import summarize_error
from wirelake.pipeline.reports import TaskReport, read_report, written_files

if TYPE_CHECKING:
    from wirelake.pipeline.batch import BatchCommitter

NAME: Final = "wirelake_tables"
_TIMES: Final = FOLDER / "commit.json"
_committers: Final[dict[str, "BatchCommitter"]] = {}  # by run; the newest only


class CommitError(StorageError):
    """Raised if the files of a batch cannot be committed. The batch itself was computed without an error."""


class CommitTimes(Struct, frozen=True):
    """Hold how long the last batch took, from its plan to its last commit, and the parts of its commit."""

    batch: int = -1
    seconds: float = 0.0
    phases_s: dict[str, float] = {}


def read_commit_times(data: Path) -> CommitTimes:
    try:
        return json.decode((data / _TIMES).read_bytes(), type=CommitTimes)
    except (FileNotFoundError, DecodeError):
        return CommitTimes()


def tables_source(plan: StreamPlan, options: dict[str, str]) -> type[DataSource]:
    """Return the data source for one run of the query. The plan travels inside the class, not in visible options."""

    class TablesSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            return from_arrow_schema(PLANNED_SPANS)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
            return BatchReader(SourceOptions({**options, "view": "spans"}), plan)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
            return TablesWriter(plan)

    return TablesSource


class _PlannedSpan(InputPartition):
    def __init__(self, span: Span, batch: int, plans: str | None) -> None:
        super().__init__((astuple(span), batch, plans))


class BatchReader(WirelakeStreamReader):
    """Plan the spans of each batch, with what its tasks need to know about the batch before."""

    def __init__(self, options: SourceOptions, plan: StreamPlan) -> None:
        super().__init__(options)
        self._plan: StreamPlan | None = plan

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        if self._plan is None:
            raise AssertionError("executors do not plan")
        before = ManifestStore(self._plan.paths.checkpoint).last()
        if before is not None and end["seq"] <= before.until_seq:
            return []  # computed before a crash: the manifest says what there is to commit
        plans = json.encode(self._plan.bucket_plans(before, end["seq"])).decode()
        spans = [Span(*partition.value) for partition in super().partitions(start, end)]
        return [_PlannedSpan(span, next_batch(before), None if number else plans) for number, span in enumerate(spans)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        span, batch, plans = partition.value
        columns = [
            pa.array([value], field.type) for value, field in zip((*span, batch, plans), PLANNED_SPANS, strict=True)
        ]
        yield pa.record_batch(columns, schema=PLANNED_SPANS)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options only: executors need nothing else."""
        return {**super().__getstate__(), "_plan": None}


class TaskReports(WriterCommitMessage):
    """Hold the reports of one task, as text."""

    def __init__(self, texts: list[str], planned_ms: int, figures: dict[str, int]) -> None:
        self.texts = texts
        self.planned_ms = planned_ms
        self.figures = figures


class TablesWriter(DataSourceStreamArrowWriter):
    """Commit the files that tasks have written, all of them or none."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan: StreamPlan | None = plan

    def write(self, iterator: Iterator[Any]) -> TaskReports:
        rows = [row for batch in iterator for row in batch.to_pylist()]
        figures = {name: sum(row[name] for row in rows) for name in ("ingest_ms", "reduce_ms", "retried")}
        return TaskReports(
            [row["report"] for row in rows], max((row["planned_ms"] for row in rows), default=0), figures
        )

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        plan = self._given_plan
        committer = _committer(plan)
        reports: list[TaskReport] = [read_report(text) for message in messages for text in message.texts]
        try:
            manifest = committer.commit_reports(batchId, reports, plan.file_prefix(batchId))
        except Exception as error:
            damage = None if isinstance(error, StorageError) else find_damage(plan.paths.lake, error)
            raise CommitError(f"cannot commit batch {batchId}: {summarize_error(damage or error)}") from error
        retried = any(message.figures["retried"] for message in messages)
        written = {file.lake_path for report in reports for file in written_files(report)}
        if retried or not written <= manifest.paths:  # or another driver was first
            committer.discard(plan.file_prefix(batchId), manifest)
        self._write_times(plan, batchId, messages, committer.phases_s)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Delete what the batch has written, unless its manifest exists: then only the commits are missing."""
        plan = self._given_plan
        committer = _committer(plan)
        committer.discard(plan.file_prefix(batchId), committer.manifests.get(batchId))

    def _write_times(self, plan: StreamPlan, batch: int, messages: list[Any], phases_s: dict[str, float]) -> None:
        planned_ms = max((message.planned_ms for message in messages), default=0)
        seconds = time.time() - planned_ms / 1000 if planned_ms else 0.0
        tasks = {
            name.removesuffix("_ms"): sum(message.figures[name] for message in messages) / 1000
            for name in ("ingest_ms", "reduce_ms")
        }
        replace_file(
            plan.paths.data / _TIMES, json.encode(CommitTimes(batch, seconds, {**tasks, **phases_s})), sync=False
        )

    @property
    def _given_plan(self) -> StreamPlan:
        if self._plan is None:
            raise AssertionError("executors do not commit")
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing: executors only pass reports on."""
        return {"_plan": None}


def _committer(plan: StreamPlan) -> "BatchCommitter":
    """Return the committer of a run: it holds open tables, and Spark calls `commit` in the same process again."""
    from wirelake.pipeline.batch import BatchCommitter  # noqa: PLC0415 (needs deltalake, which executors do not have)

    if plan.run not in _committers:
        _committers.clear()
        _committers[plan.run] = BatchCommitter(plan.paths, plan.stream, plan.wait_s, plan.buckets)
    return _committers[plan.run]
