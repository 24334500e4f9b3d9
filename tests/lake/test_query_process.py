import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from msgspec import json

from lake.writing import write
from wirelake.errors import AccessDeniedError, InputError, StateError
from wirelake.lake import query as in_process
from wirelake.lake.query import QueryResult
from wirelake.lake.query_process import QueryPool, query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import LEDGER, READINGS
from wirelake.limits import LAKE_MEMORY_MIB_MAX

AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
WAIT_S = 60.0
ENDLESS = "SELECT levenshtein(repeat('x', 400000), repeat('y', 400000))"  # deaf to DuckDB's own interrupt


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake's"
    rows = ({"seq": n, "received_at": AT, "serial": "m", "value": n / 2, "day": date(2026, 1, 2)} for n in range(3000))
    write(folder, READINGS, *rows)
    return folder


@pytest.fixture
def pool(lake: Path) -> Iterator[QueryPool]:
    made = QueryPool(LocalStore(lake))
    yield made
    made.close()


def run_query(pool: QueryPool, sql: str, timeout_s: float = WAIT_S) -> QueryResult:
    return json.decode(pool.query(sql, 100_000, timeout_s).run(), type=QueryResult)


def only_child() -> int:
    """Return the id of the one query process. Other tests may have left children: a server, a resource tracker."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (pid,) = [int(name) for name in children if b"query_worker" in Path(f"/proc/{name}/cmdline").read_bytes()]
    return pid


@pytest.mark.parametrize(
    "sql",
    [
        (
            "SELECT seq, at, day, value, encode('é') AS raw, [1, 2] AS list, {'a': 'nan'::DOUBLE} AS map, sum(seq)"
            " FROM silver.readings WHERE seq = 3 GROUP BY ALL"
        ),
        "SELECT * FROM silver.readings ORDER BY seq",
        "SELECT serial, count(*), avg(value), max(at) FROM silver.readings GROUP BY serial",
        "SELECT * FROM gold.ledger",
        "DESCRIBE silver.readings",
        "SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL",
        "SELECT 170141183460469231731687303715884105727::HUGEINT, 1.5::DECIMAL(4, 2), NULL, TIME '12:00'",
    ],
)
def test_answers_are_those_of_this_process(lake: Path, pool: QueryPool, sql: str) -> None:
    expected, found = in_process.query(LocalStore(lake), sql), run_query(pool, sql)
    assert (found.columns, found.rows, found.truncated) == (expected.columns, expected.rows, expected.truncated)


def test_a_process_is_used_again_and_sees_new_rows(lake: Path, pool: QueryPool) -> None:
    assert run_query(pool, "SELECT count(*) FROM gold.ledger").rows == [[0]]
    first = only_child()
    write(lake, LEDGER, {"hour": AT, "protocol": "comet", "balanced": True, "day": date(2026, 1, 2)})
    assert run_query(pool, "SELECT count(*) FROM gold.ledger").rows == [[1]]
    with pytest.raises(InputError, match="syntax error"):
        run_query(pool, "SELEC")
    assert run_query(pool, "SELECT 1").rows == [[1]]
    assert only_child() == first


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 1000000000)",
        "SELECT length(repeat(repeat('x', 100000000), 20))",
        "SELECT string_agg(repeat('x', 1000000), '') FROM range(3000)",
    ],
)
def test_the_memory_limit_holds_and_the_next_query_works(pool: QueryPool, sql: str) -> None:
    with pytest.raises(InputError, match=f"exceeded the memory limit of {LAKE_MEMORY_MIB_MAX} MiB"):
        run_query(pool, sql)
    assert run_query(pool, "SELECT count(*) FROM silver.readings").rows == [[3000]]


def test_the_time_limit_holds_though_duckdb_does_not_listen(pool: QueryPool) -> None:
    started_s = time.monotonic()
    with pytest.raises(InputError, match=r"within the time limit of 0\.5 s"):
        run_query(pool, ENDLESS, 0.5)
    assert time.monotonic() - started_s < WAIT_S
    assert run_query(pool, "SELECT 1").rows == [[1]]


def test_a_process_that_dies_is_replaced(pool: QueryPool) -> None:
    assert run_query(pool, "SELECT 1").rows == [[1]]
    os.kill(only_child(), signal.SIGKILL)
    with pytest.raises(InputError, match="memory limit"):  # as the kernel does when memory is short
        run_query(pool, "SELECT 2")
    assert run_query(pool, "SELECT 3").rows == [[3]]


def test_a_query_can_be_cancelled(pool: QueryPool) -> None:
    running = pool.query(ENDLESS, 1)
    threading.Timer(0.5, running.cancel).start()
    with pytest.raises(StateError, match="cancelled"):
        running.run()
    assert run_query(pool, "SELECT 1").rows == [[1]]
    late = pool.query("SELECT 1", 1)
    late.cancel()
    with pytest.raises(StateError, match="cancelled"):
        late.run()


def test_closing_the_pool_ends_queries_under_way(lake: Path) -> None:
    pool = QueryPool(LocalStore(lake))
    threading.Timer(0.5, pool.close).start()
    with pytest.raises(StateError, match="cancelled"):
        run_query(pool, ENDLESS)
    with pytest.raises(StateError, match="cancelled"):
        run_query(pool, "SELECT 1")


def test_a_query_process_does_not_outlive_its_parent(lake: Path) -> None:
    program = (
        "import sys; from wirelake.lake.query_process import QueryProcess, Query\n"
        "from wirelake.lake.store import open_store\n"
        "process = QueryProcess(open_store(sys.argv[1])); process.run(Query('SELECT 1', 1, 60.0))\n"
        "print(process.pid, flush=True)\n"
        f"process.run(Query({ENDLESS!r}, 1, 60.0))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(lake)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.5)  # the second query runs
        parent.kill()
    until_s = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_query_process_sees_no_settings_and_writes_no_files(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRELAKE_SISNET_UPSTREAMS", "secret")
    pool = QueryPool(LocalStore(lake))
    try:
        assert run_query(pool, "SELECT 1").rows == [[1]]
        pid = only_child()
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert "Max file size             0" in limits
        assert "Max core file size        0" in limits
    finally:
        pool.close()


def test_one_query_without_a_pool(lake: Path) -> None:
    assert query(LocalStore(lake), "SELECT count(*) FROM silver.readings").rows == [[3000]]
    with pytest.raises(InputError, match="not available"):
        query(LocalStore(lake), "SELECT * FROM delta_scan('/root')")


def test_only_tables_that_may_be_read(pool: QueryPool) -> None:
    def run(sql: str, *tables: str) -> bytes:
        return pool.query(sql, 10, WAIT_S, frozenset(tables)).run()

    assert b"3000" in run("SELECT count(*) FROM silver.readings", "silver.readings")
    pid = only_child()
    for sql, tables, denied in (
        ("SELECT * FROM silver.readings", ("gold.ledger",), "silver.readings"),
        ("SELECT * FROM silver.readings, gold.ledger", ("gold.ledger",), "silver.readings"),
        ("SELECT 1", (), "**"),
    ):
        with pytest.raises(AccessDeniedError) as refused:
            run(sql, *tables)
        assert str(refused.value) == f"access denied: query {denied}"
    assert only_child() == pid, "a refusal does not cost a process"
