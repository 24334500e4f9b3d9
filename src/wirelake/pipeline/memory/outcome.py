"""What settling gives: rows that are final, rows that may still change, and what to carry on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import DAY, Table

MINUTE_US: Final = 60_000_000


class Outcome(Struct):
    """Of one kind of items in one bucket."""

    carry: list[pa.Table]
    final: dict[str, pa.Table] = field(default_factory=dict)
    open: dict[str, pa.Table] = field(default_factory=dict)  # touched by this batch
    still: dict[str, pa.Table] = field(default_factory=dict)  # open as before
    dirty_us: dict[str, set[int]] = field(default_factory=dict)  # minutes beside those of the rows' own `at`
    counts: Counter[str] = field(default_factory=Counter)  # what is worth knowing and has no row


def table_rows(table: Table, rows: Sequence[Sequence[Any]], *, settled: bool = True) -> pa.Table:
    """Rows in the order of the table's columns, without those it is grouped by."""
    names = [name for name in table.schema.names if name not in ("day", "settled")]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(column, table.schema.field(name).type) for name, column in zip(names, columns, strict=True)]
    return grouped(table, pa.Table.from_arrays(arrays, names=names), settled=settled)


def table_columns(table: Table, columns: Mapping[str, Sequence[Any]], **constants: str) -> pa.Table:
    """The same, of final rows, column by column; and what is the same in every row."""
    arrays = {name: pa.array(values, table.schema.field(name).type) for name, values in columns.items()}
    size = len(arrays["seq"])
    arrays |= {name: pa.repeat(pa.scalar(value), size) for name, value in constants.items()}
    return grouped(table, pa.table(arrays))


def grouped(table: Table, rows: pa.Table, *, settled: bool = True) -> pa.Table:
    """With the columns that a table's files are grouped by."""
    if "settled" in table.schema.names:
        rows = rows.append_column("settled", pa.repeat(pa.scalar(settled), len(rows)))
    if "day" in table.schema.names:
        rows = rows.append_column("day", rows[time_column(table)].cast(DAY))
    return rows.select(table.schema.names).cast(table.schema)


def time_column(table: Table) -> str:
    """When a row of it is: the day of this groups its files, the minute of this is what gold tables gather by."""
    return next(name for name in ("recorded_at", "at", "hour") if name in table.schema.names)


def minutes_of(table: Table, rows: pa.Table) -> set[int]:
    """When these rows are, as minutes in microseconds since 1970."""
    times = rows[time_column(table)].cast(pa.int64())
    minutes = pc.unique(pc.divide(times, MINUTE_US)).to_pylist()
    return {minute * MINUTE_US for minute in minutes if minute is not None}
