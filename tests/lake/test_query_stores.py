"""Query tables that are in S3, as DuckDB reads them itself and as deltalake reads them for it."""

from contextlib import closing
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import duckdb
import pytest

from lake.writing import write
from wirelake.errors import DamagedTableError, InputError
from wirelake.lake import duckdb_scan, query_process
from wirelake.lake.object_store import ObjectStore
from wirelake.lake.query import list_tables, open_database, query
from wirelake.lake.store import open_store
from wirelake.lake.tables import LEDGER, READINGS

if TYPE_CHECKING:
    from object_storage import S3Server

AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
SQL = "SELECT seq, value FROM silver.readings WHERE serial = 'm1' AND day = DATE '2026-01-02' ORDER BY seq"


@pytest.fixture(params=["s3_server", "versity_server"])
def server(request: pytest.FixtureRequest) -> "S3Server":
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def lake(server: "S3Server") -> ObjectStore:
    lake = server.new_lake()
    rows = ({"seq": n, "serial": f"m{n % 2}", "value": n / 2, "day": date(2026, 1, 2 + n % 3 // 2)} for n in range(9))
    write(lake, READINGS, *rows)
    return lake


@pytest.mark.parametrize("reads_itself", [True, False])
def test_rows_in_s3_are_those_of_a_folder(
    lake: ObjectStore, monkeypatch: pytest.MonkeyPatch, reads_itself: bool
) -> None:
    if not reads_itself:
        monkeypatch.setattr(duckdb_scan, "_reads_itself", lambda _: False)
    assert query(lake, SQL).rows == [[1, 0.5], [3, 1.5], [7, 3.5]]
    assert query(lake, "SELECT count(*) FROM silver.readings, gold.ledger").rows == [[0]]
    write(lake, LEDGER, {"protocol": "comet", "day": date(2026, 1, 2)})
    assert query(lake, "SELECT count(*) FROM silver.readings, gold.ledger").rows == [[9]]
    with pytest.raises(InputError, match="read-only"):
        query(lake, "DROP TABLE silver.readings")


def test_a_query_process_reads_s3_too(lake: ObjectStore) -> None:
    assert query_process.query(lake, SQL).rows == [[1, 0.5], [3, 1.5], [7, 3.5]]


def test_the_list_of_tables(lake: ObjectStore) -> None:
    tables = {table.name: table for table in list_tables(lake)}
    assert (tables["silver.readings"].rows, tables["silver.readings"].version) == (9, 0)
    assert tables["gold.ledger"].version == -1


def test_what_duckdb_may_read_is_limited_to_the_lake(lake: ObjectStore, server: "S3Server") -> None:
    """Check that the database reads nothing outside the lake, should a statement get past the check."""
    other = server.new_lake()
    other.write("x.csv", b"a\n1\n")
    lake.write("x.csv", b"a\n1\n")
    bucket = lake.url.removesuffix("/some/prefix")
    with closing(open_database(lake)) as database:
        assert database.execute(f"SELECT * FROM read_csv('{lake.url}/x.csv')").fetchall() == [(1,)]
        for sql in (
            f"SELECT * FROM read_csv('{other.url}/x.csv')",
            f"SELECT * FROM glob('{bucket}/*')",
            f"SELECT * FROM read_csv('{server.endpoint}/x')",
            "SELECT * FROM read_text('/etc/hostname')",
            f"SET s3_endpoint = '{server.endpoint}'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error, match=r"disabled|locked|Cannot access"):
                database.execute(sql).fetchall()


def test_dots_do_not_lead_out_of_the_lake(lake: ObjectStore) -> None:
    """Check the statement, because httpfs itself follows dots in a path."""
    open_store(f"{lake.url.removesuffix('/prefix')}", dict(lake.options)).write("x.csv", b"a\n2\n")
    for sql in (f"SELECT * FROM read_csv('{lake.url}/../x.csv')", f"SELECT * FROM '{lake.url}/../x.csv'"):
        with pytest.raises(InputError, match=r"not available|does not exist"):
            query(lake, sql)


def test_credentials_are_out_of_reach_of_statements(lake: ObjectStore) -> None:
    for sql in (
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM which_secret('s3://x', 's3')",
        "SELECT current_setting('s3_secret_access_key')",
        "CREATE SECRET mine (TYPE s3)",
    ):
        with pytest.raises(InputError, match=r"not available|read-only"):
            query(lake, sql)


def test_a_missing_file_is_named(lake: ObjectStore) -> None:
    gone = next(path for path in lake.list(READINGS.folder) if path.endswith(".parquet"))
    lake.delete(gone)
    with pytest.raises(DamagedTableError, match=f"silver.readings cannot be read: lake/{gone} is missing"):
        query(lake, "SELECT sum(value) FROM silver.readings")
    lake.delete(f"{READINGS.folder}/_delta_log/00000000000000000000.json")
    lake.write(f"{READINGS.folder}/_delta_log/00000000000000000001.json", b"{}")
    with pytest.raises(DamagedTableError, match=r"0{20}\.json is missing"):
        list_tables(lake)
