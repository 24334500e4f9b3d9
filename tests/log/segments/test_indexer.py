"""Indexes appear by themselves, and nothing that happens to them ever hides a record."""

import shutil
import time
from pathlib import Path
from random import Random

from log.faults import PowerFiles, torn
from log.records import AT_US, append, fill, frame_of
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.indexer import SegmentIndexer, build_index, ensure_index
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.lookup import LogLookup
from wirelake.log.segments.lookup_index import LookupIndex, index_path, list_indexes
from wirelake.log.segments.lookup_keys import identity_key, session_key
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings, RetentionLimits

SMALL = LogSettings(segment_bytes=16 * 1024)
WAIT_S = 20.0


def wait_for_indexes(folder: Path, firsts: list[int]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while list_indexes(folder) != firsts:
        assert time.monotonic() < deadline_s, f"indexes of {list_indexes(folder)}, not of {firsts}"
        time.sleep(0.01)


def contents(folder: Path) -> dict[int, bytes]:
    """The indexes; none if one was removed meanwhile."""
    try:
        return {first_seq: index_path(folder, first_seq).read_bytes() for first_seq in list_indexes(folder)}
    except FileNotFoundError:
        return {}


def check_all_found(folder: Path) -> None:
    """Every readable record is in a range that its session leads to."""
    lookup = LogLookup(folder)
    sessions: dict[str, set[int]] = {}
    for batch in LogReader(folder).read():
        for seq, session in zip(batch["seq"].to_pylist(), batch["session"].to_pylist(), strict=True):
            sessions.setdefault(session, set()).add(seq)
    assert sessions
    for session, seqs in sessions.items():
        ranges = lookup.ranges([session_key(session)])
        found = {seq for each in ranges for seq in range(each.first_seq, each.end_seq)}
        assert seqs <= found


def test_sealed_segments_get_an_index_while_the_log_is_written(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 300)
    firsts = list_segments(folder)
    assert len(firsts) > 3
    wait_for_indexes(folder, firsts[:-1])
    check_all_found(folder)
    log.close()
    again = SegmentLog(folder, SMALL)
    wait_for_indexes(folder, firsts)
    again.close()
    check_all_found(folder)


def test_what_is_missing_or_damaged_is_built_when_the_log_is_opened(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 300)
    log.close()
    firsts = list_segments(folder)
    for first_seq in firsts:
        ensure_index(folder, first_seq, None)
    intact = {first_seq: index_path(folder, first_seq).read_bytes() for first_seq in firsts}
    index_path(folder, firsts[0]).unlink()
    for number, place in enumerate((3, 70, -1), 1):
        raw = bytearray(intact[firsts[number]])
        raw[place] ^= 0xFF
        index_path(folder, firsts[number]).write_bytes(raw)
    check_all_found(folder)
    index_path(folder, firsts[-1] + 1).write_bytes(intact[firsts[0]])  # its segment is gone
    salt = MappedSegment(segment_path(folder, 0), 0, None).salt
    assert salt is not None
    indexer = SegmentIndexer(folder, salt)
    deadline_s = time.monotonic() + WAIT_S
    while contents(folder) != intact:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    indexer.close()


def test_retention_removes_an_index_with_its_segment(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 300)
    before = list_segments(folder)
    wait_for_indexes(folder, before[:-1])
    log.set_retention_limits(RetentionLimits(keep_bytes=40 * 1024))
    deadline_s = time.monotonic() + WAIT_S
    while list_segments(folder) == before or list_indexes(folder) != list_segments(folder)[:-1]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    log.close()
    check_all_found(folder)


def test_a_segment_that_is_not_sealed_has_no_index(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 20)
    assert build_index(folder, 0, None) is None
    assert ensure_index(folder, 0, None) is None
    log.close()
    assert build_index(folder, 0, None) is not None
    assert build_index(folder, 0, None, is_cancelled=lambda: True) is None


def test_records_that_were_damaged_are_found_once_they_are_restored(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(segment_bytes=64 * 1024))
    fill(log, 100)
    log.close()
    segment = MappedSegment(segment_path(folder, 0), 0, None)
    damaged = [block for block in segment.scan() if block.state is BlockState.VALID][3]
    intact = segment.path.read_bytes()
    raw = bytearray(intact)
    raw[damaged.offset + 100] ^= 1
    segment.path.write_bytes(raw)
    index_path(folder, 0).unlink(missing_ok=True)
    ensure_index(folder, 0, None)
    check_all_found(folder)
    (unread,) = LogLookup(folder).ranges([session_key("nobody")])
    assert (unread.first_seq, unread.end_seq) == (damaged.first_seq, damaged.end_seq)
    segment.path.write_bytes(intact)  # from a backup
    check_all_found(folder)


def test_no_record_is_hidden_after_a_power_failure_at_any_step(tmp_path: Path) -> None:
    """Indexes are not synced: any mixture of their sectors may be on the disk, and of segments that are gone."""
    source = tmp_path / "source"
    files = PowerFiles()
    log = SegmentLog(source, SMALL, files)
    for number in range(150):
        commit = append(log)
        if number % 3 == 0:
            commit.wait(10)
            files.committed_seq = files.acknowledged_seq = commit.result().stop
    log.close()
    for first_seq in list_segments(source):
        ensure_index(source, first_seq, None)
    random = Random(5)
    for step in random.sample(range(len(files.snapshots)), 15):
        target = tmp_path / f"step-{step}"
        target.mkdir()
        files.snapshots[step].restore(source, target, random)
        for first_seq in list_indexes(source):
            content = index_path(source, first_seq).read_bytes()
            if random.random() < 0.5:
                shutil.copy(index_path(source, first_seq), target)
            else:
                index_path(target, first_seq).write_bytes(torn(b"", [(0, content)], random))
        again = SegmentLog(target, SMALL)
        for number in range(25):  # in segments of names that were used before, with other records
            again.append(AT_US, "comet", "frame", "in", f"later-{number}", "me", "", frame_of(number)).wait(10)
        check_all_found(target)
        again.close()
        for first_seq in list_segments(target):
            ensure_index(target, first_seq, None)
        check_all_found(target)


def test_the_index_of_a_lost_segment_is_not_taken_for_that_of_the_next_one_of_its_name(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 20)
    log.close()
    ensure_index(folder, 0, None)
    stale = index_path(folder, 0).read_bytes()
    segment_path(folder, 0).unlink()
    (folder / "committed").unlink()
    again = SegmentLog(folder, SMALL)
    index_path(folder, 0).write_bytes(stale)
    again.append(AT_US, "comet", "frame", "in", "another", "me", "", b"").wait(10)
    assert list_indexes(folder) == []
    check_all_found(folder)
    again.close()


def test_a_segment_of_many_sessions(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(fsync=False))
    count = 20_000
    sessions = tuple(f"s-{number:x}" for number in range(count))
    frames = tuple(b"-%d-" % number for number in range(count))
    log.append_rows(AT_US, "comet", "frame", "in", sessions, sessions, "", frames).wait(10)
    log.close()
    size = ensure_index(folder, 0, None)
    assert size is not None
    assert size < count * 10, "two keys of four bytes for a record, and a little"
    index = LookupIndex.open(folder, 0, None)
    assert index is not None
    with index:
        for number in range(0, count, 97):
            found = index.find([session_key(sessions[number])])
            assert found == index.find([identity_key(sessions[number])])
            assert any(number in seqs for seqs in found)
