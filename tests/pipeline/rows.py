"""Convert literal rows to and from Arrow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from wirelake.lake.tables import LakeTable

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """Return the time so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def arrow_rows(table: LakeTable, *rows: dict[str, Any]) -> pa.Table:
    """Return rows of a table. Columns that a row lacks are null."""
    return pa.Table.from_pylist(list(rows), schema=table.schema)


def literal_rows(found: pa.Table, table: LakeTable, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows in order, and check that they have the table's columns and types."""
    assert set(found.schema.names) == set(table.schema.names)
    typed = found.select(table.schema.names).cast(table.schema)
    return sorted((tuple(row.values()) for row in typed.select(columns).to_pylist()), key=repr)
