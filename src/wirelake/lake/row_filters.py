"""Let a query read only some rows of a table: those whose columns have the values that a role names.

A condition of a statement is never evaluated for other rows. Otherwise an error would reveal them: `CAST(identity AS
INT)` fails with the text that it could not convert.
"""

from collections.abc import Callable, Mapping
from typing import Final

from wirelake.errors import InputError
from wirelake.lake.statement import FIELD_VIEWS, quoted
from wirelake.lake.tables import MESSAGES, TABLES
from wirelake.roles import Role, RowCondition, RowFilter

# DuckDB must not move a condition past a limit, because that would change which rows it returns.
_FENCE: Final = f"LIMIT {2**62}"
_SETTLED: Final = tuple(name for name, table in TABLES.items() if not table.is_open)


def check_row_patterns(roles: Mapping[str, Role]) -> None:
    """Raise InputError, which names the setting, if a role names rows by a table or column that does not exist."""
    for name, role in roles.items():
        for table, columns in role.rows.items():
            where = f"roles.{name}.rows.{table}"
            if table.startswith(f"{FIELD_VIEWS}."):
                raise InputError(f"settings: {where}: these views have the rows of {MESSAGES.name}: name that table")
            if table not in _SETTLED:
                raise InputError(f"settings: {where}: no such table: there are {', '.join(_SETTLED)}")
            if not columns:
                raise InputError(f"settings: {where}: no column is named")
            known = TABLES[table].schema.names
            for column in columns:
                if column not in known:
                    raise InputError(f"settings: {where}.{column}: no such column: there are {', '.join(known)}")


def row_filters_of(find: Callable[[str], RowFilter | None]) -> dict[str, RowFilter]:
    """Return the filters by table. That of a table also holds for those of its rows that are still open."""
    found: dict[str, RowFilter] = {}
    for name in _SETTLED:
        row_filter = find(name)
        if row_filter is not None:
            found[name] = row_filter
            if TABLES[name].has_open_rows:
                found[TABLES[name].open_table.name] = row_filter
    return found


def filter_rows(rows: str, row_filter: RowFilter | None) -> str:
    """Return a SELECT of those rows of a SELECT that pass the filter."""
    if row_filter is None:
        return rows
    condition = " OR ".join(f"({' AND '.join(map(_condition, conditions))})" for conditions in row_filter)
    return f"SELECT * FROM ({rows}) WHERE {condition} {_FENCE}"  # noqa: S608 quoted below


def _condition(condition: RowCondition) -> str:
    column = f'"{condition.column}"'
    if condition.is_regex:
        return f"regexp_full_match(CAST({column} AS VARCHAR), {quoted(condition.value)}, 's')"
    return f"CAST({column} AS VARCHAR) = {quoted(condition.value)}"
