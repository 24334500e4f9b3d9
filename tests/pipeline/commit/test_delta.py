import os
import threading
from datetime import UTC, date, datetime
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from wirelake.errors import InUseError, StorageError
from wirelake.lake import tables
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, QUARANTINE, LakeTable
from wirelake.limits import LAKE_CHECKPOINT_COMMITS
from wirelake.pipeline.commit.delta import (
    DeltaWriter,
    FilesReplacedError,
    live_files,
    open_table,
    replace_files,
    rewrite_lock,
)
from wirelake.pipeline.commit.files import FileAction, FileChecks, mark_worker, write_rows

DAY = date(2030, 1, 1)
AT = datetime(2030, 1, 1, 12, tzinfo=UTC)


def calls(*seqs: int, **values: Any) -> Any:
    rows = [{"seq": seq, "received_at": AT, "protocol": "comet", "day": DAY, **values} for seq in seqs]
    return pa.Table.from_pylist(rows, CALLS.schema)


def seqs(lake: LocalStore, table: LakeTable = CALLS) -> list[int]:
    return sorted(polars.read_delta(str(lake.folder / table.folder))["seq"].to_list())


@pytest.fixture
def commits(lake: LocalStore) -> DeltaWriter:
    return DeltaWriter(lake, "app")


def test_a_batch_is_committed_once(commits: DeltaWriter, lake: LocalStore) -> None:
    assert commits.last_batch("silver.calls") == -1
    files = write_rows(CALLS, calls(1, 2), lake)
    assert commits.commit("silver.calls", 0, files, [])
    assert not commits.commit("silver.calls", 0, files, [])
    assert not DeltaWriter(lake, "app").commit("silver.calls", 0, files, [])  # another process, later
    assert seqs(lake) == [1, 2]
    assert commits.last_batch("silver.calls") == 0
    assert DeltaWriter(lake, "another").last_batch("silver.calls") == -1


def test_open_rows_are_replaced_in_one_commit(commits: DeltaWriter, lake: LocalStore) -> None:
    table = CALLS.open_table
    opened = write_rows(table, calls(1, 2, status="open"), lake)
    commits.commit(table.name, 0, opened, [])
    commits.commit("silver.calls", 1, write_rows(CALLS, calls(1, status="ok"), lake), [])
    commits.commit(table.name, 1, write_rows(table, calls(2), lake), opened)
    both = query(lake, "SELECT seq, settled, status FROM silver.calls ORDER BY seq")
    assert both.rows == [[1, True, "ok"], [2, False, None]]
    assert query(lake, "SELECT seq, day FROM silver.open_calls").rows == [[2, "2030-01-01"]]


def test_others_read_the_tables_without_spark(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check that filters on any column find rows: statistics of only some columns would hide them."""
    commits.commit("silver.calls", 0, write_rows(CALLS, calls(1, 2, op="get", latency_ms=1.5), lake), [])
    commits.commit("silver.calls", 1, write_rows(CALLS, calls(3, op="put", latency_ms=2.5), lake), [])
    table = polars.scan_delta(str(lake.folder / "silver" / "calls"))
    assert table.filter(polars.col("op") == "put").collect()["seq"].to_list() == [3]
    assert table.filter(polars.col("latency_ms") < 2).collect()["seq"].to_list() == [1, 2]
    assert table.filter(polars.col("received_at") == AT).collect().height == 3
    answer = query(lake, "SELECT seq, day, settled, at FROM silver.calls WHERE op = 'put'")
    assert answer.rows == [[3, "2030-01-01", True, "2030-01-01T12:00:00Z"]]


def test_two_writers_at_once_both_get_through(lake: LocalStore) -> None:
    one, other = DeltaWriter(lake, "one"), DeltaWriter(lake, "other")
    for batch in range(3):
        one.commit("silver.calls", batch, write_rows(CALLS, calls(batch), lake), [])
        other.commit("silver.calls", batch, write_rows(CALLS, calls(100 + batch), lake), [])
    assert seqs(lake) == [0, 1, 2, 100, 101, 102]


def test_whoever_removes_a_file_that_is_gone_fails(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check that only one of two replacements of a file succeeds: its rows would exist twice."""
    files = write_rows(CALLS, calls(1), lake)
    commits.commit("silver.calls", 0, files, [])
    one, other = open_table(lake, CALLS), open_table(lake, CALLS)
    with rewrite_lock(lake):
        replace_files(
            lake,
            one,
            CALLS.name,
            write_rows(CALLS, calls(1), lake),
            files,
            data_change=False,
        )
        with pytest.raises(InUseError):
            rewrite_lock(lake).__enter__()
    with rewrite_lock(lake), pytest.raises(FilesReplacedError, match="1 file was replaced"):
        replace_files(
            lake,
            other,
            CALLS.name,
            write_rows(CALLS, calls(1), lake),
            files,
            data_change=False,
        )
    assert seqs(lake) == [1]


def test_a_new_column_appears_without_a_rewrite(
    commits: DeltaWriter, lake: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.commit("silver.calls", 0, write_rows(CALLS, calls(1), lake), [])
    before = {file.path for file in live_files(commits.table("silver.calls"), "silver.calls")}
    wider = LakeTable(CALLS.name, CALLS.schema.append(pa.field("colour", pa.string())), CALLS.partition_by)
    monkeypatch.setitem(tables.TABLES, "silver.calls", wider)
    later = DeltaWriter(lake, "app")
    rows = calls(2).append_column("colour", pa.array(["red"]))
    later.commit("silver.calls", 1, write_rows(wider, rows, lake), [])
    found = polars.read_delta(str(lake.folder / "silver" / "calls")).sort("seq")
    assert found["colour"].to_list() == [None, "red"]
    assert before < {file.path for file in live_files(later.table("silver.calls"), "silver.calls")}


def test_a_changed_type_or_grouping_is_refused_in_words(commits: DeltaWriter, lake: LocalStore) -> None:
    commits.commit("silver.calls", 0, write_rows(CALLS, calls(1), lake), [])
    index = CALLS.schema.get_field_index("answers")
    changed = LakeTable(CALLS.name, CALLS.schema.set(index, pa.field("answers", pa.string())), CALLS.partition_by)
    with pytest.raises(StorageError, match=r"silver.calls.answers is long on disk and string in this version"):
        open_table(lake, changed)
    with pytest.raises(StorageError, match="partitioned by day, not by protocol"):
        open_table(lake, LakeTable(CALLS.name, CALLS.schema, ("protocol",)))


def test_a_file_that_is_not_there_is_missed(commits: DeltaWriter) -> None:
    with pytest.raises(StorageError, match=r"gone\.parquet, which the checkpoint says"):
        commits.check_files([FileAction("silver.calls", "gone.parquet", 1, 1)])


def test_files_know_their_groups_again(commits: DeltaWriter, lake: LocalStore) -> None:
    row = {"seq": 1, "received_at": AT, "protocol": "comet", "reason": "bad", "day": DAY}
    files = write_rows(QUARANTINE, pa.Table.from_pylist([row], QUARANTINE.schema), lake)
    commits.commit("silver.quarantine", 0, files, [])
    found = live_files(commits.table("silver.quarantine"), "silver.quarantine")
    assert found == [replace(file, statistics={}) for file in files]
    assert commits.has_rows("silver.quarantine")
    assert not commits.has_rows("silver.calls")
    assert DeltaTable(lake.folder / "silver" / "quarantine").metadata().configuration["delta.checkpointInterval"]


def test_old_versions_are_forgotten_when_the_log_is_summed_up(lake: LocalStore) -> None:
    """Check that old versions are removed: every checkpoint lists all that are left."""
    commits = DeltaWriter(lake, "app")
    log = lake.folder / "silver" / "quarantine" / "_delta_log"
    for batch in range(2 * LAKE_CHECKPOINT_COMMITS + 5):
        commits.commit("silver.quarantine", batch, [], [])
        commits.wait()
        if batch == LAKE_CHECKPOINT_COMMITS + 5:
            assert len(list(log.glob("*.json"))) == batch + 2  # none of them is old enough
            for path in log.glob("*.json"):
                os.utime(path, (0, 0))
    versions = sorted(int(path.stem) for path in log.glob("*.json"))
    assert LAKE_CHECKPOINT_COMMITS - 2 <= versions[0] <= LAKE_CHECKPOINT_COMMITS + 7
    assert commits.last_batch("silver.quarantine") == 2 * LAKE_CHECKPOINT_COMMITS + 4
    assert DeltaWriter(lake, "app").last_batch("silver.quarantine") == 2 * LAKE_CHECKPOINT_COMMITS + 4


def test_a_file_that_is_not_as_it_was_reported_is_not_committed(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check this for a batch that is finished later, and for replaced settled files."""
    files = write_rows(CALLS, calls(1), lake)
    commits.commit("silver.calls", 0, files, [])
    (short,) = mark_worker(write_rows(CALLS, calls(2), lake))
    path = lake.folder / CALLS.folder / short.path
    path.write_bytes(path.read_bytes()[:-1])
    wanted = (
        rf"{short.path}, .* has {short.bytes - 1} bytes \(expected: {short.bytes} bytes, reported by .*{os.getpid()}"
    )
    with pytest.raises(StorageError, match=wanted):
        commits.check_files([short])
    with rewrite_lock(lake), pytest.raises(StorageError, match=wanted):
        replace_files(lake, open_table(lake, CALLS), CALLS.name, [short], files, data_change=True)
    path.unlink()
    with pytest.raises(StorageError, match=rf"{short.path}, .* is missing \(expected: {short.bytes} bytes"):
        FileChecks().check_tables(lake, [short])
    assert seqs(lake) == [1]


def test_a_file_that_is_seen_late_is_waited_for(lake: LocalStore) -> None:
    (file,) = write_rows(CALLS, calls(1), lake)
    path = lake.folder / CALLS.folder / file.path
    path.rename(path.with_suffix(".late"))
    timer = threading.Timer(0.1, path.with_suffix(".late").rename, [path])
    timer.start()
    FileChecks(30.0).check_tables(lake, [file])
    timer.join()
