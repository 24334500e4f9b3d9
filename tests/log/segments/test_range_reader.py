"""A range is read to its last record, or it is an error: whatever this machine sees of the log."""

import shutil
from pathlib import Path

import pytest

from log.records import AT_US, check, fill
from wirelake.errors import MissingRecordsError
from wirelake.limits import LOG_REPEAT_BYTES_MIN
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.format import HEADER_BYTES, list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import BlockInfo, BlockState, MappedSegment
from wirelake.log.segments.reader import DAMAGED, HOLE, SOURCE_DAMAGED, Gap, LogReader, RangeReader, damaged_gaps

ROWS = 400


def reader(folder: Path, **rest: object) -> RangeReader:
    return RangeReader(folder, **{"wait_s": 0.0, **rest})  # type: ignore[arg-type]


def block_with(folder: Path, seq: int) -> tuple[Path, BlockInfo]:
    first = max(each for each in list_segments(folder) if each <= seq)
    segment = MappedSegment(segment_path(folder, first), first, None)
    return segment.path, next(found for found in segment.scan() if found.first_seq <= seq < found.end_seq)


def damage(folder: Path, seq: int) -> Gap:
    """Flip a bit in the body of the block that has this record."""
    path, found = block_with(folder, seq)
    content = bytearray(path.read_bytes())
    content[found.offset + HEADER_BYTES + 5] ^= 1
    path.write_bytes(content)
    return Gap(found.first_seq, found.end_seq, DAMAGED)


@pytest.mark.parametrize(("first", "end"), [(0, ROWS), (3, 350), (199, 200), (399, 400), (7, 7)])
def test_a_range_over_many_segments_and_blocks(log: SegmentLog, folder: Path, first: int, end: int) -> None:
    fill(log, ROWS)
    assert len(list_segments(folder)) > 1
    reading = reader(folder, salt=HighWatermark(folder).salt)
    assert check(reading.read(first, end)) == list(range(first, end))
    assert reading.gaps == []


def test_a_place_near_it_saves_the_search_and_changes_nothing(log: SegmentLog, folder: Path) -> None:
    fill(log, ROWS)
    near = list(BlockIndex(folder).ranges(0, ROWS))[-3].hint
    assert near is not None
    for first in (5, near.seq, near.seq + 1):
        assert check(reader(folder).read(first, ROWS, near)) == list(range(first, ROWS))


def test_a_mark_that_is_behind_hides_nothing(log: SegmentLog, folder: Path, tmp_path: Path) -> None:
    fill(log, 100)
    stale = (folder / "committed").read_bytes()
    fill(log, 100)
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "committed").write_bytes(stale)
    assert check(LogReader(tmp_path / "copy").read(0, 200)) == list(range(100))  # who follows the log sees so far
    assert check(reader(tmp_path / "copy").read(0, 200)) == list(range(200))


@pytest.mark.parametrize("until", [101, 150, 300])
def test_records_that_are_not_seen_here_are_an_error(log: SegmentLog, folder: Path, tmp_path: Path, until: int) -> None:
    fill(log, 100)
    shutil.copytree(folder, tmp_path / "copy")
    fill(log, 200)
    with pytest.raises(MissingRecordsError, match=rf"cannot read record 100 of records 10 to {until - 1} on .*copy"):
        check(reader(tmp_path / "copy").read(10, until))


def test_they_are_waited_for_and_read_once_they_are_seen(log: SegmentLog, folder: Path, tmp_path: Path) -> None:
    fill(log, 100)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    fill(log, 200)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            shutil.copytree(folder, copy, dirs_exist_ok=True)

    assert check(reader(copy, wait_s=5.0, sleep=sleep).read(0, 300)) == list(range(300))
    assert len(waited) == 3
    with pytest.raises(MissingRecordsError):
        check(reader(copy, wait_s=2.0, sleep=waited.append).read(0, 400))
    assert sum(waited[3:]) == 2.0


def test_a_segment_that_is_not_there_is_an_error(log: SegmentLog, folder: Path) -> None:
    fill(log, ROWS)
    firsts = list_segments(folder)
    segment_path(folder, firsts[1]).unlink()
    with pytest.raises(MissingRecordsError, match=f"record {firsts[1]} of records 0 to 399"):
        check(reader(folder).read(0, ROWS))
    segment_path(folder, firsts[0]).unlink()
    with pytest.raises(MissingRecordsError, match=f"the oldest starts at record {firsts[2]}"):
        check(reader(folder).read(0, ROWS))
    with pytest.raises(MissingRecordsError, match="does not exist"):
        check(reader(folder / "nowhere").read(0, ROWS))


def test_the_records_of_another_log_are_not_taken(log: SegmentLog, folder: Path) -> None:
    fill(log, 20)
    salt = HighWatermark(folder).salt
    assert salt is not None
    with pytest.raises(MissingRecordsError, match="belongs to another log"):
        check(reader(folder, salt=salt ^ 1).read(0, 20))


def test_what_recovery_made_a_hole_is_left_out_and_told(log: SegmentLog, folder: Path) -> None:
    fill(log, ROWS)
    damaged = damage(folder, 25)
    copy = folder.parent / "copy"  # as a process leaves it that was killed
    shutil.copytree(folder, copy)
    recovered = SegmentLog(copy)
    recovered.close()
    assert recovered.recovery.rows_lost == damaged.rows
    assert block_with(copy, 25)[1].state is BlockState.HOLE
    reading = reader(copy)
    lost = range(damaged.first_seq, damaged.end_seq)
    assert check(reading.read(0, ROWS)) == [seq for seq in range(ROWS) if seq not in lost]
    assert reading.gaps == [Gap(damaged.first_seq, damaged.end_seq, HOLE)]
    inside = reader(copy)
    assert check(inside.read(25, 26)) == []
    assert inside.gaps == [Gap(25, 26, HOLE)]


def test_damage_is_an_error_unless_the_driver_found_it_too(log: SegmentLog, folder: Path) -> None:
    fill(log, ROWS)
    damaged = [damage(folder, 25), damage(folder, 390)]
    with pytest.raises(MissingRecordsError, match="do not match their checksum"):
        check(reader(folder).read(0, ROWS))
    with pytest.raises(MissingRecordsError, match=f"record {damaged[1].first_seq} "):
        check(reader(folder, damaged=damaged[:1]).read(0, ROWS))
    assert damaged_gaps(folder, 0, ROWS, None) == damaged
    assert damaged_gaps(folder, 30 + damaged[0].rows, 100, None) == []
    lost = {seq for gap in damaged for seq in range(gap.first_seq, gap.end_seq)}
    for settings in ({"damaged": damaged}, {"skip_damaged": True}):
        reading = reader(folder, **settings)
        assert check(reading.read(0, ROWS)) == [seq for seq in range(ROWS) if seq not in lost]
        assert reading.gaps == damaged


def test_the_end_of_the_log_is_not_damage(log: SegmentLog, folder: Path) -> None:
    fill(log, 50)
    with pytest.raises(MissingRecordsError, match="record 50 "):
        damaged_gaps(folder, 0, 60, None)


def test_a_block_that_repeats_a_damaged_one_is_taken_once_the_driver_finds_that_too(folder: Path) -> None:
    log = SegmentLog(folder)
    value = bytes(range(256)) * (4 * LOG_REPEAT_BYTES_MIN // 256)
    for number in range(3):
        log.append(AT_US, "redis", "frame", "out", "s", "me", "10.0.0.1:5000", b"%d" % number + value).wait(30)
    log.close()
    damaged = damage(folder, 0)
    with pytest.raises(MissingRecordsError, match="is incomplete"):
        list(reader(folder).read(1, 3))
    found = damaged_gaps(folder, 0, 3, None)
    assert found == [damaged, Gap(1, 2, SOURCE_DAMAGED), Gap(2, 3, SOURCE_DAMAGED)]
    reading = reader(folder, damaged=found)
    rows = [row for batch in reading.read(0, 3) for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == [1, 2]
    assert all("missing_tail_bytes" in row["note"] for row in rows)
    assert reading.gaps == [damaged]
    assert reading.cut_short == found[1:]
