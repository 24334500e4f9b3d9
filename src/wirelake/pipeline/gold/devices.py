"""gold.device_latest: the newest status and readings of each device.

What was known before is one of the inputs, so that the cost is that of what came since. A device may send what it
measured earlier: by its own clock, where it has one, that does not count as newer.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from wirelake.protocols.apostol.opcodes import BROADCAST_DEVICE_TYPE

STATUS: Final = 0x01


def device_latest(before: DataFrame, commands: DataFrame, readings: DataFrame) -> DataFrame:
    told = commands.where("state = 'complete' AND direction = 'in' AND NOT answer")
    seen = (
        told.select("serial", "device_type", "at", _measured_at().alias("measured_at"))
        .unionByName(before.select("serial", "device_type", "at", f.col("device_time").alias("measured_at")))
        .groupBy("serial")
        .agg(
            # A broadcast does not have the device's own type.
            f.max_by("device_type", f.struct(f.col("device_type") != BROADCAST_DEVICE_TYPE, "at")).alias("device_type"),
            f.max("at").alias("at"),
            f.max("measured_at").alias("device_time"),
        )
    )
    return seen.join(_statuses(before, told), "serial", "left").join(_readings(before, readings), "serial", "left")


def _statuses(before: DataFrame, told: DataFrame) -> DataFrame:
    new = told.where((f.col("command_type") == STATUS) & (f.col("error") == 0)).select(
        "serial", f.get_json_object("fields", "$.status").alias("status"), _measured_at().alias("status_at"), "seq"
    )
    known = before.where("status IS NOT NULL").select("serial", "status", "status_at", f.lit(-1).alias("seq"))
    place = f.struct("status_at", "seq")
    return (
        new.unionByName(known)
        .groupBy("serial")
        .agg(f.max_by("status", place).alias("status"), f.max("status_at").alias("status_at"))
    )


def _readings(before: DataFrame, readings: DataFrame) -> DataFrame:
    new = readings.select("serial", f.col("type").cast("string").alias("type"), "value", _measured_at(), "seq")
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


def _measured_at() -> Column:
    return f.coalesce("device_time", "at").alias("measured_at")
