"""Check tables against their log: no row is lost, and none exists twice."""

from pathlib import Path
from typing import Any

import polars

from wirelake.lake.tables import TABLES
from wirelake.log.segments.reader import LogReader


def rows_of(data: Path, name: str) -> polars.DataFrame:
    """Read a table without Spark. Return an empty one if it does not exist yet."""
    folder = data / "lake" / TABLES[name].folder
    if not (folder / "_delta_log").exists():
        empty: polars.DataFrame = polars.from_arrow(TABLES[name].schema.empty_table())  # type: ignore[assignment]
        return empty
    return polars.read_delta(str(folder))


def seqs_of(data: Path, name: str) -> list[int]:
    found: list[int] = rows_of(data, name)["seq"].sort().to_list()
    return found


def logged(data: Path) -> list[dict[str, Any]]:
    return [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]


def check_tables(data: Path) -> None:
    """Check that every record is in bronze once, and every frame in exactly one of messages and quarantine."""
    log = logged(data)
    bronze = rows_of(data, "bronze.frames").sort("seq")
    assert bronze["seq"].to_list() == [row["seq"] for row in log]
    assert bronze["frame"].to_list() == [row["frame"] for row in log]
    assert bronze["at"].to_list() == [row["at"] for row in log]
    expected = [row["seq"] for row in log if row["event"] in ("frame", "quarantine")]
    assert sorted(seqs_of(data, "silver.messages") + seqs_of(data, "silver.quarantine")) == expected
    assert seqs_of(data, "silver.notifications") == [row["seq"] for row in log if row["event"] == "publish"]
