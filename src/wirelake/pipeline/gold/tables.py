"""Compute the gold tables of minutes and devices, each by a function from silver tables to a Spark plan.

gold.bars_minute      open, high, low and close of every key, from records that have a price
gold.call_minute      the calls of a minute, how many failed, and how long the responses took
gold.delivery_minute  the notifications sent in a minute, and what became of them
gold.device_latest    the newest status and readings of each device
gold.traffic_minute   frames, bytes and errors of a minute
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from wirelake.message import BROADCAST_DEVICE_TYPE


def minute(at: str) -> Column:
    return f.date_trunc("minute", f.col(at))


def percentiles(of: str) -> list[Column]:
    """Return exact percentiles of the values that are not null."""
    return [f.percentile(of, f.lit(share)).alias(f"p{share * 100:.0f}_ms") for share in (0.5, 0.95, 0.99)]


def count_where(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


PRICE: Final = "newp"


def bars_minute(records: DataFrame) -> DataFrame:
    priced = records.select(
        f.date_trunc("minute", f.coalesce("recorded_at", "at")).alias("minute"),
        "key",
        "sdb",
        f.get_json_object("fields", f"$.{PRICE}").try_cast("double").alias("price"),
        f.struct("time", "seq").alias("order"),
    ).where("price IS NOT NULL")
    return (
        priced.groupBy("minute", "key", "sdb")
        .agg(
            f.min_by("price", "order").alias("open"),
            f.max("price").alias("high"),
            f.min("price").alias("low"),
            f.max_by("price", "order").alias("close"),
            f.count("*").alias("count"),
        )
        .withColumn("day", f.to_date("minute"))
    )


def call_minute(calls: DataFrame) -> DataFrame:
    status = f.col("status")
    return (
        calls.groupBy(minute("asked_at").alias("minute"), "protocol", "service", "op")
        .agg(
            f.count("*").alias("calls"),
            count_where(~status.isin("ok", "open")).alias("failed"),
            count_where(status == "open").alias("open"),
            *percentiles("latency_ms"),
        )
        .withColumn("day", f.to_date("minute"))
    )


def delivery_minute(deliveries: DataFrame) -> DataFrame:
    state = f.col("state")
    return (
        deliveries.groupBy(minute("first_sent_at").alias("minute"), "topic")
        .agg(
            f.count("*").alias("deliveries"),
            count_where(state == "acked").alias("acked"),
            count_where(state == "pending").alias("pending"),
            count_where(state == "expired").alias("expired"),
            f.sum("attempts").alias("attempts"),
            *percentiles("latency_ms"),
        )
        .withColumn("day", f.to_date("minute"))
    )


STATUS: Final = 0x01


def device_latest(before: DataFrame, commands: DataFrame, readings: DataFrame) -> DataFrame:
    """Compute the newest values from those before and from what is new, so that the cost is that of the new rows.

    A device may send what it measured earlier: by its own clock, if it has one, that is not newer.
    """
    reported = commands.where("state = 'complete' AND direction = 'in' AND NOT answer")
    no_type = f.lit(None).cast("bigint").alias("device_type")
    seen = (
        reported.select("serial", "protocol", "device_type", "at", _measured_at())
        .unionByName(readings.select("serial", "protocol", no_type, "at", _measured_at()))
        .unionByName(
            before.select("serial", "protocol", "device_type", "at", f.col("device_time").alias("measured_at"))
        )
        .groupBy("serial")
        .agg(
            f.max_by("protocol", f.when(f.col("protocol").isNotNull(), f.col("at"))).alias("protocol"),
            # A broadcast does not have the device's own type.
            f.max_by("device_type", f.struct(f.col("device_type") != BROADCAST_DEVICE_TYPE, "at")).alias("device_type"),
            f.max("at").alias("at"),
            f.max("measured_at").alias("device_time"),
        )
    )
    found = seen.join(_statuses(before, reported), "serial", "left").join(_readings(before, readings), "serial", "left")
    return found.join(_newest(before, readings), "serial", "left")


def _statuses(before: DataFrame, reported: DataFrame) -> DataFrame:
    new = reported.where((f.col("command_type") == STATUS) & (f.col("error") == 0)).select(
        "serial", f.get_json_object("fields", "$.status").alias("status"), _measured_at().alias("status_at"), "seq"
    )
    known = before.where("status IS NOT NULL").select("serial", "status", "status_at", f.lit(-1).alias("seq"))
    order = f.struct("status_at", "seq")
    return (
        new.unionByName(known)
        .groupBy("serial")
        .agg(f.max_by("status", order).alias("status"), f.max("status_at").alias("status_at"))
    )


def _readings(before: DataFrame, readings: DataFrame) -> DataFrame:
    kind = f.coalesce(f.col("type").cast("string"), "name").alias("type")
    new = readings.select("serial", kind, "value", _measured_at(), "seq").where("type IS NOT NULL")
    known = before.where("readings IS NOT NULL").select(
        "serial",
        f.explode(f.from_json("readings", "map<string, double>")).alias("type", "value"),
        f.col("readings_at").alias("measured_at"),
        f.lit(-1).alias("seq"),
    )
    newest = (
        new.unionByName(known)
        .groupBy("serial", "type")
        .agg(
            f.max_by("value", f.struct("measured_at", "seq")).alias("value"), f.max("measured_at").alias("measured_at")
        )
    )
    entries = f.sort_array(f.collect_list(f.struct("type", "value")))
    return newest.groupBy("serial").agg(
        f.to_json(f.map_from_entries(entries)).alias("readings"), f.max("measured_at").alias("readings_at")
    )


def _newest(before: DataFrame, readings: DataFrame) -> DataFrame:
    """Return the newest readings by name, with their units and times."""
    new = readings.where("name IS NOT NULL").select(
        "serial", "name", "value", "unit", f.unix_micros(_measured_at()).alias("at_us"), "seq"
    )
    entry = "struct<value: double, unit: string, at_us: bigint>"
    known = before.where("newest IS NOT NULL").select(
        "serial", f.explode(f.from_json("newest", f"map<string, {entry}>")).alias("name", "entry")
    )
    known = known.select("serial", "name", "entry.value", "entry.unit", "entry.at_us", f.lit(-1).alias("seq"))
    newest = (
        new.unionByName(known)
        .groupBy("serial", "name")
        .agg(f.max_by(f.struct("value", "unit", "at_us"), f.struct("at_us", "seq")).alias("entry"))
    )
    entries = f.sort_array(f.collect_list(f.struct("name", "entry")))
    return newest.groupBy("serial").agg(f.to_json(f.map_from_entries(entries)).alias("newest"))


def _measured_at() -> Column:
    return f.coalesce("device_time", "at").alias("measured_at")


QUARANTINED: Final = "(quarantined)"  # the name of frames that have none


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
            count_where(f.col("failed")).alias("errors"),
        )
        .withColumn("day", f.to_date("minute"))
    )
