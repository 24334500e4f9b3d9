"""Test that tables of the previous version are migrated as a whole, whatever interrupts it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from pipeline.commit.previous_version import extract_previous_version
from wirelake.errors import InputError, StorageError
from wirelake.lake.progress import JobProgress
from wirelake.lake.query import query, run_queries
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import AUDIT, CALLS, DEVICE_LATEST, FRAMES, RECORDS, TABLES
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.commit import migration
from wirelake.pipeline.commit.checkpoint import LAKE_FORMAT, read_stream
from wirelake.pipeline.commit.compaction import compact
from wirelake.pipeline.commit.delta import table_properties
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode

SETTLED = [table for table in TABLES.values() if not table.is_open]
ROWS_MAX = 10_000
WAIT_S = 60.0  # only a failing test waits so long
Rows = dict[str, tuple[list[str], list[list[Any]]]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return extract_previous_version(tmp_path)


def rows_in(data: Path) -> Rows:
    """Return the columns and rows of every table, as queries see them."""
    names = [table.name for table in SETTLED]
    statements = [f"SELECT * FROM {name} ORDER BY ALL" for name in names]
    results = run_queries(LocalStore(data / "lake"), statements, ROWS_MAX, WAIT_S)
    return {
        name: ([f"{column.name} {column.type}" for column in result.columns], result.rows)
        for name, result in zip(names, results, strict=True)
    }


def migrate(data: Path, on_progress: Callable[[str], None] = lambda _: None) -> None:
    paths = DataPaths.of(data)
    stream = read_stream(paths)
    assert stream is not None
    migration.migrate(paths, stream, on_progress)


def test_rows_are_the_same_before_and_after(data: Path) -> None:
    before = rows_in(data)
    assert len(before["bronze.frames"][1]) > 200
    said: list[str] = []
    migrate(data, said.append)
    assert rows_in(data) == before
    assert said[0] == "bronze.frames: 0 of 5 files"
    assert said[-1] == ""
    for table in (each for each in TABLES.values() if each is DEVICE_LATEST or not each.name.startswith("gold.")):
        if table is AUDIT:  # a later version added it, and the next batch creates it
            continue
        opened = DeltaTable(data / "lake" / table.folder)
        assert [field.name for field in opened.schema().fields] == table.schema.names
        assert tuple(opened.metadata().partition_columns) == table.partition_by
        assert table_properties(table).items() <= opened.metadata().configuration.items()
        rows = polars.read_delta(str(data / "lake" / table.folder))
        assert len(rows) or not table.is_open, "every kind of open row is in the data"
        assert not any("settled" in path for path in opened.file_uris())
    last = ManifestStore(DataPaths.of(data).checkpoint).last()
    assert last is not None
    assert set(last.open) == {table.open_table.name for table in SETTLED if table.has_open_rows}
    for name, buckets in last.open.items():
        named = sorted(file.path for files in buckets.values() for file in files)
        live = DeltaTable(data / "lake" / TABLES[name].folder).get_add_actions()
        assert named == sorted(live["path"].to_pylist())
    stream = read_stream(DataPaths.of(data))
    assert stream is not None
    assert stream.format == LAKE_FORMAT


class Crash(BaseException):
    """Stand for the end of the process."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("step", "times"),
    [
        ("_migrate_file", 3),
        ("_migrate_file", 30),
        ("_commit", 0),
        ("_commit", 6),
        ("_commit_open_rows", 0),
        ("_commit_open_rows", 3),
        ("ManifestStore.rewrite", 0),
        ("write_stream", 0),
    ],
)
def test_a_crash_anywhere_is_made_good(
    data: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int, after: bool
) -> None:
    before = rows_in(data)
    owner, _, name = step.rpartition(".")
    place: Any = getattr(migration, owner) if owner else migration
    work = getattr(place, name)
    left = [times]

    def crash(*arguments: Any) -> Any:
        if left[0] == 0 and not after:
            raise Crash
        done = work(*arguments)
        if left[0] == 0:
            raise Crash
        left[0] -= 1
        return done

    monkeypatch.setattr(place, name, crash)
    with pytest.raises(Crash):
        migrate(data)
    monkeypatch.setattr(place, name, work)
    migrate(data)
    assert rows_in(data) == before


def test_files_that_a_crash_left_complete_are_not_written_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "_commit", lambda *_: (_ for _ in ()).throw(Crash))
    with pytest.raises(Crash):
        migrate(data)
    monkeypatch.undo()
    new = {path: path.stat().st_mtime_ns for path in (data / "lake" / FRAMES.folder).rglob("*.parquet")}
    migrate(data)
    assert {path: path.stat().st_mtime_ns for path in new} == new


def test_batches_that_were_not_committed_are_finished_first(data: Path) -> None:
    before = rows_in(data)
    for table, count in ((FRAMES, 2), (CALLS, 1)):
        log = data / "lake" / table.folder / "_delta_log"
        for path in sorted(log.glob("*.json"))[-count:]:
            path.unlink()
    shutil.rmtree(data / "lake" / RECORDS.folder / "_delta_log")  # it was not created yet
    assert len(rows_in(data)["bronze.frames"][1]) < len(before["bronze.frames"][1])
    migrate(data)
    assert rows_in(data) == before


def test_a_damaged_file_stops_it_and_changes_nothing(data: Path) -> None:
    table = DeltaTable(data / "lake" / "silver" / "messages")
    Path(table.file_uris()[0].removeprefix("file://")).unlink()
    with pytest.raises((StorageError, FileNotFoundError)):
        migrate(data)
    assert DeltaTable(data / "lake" / "silver" / "messages").version() == table.version()


def test_what_needs_migrated_tables_says_so(data: Path) -> None:
    with pytest.raises(StorageError, match=r"bronze.frames was written by an earlier version: run `wirelake pipeline"):
        compact(LocalStore(data / "lake"))


def test_the_stream_goes_on(spark: SparkSession, data: Path) -> None:
    with pytest.raises(InputError, match="written by an earlier version"):
        redecode(spark, data, RedecodeRequest(protocol="comet"))
    opened = rows_of_view(data, "SELECT count(*) FROM silver.sessions WHERE NOT settled")
    assert opened > 0
    said: list[str] = []

    def watch(progress: JobProgress) -> None:
        said.append(progress.migrating)

    Job(spark, data, JobSettings(once=True), gold=True, on_progress=watch).run()
    assert any(text.startswith("silver.messages") for text in said)
    assert said[-1] == ""
    check_tables(data)
    assert len(rows_of(data, "bronze.frames")) == LogReader(data / "log").next_seq
    ledger = rows_of(data, "gold.ledger")
    assert ledger["balanced"].all(), ledger.filter(~polars.col("balanced"))["why"].to_list()
    assert rows_of(data, "silver.sessions")["settled"].all(), "the gateway was stopped"
    assert rows_of_view(data, "SELECT count(*) - count(DISTINCT (node, seq)) FROM silver.calls") == 0
    assert compact(LocalStore(data / "lake"))["bronze.frames"].files_joined > 0
    for protocol in ("apostol", "comet"):
        done = redecode(spark, data, RedecodeRequest(protocol=protocol), gold=True)
        assert done.frames > 0
        audit = done.tables.pop("silver.audit")  # a later version added it: a redecode fills it for the past
        assert (audit.changed, audit.removed) == (0, 0)
        assert {found.changed + found.new + found.removed for found in done.tables.values()} == {0}


def rows_of_view(data: Path, sql: str) -> int:
    return int(query(LocalStore(data / "lake"), sql).rows[0][0])
