"""Torn, zeroed and bit-flipped bytes, anywhere: what is not hit stays readable, what is hit is named and kept."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log.records import append_many, check, fill
from wirelake.log.segments.format import (
    BLOCK_MAGIC,
    HEADER_BYTES,
    BlockHeader,
    BlockKind,
    encode_header,
    list_segments,
    segment_path,
)
from wirelake.log.segments.integrity import QUARANTINE_FOLDER, read_quarantine
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings

ROWS = 400
BLOCK_ROWS_MAX = 30
EXAMPLES = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several sealed segments."""
    folder = tmp_path_factory.mktemp("closed") / "log"
    write(folder).close()
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a process leaves it that was killed: the last segment is open."""
    living = tmp_path_factory.mktemp("living") / "log"
    log = write(living)
    folder = living.parent / "killed"
    shutil.copytree(living, folder)
    log.close()
    return folder


def write(folder: Path) -> SegmentLog:
    log = SegmentLog(folder, LogSettings(segment_bytes=64 * 1024))
    fill(log, ROWS - 60, per_block=10)
    append_many(log, 30).wait(10)
    append_many(log, 30).wait(10)
    return log


def flip(content: bytearray, place: int, size: int) -> None:
    content[place] ^= 1 << size % 8


def zero(content: bytearray, place: int, size: int) -> None:
    content[place : place + size] = bytes(len(content[place : place + size]))


def tear(content: bytearray, place: int, size: int) -> None:
    del content[place:]


def noise(content: bytearray, place: int, size: int) -> None:
    piece = content[place : place + size]
    content[place : place + size] = bytes((byte * 31 + number) & 0xFF for number, byte in enumerate(piece))


def check_readable(folder: Path, damaged: Callable[[], None]) -> None:
    """What a reader makes of it, then a writer, then a reader after that: all the same, and everything is accounted."""
    damaged()
    reader = LogReader(folder)
    seen = check(reader.read())
    assert len(seen) + reader.rows_lost == ROWS
    log = SegmentLog(folder)
    assert log.next_seq == ROWS  # seqs of lost records are not given out again
    after = LogReader(folder)
    rows = check(after.read())
    assert rows == seen
    assert len(rows) + after.rows_lost == ROWS
    missing = set(range(ROWS)) - set(rows)
    told = {seq for damage in log.recovery.damages for seq in range(damage.first_seq, damage.first_seq + damage.rows)}
    if not log.recovery.clean:
        assert missing == told
        for damage in log.recovery.damages:
            kept = folder / QUARANTINE_FOLDER / damage.kept_as
            assert kept.stat().st_size == damage.bytes
        assert read_quarantine(folder) == sorted(log.recovery.damages, key=lambda each: (each.segment, each.offset))
    fill(log, 20)
    log.close()
    last = LogReader(folder)
    assert check(last.read(ROWS)) == list(range(ROWS, ROWS + 20))
    again = SegmentLog(folder)
    assert again.recovery.damages == []  # mended once
    again.close()


@pytest.mark.parametrize("change", [flip, zero, tear, noise])
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_damage_anywhere_costs_only_what_it_hits(
    state: str, change: Callable[[bytearray, int, int], None], request: pytest.FixtureRequest
) -> None:
    source: Path = request.getfixturevalue(state)
    firsts = list_segments(source)
    assert len(firsts) > 2

    @EXAMPLES
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(firsts))
        content = bytearray(segment_path(source, first).read_bytes())
        used = MappedSegment(segment_path(source, first), first, None).used_bytes(0)
        place = data.draw(st.integers(0, used - 1))
        size = data.draw(st.integers(1, 3000))
        change(content, place, size)
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / "log"
            shutil.copytree(source, folder)
            check_readable(folder, lambda: void(segment_path(folder, first).write_bytes(content)))
            if change is flip:
                assert LogReader(folder).oldest_seq == 0
                reader = LogReader(folder)
                check(reader.read())
                assert reader.rows_lost <= BLOCK_ROWS_MAX

    run()


def void(_: object) -> None:
    """For a lambda whose value nobody wants."""


def test_a_damaged_block_in_the_middle_goes_to_the_quarantine_with_a_report(killed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(killed, folder)
    path = segment_path(folder, list_segments(folder)[-1])
    segment = MappedSegment(path, list_segments(folder)[-1], None)
    block = next(segment.scan())
    content = bytearray(path.read_bytes())
    content[block.offset + HEADER_BYTES + 40] ^= 0x10
    path.write_bytes(content)
    log = SegmentLog(folder)
    (damage,) = log.recovery.damages
    assert (damage.kind, damage.segment, damage.offset) == ("damaged", path.name, block.offset)
    assert (damage.first_seq, damage.rows) == (block.first_seq, block.rows)
    kept = (folder / "quarantine" / damage.kept_as).read_bytes()
    assert kept == bytes(content[block.offset : block.offset + block.span_bytes])
    assert check(log.read()) == [seq for seq in range(ROWS) if not block.first_seq <= seq < block.end_seq]
    hole = MappedSegment(path, segment.first_seq, None).inspect(block.offset, block.first_seq)
    assert hole is not None
    assert hole.state is BlockState.HOLE
    log.close()


def test_a_torn_tail_is_cut_reported_and_kept(killed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(killed, folder)
    first = list_segments(folder)[-1]
    path = segment_path(folder, first)
    segment = MappedSegment(path, first, None)
    assert segment.salt is not None
    end = list(segment.scan())[-1]
    offset = end.offset + end.span_bytes
    torn = encode_header(BlockHeader(BlockKind.DATA, 5, ROWS, 4000, 1, 2, 3), segment.salt) + b"half of a body"
    content = bytearray(path.read_bytes())
    content[offset : offset + len(torn)] = torn
    path.write_bytes(content)
    log = SegmentLog(folder)
    (damage,) = log.recovery.damages
    assert (damage.kind, damage.offset, damage.bytes, damage.rows) == ("torn", offset, len(torn), 0)
    assert (folder / "quarantine" / damage.kept_as).read_bytes() == torn
    assert check(log.read()) == list(range(ROWS))
    log.close()


def test_a_frame_that_imitates_a_block_is_not_taken_for_one(tmp_path: Path) -> None:
    """The peer sends a whole block as its frame; then the block around it is damaged."""
    folder = tmp_path / "log"
    log = SegmentLog(folder)
    forged = b"".join(
        encode_header(BlockHeader(BlockKind.DATA, 1000, 1, 0, 0, 0, 0), salt) for salt in (0, 1, 0xFFFFFFFF)
    )
    padding = [bytes(number) + forged for number in range(64)]  # one of them is aligned
    log.append_many(1, "esnp", "frame", "in", "s", "i", "p", padding).wait(10)
    fill(log, 5)
    shutil.copytree(folder, tmp_path / "copy")
    log.close()
    path = segment_path(tmp_path / "copy", 0)
    content = bytearray(path.read_bytes())
    start = content.find(BLOCK_MAGIC)
    assert content.count(BLOCK_MAGIC) > 64
    content[start] ^= 1
    path.write_bytes(content)
    reader = LogReader(tmp_path / "copy")
    assert check(reader.read()) == list(range(64, 69))
    assert reader.rows_lost == 64


def test_a_lost_mark_is_made_again_from_the_segments(closed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(closed, folder)
    (folder / "committed").unlink()
    log = SegmentLog(folder)
    assert log.next_seq == ROWS
    assert check(log.read()) == list(range(ROWS))
    log.close()
