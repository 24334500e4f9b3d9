from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, DEVICE_LATEST, QUARANTINE
from wirelake.pipeline.commit.files import TableWriter, write_rows

AT = datetime(2030, 1, 31, 23, 59, 59, 123456, tzinfo=UTC)


def refused(seq: int, protocol: str, day: date) -> dict[str, Any]:
    return {
        "seq": seq,
        "received_at": AT,
        "node": "local",
        "protocol": protocol,
        "reason": "bad",
        "frame": b"\0",
        "day": day,
    }


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_for_each_group_with_the_columns_that_are_not_its_name(lake: LocalStore) -> None:
    days = [date(2030, 1, 31), date(2030, 2, 1)]
    rows = [refused(seq, protocol, days[seq % 2]) for seq, protocol in enumerate(["comet", "esnp", "comet", "comet"])]
    actions = write_rows(QUARANTINE, pa.RecordBatch.from_pylist(rows, QUARANTINE.schema), lake)
    by_groups = {(action.partition["protocol"], action.partition["day"]): action for action in actions}
    assert set(by_groups) == {("comet", "2030-01-31"), ("esnp", "2030-02-01"), ("comet", "2030-02-01")}
    action = by_groups["comet", "2030-01-31"]
    path = lake.folder / "silver" / "quarantine" / action.path
    assert action.path.startswith("protocol=comet/day=2030-01-31/")
    assert (action.rows, action.bytes) == (2, path.stat().st_size)
    found = pq.ParquetFile(path).read()
    assert "protocol" not in found.column_names
    assert found["seq"].to_pylist() == [0, 2]
    assert found["received_at"].to_pylist() == [AT, AT]
    assert found.schema.field("received_at").type == pa.timestamp("us", "UTC")
    assert len(files_below(lake.folder)) == 3  # and nothing half-named


def test_missing_columns_are_null_and_unknown_ones_wrong(lake: LocalStore) -> None:
    rows = pa.table({"serial": ["a"], "device_type": pa.array([1], pa.int64())})
    (action,) = write_rows(DEVICE_LATEST, rows, lake)
    assert action.partition == {}
    found = pq.ParquetFile(lake.folder / "gold" / "device_latest" / action.path).read()
    assert found.column_names == DEVICE_LATEST.schema.names
    assert found["readings"].to_pylist() == [None]
    with pytest.raises(AssertionError, match="no columns \\['colour'\\]"):
        write_rows(DEVICE_LATEST, rows.append_column("colour", pa.array(["red"])), lake)


def test_rows_come_in_pieces_and_leave_in_one_file(lake: LocalStore) -> None:
    writer = TableWriter(CALLS, lake)
    for seq in range(3):
        row = {"seq": seq, "day": date(2030, 1, 1)}
        writer.write(pa.RecordBatch.from_pylist([row], CALLS.schema))
    (action,) = writer.close()
    assert action.rows == 3
    assert action.partition == {"day": "2030-01-01"}


def test_nothing_is_left_of_what_fails(lake: LocalStore) -> None:
    writer = TableWriter(CALLS, lake)
    writer.write(pa.RecordBatch.from_pylist([{"seq": 1, "day": date(2030, 1, 1)}], CALLS.schema))
    writer.discard()
    assert files_below(lake.folder) == []
    assert writer.close() == []
    bad = pa.table({"seq": ["not a number"], "day": [date(2030, 1, 1)]})
    with pytest.raises(pa.ArrowInvalid):
        write_rows(CALLS, bad, lake)
    assert files_below(lake.folder) == []


def test_a_group_without_a_value_and_one_that_is_no_name_for_a_folder(lake: LocalStore) -> None:
    rows = [refused(0, "", date(2030, 1, 1)), refused(1, "../x y", date(2030, 1, 1))]
    actions = write_rows(QUARANTINE, pa.RecordBatch.from_pylist(rows, QUARANTINE.schema), lake)
    assert [action.partition["protocol"] for action in actions] == [None, "../x y"]
    assert all((lake.folder / "silver" / "quarantine" / action.path).exists() for action in actions)
    assert actions[1].path.startswith("protocol=.._x_y/")
