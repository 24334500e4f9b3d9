"""How much lies where in the log, from the headers of its blocks alone: no record is read."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wirelake.errors import GoneError
from wirelake.log.mark import Mark
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import Near, SegmentMap, State


class Piece(NamedTuple):
    """A block, or a run of records that are lost."""

    first_seq: int
    end_seq: int
    bytes: int  # as large as its records are once they are read
    at_max_us: int  # 0 where that is lost too
    near: Near | None = None  # the block; None for what is lost

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class _Place(NamedTuple):
    segment: SegmentMap
    offset: int
    seq: int


class Survey:
    """Remembers where it began and ended: who follows the end of a log walks each block twice at most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = Mark(folder)
        self._begun: _Place | None = None
        self._ended: _Place | None = None

    @property
    def next_seq(self) -> int:
        return self._mark.seq

    @property
    def salt(self) -> int | None:
        """Which log it is; None if the mark does not say."""
        return self._mark.salt

    @property
    def oldest_seq(self) -> int:
        firsts = segment_firsts(self.folder)
        return min(firsts[0], self.next_seq) if firsts else self.next_seq

    def pieces(self, from_seq: int, until_seq: int) -> Iterator[Piece]:
        """What holds the records from `from_seq` on and before `until_seq`; the first and the last are cut to that."""
        end = min(until_seq, self.next_seq)
        place = self._known(from_seq) or (self._locate(from_seq) if from_seq < end else None)
        self._begun = place
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
                near = Near(place.segment.first_seq, place.offset, found.first_seq)
                repeated = found.header.repeated_bytes if found.header is not None else 0
                yield Piece(first, last, found.span_bytes + repeated, at_max_us, near)
            self._ended = place  # the last block: the next question may begin inside it
            place = _Place(place.segment, place.offset + found.span_bytes, found.end_seq)

    def _known(self, seq: int) -> _Place | None:
        """The nearest place before `seq` that was found earlier, if it is in the segment that has it."""
        near = [place for place in (self._begun, self._ended) if place is not None and place.seq <= seq]
        return max(near, key=lambda place: place.seq, default=None)

    def _locate(self, seq: int) -> _Place:
        firsts = segment_firsts(self.folder)
        number = bisect_right(firsts, seq) - 1
        if number < 0:
            raise GoneError(seq, self.oldest_seq)
        return self._begin(firsts[number], seq)

    def _after(self, segment: SegmentMap) -> _Place | None:
        later = [first for first in segment_firsts(self.folder) if first > segment.first_seq]
        return self._begin(later[0], later[0]) if later else None

    def _begin(self, first_seq: int, seq: int) -> _Place:
        try:
            segment = SegmentMap(segment_path(self.folder, first_seq), first_seq, self._mark.salt)
        except FileNotFoundError as error:
            raise GoneError(seq, self.oldest_seq) from error
        return _Place(segment, *segment.find(seq))
