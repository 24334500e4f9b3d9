"""gold.call_minute: questions asked in a minute, how many failed, and how long the answers took."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from wirelake.pipeline.gold.minutes import counted_where, minute, percentiles


def call_minute(calls: DataFrame) -> DataFrame:
    status = f.col("status")
    return (
        calls.groupBy(minute("asked_at").alias("minute"), "protocol", "service", "op")
        .agg(
            f.count("*").alias("calls"),
            counted_where(~status.isin("ok", "open")).alias("failed"),
            counted_where(status == "open").alias("open"),
            *percentiles("latency_ms"),
        )
        .withColumn("day", f.to_date("minute"))
    )
