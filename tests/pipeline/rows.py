"""Convert literal rows to and from Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wirelake.lake.tables import LakeTable

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """Return the time so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def rows_in(spark: SparkSession, table: LakeTable, *rows: dict[str, Any]) -> DataFrame:
    """Return a DataFrame. Columns that a row lacks are null."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=table.schema))


def rows_out(result: DataFrame, table: LakeTable, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows in order, and check that they have the table's columns and types."""
    found = result.toArrow()
    assert set(found.schema.names) == set(table.schema.names)
    typed = found.select(table.schema.names).cast(table.schema)
    return sorted((tuple(row.values()) for row in typed.select(columns).to_pylist()), key=repr)
