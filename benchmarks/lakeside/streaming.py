"""The log as a stream, beside Spark's own Parquet files as a stream: ten batches each, to nowhere.

With every column, and with those that a reader of frames mostly wants: the trip to the JVM is what costs.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from lakeside.bench import Bench
from lakeside.frames import SAMPLES, write_log, write_parquet

BATCHES = 10
GOAL = 0.7
COLUMNS = ("seq", "at", "protocol", "session", "frame")
_checkpoints = count()


def run(bench: Bench) -> None:
    spark, log, parquet = bench.spark, bench.folder / "streamed", bench.folder / "streamed.parquet"
    write_log(log, SAMPLES[0][2], bench.rows)
    write_parquet(parquet, log, BATCHES)
    schema = spark.read.parquet(str(parquet)).schema

    def files(columns: Sequence[str]) -> Any:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(parquet)).select(*columns)

    def ours(columns: Sequence[str]) -> Any:
        source = spark.readStream.format("wirelake").option("maxRows", str(bench.rows // BATCHES))
        return source.option("columns", ",".join(columns)).load(str(log))

    every, some = f"all {len(schema)} columns", f"{len(COLUMNS)} columns"
    select_rows = {every: schema.names, some: COLUMNS}
    rates = bench.rates(
        {
            f"{name}, {what}": (partial(_drain, bench, partial(read, columns)), bench.rows)
            for what, columns in select_rows.items()
            for name, read in (("the log", ours), ("Parquet files", files))
        }
    )
    for what in select_rows:
        mine = {name: rate for name, rate in rates.items() if name.endswith(what)}
        goals = {f"Parquet files, {what}": GOAL}
        bench.show(f"streamed in {BATCHES} batches, two cores, to nowhere", mine, f"the log, {what}", goals)


def _drain(bench: Bench, read: Any) -> None:
    place = bench.folder / f"checkpoint-{next(_checkpoints)}"
    writer = read().writeStream.format("noop").option("checkpointLocation", str(place))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    assert BATCHES <= len(batches) <= BATCHES + 1, len(batches)  # the log is cut at whole blocks
