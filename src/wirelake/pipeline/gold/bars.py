"""gold.bars_minute: open, high, low and close of every key, from sisdb records that have a price."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

PRICE: Final = "newp"


def bars_minute(records: DataFrame) -> DataFrame:
    priced = records.select(
        f.date_trunc("minute", f.coalesce("recorded_at", "at")).alias("minute"),
        "key",
        "sdb",
        f.get_json_object("fields", f"$.{PRICE}").try_cast("double").alias("price"),
        f.struct("time", "seq").alias("place"),
    ).where("price IS NOT NULL")
    return (
        priced.groupBy("minute", "key", "sdb")
        .agg(
            f.min_by("price", "place").alias("open"),
            f.max("price").alias("high"),
            f.min("price").alias("low"),
            f.max_by("price", "place").alias("close"),
            f.count("*").alias("count"),
        )
        .withColumn("day", f.to_date("minute"))
    )
