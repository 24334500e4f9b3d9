from datetime import date

import pyarrow as pa
import pytest

from wirelake.lake.store import LocalStore
from wirelake.lake.tables import CALLS, FRAMES
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.redecode import seq_ranges as ranges
from wirelake.pipeline.redecode.seq_ranges import (
    EVERYTHING,
    SEQ_END,
    RowGroup,
    SeqRange,
    files_of,
    in_ranges,
    read_range,
    row_groups,
    split_range,
)

DAY = date(2030, 1, 1)
NOON_US = 1_893_499_200_000_000


def row_group(name: str, from_seq: int, until_seq: int) -> RowGroup:
    return RowGroup(FileAction("bronze.frames", name, 1, 1), from_seq, until_seq, 0, until_seq - from_seq, 1)


def frames(lake: LocalStore, *seqs: int) -> list[FileAction]:
    rows = [{"seq": seq, "received_at": NOON_US + seq, "frame": b"x", "day": DAY} for seq in seqs]
    return write_rows(FRAMES, pa.Table.from_pylist(rows, FRAMES.schema), lake)


def test_ranges_are_everything_and_have_about_the_same_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIPELINE_PARTITION_ROWS", 100)
    pieces = [row_group(str(start), start, start + 60) for start in (120, 0, 180, 60)]
    assert split_range(pieces) == [SeqRange(0, 60), SeqRange(60, 120), SeqRange(120, 180), SeqRange(180, SEQ_END)]
    monkeypatch.setattr(ranges, "PIPELINE_PARTITION_ROWS", 150)
    assert split_range(pieces) == [SeqRange(0, 120), SeqRange(120, SEQ_END)]
    assert split_range(pieces, at_least=4) == [
        SeqRange(0, 60),
        SeqRange(60, 120),
        SeqRange(120, 180),
        SeqRange(180, SEQ_END),
    ]
    assert split_range([]) == [EVERYTHING]


def test_rows_that_lie_over_each_other_are_not_cut_where_nothing_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIPELINE_PARTITION_ROWS", 10)
    pieces = [row_group("a", 0, 100), row_group("b", 0, 100)]
    assert split_range(pieces) == [EVERYTHING]
    found = [SeqRange(0, 50), SeqRange(50, SEQ_END)]
    assert [[file.path for file in files_of(mine)] for mine in in_ranges(pieces, found)] == [["a", "b"], ["a", "b"]]


def test_a_piece_lies_in_every_range_that_it_has_rows_of() -> None:
    parts = [SeqRange(0, 10), SeqRange(10, 20), SeqRange(20, SEQ_END)]
    pieces = [
        row_group("a", 0, 10),
        row_group("a", 10, 11),
        row_group("b", 9, 21),
        row_group("c", 19, 20),
        row_group("d", 20, SEQ_END),
    ]
    found = in_ranges(pieces, parts)
    assert [[each.file.path for each in mine] for mine in found] == [["a", "b"], ["a", "b", "c"], ["b", "d"]]
    for part, mine in zip(parts, found, strict=True):
        assert mine == [each for each in pieces if each.from_seq < part.until_seq and each.until_seq > part.from_seq]
    assert files_of([pieces[0], pieces[1], pieces[2]]) == [pieces[0].file, pieces[2].file]


def test_a_file_says_where_its_rows_are(lake: LocalStore) -> None:
    files = [*frames(lake, 5, 3, 9), *frames(lake, 20)]
    found = row_groups(lake, files)
    assert [(each.from_seq, each.until_seq, each.rows, each.at_max_us) for each in found] == [
        (3, 10, 3, NOON_US + 9),
        (20, 21, 1, NOON_US + 20),
    ]
    assert in_ranges(found, [SeqRange(0, 10), SeqRange(10, 20), SeqRange(20, SEQ_END)]) == [found[:1], [], found[1:]]
    rows = read_range(lake, FRAMES, files, SeqRange(5, 21))
    assert rows["seq"].to_pylist() == [5, 9, 20]
    assert rows["day"].to_pylist() == [DAY] * 3  # which stands only in the path
    assert read_range(lake, FRAMES, files, EVERYTHING, lambda some: some.slice(1))["seq"].to_pylist() == [3, 9]


def test_a_column_that_came_later_is_null(lake: LocalStore) -> None:
    (file,) = write_rows(CALLS, pa.Table.from_pylist([{"seq": 1, "day": DAY}], CALLS.schema), lake)
    path = lake.folder / CALLS.folder / file.path
    pa.parquet.write_table(pa.parquet.ParquetFile(path).read().drop_columns("answers"), path)
    rows = read_range(lake, CALLS, [file], EVERYTHING)
    assert rows.schema == CALLS.schema
    assert rows.to_pylist()[0] | {"seq": 1, "answers": None, "day": DAY} == rows.to_pylist()[0]
