"""List the blocks of the log with their sizes, from their headers alone: no record is read."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wirelake.errors import GoneError
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.mapped_segment import BlockHint, BlockState, MappedSegment


class BlockRange(NamedTuple):
    """Describe the records of a block, or a run of lost records."""

    first_seq: int
    end_seq: int
    bytes: int  # of its records once they are read
    at_max_us: int  # 0 if that is lost too
    hint: BlockHint | None = None  # the block; None for lost records

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class _Position(NamedTuple):
    segment: MappedSegment
    offset: int
    seq: int


class BlockIndex:
    """List the blocks of a log.

    The first and the last position of a listing are cached: a process that follows the end of a log visits each block
    at most twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._watermark = HighWatermark(folder)
        self._first: _Position | None = None
        self._last: _Position | None = None

    @property
    def next_seq(self) -> int:
        return self._watermark.seq

    @property
    def salt(self) -> int | None:
        """Return what identifies the log; None if the watermark file is damaged."""
        return self._watermark.salt

    @property
    def oldest_seq(self) -> int:
        firsts = list_segments(self.folder)
        return min(firsts[0], self.next_seq) if firsts else self.next_seq

    def ranges(self, from_seq: int, until_seq: int) -> Iterator[BlockRange]:
        """Yield what contains the records from `from_seq` on and before `until_seq`, trimmed to these bounds."""
        end = min(until_seq, self.next_seq)
        position = self._cached(from_seq) or (self._locate(from_seq) if from_seq < end else None)
        self._first = position
        while position is not None and position.seq < end:
            block = position.segment.inspect(position.offset, position.seq, check_body=False)
            if block is None or block.state is BlockState.INDEX:
                later = self._next_segment(position.segment)
                next_seq = end if later is None else min(later.seq, end)
                if next_seq > max(position.seq, from_seq):
                    yield BlockRange(max(position.seq, from_seq), next_seq, 0, 0)
                position = later
                continue
            if block.end_seq > from_seq:
                header = block.header
                at_max_us = header.at_max_us if block.state is BlockState.VALID and header is not None else 0
                first, last = max(block.first_seq, from_seq), min(block.end_seq, end)
                hint = BlockHint(position.segment.first_seq, position.offset, block.first_seq)
                repeated = header.repeated_bytes if header is not None else 0
                yield BlockRange(first, last, block.span_bytes + repeated, at_max_us, hint)
            self._last = position  # the next listing may start inside the last block
            position = _Position(position.segment, position.offset + block.span_bytes, block.end_seq)

    def _cached(self, seq: int) -> _Position | None:
        """Return the closest cached position at or before `seq`."""
        before = [position for position in (self._first, self._last) if position is not None and position.seq <= seq]
        return max(before, key=lambda position: position.seq, default=None)

    def _locate(self, seq: int) -> _Position:
        firsts = list_segments(self.folder)
        number = bisect_right(firsts, seq) - 1
        if number < 0:
            raise GoneError(seq, self.oldest_seq)
        return self._open(firsts[number], seq)

    def _next_segment(self, segment: MappedSegment) -> _Position | None:
        later = [first for first in list_segments(self.folder) if first > segment.first_seq]
        return self._open(later[0], later[0]) if later else None

    def _open(self, first_seq: int, seq: int) -> _Position:
        try:
            segment = MappedSegment(segment_path(self.folder, first_seq), first_seq, self._watermark.salt)
        except FileNotFoundError as error:
            raise GoneError(seq, self.oldest_seq) from error
        return _Position(segment, *segment.seek(seq))
