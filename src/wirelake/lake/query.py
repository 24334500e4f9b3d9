"""List the tables, and run SQL over them with DuckDB, read-only and bounded.

The database is in memory and has one view for each table that a statement reads. Each statement is checked before it
runs (see statement.py), and the database is sandboxed: DuckDB may read the lake's folder and nothing else, and its
settings are locked. A table that the pipeline has not written yet is empty, with the right columns.

`query` and `run_queries` run in this process: they are for the program's own statements. Users' statements run in a
separate process: see query_process.py.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, json

from wirelake.errors import AccessDeniedError, InputError
from wirelake.lake.damage import explain_damage, find_damage
from wirelake.lake.duckdb_scan import NOT_INSTALLED, connect_lake, lake_root
from wirelake.lake.field_views import field_views
from wirelake.lake.statement import FIELD_VIEWS, check_statement, quote_at, quoted
from wirelake.lake.store import Store
from wirelake.lake.tables import MESSAGES, TABLES, LakeTable
from wirelake.lake.views import create_view, is_delta_table, view_columns
from wirelake.limits import (
    LAKE_ANSWER_BYTES_MAX,
    LAKE_MEMORY_MIB_MAX,
    LAKE_QUERY_S,
    LAKE_ROWS_AT_ONCE,
    LAKE_ROWS_MAX,
    LAKE_THREADS_MAX,
)
from wirelake.roles import EVERYTHING, Action, RowFilter

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_EXCEEDED: Final = f"the query exceeded the memory limit of {LAKE_MEMORY_MIB_MAX} MiB: read fewer rows or columns"


class ResultColumn(Struct, frozen=True):
    name: str
    type: str


class QueryResult(Struct, frozen=True):
    columns: list[ResultColumn]
    rows: list[list[Any]]
    truncated: bool  # there are more rows than the limit allows
    elapsed_ms: float


def query(lake: Store, sql: str, rows_max: int = LAKE_ROWS_MAX, timeout_s: float = LAKE_QUERY_S) -> QueryResult:
    """Run one statement. Values that JSON does not have are returned as text: times in ISO format, bytes in hex."""
    return run_queries(lake, [sql], rows_max, timeout_s)[0]


def run_queries(lake: Store, statements: Sequence[str], rows_max: int, timeout_s: float) -> list[QueryResult]:
    """Run statements in one database, because opening it takes longer than a small query. They share the time."""
    with translate_errors(lake), closing(open_database(lake)) as database:
        return run(database, lake, statements, rows_max, timeout_s)


def run(
    database: "DuckDBPyConnection",
    lake: Store,
    statements: Sequence[str],
    rows_max: int,
    timeout_s: float,
    tables: Collection[str] | None = None,
    row_filters: Mapping[str, RowFilter] | None = None,
) -> list[QueryResult]:
    """Run statements in a database of `open_database`. Use `translate_errors` around this.

    `tables` are those that may be read, if not all; AccessDeniedError names another one that a statement reads.
    `row_filters` say which rows may be read of some tables.
    """
    started_s = time.monotonic()
    results: list[QueryResult] = []
    with _limited(database, timeout_s):
        for statement in statements:
            sql = quote_at(statement)
            read = check_statement(database, sql)
            if tables is not None:
                _check_allowed(read, tables)
            _create_views(database, lake, read, row_filters or {})
            cursor = database.execute(sql)
            columns = [ResultColumn(str(name), str(kind)) for name, kind, *_ in cursor.description or ()]
            rows, truncated = _fetch(cursor, rows_max)
            results.append(QueryResult(columns, rows, truncated, round((time.monotonic() - started_s) * 1000, 1)))
    return results


def _check_allowed(read: Collection[str], tables: Collection[str]) -> None:
    """Raise AccessDeniedError unless all that a statement reads may be read. Who may read nothing may not run SQL."""
    denied = next((name for name in sorted(read) if name not in tables), "" if tables else EVERYTHING)
    if denied:
        raise AccessDeniedError("", Action.QUERY, denied)


def _create_views(
    database: "DuckDBPyConnection", lake: Store, names: Collection[str], row_filters: Mapping[str, RowFilter]
) -> None:
    """Create the views that a statement reads."""
    of_fields = {name for name in names if name not in TABLES}
    for name in {*names, MESSAGES.name} - of_fields if of_fields else names:
        create_view(database, lake, TABLES[name], row_filters.get(name))
    views = field_views() if of_fields else {}
    for name in of_fields:
        if name not in views:
            raise InputError(f"Table with name {name} does not exist! The views of fields are {', '.join(views)}.")
        database.execute(f"CREATE OR REPLACE VIEW {name} AS {views[name].select()}")


def open_database(lake: Store) -> "DuckDBPyConnection":
    """Open a database that can read the lake and nothing else."""
    import duckdb  # noqa: PLC0415

    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Checking the signature of the installed package takes 0.2 s each time; no other extension is loaded.
            "allow_unsigned_extensions": "true",
            "memory_limit": f"{LAKE_MEMORY_MIB_MAX}MiB",
            "threads": LAKE_THREADS_MAX,
        }
    )
    connect_lake(database, lake)
    for schema in dict.fromkeys([*(name.partition(".")[0] for name in TABLES), FIELD_VIEWS]):
        database.execute(f"CREATE SCHEMA {schema}")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET temp_directory = ''")  # refuse what does not fit in memory, instead of spilling it
    database.execute("SET python_enable_replacements = false")  # names are tables, not variables of this program
    database.execute(f"SET allowed_directories = [{quoted(lake_root(lake) + '/')}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


@contextmanager
def _limited(database: "DuckDBPyConnection", timeout_s: float) -> Iterator[None]:
    timed_out = threading.Event()

    def interrupt() -> None:
        timed_out.set()
        database.interrupt()

    timer = threading.Timer(timeout_s, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        database.interrupt()  # Ctrl-C ends the wait for DuckDB's threads, not the threads
        if timed_out.is_set() and isinstance(error, Exception):
            raise InputError(time_exceeded(timeout_s)) from error
        raise
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def translate_errors(lake: Store) -> Iterator[None]:
    """Raise DuckDB's errors as InputError with its own text, which points at the position in the SQL; or as
    DamagedTableError, if it could not read a file.
    """
    try:
        import duckdb  # noqa: PLC0415 an extra, and slow to import
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    file_errors = (duckdb.IOException, duckdb.InvalidInputException, duckdb.InternalException, duckdb.FatalException)
    try:
        yield
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    except duckdb.InterruptException:
        raise
    except RuntimeError as error:  # how DuckDB passes on a Ctrl-C
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise InputError(MEMORY_EXCEEDED) from error
    except duckdb.Error as error:
        damage = find_damage(lake, error) if isinstance(error, file_errors) else None
        if damage is not None:
            raise damage from error
        # Readers of tables need not know where the files are.
        raise InputError(str(error).replace("file://", "").replace(f"{lake_root(lake)}/", "")) from error


def time_exceeded(timeout_s: float) -> str:
    return f"no result within the time limit of {timeout_s:g} s: read fewer rows, or a shorter range of time"


def _fetch(cursor: "DuckDBPyConnection", rows_max: int) -> tuple[list[list[Any]], bool]:
    rows: list[list[Any]] = []
    size = 0
    while chunk := cursor.fetchmany(min(LAKE_ROWS_AT_ONCE, rows_max + 1 - len(rows))):
        for values in chunk:
            if len(rows) == rows_max:
                return rows, True
            row = [_plain(value) for value in values]
            size += len(json.encode(row))
            if size > LAKE_ANSWER_BYTES_MAX:
                if not rows:
                    limit = f"the limit of {LAKE_ANSWER_BYTES_MAX}"
                    raise InputError(f"one row has {size} bytes, more than {limit}: select fewer columns")
                return rows, True
            rows.append(row)
    return rows, False


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    **dict.fromkeys((type(None), bool, int, str), lambda value: value),
    float: lambda value: value if math.isfinite(value) else None,
    bytes: bytes.hex,
    datetime: lambda value: value.isoformat().replace("+00:00", "Z"),
    Decimal: float,
    list: lambda value: [_plain(item) for item in value],
    tuple: lambda value: [_plain(item) for item in value],
    dict: lambda value: {str(key): _plain(item) for key, item in value.items()},
}


def _plain(value: Any) -> Any:
    return _PLAIN.get(type(value), str)(value)


class TableInfo(Struct, frozen=True):
    name: str
    columns: list[str]
    version: int  # of the Delta table: one for each commit; -1 if nothing was written yet
    rows: int
    files: int
    bytes: int
    changed_at_ms: int  # 0 if nothing was written yet


def list_tables(lake: Store) -> list[TableInfo]:
    """Return the tables and their sizes, from the Delta log alone."""
    return [_table_info(lake, table) for table in TABLES.values()]


def _table_info(lake: Store, table: LakeTable) -> TableInfo:
    columns = view_columns(table)
    if not is_delta_table(lake, table):
        return TableInfo(table.name, columns, -1, 0, 0, 0, 0)
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 an extra
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    with explain_damage(lake):
        opened = DeltaTable(lake.table_uri(table.folder), storage_options=lake.delta_options)
        files = pa.table(opened.get_add_actions(flatten=True))
    changed = files["modification_time"].cast(pa.timestamp("ms")).cast(pa.int64()) if len(files) else None
    return TableInfo(
        name=table.name,
        columns=columns,
        version=opened.version(),
        rows=pc.sum(files["num_records"]).as_py() or 0,
        files=len(files),
        bytes=pc.sum(files["size_bytes"]).as_py() or 0,
        changed_at_ms=pc.max(changed).as_py() if changed is not None else 0,
    )
