"""SQL over the tables, read-only and bounded, with DuckDB inside this process.

A question gets a database of its own, in memory, with one view for each table. Before the question is asked, the
database is shut in: it may read below the lake's folder and nothing else, its settings are locked, and only SELECT is
run. What the pipeline has not written yet is an empty table with the right columns.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct

from wirelake.errors import InputError
from wirelake.lake.tables import TABLES, Table
from wirelake.lake.wording import with_quotes
from wirelake.limits import LAKE_ANSWER_BYTES_MAX, LAKE_MEMORY_MIB_MAX, LAKE_QUERY_S, LAKE_ROWS_AT_ONCE, LAKE_ROWS_MAX

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NOT_INSTALLED: Final = "reading the tables needs duckdb, deltalake and the Delta extension: install wirelake[lake]"
_GUESS: Final = re.compile(r"(Table with name .* does not exist.*)(\nDid you mean .*)?")  # one of DuckDB's own
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
    """Several in one database, because to open it takes longer than a small question. The time is for all of them."""
    started_s = time.monotonic()
    answers: list[Answer] = []
    with _explained(), closing(_opened(lake)) as database, _limited(database, timeout_s):
        for question in questions:
            sql = with_quotes(question)
            _only_reads(database, sql)
            cursor = database.execute(sql)
            columns = [Column(str(name), str(kind)) for name, kind, *_ in cursor.description or ()]
            rows, truncated = _fetched(cursor, rows_max)
            answers.append(Answer(columns, rows, truncated, round((time.monotonic() - started_s) * 1000, 1)))
    return answers


def is_written(lake: Path, table: Table) -> bool:
    return (lake / table.folder / "_delta_log").is_dir()


def _opened(lake: Path) -> "DuckDBPyConnection":
    import duckdb  # noqa: PLC0415
    import duckdb_extension_delta  # noqa: PLC0415

    found = [file for place in duckdb_extension_delta.__path__ for file in Path(place).rglob("*.duckdb_extension")]
    if not found:
        raise InputError(NOT_INSTALLED)
    folder = lake.resolve()
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": f"{LAKE_MEMORY_MIB_MAX}MiB",
        }
    )
    database.execute(f"LOAD {quoted(str(found[0]))}")
    for schema in dict.fromkeys(name.partition(".")[0] for name in TABLES):
        database.execute(f"CREATE SCHEMA {schema}")
    for table in TABLES.values():
        database.execute(f"CREATE VIEW {table.name} AS {_view(folder, table)}")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET temp_directory = ''")  # what does not fit in memory is refused, not spilled
    database.execute(f"SET allowed_directories = [{quoted(str(folder) + '/')}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


def _view(lake: Path, table: Table) -> str:
    if is_written(lake, table):
        return f"SELECT * FROM delta_scan({quoted(str(lake / table.folder))})"  # noqa: S608 our own path
    columns = [f'CAST(NULL AS {_TYPES[field.type]}) AS "{field.name}"' for field in table.schema]
    return f"SELECT {', '.join(columns)} WHERE false"


def quoted(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _only_reads(database: "DuckDBPyConnection", sql: str) -> None:
    statements = database.extract_statements(sql)
    if not statements:
        raise InputError("there is nothing to ask: give one SELECT")
    if len(statements) != 1:
        raise InputError(f"one statement at a time; this is {len(statements)}")
    kind = str(statements[0].type).rpartition(".")[2]
    if kind != "SELECT":
        raise InputError(f"the tables can be read only: SELECT, not {kind}")


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
    except Exception as error:
        if late.is_set():
            raise InputError(f"no answer within {timeout_s:g} s: ask for less, or for a shorter time") from error
        raise
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def _explained() -> Iterator[None]:
    """DuckDB's own words, which point at the place in the SQL."""
    try:
        import duckdb  # noqa: PLC0415 an extra, and slow to import
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
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
    except duckdb.CatalogException as error:
        known = f"The tables are {', '.join(TABLES)}."
        raise InputError(_GUESS.sub(lambda found: f"{found[1]} {known}", str(error))) from error
    except duckdb.Error as error:
        raise InputError(str(error)) from error


def _fetched(cursor: "DuckDBPyConnection", rows_max: int) -> tuple[list[list[Any]], bool]:
    rows: list[list[Any]] = []
    size = 0
    while chunk := cursor.fetchmany(min(LAKE_ROWS_AT_ONCE, rows_max + 1 - len(rows))):
        for values in chunk:
            if len(rows) == rows_max or size > LAKE_ANSWER_BYTES_MAX:
                return rows, True
            row = [_plain(value) for value in values]
            size += sum(len(value) if isinstance(value, str) else 8 for value in row)
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
