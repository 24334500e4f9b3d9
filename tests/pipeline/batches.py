"""Run batches as Spark does, in this process: plan, ingest, shuffle, reduce, commit or abort."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from wirelake.lake.store import Store
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.ingest.source import SourceOptions
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.query import StreamPlan
from wirelake.pipeline.shuffle import SHUFFLE_SCHEMA
from wirelake.pipeline.sink import BatchReader, TablesWriter, TaskReports

BUCKETS = 3


class Run:
    """Hold a run of the query on a data folder."""

    def __init__(self, data: Path, lake: Store | None = None, **rest: Any) -> None:
        paths = DataPaths.of(data, lake)
        self.plan = StreamPlan.of(paths, open_stream(paths), BUCKETS, **rest)
        self.reader = BatchReader(SourceOptions({"path": str(data), "view": "spans", "maxRows": "1000"}), self.plan)
        self.writer = TablesWriter(self.plan)

    def compute(self, batch: int, from_seq: int, until_seq: int) -> list[TaskReports]:
        """Run the tasks of a batch, and return their commit messages."""
        offsets = self.plan.paths.spark_offsets
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"seq": {until_seq}}}')
        ingest, reduce = self.plan.ingest_task().task(), self.plan.reduce_task()
        spans = self.reader.partitions({"seq": from_seq}, {"seq": until_seq})
        shuffled = [each for span in spans for each in ingest(self.reader.read(span))]
        rows = pa.Table.from_batches(shuffled, SHUFFLE_SCHEMA)
        buckets = [rows.filter(pa.compute.equal(rows["bucket"], bucket)) for bucket in range(BUCKETS)]
        results = [reduce.reduce(bucket, part.to_batches()) for bucket, part in enumerate(buckets) if len(part)]
        return [self.writer.write(result) for result in results]

    @property
    def files(self) -> set[str]:
        """Return the names of all files of tables."""
        return {path.name for path in self.plan.paths.data.glob("lake/**/*.parquet")}
