"""Three ways from the log to a Delta table, with the same rows: decoded messages, in a few batches, each one commit.

Spark writes Parquet in foreachBatch; a writer of Spark's data sources takes Arrow batches; or, as the pipeline does it,
the task that reads and decodes writes too, so that no row crosses to the JVM.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from lakeside.bench import Bench
from lakeside.frames import SAMPLES, write_log
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import MESSAGES
from wirelake.pipeline.commit.delta import DeltaWriter, live_files
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.ingest.source import decoded_view
from wirelake.pipeline.ingest.spans import Span, SpanReader
from wirelake.pipeline.reports import SpanReport, driver_reports, read_report

BATCHES = 4
_LANDED = "report string"
_runs = count()


def run(bench: Bench) -> None:
    log = bench.folder / "log"
    write_log(bench.folder, SAMPLES[0][2], bench.rows)
    bench.spark.dataSource.register(ArrowSink)
    ways: dict[str, Callable[[Any, Path], Any]] = {
        "Parquet in foreachBatch": lambda spark, lake: _streamed(spark, log, bench.rows, "messages").foreachBatch(
            partial(_by_spark, lake)
        ),
        "DataSourceStreamArrowWriter": lambda spark, lake: (
            _streamed(spark, log, bench.rows, "messages").format("arrow_sink").option("path", str(lake))
        ),
        "decoded and written by the task": lambda spark, lake: _streamed(spark, log, bench.rows, "spans").foreachBatch(
            partial(_by_task, log, lake)
        ),
    }
    rates = bench.rates({name: (partial(_filled, bench, way), bench.rows) for name, way in ways.items()})
    bench.show(f"from the log to a Delta table, {BATCHES} batches", rates, "decoded and written by the task")


def _streamed(spark: Any, log: Path, rows: int, view: str) -> Any:
    source = spark.readStream.format("wirelake").option("view", view).option("maxRows", str(rows // BATCHES))
    return source.load(str(log)).writeStream


def _filled(bench: Bench, way: Callable[[Any, Path], Any]) -> None:
    """All of the rows are there, once."""
    place = bench.folder / f"run-{next(_runs)}"
    started = way(bench.spark, place).option("checkpointLocation", str(place / "checkpoint"))
    started.trigger(availableNow=True).start().awaitTermination()
    files = live_files(DeltaWriter(LocalStore(place), "benchmark").table(MESSAGES.name), MESSAGES.name)
    assert sum(file.rows for file in files) == bench.rows
    shutil.rmtree(place)


def _by_spark(lake: Path, messages: Any, batch: int) -> None:
    folder = lake / MESSAGES.folder
    writer = messages.write.mode("append").partitionBy(*MESSAGES.partition_by)
    writer.parquet(str(folder / f"batch-{batch}"))
    adds = []
    for path in (folder / f"batch-{batch}").rglob("*.parquet"):
        rows = pq.read_metadata(path).num_rows
        groups = dict(part.split("=", 1) for part in path.relative_to(folder).parts if "=" in part)
        adds.append(FileAction(MESSAGES.name, str(path.relative_to(folder)), path.stat().st_size, rows, {**groups}))
    DeltaWriter(LocalStore(lake), "benchmark").commit(MESSAGES.name, batch, adds, [])


@dataclass
class Written(WriterCommitMessage):
    files: list[FileAction]


class ArrowSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "arrow_sink"

    def streamWriter(self, schema: Any, overwrite: bool) -> "ArrowWriter":  # noqa: N802 (Spark's name)
        return ArrowWriter(Path(self.options["path"]))


class ArrowWriter(DataSourceStreamArrowWriter):
    def __init__(self, lake: Path) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[Any]) -> Written:
        rows = pa.Table.from_batches(list(iterator))
        return Written(write_rows(MESSAGES, rows, LocalStore(self._lake), fsync=False) if len(rows) else [])

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        adds = [file for message in messages for file in message.files]
        DeltaWriter(LocalStore(self._lake), "benchmark").commit(MESSAGES.name, batchId, adds, [])


def _by_task(log: Path, lake: Path, spans: Any, batch: int) -> None:
    rows = spans.mapInArrow(partial(_land, log, lake), _LANDED).collect()
    reports = [read_report(row.report) for row in rows]
    adds = [file for report in reports if isinstance(report, SpanReport) for file in report.files]
    DeltaWriter(LocalStore(lake), "benchmark").commit(MESSAGES.name, batch, adds, [])


def _land(log: Path, lake: Path, batches: Iterator[Any]) -> Iterator[Any]:
    look = decoded_view("messages")
    for batch in batches:
        for row in batch.to_pylist():
            span = Span(**row)
            messages = pa.Table.from_batches([look(some) for some in SpanReader(log, span).batches()])
            files = write_rows(MESSAGES, messages, LocalStore(lake), fsync=False)
            yield driver_reports([SpanReport(span.from_seq, span.until_seq, span.now_us, len(messages), files)])
