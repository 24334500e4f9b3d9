"""Check in gold.ledger that the sums agree, from the socket to the tables.

The same frames are counted four times independently: by the gateway when it wrote the log (`counted`), by the tasks
when they read it (`scanned`), by the driver when it committed (`committed`), and by this query over the rows that exist
now (`received`). Skipped records, unreadable files, deleted rows, a batch written twice, or a frame without a final
state show up here, and the sums that differ say where it happened.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from wirelake.lake.tables import LEDGER
from wirelake.pipeline.commit.manifests import RECORDS_LOST, RECORDS_REMOVED
from wirelake.pipeline.gold.tables import count_where

_KEYS: Final = ["hour", "protocol"]
_TEXTS: Final = {*_KEYS, "balanced", "why", "dropped_by", "day"}
_SUMS: Final = [field.name for field in LEDGER.schema if field.name not in _TEXTS]
_NULLABLE: Final = ("committed", "records_committed")
_RELEVANT: Final = ("received", "commands", "deliveries", "missing", "lost", "removed", "dropped")
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
    missing_files: DataFrame | None = None,
) -> DataFrame:
    """Compute the ledger. `missing_files` has hour, protocol, files_missing and files of files that do not exist."""
    is_in = (f.col("direction") == "in") & f.col("event").isin("frame", "quarantine")
    parts = [
        frames.groupBy(*_by("at")).agg(f.count("*").alias("records"), count_where(is_in).alias("received")),
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
    parts.append(missing_files if missing_files is not None else _no_missing_files(tallies))
    joined = reduce(lambda one, other: one.join(other, _KEYS, "full"), parts)
    known = [name for name in joined.columns if name not in (*_KEYS, *_NULLABLE, "dropped_by", "files")]
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
    is_relevant = reduce(lambda one, other: one | (f.col(other) != 0), _RELEVANT, f.col("protocol") != "")
    return rows.where(is_relevant | ~f.col("balanced"))  # records of no protocol: only if relevant


def _known_sum(name: str) -> Column:
    """Return the sum, or null if a part of it is not known."""
    return f.when(f.count("*") == f.count(name), f.sum(name))


def _dropped(batches: DataFrame) -> DataFrame:
    by_name = batches.where("what IS NOT NULL").groupBy(*_KEYS, "what").agg(f.sum("dropped").alias("dropped"))
    lost, removed = f.col("what") == RECORDS_LOST, f.col("what") == RECORDS_REMOVED
    text = f.when(~lost & ~removed, f.format_string("%s %d", "what", "dropped"))
    return by_name.groupBy(*_KEYS).agg(
        f.sum(f.when(lost, f.col("dropped"))).alias("lost"),
        f.sum(f.when(removed, f.col("dropped"))).alias("removed"),
        f.sum(f.when(~lost & ~removed, f.col("dropped"))).alias("dropped"),
        f.nullif(f.concat_ws(", ", f.array_sort(f.collect_list(text))), f.lit("")).alias("dropped_by"),
    )


def _no_missing_files(of: DataFrame) -> DataFrame:
    return of.select(*_KEYS, f.lit(0).alias("files_missing"), f.lit("").alias("files")).where("false")


def _by(at: str) -> list[Column]:
    return [f.date_trunc("hour", f.col(at)).alias("hour"), f.col("protocol")]


def _by_state(of: str, states: tuple[str, ...]) -> list[Column]:
    return [count_where(f.col("state") == state).alias(f"{of}_{state}") for state in states]


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
    """Return texts about losses; null if nothing is lost."""
    # Until the interval that contains them has ended, nothing counts as missing.
    unexplained = f.col("missing") - f.col("lost") - f.col("removed")
    return [
        _counted(f.col("lost"), "%d record was damaged in the log", "%d records were damaged in the log"),
        _counted(
            f.col("removed"),
            "retention removed %d record before it was read",
            "retention removed %d records before they were read",
        ),
        _counted(
            unexplained,
            "the log numbered %d record that no task read",
            "the log numbered %d records that no task read",
        ),
        _counted(-f.col("missing"), "%d record was read twice", "%d records were read twice"),
        _counted(f.col("files_missing"), "%d file is missing: %s", "%d files are missing: %s", f.col("files")),
    ]


def _counted(count: Column, singular: str, plural: str, *rest: Column) -> Column:
    """Return the text with the count; null if there is nothing to count."""
    return f.when(count == 1, f.format_string(singular, count, *rest)).when(
        count > 1, f.format_string(plural, count, *rest)
    )


def _differs(whole: str, *parts: str) -> Column:
    """Return a text about a difference; null if the sums agree."""
    total = reduce(lambda one, other: one + other, (f.col(part) for part in parts))
    text = f.format_string(f"{whole} %d, but {' + '.join(parts)} = %d", f.col(whole), total)
    return f.when(f.col(whole) != total, text)
