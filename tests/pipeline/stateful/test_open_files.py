"""Test that a batch replaces only the files of open rows that it changes."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.store import LocalStore
from wirelake.lake.tables import DELIVERIES, SESSIONS, TALLIES, LakeTable
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.stateful import open_files
from wirelake.pipeline.stateful.bucket_state import with_partition_columns
from wirelake.pipeline.stateful.open_files import OpenFiles, OpenRowsError

T0 = 1_700_000_000_000_000


def table_of(table: LakeTable, rows: list[dict[str, Any]]) -> pa.Table:
    names = [field for field in table.schema if field.name != "day"]
    return with_partition_columns(table, pa.Table.from_pylist(rows, pa.schema(names)))


def sessions(*seqs: int, identity: str = "me") -> pa.Table:
    rows = [{"seq": seq, "received_at": T0, "node": "n", "session": f"s{seq}", "identity": identity} for seq in seqs]
    return table_of(SESSIONS, rows)


class OpenTable:
    """Hold the files of one bucket."""

    def __init__(self, lake: Path, table: LakeTable = SESSIONS) -> None:
        self.lake = lake
        self.table = table.open_table
        self.files: list[FileAction] = []

    def update(self, closed: pa.Table, opened: pa.Table) -> list[FileAction]:
        """Return the files that were written."""
        before = {file.path for file in self.files}
        self.files = OpenFiles(LocalStore(self.lake), self.table, self.files).update(closed, opened)
        return [file for file in self.files if file.path not in before]

    def rows(self) -> list[dict[str, Any]]:
        folder = self.lake / self.table.folder
        rows = [row for file in self.files for row in pq.ParquetFile(folder / file.path).read().to_pylist()]
        assert len(rows) == sum(file.rows for file in self.files)
        return sorted(rows, key=repr)

    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in self.rows())


def test_a_new_row_among_many_is_a_small_file(tmp_path: Path) -> None:
    opened = OpenTable(tmp_path)
    first = opened.update(sessions(), sessions(*range(20_000)))
    assert [file.rows for file in first] == [4096, 4096, 4096, 4096, 3616]
    (new,) = opened.update(sessions(), sessions(20_000))
    assert (new.rows, new.seqs) == (1, (20_000, 20_000))
    (joined,) = opened.update(sessions(), sessions(20_001))
    assert joined.rows == 2
    assert new not in opened.files, "small files are joined"
    assert opened.seqs() == list(range(20_002))


def test_a_row_that_changes_replaces_one_file(tmp_path: Path) -> None:
    opened = OpenTable(tmp_path)
    opened.update(sessions(), sessions(*range(20_000)))
    before = {file.path for file in opened.files}
    (written,) = opened.update(sessions(5_000), sessions(5_000, identity="you"))
    assert (written.rows, written.seqs) == (4096, (4096, 8191))
    assert len(before - {file.path for file in opened.files}) == 1
    assert {row["seq"] for row in opened.rows() if row["identity"] == "you"} == {5_000}
    assert opened.update(sessions(*range(4096)), sessions()) == [], "nothing is left of this one"
    assert opened.seqs() == list(range(4096, 20_000))


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "PIPELINE_OPEN_FILE_ROWS", 20)
    monkeypatch.setattr(open_files, "PIPELINE_OPEN_FILE_ROWS_MIN", 4)
    chance, opened, expected = Random(1), OpenTable(tmp_path), set[int]()
    most = 0
    for seq in range(300):
        closed = chance.sample(sorted(expected), min(len(expected), chance.choice((0, 0, 1, 2))))
        opened.update(sessions(*closed), sessions(seq))
        expected = expected - set(closed) | {seq}
        most = max(most, len(opened.files))
    assert opened.seqs() == sorted(expected)
    assert most <= len(expected) / 4
    assert all(file.rows <= 20 for file in opened.files)


def test_rows_are_told_apart_by_all_that_identifies_them(tmp_path: Path) -> None:
    deliveries = OpenTable(tmp_path, DELIVERIES)
    rows = [
        {"seq": 7, "received_at": T0, "node": "n", "identity": identity, "position": position, "first_sent_at": T0}
        for identity in ("ann", "bob")
        for position in (1, 2)
    ]
    deliveries.update(table_of(DELIVERIES, []), table_of(DELIVERIES, rows))
    deliveries.update(table_of(DELIVERIES, rows[1:2]), table_of(DELIVERIES, []))
    found = [(row["identity"], row["position"]) for row in deliveries.rows()]
    assert found == [("ann", 1), ("bob", 1), ("bob", 2)]
    tallies = OpenTable(tmp_path, TALLIES)
    rows = [{"node": "n", "from_seq": 3, "hour": T0, "protocol": name, "received": 1} for name in ("a", "b")]
    tallies.update(table_of(TALLIES, []), table_of(TALLIES, rows))
    tallies.update(table_of(TALLIES, rows[:1]), table_of(TALLIES, [{**rows[0], "received": 2}]))
    assert [(row["protocol"], row["received"]) for row in tallies.rows()] == [("a", 2), ("b", 1)]


def test_files_of_an_earlier_version_have_no_range(tmp_path: Path) -> None:
    opened = OpenTable(tmp_path)
    opened.update(sessions(), sessions(1, 2, 3))
    (file,) = opened.files
    opened.files = [FileAction(file.table, file.path, file.bytes, file.rows, file.partition)]
    opened.update(sessions(2), sessions())
    assert opened.seqs() == [1, 3]


def test_rows_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    opened = OpenTable(tmp_path)
    opened.update(sessions(), sessions(1))
    with pytest.raises(OpenRowsError, match=r"silver\.open_sessions have 1 of 2 rows"):
        opened.update(sessions(1, 2), sessions())
