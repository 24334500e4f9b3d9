"""apostol packets decoded in Spark, CRC checked: inside the source, and other ways over the same records as Parquet."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql.functions import udf

from lakeside.bench import Bench
from lakeside.frames import SAMPLES, parse_with_struct, write_log, write_parquet
from wirelake.pipeline.ingest.source import decoded_schema, decoded_view

SLOW = 10  # so many times fewer rows for the row-at-a-time way
GOALS = {"mapInArrow, identity": 1.0, "Parquet, read only": 0.33, "@udf with struct": 10.0}
COLUMNS = "seq,at,serial,device_type,first,last,command_no,packet_no,data"  # as many as the struct has, and the place
STRUCT = "serial string, device_type int, params int, command_no int, packet_no int, data binary"


def run(bench: Bench) -> None:
    spark, log, parquet = bench.spark, bench.folder / "packets", bench.folder / "packets.parquet"
    write_log(log, SAMPLES[0][2], bench.rows)
    write_parquet(parquet, log)

    def source(view: str, columns: str = "") -> Any:
        return spark.read.format("wirelake").option("view", view).option("columns", columns).load(str(log))

    read = spark.read.parquet(str(parquet))
    few = spark.read.parquet(str(parquet / "0.parquet")).limit(bench.rows // SLOW).repartition(2)
    few.write.parquet(str(bench.folder / "few.parquet"))
    few = spark.read.parquet(str(bench.folder / "few.parquet"))
    packets = ", ".join(f"{field.name} {_KINDS[str(field.type)]}" for field in decoded_schema("packets"))
    parse = udf(parse_with_struct, STRUCT, useArrow=False)
    assert source("packets").count() == read.count() == bench.rows
    ways = {
        "decoded in the source": (source("packets", COLUMNS), bench.rows),
        "the same, every column": (source("packets"), bench.rows),
        "Parquet, read only": (read, bench.rows),
        "mapInArrow, identity": (read.mapInArrow(_as_it_is, read.schema), bench.rows),
        "mapInArrow, decoded": (read.mapInArrow(_decoded, packets), bench.rows),
        "source, not decoded": (source("frames"), bench.rows),
        "source, messages": (source("messages"), bench.rows),
        "@udf with struct": (few.select("seq", "at", parse("frame").alias("packet")), bench.rows // SLOW),
    }
    rates = bench.rates({name: (partial(_drain, frame), rows) for name, (frame, rows) in ways.items()})
    bench.show("apostol packets with CRC in Spark, two cores, to nowhere", rates, "decoded in the source", GOALS)


_KINDS = {
    "int64": "bigint",
    "int16": "smallint",
    "string": "string",
    "bool": "boolean",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
}


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _as_it_is(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _decoded(batches: Iterator[Any]) -> Iterator[Any]:
    look = decoded_view("packets")
    for batch in batches:
        yield look(batch)
