"""gold.traffic_minute: how much of what went over the wire, minute by minute."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from wirelake.pipeline.gold.minutes import counted_where, minute

QUARANTINED: Final = "(quarantined)"  # the name of bytes that have none


def traffic_minute(messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    read = messages.select(
        minute("at").alias("minute"),
        "protocol",
        "name",
        "direction",
        f.col("bytes"),
        (f.coalesce("status", f.lit("ok")) != "ok").alias("failed"),
    )
    unread = quarantine.select(
        minute("at").alias("minute"),
        "protocol",
        f.lit(QUARANTINED).alias("name"),
        "direction",
        f.octet_length("frame").cast("bigint").alias("bytes"),
        f.lit(True).alias("failed"),
    )
    return (
        read.unionByName(unread)
        .groupBy("minute", "protocol", "name", "direction")
        .agg(
            f.count("*").alias("frames"),
            f.sum("bytes").alias("bytes"),
            counted_where(f.col("failed")).alias("errors"),
        )
        .withColumn("day", f.to_date("minute"))
    )
