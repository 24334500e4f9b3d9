"""Reads the log, from any process, while it is written or not."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import GoneError
from wirelake.limits import LOG_DAMAGE_KEPT_MAX, LOG_POLL_S
from wirelake.log.mark import Mark
from wirelake.log.quarantine import Damage
from wirelake.log.schema import AT
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import Near, SegmentMap, State, Stretch

_log = logging.getLogger(__name__)


class Reader:
    """Batches point into memory maps of the segments; they stay valid when a segment is removed.

    Damaged places are skipped and told: logged, counted in `rows_lost`, and listed in `damages`.
    """

    def __init__(self, folder: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._mark = Mark(folder)
        self._sleep = sleep
        self.damages: list[Damage] = []
        self.rows_lost = 0

    @property
    def next_seq(self) -> int:
        """The seq after the last durable record."""
        return self._mark.seq

    @property
    def oldest_seq(self) -> int:
        """The first record that is still there; `next_seq` if there is none."""
        firsts = segment_firsts(self._folder)
        return min(firsts[0], self.next_seq) if firsts else self.next_seq

    def read(
        self,
        from_seq: int | None = None,
        until_seq: int | None = None,
        wait_s: float = 0.0,
        since_us: int | None = None,
        until_us: int | None = None,
        near: Near | None = None,
    ) -> Iterator[Any]:
        """Record batches in order, none of them empty. See `EventLog.read`; times are those of the column `at`.

        `near` is a block at or before `from_seq`, which saves the search: a segment that is not sealed has no index.
        """
        seq = self.oldest_seq if from_seq is None else from_seq
        times = None if since_us is None and until_us is None else Times(since_us, until_us)
        cursor: _Cursor | None = None
        deadline_s = time.monotonic() + wait_s
        while until_seq is None or seq < until_seq:
            committed = self._mark.seq
            if seq >= committed:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                self._sleep(min(LOG_POLL_S, left_s))
                continue
            if cursor is None:
                cursor = self._locate(seq, times, near)
            end = committed if until_seq is None else min(committed, until_seq)
            for found in cursor.stretches(end):
                if found.state is State.WHOLE:
                    batch = cut_rows(cursor.segment.batch(found), found, seq, end)
                    batch = batch if times is None else times.filter(batch)
                    if batch.num_rows:
                        yield batch
                else:
                    self._skip(cursor.segment, found, max(seq, found.first_seq), min(found.end_seq, end))
            seq = max(seq, min(cursor.seq, end))
            if seq < end:
                seq = self._move_on(cursor, seq, end)
                cursor = None
            deadline_s = time.monotonic() + wait_s

    def _locate(self, seq: int, times: "Times | None", near: Near | None) -> "_Cursor":
        for _ in range(2):  # a segment may be removed between the listing and the opening
            firsts = segment_firsts(self._folder)
            at_or_before = [first for first in firsts if first <= seq]
            if not at_or_before:
                break
            first = at_or_before[-1]
            try:
                segment = SegmentMap(segment_path(self._folder, first), first, self._mark.salt)
            except FileNotFoundError:
                continue
            return _Cursor(segment, seq, times, near)
        raise GoneError(seq, self.oldest_seq)

    def _move_on(self, cursor: "_Cursor", seq: int, end: int) -> int:
        """The segment holds no more, but the log does: where to go on. What lies between is lost."""
        firsts = segment_firsts(self._folder)
        if firsts and firsts[0] > seq:  # retention removes the oldest first, so this one is gone as well
            raise GoneError(seq, firsts[0])
        later = [first for first in firsts if first > cursor.segment.first_seq]
        following = min(later[0] if later else end, end)
        if following > seq:
            found = Stretch(State.DAMAGED, cursor.offset, 0, seq, following - seq, None)
            self._skip(cursor.segment, found, seq, following)
        return max(seq, following)

    def _skip(self, segment: SegmentMap, found: Stretch, first_seq: int, end_seq: int) -> None:
        rows = end_seq - first_seq
        if rows <= 0:
            return
        damage = Damage(
            kind="damaged",
            segment=segment.path.name,
            offset=found.offset,
            bytes=found.span_bytes,
            first_seq=first_seq,
            rows=rows,
        )
        self.rows_lost += rows
        if len(self.damages) < LOG_DAMAGE_KEPT_MAX:
            self.damages.append(damage)
        _log.warning("log: skipped: %s", damage)


class Times:
    """A span of the column `at`: from the first, before the second."""

    def __init__(self, since_us: int | None, until_us: int | None) -> None:
        self._since_us = since_us
        self._until_us = until_us

    def miss(self, at_min_us: int, at_max_us: int) -> bool:
        """Whether nothing between these two is in the span."""
        return (self._since_us is not None and at_max_us < self._since_us) or (
            self._until_us is not None and at_min_us >= self._until_us
        )

    def filter(self, batch: Any) -> Any:
        if self._since_us is not None:
            batch = batch.filter(pc.greater_equal(batch.column("at"), pa.scalar(self._since_us, AT)))
        if self._until_us is not None:
            batch = batch.filter(pc.less(batch.column("at"), pa.scalar(self._until_us, AT)))
        return batch


class _Cursor:
    """A place in a segment."""

    def __init__(self, segment: SegmentMap, seq: int, times: Times | None, near: Near | None) -> None:
        self.segment = segment
        self._times = times
        if near is not None and near.seq <= seq and segment.begins(near):
            self.offset, self.seq = near.offset, near.seq
        else:
            self.offset, self.seq = segment.find(seq)
        trailer = segment.trailer
        if times is not None and trailer is not None and times.miss(trailer.at_min_us, trailer.at_max_us):
            self.offset, self.seq = trailer.index_offset, trailer.end_seq

    def stretches(self, end: int) -> Iterator[Stretch]:
        """What lies from here on, as long as records before `end` are in it. Blocks outside the times are passed by."""
        times = self._times
        while self.seq < end:
            found = self.segment.look(self.offset, self.seq, check_body=times is None)
            if found is not None and times is not None and found.header is not None:
                if found.state is State.WHOLE and times.miss(found.header.at_min_us, found.header.at_max_us):
                    self.offset += found.span_bytes
                    self.seq = found.end_seq
                    continue
                found = self.segment.look(self.offset, self.seq)
            if found is None or found.state is State.INDEX:
                return
            self.offset += found.span_bytes
            self.seq = found.end_seq
            yield found


def cut_rows(batch: Any, found: Stretch, from_seq: int, end: int) -> Any:
    """The rows from `from_seq` on and before `end`."""
    if found.first_seq >= from_seq and found.end_seq <= end:
        return batch
    start = max(0, from_seq - found.first_seq)
    return batch.slice(start, min(found.end_seq, end) - found.first_seq - start)
