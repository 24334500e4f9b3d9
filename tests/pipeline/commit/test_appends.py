"""Test commits that only add files: they read nothing, and give way to whoever commits at the same time."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec import json

from pipeline.commit.test_delta import AT, calls, seqs
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS
from wirelake.limits import LAKE_CHECKPOINT_COMMITS
from wirelake.pipeline.commit import delta
from wirelake.pipeline.commit.appends import commit_path
from wirelake.pipeline.commit.delta import DeltaWriter, live_files, read_table
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.commit.history import trim_log

NAME = CALLS.name


@pytest.fixture
def commits(lake: LocalStore) -> DeltaWriter:
    """Return a writer that has committed batch 0."""
    commits = DeltaWriter(lake, "app")
    assert append(commits, lake, 0)
    return commits


def append(commits: DeltaWriter, lake: LocalStore, batch: int) -> bool:
    """Commit a batch with one row, whose `seq` is the number of the batch."""
    return commits.commit(NAME, batch, write_rows(CALLS, calls(batch), lake), [])


def actions_of(lake: LocalStore, version: int) -> dict[str, Any]:
    """Return the actions of a commit that has one of each kind."""
    lines = lake.read(commit_path(CALLS, version)).splitlines()
    return {kind: action for line in lines for kind, action in json.decode(line).items()}


def newest(lake: LocalStore) -> int:
    return read_table(lake, CALLS).version()


def test_an_append_reads_nothing(commits: DeltaWriter, lake: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the table is read")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "update_incremental", refuse)
        patch.setattr(DeltaTable, "__init__", refuse)
        patch.setattr(delta, "exists", refuse)
        for batch in range(1, 4):
            assert append(commits, lake, batch)
    assert not append(commits, lake, 3)
    assert seqs(lake) == [0, 1, 2, 3]


def test_a_commit_says_what_others_expect(commits: DeltaWriter, lake: LocalStore) -> None:
    (file,) = write_rows(CALLS, calls(1), lake)
    assert commits.commit(NAME, 1, [file], [])
    actions = actions_of(lake, newest(lake))
    assert actions["commitInfo"]["isBlindAppend"] is True
    assert actions["commitInfo"]["operationParameters"] == {"mode": "Append", "partitionBy": '["day"]'}
    assert actions["txn"]["appId"] == "app"
    assert actions["txn"]["version"] == 1
    assert actions["add"]["partitionValues"] == {"day": "2030-01-01"}
    stats = json.decode(actions["add"]["stats"])
    assert stats["numRecords"] == 1
    assert stats["minValues"]["seq"] == stats["maxValues"]["seq"] == 1
    assert stats["minValues"]["received_at"] == AT.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    (last,) = read_table(lake, CALLS).history(1)
    assert last["operation"] == "WRITE"
    assert last["engineInfo"].startswith("wirelake/")


def test_a_foreign_optimize_and_vacuum_are_not_overwritten(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch in range(1, 4):
        append(commits, lake, batch)
    foreign = read_table(lake, CALLS)
    assert foreign.optimize.compact()["numFilesRemoved"] == 4
    optimized = foreign.version()
    assert append(commits, lake, 4)
    foreign.update_incremental()
    foreign.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    vacuumed = newest(lake)
    assert vacuumed > optimized + 1, "a vacuum is in the log, too"
    assert append(commits, lake, 5)
    assert newest(lake) == vacuumed + 1
    assert seqs(lake) == [0, 1, 2, 3, 4, 5]
    assert len(live_files(read_table(lake, CALLS), NAME)) == 3


def test_an_optimize_that_began_before_an_append_keeps_its_rows(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check that deltalake takes the commit for one that cannot conflict."""
    append(commits, lake, 1)
    foreign = read_table(lake, CALLS)
    append(commits, lake, 2)
    foreign.optimize.compact()
    assert seqs(lake) == [0, 1, 2]


def test_of_two_drivers_with_a_batch_one_commits_it(commits: DeltaWriter, lake: LocalStore) -> None:
    other = DeltaWriter(lake, "app")
    assert append(other, lake, 1)
    assert not append(commits, lake, 1)
    assert append(commits, lake, 2)
    assert not append(other, lake, 2)
    assert seqs(lake) == [0, 1, 2]


def test_writers_at_the_same_time_lose_nothing(lake: LocalStore) -> None:
    def run(number: int) -> None:
        commits = DeltaWriter(lake, f"app-{number}")
        for batch in range(10):
            assert commits.commit(NAME, batch, write_rows(CALLS, calls(100 * number + batch), lake), [])
        commits.wait()

    append(DeltaWriter(lake, "first"), lake, 999)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run, number) for number in range(3)]:
            done.result()
    assert seqs(lake) == [*range(10), *range(100, 110), *range(200, 210), 999]
    assert newest(lake) == 31


def test_a_table_with_other_features_is_left_to_deltalake(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check that a foreign program may enable features that a commit must heed."""
    append(commits, lake, 1)
    read_table(lake, CALLS).alter.add_constraint({"some_seq": "seq >= 0"})
    assert append(commits, lake, 2)
    assert append(commits, lake, 3)
    assert actions_of(lake, newest(lake))["commitInfo"]["engineInfo"].startswith("delta-rs")
    assert not append(DeltaWriter(lake, "app"), lake, 3)
    assert seqs(lake) == [0, 1, 2, 3]


def test_a_version_that_was_removed_is_not_written_again(commits: DeltaWriter, lake: LocalStore) -> None:
    """Check a writer that was suspended until others had removed the versions after the last one that it knows."""
    other = DeltaWriter(lake, "other")
    for batch in range(100, 105):
        append(other, lake, batch)
    read_table(lake, CALLS).create_checkpoint()
    append(other, lake, 105)
    assert trim_log(lake, CALLS, versions_max=2) > 2
    assert append(commits, lake, 1)
    assert seqs(lake) == [0, 1, *range(100, 106)]


def test_a_checkpoint_that_fails_stops_no_commit(
    commits: DeltaWriter, lake: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DeltaTable) -> None:
        raise OSError("no space left")

    checkpoint = lake.folder / CALLS.folder / "_delta_log" / "_last_checkpoint"
    files: list[FileAction] = []
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(DeltaTable, "create_checkpoint", fail)
        for batch in range(1, LAKE_CHECKPOINT_COMMITS):
            assert commits.commit(NAME, batch, files, [])
        commits.wait()
    assert "the checkpoint of the Delta log of silver.calls failed; the next one retries: no space left" in caplog.text
    assert not checkpoint.exists()
    for batch in range(LAKE_CHECKPOINT_COMMITS, 2 * LAKE_CHECKPOINT_COMMITS):
        assert commits.commit(NAME, batch, files, [])
    commits.wait()
    assert checkpoint.exists()
    assert DeltaWriter(lake, "app").last_batch(NAME) == 2 * LAKE_CHECKPOINT_COMMITS - 1
