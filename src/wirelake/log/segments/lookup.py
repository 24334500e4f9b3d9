"""Look records up by session, identity, event or notification, with the lookup indexes of the segments.

The open segment has no index yet, nor has one whose index is missing or damaged: such a segment is returned as a
whole, for the caller to read within its own limits.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from wirelake.log.segments.format import list_segments
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.lookup_index import LookupIndex
from wirelake.log.segments.lookup_keys import LookupKey

_log = logging.getLogger(__name__)

Keys = Iterable[LookupKey]


class LookupRange(NamedTuple):
    """Name records that may have one of the keys: all that do are in the ranges that a lookup returns."""

    first_seq: int
    end_seq: int
    is_indexed: bool  # False: without an index, nothing is known about these records

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class LogLookup:
    """Look up the committed records of a log, from any process, whether or not the log is being written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watermark = HighWatermark(folder)

    def ranges(
        self,
        keys: Keys | Callable[[], Keys],
        from_seq: int = 0,
        until_seq: int | None = None,
        since_us: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[LookupRange]:
        """Yield where records with one of the keys may be, from `from_seq` on and before `until_seq`.

        `since_us` leaves out segments in which everything is older. If `keys` is a function, it is called for every
        segment, and the search ends when it returns nothing.
        """
        committed = self._watermark.seq
        end = committed if until_seq is None else min(until_seq, committed)
        segments = [each for each in pairwise([*list_segments(self._folder), committed]) if each[0] < end]
        for first, next_first in reversed(segments) if newest_first else segments:
            wanted = tuple(keys() if callable(keys) else keys)
            if not wanted:
                return
            found = self._find(first, next_first, wanted, since_us) if next_first > from_seq else []
            trimmed = [
                each._replace(first_seq=max(each.first_seq, from_seq), end_seq=min(each.end_seq, end))
                for each in found
                if each.end_seq > from_seq and each.first_seq < end
            ]
            yield from reversed(trimmed) if newest_first else trimmed

    def _find(self, first: int, end: int, keys: tuple[LookupKey, ...], since_us: int | None) -> list[LookupRange]:
        whole = [LookupRange(first, end, is_indexed=False)]
        index = LookupIndex.open(self._folder, first, self._watermark.salt)
        if index is None:
            return whole
        with index:
            covered = index.covered
            if covered.end_seq > end:
                return whole  # built for another segment of this name, which was lost
            if since_us is not None and covered.at_max_us < since_us:
                return []
            found = index.find(keys)
            if index.is_damaged:
                _log.warning("log: the lookup index of segment %d is damaged, the next start builds it again", first)
                return whole
        ranges: list[LookupRange] = []
        # An index that ends early says nothing about the rest, which should be lost records.
        rest = [LookupRange(covered.end_seq, end, is_indexed=False)] if covered.end_seq < end else []
        for seqs in found:
            if ranges and ranges[-1].end_seq == seqs.start:
                ranges[-1] = ranges[-1]._replace(end_seq=seqs.stop)
            else:
                ranges.append(LookupRange(seqs.start, seqs.stop, is_indexed=True))
        return ranges + rest
