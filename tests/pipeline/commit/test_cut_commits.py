"""Cut the newest commit of every table short, as a power failure does: the tables end up as without it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.batches import BUCKETS, Run
from pipeline.checking import check_tables, rows_of, same_tables
from pipeline.traffic import filled
from wirelake.errors import DamagedTableError
from wirelake.lake.damage import commits_of
from wirelake.lake.query import query
from wirelake.lake.store import Store, open_lake
from wirelake.lake.tables import TABLES
from wirelake.pipeline.batch import BatchCommitter
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.commit.compaction import compact
from wirelake.pipeline.commit.cut_commits import remove_cut_commits
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.paths import DataPaths

ENDS = [100, 250, 300]


def cut_last_line(content: bytes) -> bytes:
    return content[: content.rindex(b"\n")]


CUTS: list[Callable[[bytes], bytes]] = [
    lambda _: b"",
    lambda content: bytes(len(content)),
    lambda content: content[: len(content) * 2 // 3],
    cut_last_line,
]


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, data: Path) -> Store:
    store: Store = open_lake(data) if request.param == "folder" else request.getfixturevalue("s3_lake")
    return store


def refresh(paths: DataPaths) -> None:
    GoldTables(paths.lake, paths.checkpoint, open_stream(paths).app).refresh()


def run_batches(data: Path, lake: Store | None = None) -> None:
    run, begin = Run(data, lake), 0
    for batch, end in enumerate(ENDS):
        run.writer.commit(run.compute(batch, begin, end), batch)
        refresh(run.plan.paths)
        begin = end


def newest_commit(lake: Store, name: str) -> str:
    folder = f"{TABLES[name].folder}/_delta_log"
    return f"{folder}/{commits_of(lake, folder)[-1]:020d}.json"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("undisturbed")
    filled(data, ENDS[-1])
    run_batches(data)
    return data


def test_commits_that_were_cut_short_are_repeated(undisturbed: Path, data: Path, lake: Store) -> None:
    shutil.copytree(undisturbed / "log", data / "log")
    run_batches(data, lake)
    written = [name for name, table in TABLES.items() if lake.has_files(f"{table.folder}/_delta_log")]
    assert {"bronze.frames", "silver.messages", "silver.open_calls", "gold.ledger"} <= set(written)
    for number, cut in enumerate(CUTS):
        for name in written[number :: len(CUTS)]:
            path = newest_commit(lake, name)
            lake.write(path, cut(lake.read(path)))
    paths = DataPaths.of(data, lake)
    remove_cut_commits(paths)
    BatchCommitter(paths, open_stream(paths), buckets=BUCKETS).recover()
    refresh(paths)
    check_tables(data, lake)
    same_tables(data, undisturbed, lake)
    assert rows_of(data, "gold.ledger", lake)["balanced"].all()


@pytest.mark.parametrize("name", ["bronze.frames", "silver.open_calls", "gold.traffic_minute"])
def test_a_commit_that_was_cut_between_two_lines_is_noticed(undisturbed: Path, data: Path, name: str) -> None:
    shutil.copytree(undisturbed, data)
    path = data / "lake" / newest_commit(open_lake(data), name)
    path.write_bytes(cut_last_line(path.read_bytes()))
    remove_cut_commits(DataPaths.of(data))
    assert not path.exists()


def test_a_commit_that_no_manifest_can_replace_stays(undisturbed: Path, data: Path) -> None:
    shutil.copytree(undisturbed, data)
    lake = open_lake(data)
    assert compact(lake)["bronze.frames"].files_joined
    path = data / "lake" / newest_commit(lake, "bronze.frames")
    path.write_bytes(path.read_bytes()[:40])
    remove_cut_commits(DataPaths.of(data))
    with pytest.raises(DamagedTableError, match=f"{path.name} is damaged"):
        query(lake, "SELECT count(*) FROM bronze.frames")
