from datetime import date
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest
from msgspec import json

from wirelake.errors import InputError, StorageError
from wirelake.lake.tables import FRAMES, MESSAGES, QUARANTINE, LakeTable
from wirelake.pipeline.commit.checkpoint import LAKE_FORMAT, StreamIdentity
from wirelake.pipeline.commit.delta import DeltaWriter
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode import snapshot
from wirelake.pipeline.redecode.snapshot import take_snapshot

TABLES = (FRAMES, MESSAGES, QUARANTINE)


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    paths = DataPaths.of(tmp_path)
    paths.checkpoint.write("stream.json", json.encode(StreamIdentity("app", 4, format=LAKE_FORMAT)))
    return paths


def batch(paths: DataPaths, number: int, *tables: LakeTable) -> Manifest:
    rows = [{"seq": number, "protocol": "comet", "day": date(2030, 1, 1)}]
    adds = {each.name: write_rows(each, pa.Table.from_pylist(rows, each.schema), paths.lake) for each in tables}
    manifest = Manifest(batch=number, from_seq=number, until_seq=number + 1, now_us=0, rows=1, adds=adds)
    ManifestStore(paths.checkpoint).create(manifest)
    return manifest


def commit(paths: DataPaths, manifest: Manifest, *tables: LakeTable) -> None:
    commits = DeltaWriter(paths.lake, "app")
    for table in tables:
        commits.commit(table.name, manifest.batch, manifest.adds[table.name], [])


def test_tables_that_a_batch_does_not_change_need_not_have_it(paths: DataPaths) -> None:
    commit(paths, batch(paths, 0, FRAMES, MESSAGES, QUARANTINE), FRAMES, MESSAGES, QUARANTINE)
    commit(paths, batch(paths, 1, FRAMES, MESSAGES), FRAMES, MESSAGES)
    found = take_snapshot(paths, TABLES)
    assert (found.until_seq, found.buckets) == (2, 4)
    assert {name: len(files) for name, files in found.files.items()} == {
        "bronze.frames": 2,
        "silver.messages": 2,
        "silver.quarantine": 1,
    }


def test_a_batch_that_is_under_way_is_waited_for(paths: DataPaths) -> None:
    commit(paths, batch(paths, 0, FRAMES, MESSAGES), FRAMES, MESSAGES)
    half = batch(paths, 1, FRAMES, MESSAGES)
    commit(paths, half, FRAMES)
    later = Timer(0.2, commit, [paths, half, MESSAGES])
    later.start()
    assert take_snapshot(paths, TABLES).until_seq == 2
    later.join()


def test_a_batch_that_nobody_finishes_is_not_waited_for_forever(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PIPELINE_SNAPSHOT_S", 0.1)
    commit(paths, batch(paths, 0, FRAMES, MESSAGES), FRAMES)
    with pytest.raises(StorageError, match="a batch is in some of the tables"):
        take_snapshot(paths, TABLES)


def test_without_tables_there_is_nothing(paths: DataPaths) -> None:
    with pytest.raises(InputError, match="there are no tables in"):
        take_snapshot(paths, TABLES)
