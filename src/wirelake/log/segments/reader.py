"""Read the log from any process, whether or not it is being written.

A `LogReader` follows the log: it stops where its own view of the log ends and skips what is damaged. That is wrong for
a task on another machine: its view may be behind (a network file system's cache, another mount, a copied folder), and
the records that it does not see would be left out silently. A `RangeReader` is given the end of its range and reads to
the last record, or fails. It ignores the high watermark: every block is verified by its checksum, and seqs have no
gaps.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.errors import GoneError, MissingRecordsError
from wirelake.limits import LOG_DAMAGES_MAX, LOG_POLL_S, LOG_VIEW_POLL_S
from wirelake.log.interface import AT_TYPE
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.integrity import Damage
from wirelake.log.segments.mapped_segment import BlockHint, BlockInfo, BlockState, MappedSegment

HOLE: Final = "hole"  # the writer found it damaged when it started; its bytes are in the log's quarantine
DAMAGED: Final = "damaged"  # its checksum does not match
SOURCE_DAMAGED: Final = "source damaged"  # it is valid, but repeats frames of a damaged block

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
    def salt(self) -> int | None:
        """Return what identifies the log; None if the watermark file is damaged."""
        return self._watermark.salt

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
        if len(self.damages) < LOG_DAMAGES_MAX:
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


class Gap(Struct, frozen=True):
    """Name records that are lost, and why."""

    first_seq: int
    end_seq: int
    reason: str

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class RangeReader:
    """Read one range. `gaps` then lists the records of the range that were left out, each with the reason.

    Holes are left out. Damaged records are left out only where `damaged` confirms that another process with a better
    view found the same damage, or with `skip_damaged`. For anything else that cannot be read the reader waits, `wait_s`
    in total, and then raises MissingRecordsError.
    """

    def __init__(
        self,
        folder: Path,
        *,
        wait_s: float,
        salt: int | None = None,
        damaged: Sequence[Gap] = (),
        skip_damaged: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._salt = salt
        self._damaged = damaged
        self._skip_damaged = skip_damaged
        self._sleep = sleep
        self.gaps: list[Gap] = []
        self.cut_short: list[Gap] = []  # records that were read, but with frames that lack their tail

    def read(self, from_seq: int, until_seq: int, hint: BlockHint | None = None) -> Iterator[Any]:
        """Yield record batches in order, none of them empty. `hint` is a block at or before `from_seq`."""
        seq = from_seq
        while seq < until_seq:
            before = seq
            cursor, problem = self._open_cursor(seq, until_seq, hint)
            if cursor is not None:
                for block in cursor.blocks():
                    end_seq = min(block.end_seq, until_seq)
                    if block.state is BlockState.VALID:
                        batch = slice_rows(self._read_batch(cursor.segment, block), block, seq, until_seq)
                        if batch.num_rows != end_seq - seq:
                            name = cursor.segment.path.name
                            cursor.problem = f"the block at byte {block.offset} of {name} is incomplete"
                            break
                        yield batch
                    else:
                        self._leave_out(Gap(seq, end_seq, HOLE))
                    seq = end_seq
                problem = cursor.problem
            if problem and seq < until_seq:
                seen_end_seq = cursor.damage_end_seq if cursor is not None else None
                seq = self._skip_damage(seq, min(seen_end_seq or 0, until_seq), until_seq)
                if seq == before:
                    self._wait(seq, from_seq, until_seq, problem)

    def _read_batch(self, segment: MappedSegment, block: BlockInfo) -> Any:
        """Return the records of a block; none if it repeats frames of a damaged block, unless that is accepted."""
        records = segment.read_batch(block, needs_sources=True)
        if records.num_rows or not block.rows:
            return records
        gap = Gap(block.first_seq, block.end_seq, SOURCE_DAMAGED)
        if not self._skip_damaged and gap not in self._damaged:
            return records
        self.cut_short.append(gap)
        return segment.read_batch(block)

    def _open_cursor(self, seq: int, until_seq: int, hint: BlockHint | None) -> tuple["_RangeCursor | None", str]:
        """Open the segment that contains this record, as it is now; or return the reason why there is none."""
        try:
            firsts = list_segments(self._folder)
            at_or_before = [first for first in firsts if first <= seq]
            if not at_or_before:
                oldest = f"the oldest starts at record {firsts[0]}" if firsts else "there are no segments"
                return None, f"no segment contains record {seq}: {oldest}"
            first = at_or_before[-1]
            segment = MappedSegment(segment_path(self._folder, first), first, self._salt)
        except FileNotFoundError as error:
            return None, f"{error.filename} does not exist"
        if self._salt is not None and segment.head is not None and segment.head.salt != self._salt:
            return None, f"{segment.path.name} belongs to another log"
        next_first = next((later for later in firsts if later > first), None)
        return _RangeCursor(segment, next_first, seq, until_seq, hint), ""

    def _skip_damage(self, seq: int, seen_end_seq: int, until_seq: int) -> int:
        """Leave out what may be left out. Return the seq to go on with."""
        damaged = (gap for gap in self._damaged if gap.reason == DAMAGED)
        confirmed = next((gap for gap in damaged if gap.first_seq <= seq < gap.end_seq), None)
        if confirmed is not None:
            end_seq = min(confirmed.end_seq, until_seq)
        elif self._skip_damaged and seen_end_seq > seq:
            end_seq = seen_end_seq
        else:
            return seq
        self._leave_out(Gap(seq, end_seq, DAMAGED))
        return end_seq

    def _leave_out(self, gap: Gap) -> None:
        _log.warning("log: records %d to %d are lost: %s", gap.first_seq, gap.end_seq - 1, gap.reason)
        self.gaps.append(gap)

    def _wait(self, seq: int, from_seq: int, until_seq: int, problem: str) -> None:
        if self._wait_s <= 0:
            raise MissingRecordsError(
                f"cannot read record {seq} of records {from_seq} to {until_seq - 1} on {socket.gethostname()} "
                f"in {self._folder}: {problem}; every worker must see the log as the gateway's machine does"
            )
        step_s = min(LOG_VIEW_POLL_S, self._wait_s)
        self._sleep(step_s)
        self._wait_s -= step_s


class _RangeCursor:
    """Iterate over the blocks of a segment. `problem` says why it stopped early."""

    def __init__(
        self, segment: MappedSegment, next_first: int | None, seq: int, until_seq: int, hint: BlockHint | None
    ) -> None:
        self.segment = segment
        self.problem = ""
        self.damage_end_seq: int | None = None  # where the unreadable records end, if that is known
        self._next_first = next_first
        self._end_seq = until_seq if next_first is None else min(until_seq, next_first)
        if hint is not None and hint.seq <= seq and segment.has_block_at(hint):
            self._offset, self._seq = hint.offset, hint.seq
        else:
            self._offset, self._seq = segment.seek(seq)
        self._from_seq = seq

    def blocks(self) -> Iterator[BlockInfo]:
        """Yield valid blocks and holes, from the first record on."""
        name = self.segment.path.name
        while self._seq < self._end_seq:
            block = self.segment.inspect(self._offset, self._seq)
            if block is None or block.state is BlockState.INDEX:
                self.problem = f"{name} ends before it, at byte {self._offset}"
                self.damage_end_seq = self._next_first
                return
            if block.state is BlockState.DAMAGED and block.end_seq > max(self._seq, self._from_seq):
                self.problem = f"the bytes of {name} from {self._offset} on do not match their checksum"
                self.damage_end_seq = block.end_seq
                return
            self._offset += block.span_bytes
            self._seq = block.end_seq
            if block.state is not BlockState.DAMAGED and block.end_seq > self._from_seq:
                yield block


def damaged_gaps(folder: Path, from_seq: int, until_seq: int, salt: int | None) -> list[Gap]:
    """Look for damage in the range, as this process sees it: what a `RangeReader` elsewhere may leave out.

    Raise MissingRecordsError for records that do not exist at all, which is not damage.
    """
    reader = RangeReader(folder, wait_s=0.0, salt=salt, skip_damaged=True)
    for _ in reader.read(from_seq, until_seq):
        pass
    return [*(gap for gap in reader.gaps if gap.reason == DAMAGED), *reader.cut_short]
