"""Test that other programs read the tables: DuckDB, Polars, deltalake, and Spark with delta-spark."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import delta
import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from manual.blocks import ROOT, Block, blocks

from pipeline.foreign_lake import QUERIES, fill_lake
from wirelake.lake.duckdb_scan import load_extension
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES
from wirelake.pipeline.spark.java import find_java

Reader = Callable[[dict[str, Path], str], list[tuple[Any, ...]]]  # (folders by SCHEMA_NAME, SQL): the rows
PAGE = blocks(ROOT / "docs" / "tables.md")
DOCUMENTED = [block for block in PAGE if block.language == "sql"]
DELTA_SPARK = f"io.delta:{delta.ARTIFACT}:{delta.VERSION}"
MERGED_SKETCHES = (
    "SELECT sum(calls), kll_sketch_get_quantile_double(kll_merge_agg_double(latency_sketch), 0.95D) "
    "FROM gold_call_minute GROUP BY service, op"
)
SMALL_SPARK = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",  # 50 by default, for a log of three commits
}
WAIT_S = 600.0  # only a failing test waits so long


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of all tables of a lake, by SCHEMA_NAME."""
    folder = tmp_path_factory.mktemp("lake")
    fill_lake(LocalStore(folder))
    return {"_".join(log.parent.relative_to(folder).parts): log.parent for log in folder.glob("*/*/_delta_log")}


def with_duckdb(tables: dict[str, Path], sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        load_extension(database, "duckdb_extension_delta")
        for name, folder in tables.items():
            database.execute(f"CREATE VIEW {name} AS SELECT * FROM delta_scan('{folder}')")
        return database.execute(sql).fetchall()


def with_polars(tables: dict[str, Path], sql: str) -> list[tuple[Any, ...]]:
    frames = {name: polars.scan_delta(str(folder)) for name, folder in tables.items() if name in sql}
    return polars.SQLContext(frames).execute(sql).collect().rows()


def with_deltalake(tables: dict[str, Path], sql: str) -> list[tuple[Any, ...]]:
    builder = QueryBuilder()
    for name, folder in tables.items():
        builder.register(name, DeltaTable(folder))
    return [tuple(row.values()) for row in pa.table(builder.execute(sql)).to_pylist()]


@pytest.mark.parametrize("read", [with_duckdb, with_polars, with_deltalake])
@pytest.mark.parametrize("name", QUERIES)
def test_a_reader_gets_the_same_answer(read: Reader, name: str, tables: dict[str, Path]) -> None:
    sql, expected = QUERIES[name]
    assert read(tables, sql) == expected


def test_every_table_is_there(tables: dict[str, Path]) -> None:
    assert set(tables) == {name.replace(".", "_") for name in TABLES}
    for name, folder in tables.items():
        assert polars.read_delta(str(folder)).height > 0, name


@pytest.mark.parametrize("block", DOCUMENTED, ids=lambda block: block.place)
def test_duckdb_alone_runs_the_documented_queries(block: Block, tables: dict[str, Path]) -> None:
    with duckdb.connect() as database:
        load_extension(database, "duckdb_extension_delta")
        for schema in ("bronze", "silver", "gold"):
            database.execute(f"CREATE SCHEMA {schema}")
        for table in TABLES.values():
            source = f"SELECT *, true AS settled FROM delta_scan('{tables[table.name.replace('.', '_')]}')"
            if table.has_open_rows:
                opened = tables[table.open_table.name.replace(".", "_")]
                source += f" UNION ALL BY NAME SELECT *, false AS settled FROM delta_scan('{opened}')"
            database.execute(f"CREATE VIEW {table.name} AS {source}")
        answer = database.execute(block.text)
        assert answer.description, "it has columns"
        answer.fetchall()


@pytest.mark.xdist_group("spark-processes")
def test_spark_with_delta_spark_gets_the_same_answers(tables: dict[str, Path]) -> None:
    """Read with the settings of the manual, but with jars that are in the environment already."""
    python = find_delta_spark()
    blocks_of_settings = [block.text for block in PAGE if "spark.jars.packages" in block.text]
    settings = dict(line.split(maxsplit=1) for line in blocks_of_settings[0].splitlines())
    assert settings.pop("spark.jars.packages") == DELTA_SPARK, "the manual names what is tested"
    queries = {name: sql for name, (sql, _) in QUERIES.items()} | {"merged sketches": MERGED_SKETCHES}
    task = {
        "settings": {**SMALL_SPARK, **settings},
        "tables": {
            name: str(folder) for name, folder in tables.items() if any(name in sql for sql in queries.values())
        },
        "queries": queries,
        "stream": str(tables["silver_calls"]),
    }
    java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [python, Path(__file__).with_name("delta_spark_reader.py")],
        input=json.dumps(task),
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | java,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = {name: [tuple(row) for row in rows] for name, rows in json.loads(done.stdout).items()}
    assert answers.pop("merged sketches") == [(100, 95.0)]
    assert answers.pop("stream") == [(1,), (2,), (3,)], "the rows of both commits, each once"
    assert answers == {name: expected for name, (_, expected) in QUERIES.items()}


def find_delta_spark() -> Path:
    """Return the interpreter that has Spark 4.2 and delta-spark."""
    python = delta.PYTHON
    if not python.exists():
        reason = os.environ.get(delta.REASON) or "`./dev delta` was not run"
        pytest.skip(f"NOT TESTED: Spark with delta-spark as a reader of the tables, because {reason}")
    return python
