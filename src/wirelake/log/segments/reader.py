"""Read the log from any process, whether or not it is being written."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import GoneError
from wirelake.limits import LOG_DAMAGE_KEPT_MAX, LOG_POLL_S
from wirelake.log.interface import AT_TYPE
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.integrity import Damage
from wirelake.log.segments.mapped_segment import BlockHint, BlockInfo, BlockState, MappedSegment

_log = logging.getLogger(__name__)


class LogReader:
    """Read committed records as batches that point into memory maps and stay valid when a segment is removed.

    Damaged blocks are skipped: they are logged, counted in `rows_lost`, and listed in `damages`.
    """

    def __init__(self, folder: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._watermark = HighWatermark(folder)
        self._sleep = sleep
        self.damages: list[Damage] = []
        self.rows_lost = 0

    @property
    def next_seq(self) -> int:
        """Return the seq after the last durable record."""
        return self._watermark.seq

    @property
    def oldest_seq(self) -> int:
        """Return the seq of the oldest record that retention has left; `next_seq` if there is none."""
        firsts = list_segments(self._folder)
        return min(firsts[0], self.next_seq) if firsts else self.next_seq

    def read(
        self,
        from_seq: int | None = None,
        until_seq: int | None = None,
        wait_s: float = 0.0,
        since_us: int | None = None,
        until_us: int | None = None,
        hint: BlockHint | None = None,
    ) -> Iterator[Any]:
        """Yield record batches in order, none of them empty; see `EventLog.read`.

        `since_us` and `until_us` filter by the column `at`. `hint` is a block at or before `from_seq`, which saves the
        search: a segment that is not sealed has no index.
        """
        seq = self.oldest_seq if from_seq is None else from_seq
        times = None if since_us is None and until_us is None else _TimeFilter(since_us, until_us)
        cursor: _Cursor | None = None
        deadline_s = time.monotonic() + wait_s
        while until_seq is None or seq < until_seq:
            committed = self._watermark.seq
            if seq >= committed:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                self._sleep(min(LOG_POLL_S, left_s))
                continue
            if cursor is None:
                cursor = self._open_cursor(seq, times, hint)
            end = committed if until_seq is None else min(committed, until_seq)
            for block in cursor.blocks(end):
                if block.state is BlockState.VALID:
                    batch = slice_rows(cursor.segment.read_batch(block), block, seq, end)
                    batch = batch if times is None else times.filter(batch)
                    if batch.num_rows:
                        yield batch
                else:
                    self._skip(cursor.segment, block, max(seq, block.first_seq), min(block.end_seq, end))
            seq = max(seq, min(cursor.seq, end))
            if seq < end:
                seq = self._next_segment_seq(cursor, seq, end)
                cursor = None
            deadline_s = time.monotonic() + wait_s

    def _open_cursor(self, seq: int, times: "_TimeFilter | None", hint: BlockHint | None) -> "_Cursor":
        for _ in range(2):  # a segment may be removed between the listing and the opening
            firsts = list_segments(self._folder)
            at_or_before = [first for first in firsts if first <= seq]
            if not at_or_before:
                break
            first = at_or_before[-1]
            try:
                segment = MappedSegment(segment_path(self._folder, first), first, self._watermark.salt)
            except FileNotFoundError:
                continue
            return _Cursor(segment, seq, times, hint)
        raise GoneError(seq, self.oldest_seq)

    def _next_segment_seq(self, cursor: "_Cursor", seq: int, end: int) -> int:
        """Return where the next segment starts. Records between the end of this one and that are lost."""
        firsts = list_segments(self._folder)
        if firsts and firsts[0] > seq:  # retention removes the oldest first, so this one is gone as well
            raise GoneError(seq, firsts[0])
        later = [first for first in firsts if first > cursor.segment.first_seq]
        next_first = min(later[0] if later else end, end)
        if next_first > seq:
            missing = BlockInfo(BlockState.DAMAGED, cursor.offset, 0, seq, next_first - seq, None)
            self._skip(cursor.segment, missing, seq, next_first)
        return max(seq, next_first)

    def _skip(self, segment: MappedSegment, block: BlockInfo, first_seq: int, end_seq: int) -> None:
        rows = end_seq - first_seq
        if rows <= 0:
            return
        damage = Damage(
            kind="damaged",
            segment=segment.path.name,
            offset=block.offset,
            bytes=block.span_bytes,
            first_seq=first_seq,
            rows=rows,
        )
        self.rows_lost += rows
        if len(self.damages) < LOG_DAMAGE_KEPT_MAX:
            self.damages.append(damage)
        _log.warning("log: skipped: %s", damage)


class _TimeFilter:
    """Select records by the column `at`: from `since_us` on and before `until_us`."""

    def __init__(self, since_us: int | None, until_us: int | None) -> None:
        self._since_us = since_us
        self._until_us = until_us

    def excludes(self, at_min_us: int, at_max_us: int) -> bool:
        """Tell whether nothing between these two times is selected."""
        return (self._since_us is not None and at_max_us < self._since_us) or (
            self._until_us is not None and at_min_us >= self._until_us
        )

    def filter(self, batch: Any) -> Any:
        if self._since_us is not None:
            batch = batch.filter(pc.greater_equal(batch.column("at"), pa.scalar(self._since_us, AT_TYPE)))
        if self._until_us is not None:
            batch = batch.filter(pc.less(batch.column("at"), pa.scalar(self._until_us, AT_TYPE)))
        return batch


class _Cursor:
    """Iterate over the blocks of a segment."""

    def __init__(self, segment: MappedSegment, seq: int, times: _TimeFilter | None, hint: BlockHint | None) -> None:
        self.segment = segment
        self._times = times
        if hint is not None and hint.seq <= seq and segment.has_block_at(hint):
            self.offset, self.seq = hint.offset, hint.seq
        else:
            self.offset, self.seq = segment.seek(seq)
        trailer = segment.trailer
        if times is not None and trailer is not None and times.excludes(trailer.at_min_us, trailer.at_max_us):
            self.offset, self.seq = trailer.index_offset, trailer.end_seq

    def blocks(self, end: int) -> Iterator[BlockInfo]:
        """Yield the next blocks while they contain records before `end`, except those that the times exclude."""
        times = self._times
        while self.seq < end:
            block = self.segment.inspect(self.offset, self.seq, check_body=times is None)
            if block is not None and times is not None and block.header is not None:
                if block.state is BlockState.VALID and times.excludes(block.header.at_min_us, block.header.at_max_us):
                    self.offset += block.span_bytes
                    self.seq = block.end_seq
                    continue
                block = self.segment.inspect(self.offset, self.seq)
            if block is None or block.state is BlockState.INDEX:
                return
            self.offset += block.span_bytes
            self.seq = block.end_seq
            yield block


def slice_rows(batch: Any, block: BlockInfo, from_seq: int, end: int) -> Any:
    """Return the rows of a block from `from_seq` on and before `end`."""
    if block.first_seq >= from_seq and block.end_seq <= end:
        return batch
    start = max(0, from_seq - block.first_seq)
    return batch.slice(start, min(block.end_seq, end) - block.first_seq - start)
