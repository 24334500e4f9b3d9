"""Frames that repeat others of their segment: small on disk, and byte for byte what they were."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fastcrc.crc32 import iscsi as crc32c
from msgspec import json

from log.faults import FaultyFiles
from log.records import AT_US
from wirelake.errors import MissingRecordsError
from wirelake.limits import KIB, LOG_REPEAT_BYTES_MIN, MIB
from wirelake.log.segments import format as segment_format
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.integrity import verify_log
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import MappedSegment
from wirelake.log.segments.reader import LogReader, RangeReader
from wirelake.log.segments.settings import LogSettings

VALUE = Random(1).randbytes(MIB)
SMALL = LogSettings(segment_bytes=4 * MIB, retry_first_s=0.005, retry_max_s=0.02)


def add(log: SegmentLog, *frames: bytes, note: str = "") -> None:
    log.append_many(AT_US, "redis", "frame", "out", "s", "me", "10.0.0.1:5000", frames, note).wait(30)


def frames_in(folder: Path, from_seq: int | None = None) -> list[bytes]:
    return [row["frame"] for batch in LogReader(folder).read(from_seq) for row in batch.to_pylist()]


def used(folder: Path) -> int:
    """Of the segments, without room that is only reserved. For a log that is closed."""
    return sum(path.stat().st_size for path in folder.glob("*.seg"))


def answers(count: int) -> Iterator[bytes]:
    """With a head of changing length, as answers to numbered requests have."""
    for number in range(count):
        yield b'{"id":%d}' % (10**number % 10**9) + VALUE


def test_a_value_that_is_asked_for_a_hundred_times_is_stored_once(folder: Path) -> None:
    log = SegmentLog(folder)
    frames = list(answers(100))
    for frame in frames:
        add(log, b"GET key", frame)
    log.close()
    assert used(folder) < 2 * MIB
    assert frames_in(folder)[1::2] == frames
    assert verify_log(folder).damages == []
    whole = list(RangeReader(folder, wait_s=0).read(0, 200))
    assert [row["frame"] for batch in whole for row in batch.to_pylist()] == frames_in(folder)


def test_within_one_block_too(folder: Path) -> None:
    log = SegmentLog(folder)
    frames = [b"first", *answers(5), b"between", VALUE, b"last", VALUE[: LOG_REPEAT_BYTES_MIN - 1]]
    add(log, *frames)
    add(log, *reversed(frames))
    log.close()
    assert used(folder) < 1.5 * MIB
    assert frames_in(folder) == [*frames, *reversed(frames)]
    assert frames_in(folder, from_seq=13) == list(reversed(frames))[3:]


@pytest.mark.parametrize("size", [LOG_REPEAT_BYTES_MIN - 1, LOG_REPEAT_BYTES_MIN, LOG_REPEAT_BYTES_MIN + 1, 100_003])
def test_sizes_at_the_limits(folder: Path, size: int) -> None:
    log = SegmentLog(folder)
    for number in range(20):
        add(log, b"%04d" % number + VALUE[: size - 4])
    log.close()
    assert frames_in(folder) == [b"%04d" % number + VALUE[: size - 4] for number in range(20)]
    if size > LOG_REPEAT_BYTES_MIN:
        assert used(folder) < size + 20 * 8 * KIB


def test_frames_that_differ_anywhere_behind_the_head_are_stored_whole(folder: Path) -> None:
    log = SegmentLog(folder)
    frames = []
    for place in (6 * KIB, MIB // 2, MIB - 1):
        changed = bytearray(VALUE)
        changed[place] ^= 1
        frames.append(bytes(changed))
    for frame in (VALUE, *frames):
        add(log, frame)
    log.close()
    assert frames_in(folder) == [VALUE, *frames]
    assert used(folder) > 4 * MIB


def test_a_forged_checksum_is_no_repeat(folder: Path) -> None:
    pattern = (0x82F63B78 << 1 | 1).to_bytes(5, "little")  # the polynomial itself: adding it changes no CRC-32C
    forged = bytearray(VALUE)
    for place, byte in enumerate(pattern, MIB // 2):
        forged[place] ^= byte
    assert crc32c(bytes(forged)) == crc32c(VALUE)
    log = SegmentLog(folder)
    add(log, VALUE, bytes(forged), VALUE)
    add(log, bytes(forged))
    add(log, VALUE)
    log.close()
    assert frames_in(folder) == [VALUE, bytes(forged), VALUE, bytes(forged), VALUE]
    assert used(folder) > 2 * MIB


def test_after_a_restart_and_without_the_first_segment(folder: Path) -> None:
    frames = list(answers(30))
    for part in (frames[:10], frames[10:20], frames[20:]):
        log = SegmentLog(folder)
        for frame in part:
            add(log, frame)
        log.close()
    assert used(folder) < 4 * MIB
    assert frames_in(folder) == frames
    segment_path(folder, 0).unlink()  # as retention does
    assert frames_in(folder) == frames[10:]


def test_each_segment_holds_what_its_references_need(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    random = Random(2)
    values = [random.randbytes(random.randrange(20, 900) * KIB) for _ in range(12)]
    frames = [b"%d" % number + random.choice(values) for number in range(300)]
    for frame in frames:
        add(log, b"ask", frame)
    log.close()
    firsts = list_segments(folder)
    assert len(firsts) > 3
    assert used(folder) < 4 * MIB * len(firsts)
    for first in firsts:
        assert frames_in(folder) == [each for frame in frames for each in (b"ask", frame)][first:]
        segment_path(folder, first).unlink()


def test_a_write_that_fails_is_not_referred_to(folder: Path) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SMALL, files)
    other = VALUE[::-1]
    add(log, b"1" + VALUE)
    for operation in ("write", "fsync_data"):  # after the second, the block goes to a new segment
        files.fail(operation, errno.EIO)
        pending = log.append(AT_US, "redis", "frame", "out", "s", "me", "peer", b"2" + other)
        log.append(AT_US, "redis", "frame", "out", "s", "me", "peer", b"3" + VALUE)
        with pytest.raises(Exception, match="cannot be written"):
            pending.wait(30)
        while log.refusal:
            os.sched_yield()
        add(log, b"4" + other, b"5" + VALUE)
    log.close()
    expected = [b"1" + VALUE, *[b"2" + other, b"3" + VALUE, b"4" + other, b"5" + VALUE] * 2]
    assert frames_in(folder) == expected
    assert verify_log(folder).damages == []


def test_planning_counts_what_is_read_not_what_is_stored(folder: Path) -> None:
    log = SegmentLog(folder)
    for frame in answers(10):
        add(log, frame)
    log.close()
    assert sum(piece.bytes for piece in BlockIndex(folder).ranges(0, 10)) > 10 * MIB


def test_a_lost_source_costs_the_tail_and_the_record_says_so(folder: Path) -> None:
    living = folder.parent / "living"
    log = SegmentLog(living)
    add(log, b"1" + VALUE)
    add(log, b"22" + VALUE, note='{"path":"/x"}')
    add(log, b"other")
    shutil.copytree(living, folder)  # as a process leaves it that was killed
    log.close()
    path = segment_path(folder, 0)
    segment = MappedSegment(path, 0, None)
    with path.open("r+b") as file:
        file.seek(segment.first_block_offset + MIB // 2)
        file.write(b"\xff\x00\xff")
    del segment
    head = (b"22" + VALUE)[: 2 + MIB - (MIB - KIB) // (4 * KIB) * 4 * KIB]

    def check() -> None:
        rows = [row for batch in LogReader(folder).read() for row in batch.to_pylist()]
        assert [row["seq"] for row in rows] == [1, 2]
        assert rows[0]["frame"] == head
        missing = len(VALUE) + 2 - len(head)
        assert json.decode(rows[0]["note"]) == {"path": "/x", "missing_tail_bytes": missing}
        assert rows[1]["frame"] == b"other"

    check()
    with pytest.raises(MissingRecordsError, match="is incomplete"):  # in the view of another machine
        list(RangeReader(folder, wait_s=0).read(1, 3))
    SegmentLog(folder).close()  # makes a hole of the damaged block
    check()
    reader = RangeReader(folder, wait_s=0)
    assert sum(batch.num_rows for batch in reader.read(0, 3)) == 2
    assert [gap.rows for gap in reader.gaps] == [1]


def test_segments_of_earlier_versions_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_format, "SCHEMA_VERSION", 1)
    log = SegmentLog(folder)
    add(log, b"old")
    log.close()
    monkeypatch.undo()
    log = SegmentLog(folder)
    add(log, b"new")
    log.close()
    assert frames_in(folder) == [b"old", b"new"]
    assert MappedSegment(segment_path(folder, 1), 1, None).head is not None
