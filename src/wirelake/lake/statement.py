"""Quote and check SQL before it runs: a user's statement is one SELECT that reads the lake's tables and nothing else.

DuckDB parses the statement and returns its syntax tree as JSON, in which this searches for everything that a statement
can read from. Only the lake's tables, common table expressions in scope, and table functions that make rows out of
their own arguments are accepted. Configuration alone would not do: `delta_scan` opens files and connections by itself,
without asking DuckDB whether that is allowed.
"""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from wirelake.errors import InputError
from wirelake.lake.tables import TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Functions that make rows from their arguments: no file, no setting, no catalog, no SQL in a string.
TABLE_FUNCTIONS: Final = frozenset(
    {
        "generate_series",
        "generate_subscripts",
        "json_each",
        "json_tree",
        "range",
        "regexp_split_to_table",
        "repeat",
        "repeat_row",
        "unnest",
    }
)
# Functions that describe this database or its process, run SQL in a string, or write something.
DENIED_FUNCTIONS: Final = frozenset(
    {
        "current_setting",
        "getenv",
        "getvariable",
        "json_execute_serialized_sql",
        "json_serialize_plan",
        "parse_duckdb_log_message",
        "pg_get_viewdef",
        "query",
        "query_table",
        "read_blob",
        "read_text",
        "which_secret",
        "write_log",
    }
)
CATALOG_TABLES: Final = frozenset({"information_schema.tables", "information_schema.columns"})
FIELD_VIEWS: Final = "fields"  # the schema of the views of field_views.py
_AT: Final = re.compile(r"\bat\b", re.IGNORECASE)
# The keyword: `x AT TIME ZONE 'UTC'`, `FROM t AT (VERSION => 3)`.
_KEYWORD: Final = re.compile(r"at\s*(\(|time\s+zone\b)", re.IGNORECASE)
_CATALOGS: Final = frozenset({"", "memory"})


def check_statement(database: "DuckDBPyConnection", sql: str) -> frozenset[str]:
    """Return the names of the tables that the statement reads; InputError if it is not one SELECT over them."""
    statements = database.extract_statements(sql)
    if not statements:
        raise InputError("the statement is empty: write one SELECT")
    if len(statements) != 1:
        raise InputError(f"one statement at a time: there are {len(statements)}")
    kind = str(statements[0].type).rpartition(".")[2]
    if kind != "SELECT":
        raise InputError(f"the tables are read-only: use SELECT, not {kind}")
    try:
        # Not as a parameter: for its first one, DuckDB imports pandas.
        row = database.execute(f"SELECT json_serialize_sql({quoted(sql)})").fetchone()
        tree = json.loads(row[0]) if row is not None else {"error": True}
        if tree["error"]:  # DuckDB reports some PRAGMAs as SELECT
            raise InputError("the tables are read-only: use SELECT, not PRAGMA")
        return frozenset(_tables(tree["statements"], frozenset()))
    except RecursionError as error:
        raise InputError("the statement is nested too deeply") from error


def _tables(node: Any, names: frozenset[str]) -> Iterator[str]:
    """Walk the tree. `names` are the common table expressions in scope."""
    if isinstance(node, list):
        for item in node:
            yield from _tables(item, names)
    if not isinstance(node, dict):
        return
    if "cte_map" in node:
        for entry in node["cte_map"]["map"]:
            yield from _tables(entry["value"], names)  # it sees those before it, but not itself
            names |= {entry["key"].lower()}
        node = {key: value for key, value in node.items() if key != "cte_map"}
    kind = node.get("type")
    if kind == "RECURSIVE_CTE_NODE":
        names |= {node["cte_name"].lower()}
    elif kind == "BASE_TABLE":
        yield from _table(node, names)
    elif kind == "TABLE_FUNCTION":
        _check_table_function(node["function"])
    elif kind == "SHOW_REF" and node["query"] is None:
        yield from TABLES
    elif (function := node.get("function_name", "").lower()) in DENIED_FUNCTIONS:
        raise InputError(f"the function {function} is not available in queries")
    for value in node.values():
        yield from _tables(value, names)


def _table(node: dict[str, Any], names: frozenset[str]) -> Iterator[str]:
    catalog, schema, table = (node[key].lower() for key in ("catalog_name", "schema_name", "table_name"))
    name = f"{schema}.{table}" if schema else table
    if not schema and not catalog and table in names:
        return
    if catalog in _CATALOGS and name in CATALOG_TABLES:
        yield from TABLES
    elif catalog in _CATALOGS and (name in TABLES or schema == FIELD_VIEWS):
        yield name
    else:
        shown = ".".join(filter(None, (node[key] for key in ("catalog_name", "schema_name", "table_name"))))
        raise InputError(f"Table with name {shown} does not exist! The tables are {', '.join(TABLES)}.")


def _check_table_function(function: dict[str, Any]) -> None:
    name = function.get("function_name", "").lower()
    if name not in TABLE_FUNCTIONS:
        allowed = ", ".join(sorted(TABLE_FUNCTIONS))
        raise InputError(
            f"the table function {name} is not available in queries: they read the tables "
            f"({', '.join(TABLES)}) and may use {allowed}"
        )


def quoted(text: str) -> str:
    """Return text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_at(sql: str) -> str:
    """Return the statement with quotes around each `at` that can only be the column.

    `at` is also a keyword of DuckDB, and users need not quote it.
    """
    import duckdb  # noqa: PLC0415 an extra, and slow to import

    raw = sql.encode()  # the offsets of tokens count bytes
    offsets = [offset for offset, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.keyword]
    parts: list[bytes] = []
    done = 0
    for start in offsets:
        rest = raw[start:].decode(errors="replace")
        if _AT.match(rest) and not _KEYWORD.match(rest):
            parts += [raw[done:start], b'"', raw[start : start + 2], b'"']
            done = start + 2
    return b"".join([*parts, raw[done:]]).decode()
