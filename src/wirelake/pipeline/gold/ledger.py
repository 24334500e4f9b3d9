"""gold.ledger: do the sums agree, from the socket to the tables?

Sums of the same frames are made by four who do not ask each other: the gateway, when it wrote the log (`counted`); the
tasks, when they read it (`scanned`); the driver, when it committed (`committed`); and this query, of the rows that are
there now (`received`). So records that were skipped, files that nobody can read, rows that were deleted, a batch that
was written twice, or a frame that ended in no state show here, and the sums that differ say where it happened.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from wirelake.lake.tables import LEDGER
from wirelake.pipeline.accounts import RECORDS_LOST, RECORDS_REMOVED
from wirelake.pipeline.gold.minutes import counted_where

_KEYS: Final = ["hour", "protocol"]
_TEXTS: Final = {*_KEYS, "balanced", "why", "dropped_by", "day"}
_SUMS: Final = [field.name for field in LEDGER.schema if field.name not in _TEXTS]
_MAY_BE_UNKNOWN: Final = ("committed", "records_committed")
_WORTH_A_ROW: Final = ("received", "commands", "deliveries", "missing", "lost", "removed", "dropped")
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
    batches: DataFrame,
    absent: DataFrame | None = None,
) -> DataFrame:
    """`absent` has the files that tables name and that are not there: hour, protocol, files_missing, files."""
    came = (f.col("direction") == "in") & f.col("event").isin("frame", "quarantine")
    parts = [
        frames.groupBy(*_by("at")).agg(f.count("*").alias("records"), counted_where(came).alias("received")),
        messages.where("direction = 'in'").groupBy(*_by("at")).agg(f.count("*").alias("read")),
        quarantine.where("direction = 'in'").groupBy(*_by("at")).agg(f.count("*").alias("quarantined")),
        tallies.groupBy("hour", "protocol").agg(
            f.sum("counted").alias("counted"),
            f.sum(f.when(f.col("counted").isNull(), f.col("received"))).alias("uncounted"),
            f.sum("received").alias("scanned"),
            f.sum("missing").alias("missing"),
        ),
        batches.where("what IS NULL")
        .groupBy(*_KEYS)
        .agg(_known_sum("received").alias("committed"), _known_sum("records").alias("records_committed")),
        _dropped(batches),
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
    parts.append(absent if absent is not None else _none_absent(tallies))
    joined = reduce(lambda one, other: one.join(other, _KEYS, "full"), parts)
    known = [name for name in joined.columns if name not in (*_KEYS, *_MAY_BE_UNKNOWN, "dropped_by", "files")]
    sums = joined.fillna(0, subset=known).withColumn("decoded", f.col("read") - f.col("waiting"))
    why = f.concat_ws("; ", *_differences(), *_losses())
    rows = sums.select(
        *_KEYS,
        *_SUMS,
        (why == "").alias("balanced"),
        f.nullif(why, f.lit("")).alias("why"),
        "dropped_by",
        f.to_date("hour").alias("day"),
    )
    speaks = reduce(lambda one, other: one | (f.col(other) != 0), _WORTH_A_ROW, f.col("protocol") != "")
    return rows.where(speaks | ~f.col("balanced"))  # records of no protocol: only if there is something to say


def _known_sum(name: str) -> Column:
    """Null where a part of it is not known."""
    return f.when(f.count("*") == f.count(name), f.sum(name))


def _dropped(batches: DataFrame) -> DataFrame:
    by_name = batches.where("what IS NOT NULL").groupBy(*_KEYS, "what").agg(f.sum("dropped").alias("dropped"))
    lost, removed = f.col("what") == RECORDS_LOST, f.col("what") == RECORDS_REMOVED
    said = f.when(~lost & ~removed, f.format_string("%s %d", "what", "dropped"))
    return by_name.groupBy(*_KEYS).agg(
        f.sum(f.when(lost, f.col("dropped"))).alias("lost"),
        f.sum(f.when(removed, f.col("dropped"))).alias("removed"),
        f.sum(f.when(~lost & ~removed, f.col("dropped"))).alias("dropped"),
        f.nullif(f.concat_ws(", ", f.array_sort(f.collect_list(said))), f.lit("")).alias("dropped_by"),
    )


def _none_absent(of: DataFrame) -> DataFrame:
    return of.select(*_KEYS, f.lit(0).alias("files_missing"), f.lit("").alias("files")).where("false")


def _by(at: str) -> list[Column]:
    return [f.date_trunc("hour", f.col(at)).alias("hour"), f.col("protocol")]


def _by_state(of: str, states: tuple[str, ...]) -> list[Column]:
    return [counted_where(f.col("state") == state).alias(f"{of}_{state}") for state in states]


def _differences() -> list[Column]:
    return [
        _differs("received", "decoded", "quarantined", "waiting"),
        _differs("received", "counted", "uncounted"),
        _differs("received", "scanned"),
        _differs("scanned", "committed"),
        _differs("records", "records_committed"),
        _differs("commands", *(f"commands_{state}" for state in _COMMAND_STATES)),
        _differs("deliveries", *(f"deliveries_{state}" for state in _DELIVERY_STATES)),
    ]


def _losses() -> list[Column]:
    """In words; null where nothing is lost."""
    # Where the stretch that holds them has not ended yet, nothing is missing so far.
    unexplained = f.col("missing") - f.col("lost") - f.col("removed")
    return [
        f.when(f.col("lost") > 0, f.format_string("%d records were damaged in the log", "lost")),
        f.when(f.col("removed") > 0, f.format_string("retention removed %d records before they were read", "removed")),
        f.when(unexplained > 0, f.format_string("the log numbered %d records that no task read", unexplained)),
        f.when(f.col("missing") < 0, f.format_string("%d records were read twice", -f.col("missing"))),
        f.when(f.col("files_missing") > 0, f.format_string("%d files are missing: %s", "files_missing", "files")),
    ]


def _differs(whole: str, *parts: str) -> Column:
    """In words; null where they agree."""
    total = reduce(lambda one, other: one + other, (f.col(part) for part in parts))
    said = f.format_string(f"{whole} %d, but {' + '.join(parts)} = %d", f.col(whole), total)
    return f.when(f.col(whole) != total, said)
