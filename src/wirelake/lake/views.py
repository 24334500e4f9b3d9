"""Define the views that queries read: one for each table, with settled and open rows together.

`silver.calls` is what the Delta tables silver/calls and silver/open_calls contain, and the column `settled` says which.
For one release, columns that were renamed are there under their former names as well, after all others. Tables that
the pipeline has not migrated yet can be read as if they had been.
"""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from wirelake.lake.duckdb_scan import scan
from wirelake.lake.row_filters import filter_rows
from wirelake.lake.store import Store
from wirelake.lake.tables import FORMER_NAMES, SETTLED, LakeTable
from wirelake.roles import RowFilter

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TYPES: Final = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def is_written(lake: Store, table: LakeTable) -> bool:
    """Return whether there is something to read in the view of a table."""
    return is_delta_table(lake, table) or (table.has_open_rows and is_delta_table(lake, table.open_table))


def is_delta_table(lake: Store, table: LakeTable) -> bool:
    return lake.has_files(f"{table.folder}/_delta_log")


def view_columns(table: LakeTable) -> list[str]:
    """Return the columns of a table's view, without former names."""
    names = list(table.schema.names)
    if table.has_open_rows:
        names.insert(names.index("day"), SETTLED)
    return names


def create_view(
    database: "DuckDBPyConnection", lake: Store, table: LakeTable, row_filter: RowFilter | None = None
) -> None:
    """Create or replace the view of a table, or of the rows that pass a filter.

    Which columns a table has is looked up only if it may be one of an earlier version, because that takes as long as a
    small query.
    """
    import duckdb  # noqa: PLC0415 an extra, and slow to import

    if table.has_open_rows and not is_delta_table(lake, table.open_table):
        _create(database, lake, table, row_filter, look=True)
        return
    try:
        _create(database, lake, table, row_filter, look=False)
    except duckdb.BinderException:
        _create(database, lake, table, row_filter, look=True)


def _create(
    database: "DuckDBPyConnection", lake: Store, table: LakeTable, row_filter: RowFilter | None, look: bool
) -> None:
    rows = _rows(database, lake, table, look)
    if table.has_open_rows:
        rows = f"{rows} UNION ALL {_rows(database, lake, table.open_table, look)}"
    former = [f'{name} AS "{FORMER_NAMES[name]}"' for name in table.schema.names if name in FORMER_NAMES]
    columns = ", ".join([*map(_quoted, view_columns(table)), *former])
    select = f"SELECT {columns} FROM ({rows})"  # noqa: S608 our names
    database.execute(f"CREATE OR REPLACE VIEW {table.name} AS {filter_rows(select, row_filter)}")


def _rows(database: "DuckDBPyConnection", lake: Store, table: LakeTable, look: bool) -> str:
    """Return the SELECT over one Delta table; it is empty if that was not written yet.

    Columns that the table does not have are null, and those of the previous version get their present names.
    """
    if not is_delta_table(lake, table):
        columns = [_null(field) for field in table.schema]
        return f"SELECT {', '.join([*columns, _settled(table)])} WHERE false"
    source = scan(database, lake, table)
    if not look:
        columns = [_quoted(name) for name in table.schema.names]
        return f"SELECT {', '.join([*columns, _settled(table)])} FROM {source}"  # noqa: S608 our own path
    cursor = database.execute(f"SELECT * FROM {source} LIMIT 0")  # noqa: S608 our own path
    known = {name for name, *_ in cursor.description or ()}
    columns = []
    for field in table.schema:
        name = field.name if field.name in known else FORMER_NAMES.get(field.name)
        columns.append(f"{_quoted(name)} AS {_quoted(field.name)}" if name in known else _null(field))
    columns.append(SETTLED if SETTLED in known else _settled(table))
    return f"SELECT {', '.join(columns)} FROM {source}"  # noqa: S608 our own path


def _settled(table: LakeTable) -> str:
    return f"{str(not table.is_open).lower()} AS {SETTLED}"


def _null(field: Any) -> str:
    return f"CAST(NULL AS {_TYPES[field.type]}) AS {_quoted(field.name)}"


def _quoted(name: Any) -> str:
    return f'"{name}"'
