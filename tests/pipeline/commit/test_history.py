"""Test how long versions and replaced files are kept."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.commit.test_delta import calls
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALL_MINUTE, CALLS, FRAMES, LakeTable
from wirelake.pipeline.commit.compaction import compact, vacuum_table
from wirelake.pipeline.commit.delta import DeltaWriter, open_table
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.commit.history import history_properties, trim_log

HOUR_S = 3600


@pytest.fixture
def commits(lake: LocalStore) -> DeltaWriter:
    return DeltaWriter(lake, "app")


@pytest.mark.parametrize(
    ("table", "days", "hours"),
    [(CALLS, 7, 168), (FRAMES, 30, 720), (CALLS.open_table, 7, 2), (CALL_MINUTE, 7, 2), (CALLS, 0.001, 1)],
)
def test_tables_that_only_grow_have_a_history(table: LakeTable, days: float, hours: int) -> None:
    assert set(history_properties(table, days).values()) == {f"interval {hours} hours"}


def test_replaced_files_stay_for_the_history(commits: DeltaWriter, lake: LocalStore) -> None:
    for batch in range(3):
        commits.commit("silver.calls", batch, write_rows(CALLS, calls(batch), lake), [])
    found = DeltaTable(lake.folder / CALLS.folder).metadata().configuration
    assert found["delta.logRetentionDuration"] == found["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    version = DeltaTable(lake.folder / CALLS.folder).version()
    assert compact(lake)["silver.calls"].files_removed == 0
    old = DeltaTable(lake.folder / CALLS.folder, version=version)
    assert len(pa.table(old.get_add_actions())) == 3
    assert all(Path(uri.removeprefix("file://")).exists() for uri in old.file_uris())
    orphan = lake.folder / CALLS.folder / "day=2030-01-01" / "part-orphan.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (time.time() - 50 * HOUR_S,) * 2)
    assert vacuum_table(lake, CALLS) == 0
    assert vacuum_table(lake, CALLS, history_days=2) == 1, "the setting counts for tables that exist already"
    assert open_table(lake, CALLS).metadata().configuration["delta.logRetentionDuration"] == "interval 48 hours"


def test_a_log_does_not_grow_without_limit(commits: DeltaWriter, lake: LocalStore) -> None:
    log = lake.folder / CALLS.folder / "_delta_log"
    for batch in range(12):
        commits.commit("silver.calls", batch, write_rows(CALLS, calls(batch), lake), [])
        if batch in (3, 7):
            DeltaTable(lake.folder / CALLS.folder).create_checkpoint()
    assert trim_log(lake, CALLS, versions_max=20) == 0
    assert trim_log(lake, CALLS, versions_max=6) == 4, "up to the newest checkpoint that leaves as many"
    assert min(int(path.stem) for path in log.glob("*.json")) == 4
    assert len(list(log.glob("*.checkpoint*.parquet"))) == 2
    assert DeltaWriter(lake, "app").last_batch("silver.calls") == 11
    assert len(DeltaTable(lake.folder / CALLS.folder).file_uris()) == 12
    assert trim_log(lake, CALLS, versions_max=6) == 0
