"""Answer queries with Spark and delta-spark. Runs in another environment, which does not have Wirelake.

Reads JSON from standard input: the settings of the session, the folders of the tables, the queries, and the table to
read as a stream. Writes the rows of each query, and those of the stream, as JSON to standard output.
"""

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    task = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in task["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for name, folder in task["tables"].items():
        spark.read.format("delta").load(folder).createOrReplaceTempView(name)
    answers = {name: _rows(spark.sql(sql)) for name, sql in task["queries"].items()}
    answers["stream"] = _stream(spark, task["stream"])
    spark.stop()
    json.dump(answers, sys.stdout)


def _rows(frame: DataFrame) -> list[list[Any]]:
    return [list(row) for row in frame.collect()]


def _stream(spark: SparkSession, folder: str) -> list[list[Any]]:
    rows: list[list[Any]] = []
    stream = spark.readStream.format("delta").option("skipChangeCommits", "true").load(folder).select("seq")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(_rows(batch)))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return sorted(rows)


if __name__ == "__main__":
    main()
