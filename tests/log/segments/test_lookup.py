from pathlib import Path

import pytest

from log.records import fill
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.indexer import ensure_index
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.lookup import LogLookup, LookupRange
from wirelake.log.segments.lookup_index import IndexedRange, encode_index, index_path
from wirelake.log.segments.lookup_keys import event_key, session_key

ROWS = 600


@pytest.fixture
def indexed(log: SegmentLog, folder: Path) -> Path:
    """A log of several segments, all but the open one indexed."""
    fill(log, ROWS)
    for first_seq in list_segments(folder):
        ensure_index(folder, first_seq, None)
    return folder


def covered(ranges: list[LookupRange]) -> set[int]:
    return {seq for each in ranges for seq in range(each.first_seq, each.end_seq)}


def test_every_record_is_in_a_range_and_few_others_are(indexed: Path) -> None:
    open_seq = list_segments(indexed)[-1]
    for number in range(17):
        found = list(LogLookup(indexed).ranges([session_key(f"session-{number}")]))
        wanted = {seq for seq in range(ROWS) if seq % 17 == number}
        assert wanted <= covered(found)
        assert [each.is_indexed for each in found] == [each.first_seq < open_seq for each in found]
        read = covered([each for each in found if each.is_indexed])
        assert len(read) <= 4 * len(wanted), "two records are a part of the index"
    nothing = list(LogLookup(indexed).ranges([session_key("nobody")]))
    assert nothing == [LookupRange(open_seq, ROWS, is_indexed=False)]


def test_bounds_and_order(indexed: Path) -> None:
    lookup = LogLookup(indexed)
    everything = list(lookup.ranges([event_key("frame")]))
    assert covered(everything) == set(range(ROWS))
    assert len(everything) == len(list_segments(indexed)), "adjacent parts are one range"
    assert list(lookup.ranges([event_key("frame")], newest_first=True)) == everything[::-1]
    assert covered(list(lookup.ranges([event_key("frame")], 33, 444))) == set(range(33, 444))
    last_us = 1_900_000_000_000_000 + ROWS
    recent = covered(list(lookup.ranges([event_key("frame")], since_us=last_us - 10)))
    assert set(range(ROWS - 10, ROWS)) <= recent < set(range(ROWS))


def test_keys_may_change_from_segment_to_segment_and_none_end_the_search(indexed: Path) -> None:
    given = [[session_key("nobody")], [event_key("frame")], []]
    found = list(LogLookup(indexed).ranges(lambda: given.pop(0)))
    firsts = list_segments(indexed)
    assert covered(found) == set(range(firsts[1], firsts[2]))


@pytest.mark.parametrize("damage", ["missing", "damaged", "of a longer segment"])
def test_a_segment_without_a_valid_index_is_returned_as_a_whole(indexed: Path, damage: str) -> None:
    firsts = list_segments(indexed)
    path = index_path(indexed, firsts[1])
    raw = bytearray(path.read_bytes())
    path.unlink()
    if damage == "damaged":
        raw[-5] ^= 1
        path.write_bytes(raw)
    elif damage == "of a longer segment":  # which had the same name, until a power failure took it
        salt = int.from_bytes(raw[64:68], "little")
        path.write_bytes(encode_index(IndexedRange(firsts[1], firsts[2] + 1, 0, 9**18, salt), [], 1))
    found = list(LogLookup(indexed).ranges([session_key(f"session-{number}") for number in range(17)]))
    second = [each for each in found if firsts[1] <= each.first_seq < firsts[2]]
    assert second == [LookupRange(firsts[1], firsts[2], is_indexed=False)]


def test_an_index_that_ends_early_says_nothing_about_the_rest(indexed: Path) -> None:
    firsts = list_segments(indexed)
    path = index_path(indexed, firsts[1])
    salt = int.from_bytes(path.read_bytes()[64:68], "little")
    path.write_bytes(encode_index(IndexedRange(firsts[1], firsts[2] - 5, 0, 9**18, salt), [], 1))
    found = list(LogLookup(indexed).ranges([session_key("nobody")], until_seq=firsts[2]))
    assert found == [LookupRange(firsts[2] - 5, firsts[2], is_indexed=False)]
