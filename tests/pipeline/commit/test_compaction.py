import os
import threading
import time
from datetime import date

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipeline.commit.test_delta import calls, seqs
from wirelake.errors import InUseError
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, FRAMES
from wirelake.pipeline.commit import compaction
from wirelake.pipeline.commit.compaction import Compactor, compact, compact_table
from wirelake.pipeline.commit.delta import DeltaWriter, live_files, open_table, rewrite_lock
from wirelake.pipeline.commit.files import FileAction, write_rows

OPEN_CALLS = CALLS.open_table


def frames(*numbers: int, day: date = date(2030, 1, 1)) -> pa.Table:
    return pa.Table.from_pylist([{"seq": number, "frame": b"x", "day": day} for number in numbers], FRAMES.schema)


@pytest.fixture
def commits(lake: LocalStore) -> DeltaWriter:
    return DeltaWriter(lake, "app")


def file_count(lake: LocalStore, table: str = "bronze.frames") -> int:
    return len(live_files(DeltaTable(lake.folder / table.replace(".", "/")), table))


def test_small_files_of_a_day_become_one(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch in range(6):
        day = date(2030, 1, 1 + batch % 2)
        commits.commit("bronze.frames", batch, write_rows(FRAMES, frames(batch, 100 + batch, day=day), lake), [])
    done = compact(lake)["bronze.frames"]
    assert (done.files_before, done.files_after, done.files_joined) == (6, 2, 4)
    assert seqs(lake, FRAMES) == [*range(6), *range(100, 106)]
    table = polars.read_delta(str(lake.folder / "bronze" / "frames"))
    assert table.filter(polars.col("day") == date(2030, 1, 2))["seq"].sort().to_list() == [1, 3, 5, 101, 103, 105]
    assert compact(lake)["bronze.frames"].files_joined == 0  # nothing more to do
    assert commits.last_batch("bronze.frames") == 5  # the batches are still known


def test_of_a_day_that_is_over_a_running_job_leaves_one_file(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch, day in enumerate((1, 1, 1, 2, 3, 3, 3)):
        commits.commit("bronze.frames", batch, write_rows(FRAMES, frames(batch, day=date(2030, 1, day)), lake), [])
    compact_table(lake, FRAMES, files_min=8)
    files = live_files(DeltaTable(lake.folder / "bronze" / "frames"), "bronze.frames")
    assert sorted(file.partition["day"] or "" for file in files) == ["2030-01-01", "2030-01-02", *["2030-01-03"] * 3]
    assert seqs(lake, FRAMES) == list(range(7))


def test_open_rows_are_left_alone(commits: DeltaWriter, lake: LocalStore) -> None:
    opened = []
    for batch in range(4):
        opened += write_rows(OPEN_CALLS, calls(batch), lake)
        commits.commit(OPEN_CALLS.name, batch, opened[-1:], [])
        commits.commit("silver.calls", batch, write_rows(CALLS, calls(100 + batch), lake), [])
    assert compact(lake)["silver.calls"].files_after == 1
    assert file_count(lake, OPEN_CALLS.name) == 4  # the next batch of their bucket removes them by name
    commits.commit(OPEN_CALLS.name, 4, [], opened)
    assert seqs(lake) == [100, 101, 102, 103]
    assert seqs(lake, OPEN_CALLS) == []


def test_it_does_not_disturb_a_stream_that_commits_meanwhile(commits: DeltaWriter, lake: LocalStore) -> None:
    """Compact while the stream adds settled rows and replaces open ones in every batch."""
    opened = write_rows(OPEN_CALLS, calls(0), lake)
    commits.commit(OPEN_CALLS.name, 0, opened, [])
    failed: list[BaseException] = []
    over = threading.Event()

    def compact_all_the_time() -> None:
        try:
            while not over.is_set():
                compact(lake)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=compact_all_the_time)
    thread.start()
    for batch in range(1, 41):
        new = write_rows(OPEN_CALLS, calls(batch), lake)
        commits.commit("silver.calls", batch, write_rows(CALLS, calls(batch - 1), lake), [])
        commits.commit(OPEN_CALLS.name, batch, new, opened)
        opened = new
    over.set()
    thread.join()
    assert failed == []
    assert seqs(lake) == list(range(40))
    assert seqs(lake, OPEN_CALLS) == [40]
    compact(lake)
    assert file_count(lake, "silver.calls") == 1


def test_other_engines_may_optimize_while_a_stream_commits(commits: DeltaWriter, lake: LocalStore) -> None:
    """Run Delta's own OPTIMIZE, Z-ORDER and VACUUM from another process's point of view, between and after commits."""
    opened: list[FileAction] = []
    for batch in range(30):
        new = write_rows(OPEN_CALLS, calls(batch), lake)
        commits.commit("silver.calls", batch, write_rows(CALLS, calls(1000 + batch, session=f"s-{batch}"), lake), [])
        commits.commit(OPEN_CALLS.name, batch, new, opened)
        opened = new
        if batch % 10 == 4:
            DeltaTable(lake.folder / CALLS.folder).optimize.compact()
        elif batch % 10 == 9:
            DeltaTable(lake.folder / CALLS.folder).optimize.z_order(["session", "seq"])
            compact(lake)
    table = DeltaTable(lake.folder / CALLS.folder)
    table.optimize.z_order(["session", "seq"])
    table.vacuum(dry_run=False)
    assert len(table.file_uris()) == 1
    assert seqs(lake) == list(range(1000, 1030))
    assert seqs(lake, OPEN_CALLS) == [29]
    assert commits.last_batch("silver.calls") == 29
    assert query(lake, "SELECT seq FROM silver.calls WHERE session = 's-7'").rows == [[1007]]


def test_only_one_at_a_time(lake: LocalStore) -> None:
    with rewrite_lock(lake), pytest.raises(InUseError):
        compact(lake)


def test_what_was_replaced_meanwhile_is_not_joined(
    commits: DeltaWriter, lake: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [file for batch in range(3) for file in write_rows(FRAMES, frames(batch), lake)]
    commits.commit("bronze.frames", 0, files, [])
    join = compaction.join_files

    def slowly(*arguments: object) -> object:
        joined = join(*arguments)  # type: ignore[arg-type]
        commits.commit("bronze.frames", 1, write_rows(FRAMES, frames(7), lake), files[:1])  # somebody's redecode
        return joined

    monkeypatch.setattr(compaction, "join_files", slowly)
    assert compact_table(lake, FRAMES, 2).files_joined == 0
    assert seqs(lake, FRAMES) == [1, 2, 7]


def test_files_that_nobody_needs_go_after_a_while(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch in range(3):
        commits.commit("bronze.frames", batch, write_rows(FRAMES, frames(batch), lake), [])
    (orphan,) = write_rows(FRAMES, frames(9), lake)  # its batch failed
    half = lake.folder / FRAMES.folder / "day=2030-01-01" / "part-killed.parquet.new"
    half.write_bytes(b"half")
    (young,) = write_rows(FRAMES, frames(10), lake)  # of a batch that is under way
    old_s = time.time() - 200 * 3600
    for path in (lake.folder / FRAMES.folder / orphan.path, half):
        os.utime(path, (old_s, old_s))
    done = compact(lake)["bronze.frames"]
    assert done.files_removed == 2
    assert not half.exists()
    assert (lake.folder / FRAMES.folder / young.path).exists()
    assert seqs(lake, FRAMES) == [0, 1, 2]
    pq.read_table(DeltaTable(lake.folder / FRAMES.folder, version=3).file_uris())  # a reader of it is not broken


def test_a_running_job_compacts_by_itself(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch in range(10):
        commits.commit("bronze.frames", batch, write_rows(FRAMES, frames(batch), lake), [])
    compacting = Compactor(lake, every_batches=10)
    for _ in range(10):
        compacting.after_batch()
    deadline_s = time.monotonic() + 30
    while compacting.files_joined < 9 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    compacting.close()
    assert file_count(lake) == 1
    assert seqs(lake, FRAMES) == list(range(10))


def test_an_old_file_gets_the_column_that_came_later(commits: DeltaWriter, lake: LocalStore) -> None:
    narrow = [name for name in CALLS.schema.names if name != "answers"]
    (old,) = write_rows(CALLS, calls(1).select(narrow), lake)
    path = lake.folder / CALLS.folder / old.path
    pa.parquet.write_table(pa.parquet.ParquetFile(path).read().drop_columns("answers"), path)
    commits.commit("silver.calls", 0, [old, *write_rows(CALLS, calls(2, answers=3), lake)], [])
    compact(lake)
    assert file_count(lake, "silver.calls") == 1
    assert polars.read_delta(str(lake.folder / CALLS.folder)).sort("seq")["answers"].to_list() == [None, 3]
    assert open_table(lake, CALLS).version() == 2
