"""How much lies where in the log, from the headers of its blocks alone: no record is read."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wirelake.errors import GoneError
from wirelake.log.mark import Mark
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import SegmentMap, State


class Piece(NamedTuple):
    """A block, or a run of records that are lost."""

    first_seq: int
    end_seq: int
    bytes: int
    at_max_us: int  # 0 where that is lost too

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class _Place(NamedTuple):
    segment: SegmentMap
    offset: int
    seq: int


class Survey:
    """Remembers where it ended: who asks about the end of a log again and again walks no block twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = Mark(folder)
        self._place: _Place | None = None

    @property
    def next_seq(self) -> int:
        return self._mark.seq

    @property
    def oldest_seq(self) -> int:
        firsts = segment_firsts(self._folder)
        return min(firsts[0], self.next_seq) if firsts else self.next_seq

    def pieces(self, from_seq: int, until_seq: int) -> Iterator[Piece]:
        """What holds the records from `from_seq` on and before `until_seq`; the first and the last are cut to that."""
        end = min(until_seq, self.next_seq)
        place = self._place
        if place is None or place.seq > from_seq:
            place = self._locate(from_seq) if from_seq < end else None
        while place is not None and place.seq < end:
            found = place.segment.look(place.offset, place.seq, check_body=False)
            if found is None or found.state is State.INDEX:
                later = self._after(place.segment)
                following = end if later is None else min(later.seq, end)
                if following > max(place.seq, from_seq):
                    yield Piece(max(place.seq, from_seq), following, 0, 0)
                place = later
                continue
            if found.end_seq > from_seq:
                at_max_us = found.header.at_max_us if found.state is State.WHOLE and found.header is not None else 0
                first, last = max(found.first_seq, from_seq), min(found.end_seq, end)
                yield Piece(first, last, found.span_bytes, at_max_us)
            self._place = place  # of the last block: the next question may begin inside it
            place = _Place(place.segment, place.offset + found.span_bytes, found.end_seq)
        if place is not None:
            self._place = place if place.seq <= end else self._place

    def _locate(self, seq: int) -> _Place:
        firsts = segment_firsts(self._folder)
        number = bisect_right(firsts, seq) - 1
        if number < 0:
            raise GoneError(seq, self.oldest_seq)
        return self._begin(firsts[number], seq)

    def _after(self, segment: SegmentMap) -> _Place | None:
        later = [first for first in segment_firsts(self._folder) if first > segment.first_seq]
        return self._begin(later[0], later[0]) if later else None

    def _begin(self, first_seq: int, seq: int) -> _Place:
        try:
            segment = SegmentMap(segment_path(self._folder, first_seq), first_seq, self._mark.salt)
        except FileNotFoundError as error:
            raise GoneError(seq, self.oldest_seq) from error
        return _Place(segment, *segment.find(seq))
