from datetime import date
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest
from msgspec import json

from wirelake.errors import InputError, StorageError
from wirelake.lake.tables import FRAMES, MESSAGES, QUARANTINE, Table
from wirelake.pipeline.commits import Commits
from wirelake.pipeline.history import snapshot
from wirelake.pipeline.history.snapshot import take_snapshot
from wirelake.pipeline.intents import Intent, Intents
from wirelake.pipeline.parquet import write
from wirelake.pipeline.places import Places
from wirelake.pipeline.stream import Stream

TABLES = (FRAMES, MESSAGES, QUARANTINE)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places(tmp_path)
    places.checkpoint.mkdir(parents=True)
    (places.checkpoint / "stream.json").write_bytes(json.encode(Stream("app", 4)))
    return places


def batch(places: Places, number: int, *tables: Table) -> Intent:
    rows = [{"seq": number, "protocol": "comet", "day": date(2030, 1, 1)}]
    adds = {each.name: write(each, pa.Table.from_pylist(rows, each.schema), places.lake) for each in tables}
    intent = Intent(batch=number, from_seq=number, until_seq=number + 1, now_us=0, rows=1, adds=adds)
    Intents(places.checkpoint).write(intent)
    return intent


def commit(places: Places, intent: Intent, *tables: Table) -> None:
    commits = Commits(places.lake, "app")
    for table in tables:
        commits.commit(table.name, intent.batch, intent.adds[table.name], [])


def test_tables_that_a_batch_does_not_change_need_not_have_it(places: Places) -> None:
    commit(places, batch(places, 0, FRAMES, MESSAGES, QUARANTINE), FRAMES, MESSAGES, QUARANTINE)
    commit(places, batch(places, 1, FRAMES, MESSAGES), FRAMES, MESSAGES)
    found = take_snapshot(places, TABLES)
    assert (found.until_seq, found.buckets) == (2, 4)
    assert {name: len(files) for name, files in found.files.items()} == {
        "bronze.frames": 2,
        "silver.messages": 2,
        "silver.quarantine": 1,
    }


def test_a_batch_that_is_under_way_is_waited_for(places: Places) -> None:
    commit(places, batch(places, 0, FRAMES, MESSAGES), FRAMES, MESSAGES)
    half = batch(places, 1, FRAMES, MESSAGES)
    commit(places, half, FRAMES)
    later = Timer(0.2, commit, [places, half, MESSAGES])
    later.start()
    assert take_snapshot(places, TABLES).until_seq == 2
    later.join()


def test_a_batch_that_nobody_finishes_is_not_waited_for_forever(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PIPELINE_SNAPSHOT_S", 0.1)
    commit(places, batch(places, 0, FRAMES, MESSAGES), FRAMES)
    with pytest.raises(StorageError, match="a batch is in some of the tables"):
        take_snapshot(places, TABLES)


def test_without_tables_there_is_nothing(places: Places) -> None:
    with pytest.raises(InputError, match="there are no tables in"):
        take_snapshot(places, TABLES)
