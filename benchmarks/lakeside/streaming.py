"""The log as a stream, beside Spark's own Parquet files as a stream: ten batches each, to nowhere."""

from functools import partial
from itertools import count
from typing import Any

from lakeside.bench import Bench
from lakeside.frames import SAMPLES, write_log, write_parquet

BATCHES = 10
GOALS = {"Parquet files": 0.7}
_checkpoints = count()


def run(bench: Bench) -> None:
    spark, log, parquet = bench.spark, bench.folder / "streamed", bench.folder / "streamed.parquet"
    write_log(log, SAMPLES[0][2], bench.rows)
    write_parquet(parquet, log, BATCHES)
    schema = spark.read.parquet(str(parquet)).schema

    def files() -> Any:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(parquet))

    def ours() -> Any:
        return spark.readStream.format("wirelake").option("maxRows", str(bench.rows // BATCHES)).load(str(log))

    rates = bench.rates(
        {
            "the log": (partial(_drain, bench, ours), bench.rows),
            "Parquet files": (partial(_drain, bench, files), bench.rows),
        }
    )
    bench.show(f"streamed in {BATCHES} batches, two cores, to nowhere", rates, "the log", GOALS)


def _drain(bench: Bench, read: Any) -> None:
    place = bench.folder / f"checkpoint-{next(_checkpoints)}"
    writer = read().writeStream.format("noop").option("checkpointLocation", str(place))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    assert BATCHES <= len(batches) <= BATCHES + 1, len(batches)  # the log is cut at whole blocks
