"""Let DuckDB read the tables where they are: in a folder or in S3 by itself, elsewhere through deltalake.

For S3, DuckDB gets the extension httpfs (a package, nothing is fetched) and a secret whose scope is the lake. Both are
there before the database is sandboxed; after that it can read below `lake_root` and nowhere else. (A path with dots can
leave the prefix, but not the bucket: httpfs follows them. The check of statements refuses every path.)

DuckDB has no packaged extension for other stores, and none that finds the credentials of a machine by itself; there,
deltalake reads the files, and DuckDB gets an Arrow dataset.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wirelake.errors import InputError
from wirelake.lake.statement import quoted
from wirelake.lake.store import LocalStore, Store
from wirelake.lake.tables import LakeTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NOT_INSTALLED: Final = "reading the tables needs duckdb, deltalake and DuckDB's extensions: install wirelake[lake]"
_S3: Final = ("s3", "s3a")
_KEY, _SECRET = ("aws_access_key_id", "access_key_id"), ("aws_secret_access_key", "secret_access_key")
_TOKEN: Final = ("aws_session_token", "aws_token", "session_token", "token")
_REGION: Final = ("aws_region", "region", "aws_default_region", "default_region")
_ENDPOINT: Final = ("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url")
_VIRTUAL_HOSTED: Final = ("aws_virtual_hosted_style_request", "virtual_hosted_style_request")


def lake_root(lake: Store) -> str:
    """Return below what DuckDB may read, without a slash at the end."""
    return str(lake.folder.resolve()) if isinstance(lake, LocalStore) else lake.url


def load_extension(database: "DuckDBPyConnection", package: str) -> None:
    try:
        module = import_module(package)
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    found = [file for folder in module.__path__ for file in Path(folder).rglob("*.duckdb_extension")]
    if not found:
        raise InputError(NOT_INSTALLED)
    database.execute(f"LOAD {quoted(str(found[0]))}")


def connect_lake(database: "DuckDBPyConnection", lake: Store) -> None:
    """Give the database what it needs to read the lake, before it is sandboxed."""
    load_extension(database, "duckdb_extension_delta")
    if isinstance(lake, LocalStore) or not _reads_itself(lake):
        return
    load_extension(database, "duckdb_extension_httpfs")
    options = lake.delta_options
    endpoint = _option(options, _ENDPOINT)
    values = {
        "TYPE": "s3",
        "KEY_ID": _option(options, _KEY),
        "SECRET": _option(options, _SECRET),
        "SESSION_TOKEN": _option(options, _TOKEN),
        "REGION": _option(options, _REGION),
        "ENDPOINT": endpoint.partition("://")[2] or endpoint,
        "USE_SSL": "false" if endpoint.startswith("http://") else "true",
        "URL_STYLE": "vhost" if not endpoint or _option(options, _VIRTUAL_HOSTED) == "true" else "path",
        "SCOPE": f"{lake.url}/",
    }
    database.execute(
        f"CREATE SECRET lake ({', '.join(f'{name} {quoted(value)}' for name, value in values.items() if value)})"
    )


def scan(database: "DuckDBPyConnection", lake: Store, table: LakeTable) -> str:
    """Return what to select from to read a table that exists."""
    if isinstance(lake, LocalStore) or _reads_itself(lake):
        return f"delta_scan({quoted(f'{lake_root(lake)}/{table.folder}')})"
    from deltalake import DeltaTable  # noqa: PLC0415 an extra

    name = f"dataset_{table.name.replace('.', '_')}"
    opened = DeltaTable(lake.table_uri(table.folder), storage_options=lake.delta_options)
    database.register(name, opened.to_pyarrow_dataset())
    return name


def _reads_itself(lake: Store) -> bool:
    """Return whether DuckDB has all it needs to read this object store."""
    return urlsplit(lake.url).scheme in _S3 and bool(_option(lake.delta_options, _KEY))


def _option(options: dict[str, str], names: tuple[str, ...]) -> str:
    return next((options[name] for name in names if options.get(name)), "")
