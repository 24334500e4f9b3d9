"""gold.delivery_minute: notifications sent in a minute, and what became of them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from wirelake.pipeline.gold.minutes import counted_where, minute, percentiles


def delivery_minute(deliveries: DataFrame) -> DataFrame:
    state = f.col("state")
    return (
        deliveries.groupBy(minute("first_sent_at").alias("minute"), "topic")
        .agg(
            f.count("*").alias("deliveries"),
            counted_where(state == "acked").alias("acked"),
            counted_where(state == "pending").alias("pending"),
            counted_where(state == "expired").alias("expired"),
            f.sum("attempts").alias("attempts"),
            *percentiles("latency_ms"),
        )
        .withColumn("day", f.to_date("minute"))
    )
