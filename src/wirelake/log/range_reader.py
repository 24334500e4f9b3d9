"""Reads a range of records that somebody else knows to be committed: to the last record, or not at all.

`Reader` stops where its own view of the log ends and steps over what is damaged. That is right for whoever follows the
log, and wrong for a task on another machine: its view may be behind (a network file system's cache, another mount, a
copied folder), and records it does not see would be left out without a word. A `RangeReader` is told where its range
ends. It does not look at the mark: every block proves itself by its checksum, and their seqs follow each other.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from wirelake.errors import MissingRecordsError
from wirelake.limits import LOG_VIEW_POLL_S
from wirelake.log.reader import cut_rows
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import Near, SegmentMap, State, Stretch

HOLE: Final = "hole"  # the writer found it damaged when it started; its bytes are in the log's quarantine
DAMAGED: Final = "damaged"  # its checksum does not hold
SOURCE_DAMAGED: Final = "source damaged"  # it is whole, but repeats frames of a block that is damaged

_log = logging.getLogger(__name__)


class Gap(Struct, frozen=True):
    """Records that are lost, and why."""

    first_seq: int
    end_seq: int
    reason: str

    @property
    def rows(self) -> int:
        return self.end_seq - self.first_seq


class RangeReader:
    """Use it for one range. `gaps` holds the records of the range that were left out, each with the reason.

    Holes are left out. What is damaged is left out only where `damaged` says that somebody with a better view found it
    so too, or with `skip_damaged`. Anything else that cannot be read is waited for, `wait_s` in all, and then an error.
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
        self.cut_short: list[Gap] = []  # records that are there, some of their frames without the tail

    def read(self, from_seq: int, until_seq: int, near: Near | None = None) -> Iterator[Any]:
        """Yield record batches in order, none of them empty. `near` is a block at or before `from_seq`."""
        seq = from_seq
        while seq < until_seq:
            before = seq
            cursor, why = self._locate(seq, until_seq, near)
            if cursor is not None:
                for found in cursor.stretches():
                    end_seq = min(found.end_seq, until_seq)
                    if found.state is State.WHOLE:
                        batch = cut_rows(self._records(cursor.segment, found), found, seq, until_seq)
                        if batch.num_rows != end_seq - seq:
                            cursor.why = f"the block at byte {found.offset} of {cursor.segment.path.name} is not whole"
                            break
                        yield batch
                    else:
                        self._leave_out(Gap(seq, end_seq, HOLE))
                    seq = end_seq
                why = cursor.why
            if why and seq < until_seq:
                seen_end_seq = cursor.damage_end_seq if cursor is not None else None
                seq = self._pass_damage(seq, min(seen_end_seq or 0, until_seq), until_seq)
                if seq == before:
                    self._wait(seq, from_seq, until_seq, why)

    def _records(self, segment: SegmentMap, found: Stretch) -> Any:
        """The records of a block; none if it repeats frames of a block that is damaged, unless that is accepted."""
        records = segment.batch(found, needs_sources=True)
        if records.num_rows or not found.rows:
            return records
        mine = Gap(found.first_seq, found.end_seq, SOURCE_DAMAGED)
        if not self._skip_damaged and mine not in self._damaged:
            return records
        self.cut_short.append(mine)
        return segment.batch(found)

    def _locate(self, seq: int, until_seq: int, near: Near | None) -> tuple["_Cursor | None", str]:
        """Open the segment that has this record, as it is now; or say why there is none."""
        try:
            firsts = segment_firsts(self._folder)
            at_or_before = [first for first in firsts if first <= seq]
            if not at_or_before:
                oldest = f"the oldest there begins with record {firsts[0]}" if firsts else "there are none"
                return None, f"no segment there has record {seq}: {oldest}"
            first = at_or_before[-1]
            segment = SegmentMap(segment_path(self._folder, first), first, self._salt)
        except FileNotFoundError as error:
            return None, f"{error.filename} is not there"
        if self._salt is not None and segment.head is not None and segment.head.salt != self._salt:
            return None, f"{segment.path.name} there belongs to another log"
        following = next((later for later in firsts if later > first), None)
        return _Cursor(segment, following, seq, until_seq, near), ""

    def _pass_damage(self, seq: int, seen_end_seq: int, until_seq: int) -> int:
        """Leave out what may be; the seq to go on with."""
        damaged = (gap for gap in self._damaged if gap.reason == DAMAGED)
        known = next((gap for gap in damaged if gap.first_seq <= seq < gap.end_seq), None)
        if known is not None:
            end_seq = min(known.end_seq, until_seq)
        elif self._skip_damaged and seen_end_seq > seq:
            end_seq = seen_end_seq
        else:
            return seq
        self._leave_out(Gap(seq, end_seq, DAMAGED))
        return end_seq

    def _leave_out(self, gap: Gap) -> None:
        _log.warning("log: records %d to %d are lost: %s", gap.first_seq, gap.end_seq - 1, gap.reason)
        self.gaps.append(gap)

    def _wait(self, seq: int, from_seq: int, until_seq: int, why: str) -> None:
        if self._wait_s <= 0:
            raise MissingRecordsError(
                f"record {seq} of records {from_seq} to {until_seq - 1} cannot be read on {socket.gethostname()} "
                f"in {self._folder}: {why}; every worker must see the log as the gateway's machine does"
            )
        step_s = min(LOG_VIEW_POLL_S, self._wait_s)
        self._sleep(step_s)
        self._wait_s -= step_s


class _Cursor:
    """A place in a segment. `why` says what ended it before its end."""

    def __init__(self, segment: SegmentMap, following: int | None, seq: int, until_seq: int, near: Near | None) -> None:
        self.segment = segment
        self.why = ""
        self.damage_end_seq: int | None = None  # where what cannot be read ends, if that is known
        self._following = following
        self._end_seq = until_seq if following is None else min(until_seq, following)
        if near is not None and near.seq <= seq and segment.begins(near):
            self._offset, self._seq = near.offset, near.seq
        else:
            self._offset, self._seq = segment.find(seq)
        self._from_seq = seq

    def stretches(self) -> Iterator[Stretch]:
        """Yield what is whole and what is a hole, from the first record on."""
        name = self.segment.path.name
        while self._seq < self._end_seq:
            found = self.segment.look(self._offset, self._seq)
            if found is None or found.state is State.INDEX:
                self.why = f"{name} ends before it, at byte {self._offset}"
                self.damage_end_seq = self._following
                return
            if found.state is State.DAMAGED and found.end_seq > max(self._seq, self._from_seq):
                self.why = f"the bytes of {name} from {self._offset} on do not match their checksum"
                self.damage_end_seq = found.end_seq
                return
            self._offset += found.span_bytes
            self._seq = found.end_seq
            if found.state is not State.DAMAGED and found.end_seq > self._from_seq:
                yield found


def damaged_gaps(folder: Path, from_seq: int, until_seq: int, salt: int | None) -> list[Gap]:
    """Look for damage in the range, in this process's own view: what a `RangeReader` may be told to accept.

    What is not there at all is an error, not damage.
    """
    reader = RangeReader(folder, wait_s=0.0, salt=salt, skip_damaged=True)
    for _ in reader.read(from_seq, until_seq):
        pass
    return [*(gap for gap in reader.gaps if gap.reason == DAMAGED), *reader.cut_short]
