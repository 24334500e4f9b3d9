from collections.abc import Iterator
from contextlib import closing

import pytest
from duckdb import DuckDBPyConnection

from wirelake.errors import InputError
from wirelake.lake.query import open_database
from wirelake.lake.statement import check_statement, quote_at
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBPyConnection]:
    with closing(open_database(LocalStore(tmp_path_factory.mktemp("lake")))) as opened:
        yield opened


@pytest.mark.parametrize(
    "call",
    [
        "delta_scan('https://127.0.0.1:1/x')",
        "delta_scan('/root')",
        "delta_file_list('/root')",
        "read_csv('/etc/passwd')",
        "read_csv_auto('/etc/passwd')",
        "read_parquet('/etc/passwd')",
        "parquet_scan('/etc/passwd')",
        "parquet_metadata('/etc/passwd')",
        "read_json('/etc/passwd')",
        "read_ndjson('/etc/passwd')",
        "read_text('/etc/passwd')",
        "read_blob('/etc/passwd')",
        "read_duckdb('/etc/passwd')",
        "glob('/etc/*')",
        "sniff_csv('/etc/passwd')",
        "sqlite_scan('x.db', 't')",
        "duckdb_views()",
        "duckdb_settings()",
        "duckdb_secrets()",
        "duckdb_databases()",
        "duckdb_extensions()",
        "duckdb_logs()",
        "pragma_database_size()",
        "pragma_table_info('silver.messages')",
        "query('SELECT 1')",
        "query_table('silver.messages')",
        "json_execute_serialized_sql('{}')",
        "arrow_scan(0, 0, 0)",
        "pandas_scan(0)",
        "test_all_types()",
        "nosuch()",
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "SELECT * FROM {}",
        "FROM {}",
        "SELECT * FROM main.{}",
        "SELECT 1 WHERE EXISTS (FROM {})",
        "WITH a AS (FROM {}) SELECT * FROM a",
        "SELECT 1 UNION ALL SELECT * FROM {}",
        "SELECT (SELECT count(*) FROM {})",
        "SELECT * FROM range(3) r, LATERAL (FROM {})",
        "SELECT * FROM silver.messages m JOIN {} x ON true",
        "SELECT list_transform([1], x -> (SELECT count(*) FROM {}))",
        "SELECT * FROM range((SELECT count(*) FROM {}))",
        "DESCRIBE FROM {}",
        "SELECT * FROM (SELECT 1 AS a) ORDER BY (SELECT count(*) FROM {})",
        "SELECT * FROM range(3) LIMIT (SELECT count(*) FROM {})",
        "SELECT * FROM {} PIVOT (count(*) FOR a IN (1))",
        "VALUES ((SELECT count(*) FROM {}))",
    ],
)
def test_no_other_table_function_is_called(database: DuckDBPyConnection, form: str, call: str) -> None:
    with pytest.raises(InputError, match=f"{call.partition('(')[0]} is not available"):
        check_statement(database, form.format(call))


@pytest.mark.parametrize(
    "call",
    [
        "getenv('HOME')",
        "GETENV('HOME')",
        "current_setting('allowed_directories')",
        "getvariable('x')",
        "json_serialize_plan('FROM delta_scan(''/root'')')",
        "write_log('x')",
        "pg_get_viewdef(1)",
    ],
)
@pytest.mark.parametrize("form", ["SELECT {}", "SELECT 1 WHERE {} = ''", "SELECT list_transform([1], x -> {})"])
def test_no_function_tells_about_the_process(database: DuckDBPyConnection, form: str, call: str) -> None:
    with pytest.raises(InputError, match=f"{call.partition('(')[0].lower()} is not available"):
        check_statement(database, form.format(call))


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA version",
        "PRAGMA database_list",
        "CALL duckdb_settings()",
        "SET memory_limit = '100GB'",
        "RESET memory_limit",
        "ATTACH 'x.db'",
        "COPY silver.messages TO 'x.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE TABLE x AS SELECT 1",
        "CREATE SECRET (TYPE s3)",
        "EXPORT DATABASE 'x'",
        "EXPLAIN SELECT 1",
        "PREPARE x AS SELECT 1",
        "USE silver",
        "VACUUM",
        "CHECKPOINT",
    ],
)
def test_nothing_but_select(database: DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(InputError, match="read-only"):
        check_statement(database, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'x.parquet'",
        "SELECT * FROM duckdb_views",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM pg_catalog.pg_settings",
        "SELECT * FROM information_schema.views",
        "SELECT * FROM system.information_schema.tables",
        "SELECT * FROM other.silver.messages",
        "SELECT * FROM database",  # a variable of this test
        "WITH duckdb_views AS (SELECT * FROM duckdb_views) SELECT * FROM duckdb_views",
        "WITH RECURSIVE duckdb_views AS (SELECT * FROM duckdb_views) SELECT * FROM duckdb_views",
        "SELECT * FROM duckdb_views WHERE EXISTS (WITH duckdb_views AS (SELECT 1) SELECT 1)",
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
        "WITH a AS (SELECT 1) SELECT * FROM main.a",
    ],
)
def test_no_other_table_is_read(database: DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(InputError, match=r"does not exist! The tables are bronze\.frames"):
        check_statement(database, sql)


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", set[str]()),
        ("SELECT * FROM range(3), generate_series(1, 2), unnest([1]), json_each('{}')", set[str]()),
        ("SELECT unnest([1, 2]), range(3), repeat('x', 3), regexp_extract('a', 'b')", set[str]()),
        ("SELECT * FROM Silver.MESSAGES", {"silver.messages"}),
        ("SELECT * FROM memory.gold.ledger", {"gold.ledger"}),
        ("FROM silver.messages m JOIN silver.calls c USING (seq)", {"silver.messages", "silver.calls"}),
        ("WITH a AS (FROM gold.ledger), B AS (FROM A) SELECT * FROM b, a", {"gold.ledger"}),
        ("WITH a AS MATERIALIZED (FROM gold.ledger) SELECT * FROM a WHERE EXISTS (FROM a)", {"gold.ledger"}),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t", set[str]()),
        ("DESCRIBE gold.ledger", {"gold.ledger"}),
        ("SUMMARIZE gold.ledger", {"gold.ledger"}),
        ("SHOW ALL TABLES", set(TABLES)),
        ("SELECT table_name FROM information_schema.tables", set(TABLES)),
        ("SELECT " + " + ".join(["1"] * 150), set[str]()),
    ],
)
def test_what_a_statement_reads(database: DuckDBPyConnection, sql: str, reads: set[str]) -> None:
    assert check_statement(database, sql) == reads


def test_a_statement_nested_too_deeply_is_refused(database: DuckDBPyConnection) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        check_statement(database, "SELECT " + " + ".join(["1"] * 900))


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("SELECT at, seq FROM t WHERE at > 1", 'SELECT "at", seq FROM t WHERE "at" > 1'),
        ("SELECT max(AT) FROM t ORDER BY at", 'SELECT max("AT") FROM t ORDER BY "at"'),
        ("SELECT 'é', at FROM t", "SELECT 'é', \"at\" FROM t"),
        ("SELECT t.at FROM t", 'SELECT t."at" FROM t'),
        ("SELECT 'at', \"at\", format -- at\nFROM t", "SELECT 'at', \"at\", format -- at\nFROM t"),
        ("SELECT at AT TIME ZONE 'UTC' FROM t", "SELECT \"at\" AT TIME ZONE 'UTC' FROM t"),
        ("SELECT * FROM t AT (VERSION => 1)", "SELECT * FROM t AT (VERSION => 1)"),
        ("SELECT at::date, latest FROM t", 'SELECT "at"::date, latest FROM t'),
    ],
)
def test_the_column_may_be_named_without_quotes(written: str, quoted: str) -> None:
    assert quote_at(written) == quoted
