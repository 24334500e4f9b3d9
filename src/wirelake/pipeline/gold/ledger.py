"""gold.ledger: do the sums agree, from the socket to the tables?

Everything is counted where it lies, in the tables themselves, and held against what the gateway counted when it wrote
the log. So a lost file, a batch that was written twice, or a frame that ended in no state shows here.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from wirelake.lake.tables import LEDGER
from wirelake.pipeline.gold.minutes import counted_where

_KEYS: Final = ["hour", "protocol"]
_SUMS: Final = [field.name for field in LEDGER.schema if field.name not in {*_KEYS, "balanced", "why", "day"}]
_COMMAND: Final = [
    "node",
    "serial",
    "device_type",
    "direction",
    "answer",
    "command_no",
    "first_at",
]
_COMMAND_STATES: Final = ("complete", "expired", "refused", "open")
_DELIVERY_STATES: Final = ("acked", "pending", "expired")


def ledger(
    frames: DataFrame,
    messages: DataFrame,
    quarantine: DataFrame,
    commands: DataFrame,
    deliveries: DataFrame,
    tallies: DataFrame,
) -> DataFrame:
    came = frames.where("direction = 'in' AND event IN ('frame', 'quarantine')")
    parts = [
        came.groupBy(*_by("at")).agg(f.count("*").alias("received")),
        messages.where("direction = 'in'").groupBy(*_by("at")).agg(f.count("*").alias("read")),
        quarantine.where("direction = 'in'").groupBy(*_by("at")).agg(f.count("*").alias("quarantined")),
        tallies.groupBy("hour", "protocol").agg(
            f.sum("counted").alias("counted"),
            f.sum(f.when(f.col("counted").isNull(), f.col("received"))).alias("uncounted"),
        ),
        commands.groupBy(*_by("first_at")).agg(
            f.sum(f.when((f.col("state") == "open") & (f.col("direction") == "in"), f.col("packets"))).alias("waiting"),
            f.count_distinct("serial", "device_type", "direction", "answer", "command_no", "first_at").alias(
                "commands"
            ),
            *_by_state("commands", _COMMAND_STATES),
        ),
        deliveries.groupBy(*_by("first_sent_at")).agg(
            f.count_distinct("id", "identity").alias("deliveries"), *_by_state("deliveries", _DELIVERY_STATES)
        ),
    ]
    joined = reduce(lambda one, other: one.join(other, _KEYS, "full"), parts)
    sums = joined.fillna(0, subset=[name for name in joined.columns if name not in _KEYS]).withColumn(
        "decoded", f.col("read") - f.col("waiting")
    )
    why = f.concat_ws("; ", *_differences())
    return sums.select(
        *_KEYS,
        *_SUMS,
        (why == "").alias("balanced"),
        f.nullif(why, f.lit("")).alias("why"),
        f.to_date("hour").alias("day"),
    )


def _by(at: str) -> list[Column]:
    return [f.date_trunc("hour", f.col(at)).alias("hour"), f.col("protocol")]


def _by_state(of: str, states: tuple[str, ...]) -> list[Column]:
    return [counted_where(f.col("state") == state).alias(f"{of}_{state}") for state in states]


def _differences() -> list[Column]:
    return [
        _differs("received", "decoded", "quarantined", "waiting"),
        _differs("received", "counted", "uncounted"),
        _differs("commands", *(f"commands_{state}" for state in _COMMAND_STATES)),
        _differs("deliveries", *(f"deliveries_{state}" for state in _DELIVERY_STATES)),
    ]


def _differs(whole: str, *parts: str) -> Column:
    """In words; null where they agree."""
    total = reduce(lambda one, other: one + other, (f.col(part) for part in parts))
    said = f.format_string(f"{whole} %d, but {' + '.join(parts)} = %d", f.col(whole), total)
    return f.when(f.col(whole) != total, said)
