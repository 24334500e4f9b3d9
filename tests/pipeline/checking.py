"""Check tables against their log: no row is lost, and none exists twice."""

from pathlib import Path
from typing import Any

import polars

from wirelake.lake.store import Store, open_lake
from wirelake.lake.tables import BATCHES, TABLES, LakeTable
from wirelake.log.segments.reader import LogReader


def rows_of(data: Path, name: str, lake: Store | None = None) -> polars.DataFrame:
    """Read a table without Spark, with its open rows. Return an empty one if it does not exist yet.

    The table is one of the data folder, or of `lake`.
    """
    lake = open_lake(data) if lake is None else lake
    table = TABLES[name]
    if not table.has_open_rows:
        return _delta_rows(lake, table)
    parts = [_delta_rows(lake, table).with_columns(settled=True)]
    parts.append(_delta_rows(lake, table.open_table).with_columns(settled=False).select(parts[0].columns))
    return polars.concat(parts)


def _delta_rows(lake: Store, table: LakeTable) -> polars.DataFrame:
    folder = table.folder
    if not lake.has_files(f"{folder}/_delta_log"):
        empty: polars.DataFrame = polars.from_arrow(table.schema.empty_table())  # type: ignore[assignment]
        return empty
    return polars.read_delta(lake.table_uri(folder), storage_options=lake.delta_options)


def seqs_of(data: Path, name: str, lake: Store | None = None) -> list[int]:
    found: list[int] = rows_of(data, name, lake)["seq"].sort().to_list()
    return found


def logged(data: Path) -> list[dict[str, Any]]:
    return [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]


def check_tables(data: Path, lake: Store | None = None) -> None:
    """Check that every record is in bronze once, and every frame in exactly one of messages and quarantine."""
    log = logged(data)
    bronze = rows_of(data, "bronze.frames", lake).sort("seq")
    assert bronze["seq"].to_list() == [row["seq"] for row in log]
    assert bronze["frame"].to_list() == [row["frame"] for row in log]
    assert bronze["received_at"].to_list() == [row["at"] for row in log]
    expected = [row["seq"] for row in log if row["event"] in ("frame", "quarantine")]
    assert sorted(seqs_of(data, "silver.messages", lake) + seqs_of(data, "silver.quarantine", lake)) == expected
    assert seqs_of(data, "silver.notifications", lake) == [row["seq"] for row in log if row["event"] == "publish"]


def same_tables(one: Path, other: Path, lake: Store | None = None) -> None:
    """Check that the rows are the same, in whatever files and batches. `lake` is that of the first one."""
    for name in TABLES:
        frames = [rows_of(one, name, lake), rows_of(other, name)]
        if name == BATCHES.name:  # of batches as they came: what they add up to is the same
            sums = polars.col("records", "received", "sent", "dropped").sum()
            frames = [frame.group_by("hour", "protocol", "what").agg(sums) for frame in frames]
        if name.startswith("gold."):  # sketches choose what they forget by chance
            frames = [frame.select(polars.exclude(polars.Binary)) for frame in frames]
        left, right = (frame.select(sorted(frame.columns)).sort(polars.all()) for frame in frames)
        assert left.equals(right), f"{name}: {left.height} and {right.height} rows"
