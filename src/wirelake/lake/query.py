"""SQL over the tables, read-only and bounded, with DuckDB.

The database is in memory and holds one view for each table that a statement reads. Before a statement runs, it is
checked (see statement.py) and the database is closed in: DuckDB may read below the lake's folder and nothing else, and
its settings are locked. What the pipeline has not written yet is an empty table with the right columns.

`query` and `queries` run inside this process: they are for the program's own statements. What users write runs in a
process of its own: see query_process.py.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, json

from wirelake.errors import InputError
from wirelake.lake.damage import explain
from wirelake.lake.statement import check, quoted
from wirelake.lake.tables import TABLES, Table
from wirelake.lake.wording import with_quotes
from wirelake.limits import (
    LAKE_ANSWER_BYTES_MAX,
    LAKE_MEMORY_MIB_MAX,
    LAKE_QUERY_S,
    LAKE_ROWS_AT_ONCE,
    LAKE_ROWS_MAX,
    LAKE_THREADS_MAX,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NOT_INSTALLED: Final = "reading the tables needs duckdb, deltalake and the Delta extension: install wirelake[lake]"
MEMORY_EXCEEDED: Final = f"the query exceeded the memory limit of {LAKE_MEMORY_MIB_MAX} MiB: ask for less at a time"
_TYPES: Final = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


class Column(Struct, frozen=True):
    name: str
    type: str


class Answer(Struct, frozen=True):
    columns: list[Column]
    rows: list[list[Any]]
    truncated: bool  # there are more rows than the limit let through
    elapsed_ms: float


def query(lake: Path, sql: str, rows_max: int = LAKE_ROWS_MAX, timeout_s: float = LAKE_QUERY_S) -> Answer:
    """Values that JSON has no word for come as text: times in ISO form, bytes in hex."""
    return queries(lake, [sql], rows_max, timeout_s)[0]


def queries(lake: Path, questions: Sequence[str], rows_max: int, timeout_s: float) -> list[Answer]:
    """Run several in one database, because opening it takes longer than a small query. The time is for all of them."""
    lake = lake.resolve()
    with explained(lake), closing(open_database(lake)) as database:
        return run(database, lake, questions, rows_max, timeout_s)


def run(
    database: "DuckDBPyConnection", lake: Path, questions: Sequence[str], rows_max: int, timeout_s: float
) -> list[Answer]:
    """Run the statements in a database made by `open_database`. Use `explained` around it."""
    started_s = time.monotonic()
    answers: list[Answer] = []
    with _limited(database, timeout_s):
        for question in questions:
            sql = with_quotes(question)
            for name in check(database, sql):
                database.execute(f"CREATE OR REPLACE VIEW {name} AS {_view(lake, TABLES[name])}")
            cursor = database.execute(sql)
            columns = [Column(str(name), str(kind)) for name, kind, *_ in cursor.description or ()]
            rows, truncated = _fetched(cursor, rows_max)
            answers.append(Answer(columns, rows, truncated, round((time.monotonic() - started_s) * 1000, 1)))
    return answers


def is_written(lake: Path, table: Table) -> bool:
    return (lake / table.folder / "_delta_log").is_dir()


def open_database(lake: Path) -> "DuckDBPyConnection":
    """Open a database that can read the lake and nothing else. `lake` is resolved."""
    import duckdb  # noqa: PLC0415
    import duckdb_extension_delta  # noqa: PLC0415

    found = [file for place in duckdb_extension_delta.__path__ for file in Path(place).rglob("*.duckdb_extension")]
    if not found:
        raise InputError(NOT_INSTALLED)
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Checking the signature of an installed package takes 0.2 s each time; no other extension is ever loaded.
            "allow_unsigned_extensions": "true",
            "memory_limit": f"{LAKE_MEMORY_MIB_MAX}MiB",
            "threads": LAKE_THREADS_MAX,
        }
    )
    database.execute(f"LOAD {quoted(str(found[0]))}")
    for schema in dict.fromkeys(name.partition(".")[0] for name in TABLES):
        database.execute(f"CREATE SCHEMA {schema}")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET temp_directory = ''")  # what does not fit in memory is refused, not spilled
    database.execute("SET python_enable_replacements = false")  # a name is a table, not a variable of this program
    database.execute(f"SET allowed_directories = [{quoted(str(lake) + '/')}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


def _view(lake: Path, table: Table) -> str:
    if is_written(lake, table):
        return f"SELECT * FROM delta_scan({quoted(str(lake / table.folder))})"  # noqa: S608 our own path
    columns = [f'CAST(NULL AS {_TYPES[field.type]}) AS "{field.name}"' for field in table.schema]
    return f"SELECT {', '.join(columns)} WHERE false"


@contextmanager
def _limited(database: "DuckDBPyConnection", timeout_s: float) -> Iterator[None]:
    late = threading.Event()

    def interrupt() -> None:
        late.set()
        database.interrupt()

    timer = threading.Timer(timeout_s, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        database.interrupt()  # a Ctrl-C ends the wait for DuckDB's threads, not the threads
        if late.is_set() and isinstance(error, Exception):
            raise InputError(time_exceeded(timeout_s)) from error
        raise
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def explained(lake: Path) -> Iterator[None]:
    """Raise what DuckDB reports as an InputError, in its own words, which point at the place in the SQL; or as a
    DamagedTableError, where it could not read a file.
    """
    try:
        import duckdb  # noqa: PLC0415 an extra, and slow to import
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    of_files = (duckdb.IOException, duckdb.InvalidInputException, duckdb.InternalException, duckdb.FatalException)
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
        damage = explain(lake, error) if isinstance(error, of_files) else None
        if damage is not None:
            raise damage from error
        # Where the files lie is nobody's business who asks for rows.
        raise InputError(str(error).replace("file://", "").replace(f"{lake}/", "")) from error


def time_exceeded(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s, the time limit of the query: ask for less, or for a shorter time"


def _fetched(cursor: "DuckDBPyConnection", rows_max: int) -> tuple[list[list[Any]], bool]:
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
                    raise InputError(f"one row is {size} bytes long, over the limit of {LAKE_ANSWER_BYTES_MAX}")
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
