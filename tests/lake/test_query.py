import signal
import threading
from _thread import interrupt_main
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest

from lake.writing import write
from wirelake.errors import DamagedTableError, InputError
from wirelake.lake.query import list_tables, open_database, query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import FORMER_NAMES, LEDGER, READINGS, TABLES
from wirelake.lake.views import view_columns
from wirelake.limits import LAKE_ANSWER_BYTES_MAX

AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
DAY = date(2026, 1, 2)


@pytest.fixture
def lake(tmp_path: Path) -> LocalStore:
    folder = tmp_path / "lake's"
    write(
        folder, READINGS, *({"seq": n, "received_at": AT, "serial": "m", "value": n / 2, "day": DAY} for n in range(5))
    )
    return LocalStore(folder)


def test_rows_come_as_json_can_say_them(lake: LocalStore) -> None:
    answer = query(
        lake,
        "SELECT seq, at, day, value, encode('é') AS raw, [1, 2] AS list, {'a': 'nan'::DOUBLE} AS map, sum(seq)"
        " FROM silver.readings WHERE seq = 3 GROUP BY ALL",
    )
    assert [column.name for column in answer.columns][:5] == ["seq", "at", "day", "value", "raw"]
    assert answer.rows == [[3, "2026-01-02T03:04:05.000678Z", "2026-01-02", 1.5, "c3a9", [1, 2], {"a": None}, 3]]
    assert not answer.truncated


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_not_written_yet_is_empty_with_its_columns(tmp_path: Path, name: str) -> None:
    answer = query(LocalStore(tmp_path), f"SELECT * FROM {name}")
    names = TABLES[name].schema.names
    former = [FORMER_NAMES[column] for column in names if column in FORMER_NAMES]
    assert [column.name for column in answer.columns] == [*view_columns(TABLES[name]), *former]
    assert set(view_columns(TABLES[name])) - set(names) == ({"settled"} if TABLES[name].has_open_rows else set())
    assert answer.rows == []


def test_a_table_has_the_same_types_before_and_after_it_is_written(tmp_path: Path) -> None:
    before = query(LocalStore(tmp_path), "SELECT * FROM gold.ledger").columns
    write(tmp_path, LEDGER, {"hour": AT, "protocol": "comet", "balanced": True, "day": DAY})
    assert query(LocalStore(tmp_path), "SELECT * FROM gold.ledger").columns == before


def test_more_rows_than_wanted_are_cut_and_said_to_be(lake: LocalStore) -> None:
    answer = query(lake, "SELECT seq FROM silver.readings ORDER BY seq", rows_max=2)
    assert (answer.rows, answer.truncated) == ([[0], [1]], True)
    assert not query(lake, "SELECT seq FROM silver.readings", rows_max=5).truncated


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DROP VIEW silver.readings", "SELECT, not DROP"),
        ("INSERT INTO silver.readings SELECT * FROM silver.readings", "SELECT, not INSERT"),
        ("COPY (SELECT 1) TO 'x.csv'", "SELECT, not COPY"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "SELECT, not EXPLAIN"),
        ("SET threads = 1", "SELECT, not SET"),
        ("ATTACH 'x.db'", "SELECT, not ATTACH"),
        ("INSTALL httpfs", "SELECT, not"),
        ("SELECT 1; SELECT 2", "one statement at a time: there are 2"),
        ("", "the statement is empty"),
        ("SELECT nothing FROM silver.readings", "nothing"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM read_text('/etc/hostname')", "read_text is not available"),
        ("SELECT * FROM read_text('{lake}/../keys/admin.token')", "read_text is not available"),
        ("SELECT * FROM '/etc/hostname'", "does not exist"),
        ("SELECT * FROM glob('/etc/*')", "glob is not available"),
        ("SELECT * FROM read_csv('http://127.0.0.1:1/x')", "read_csv is not available"),
        ("SELECT * FROM delta_scan('{lake}/../other')", "delta_scan is not available"),
    ],
)
def test_nothing_but_reading_the_tables(lake: LocalStore, sql: str, says: str) -> None:
    write(lake.folder.parent, TABLES["gold.ledger"], {"protocol": "comet"})
    (lake.folder.parent / "gold/ledger").rename(lake.folder.parent / "other")
    (lake.folder.parent / "keys").mkdir()
    (lake.folder.parent / "keys/admin.token").write_text("secret")
    with pytest.raises(InputError) as raised:
        query(lake, sql.replace("{lake}", str(lake).replace("'", "''")))
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not Path("x.csv").exists()


def test_a_question_that_takes_too_long_is_ended(lake: LocalStore) -> None:
    with pytest.raises(InputError, match=r"no result within the time limit of 0\.2 s"):
        query(lake, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", timeout_s=0.2)


def test_the_list_of_tables(lake: LocalStore) -> None:
    found = {info.name: info for info in list_tables(lake)}
    assert set(found) == set(TABLES)
    readings = found["silver.readings"]
    assert (readings.rows, readings.files, readings.version) == (5, 1, 0)
    assert readings.bytes > 0
    assert readings.changed_at_ms > 1_700_000_000_000
    assert found["gold.ledger"].version == -1


def test_a_name_that_no_table_has_is_answered_with_those_that_there_are(lake: LocalStore) -> None:
    for name in ("mesages", "silver.nosuch", "zzz", "nosuch.readings"):
        with pytest.raises(InputError, match=r"does not exist.* The tables are bronze\.frames, .*gold\.ledger") as told:
            query(lake, f"SELECT * FROM {name}")
        assert "Did you mean" not in str(told.value), "which may be a table of DuckDB's own"
    with pytest.raises(InputError, match="statement is empty"):
        query(lake, " -- ")


def test_ctrl_c_is_passed_on(lake: LocalStore) -> None:
    assert query(lake, "SELECT 1").rows == [[1]], "what is imported once is there"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # servers in other tests set their own
    timer = threading.Timer(3.0, interrupt_main)  # by then the query runs
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            query(lake, "SELECT count(*) FROM range(10000000000000)")
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_duckdb_may_read_is_limited_too(lake: LocalStore) -> None:
    """Check that the database reads nothing outside the lake, should a statement get past the check."""
    with closing(open_database(lake)) as database:
        for sql in (
            "SELECT * FROM read_text('/etc/hostname')",
            "SELECT * FROM glob('/etc/*')",
            "SELECT * FROM read_csv('http://127.0.0.1:1/x')",
            "ATTACH '/tmp/x.db'",
            "COPY (SELECT 1) TO '/tmp/x.csv'",
            "LOAD httpfs",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error, match=r"disabled|locked"):
                database.execute(sql)


def test_errors_do_not_say_where_the_files_are(lake: LocalStore) -> None:
    for file in (lake.folder / READINGS.folder).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(DamagedTableError) as raised:
        query(lake, "SELECT * FROM silver.readings")
    assert "silver/readings" in str(raised.value)
    assert str(lake.folder.parent) not in str(raised.value)


def test_one_row_larger_than_an_answer_may_be_is_refused(lake: LocalStore) -> None:
    with pytest.raises(InputError, match=f"more than the limit of {LAKE_ANSWER_BYTES_MAX}"):
        query(lake, f"SELECT repeat('x', {LAKE_ANSWER_BYTES_MAX})")
    many = query(lake, f"SELECT repeat('x', {LAKE_ANSWER_BYTES_MAX // 4}) FROM range(10)")
    assert (len(many.rows), many.truncated) == (3, True)
