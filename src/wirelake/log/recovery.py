"""What a writer does before it writes: looks at how the last one ended, mends that, and says what it found.

A block that was being written when the machine or the process stopped was confirmed to nobody: it is cut off. One block
is under way at a time, so a whole block after a damaged one proves that the damaged one had been confirmed: it becomes
a hole, and its bytes go to the quarantine. Cut bytes go there too. The last segment is then sealed; the writer begins
a new one, so nobody ever writes behind a mended place.
"""

import logging
from pathlib import Path

from msgspec import Struct, field

from wirelake.limits import LOG_SCRUB_BYTES_MAX
from wirelake.log import mark as marks
from wirelake.log import positions, quarantine
from wirelake.log.block import HEADER_BYTES, ROWS_MAX, Header, Kind, write_header
from wirelake.log.files import NEW_SUFFIX, Files
from wirelake.log.mark import Mark
from wirelake.log.quarantine import Damage
from wirelake.log.segment import Place, segment_firsts, segment_path, write_head
from wirelake.log.segmentmap import SegmentMap, State, Stretch
from wirelake.log.segmentwriter import seal_segment

_log = logging.getLogger(__name__)


class Recovery(Struct, frozen=True, kw_only=True):
    """How a log was found when it was opened for writing."""

    next_seq: int
    salt: int
    clean: bool  # the last writer had closed it
    damages: list[Damage] = field(default_factory=list)

    @property
    def rows_lost(self) -> int:
        """Confirmed records that are no longer readable."""
        return sum(damage.rows for damage in self.damages)

    @property
    def bytes_cut(self) -> int:
        return sum(damage.bytes for damage in self.damages if damage.kind == "torn")


def recover(folder: Path, files: Files, now_us: int) -> Recovery:
    """Only by the process that holds the writer's lock."""
    return _Mending(folder, files, now_us).run()


class _Mending:
    def __init__(self, folder: Path, files: Files, now_us: int) -> None:
        self._folder = folder
        self._files = files
        self._now_us = now_us
        self._damages: list[Damage] = []
        self._committed = 0
        self._salt = 0

    def run(self) -> Recovery:
        for place in (self._folder, self._folder / positions.NAME, self._folder / quarantine.NAME):
            for path in place.glob(f"*{NEW_SUFFIX}") if place.exists() else ():
                path.unlink()
        firsts = segment_firsts(self._folder)
        mark = self._mark()
        self._committed = mark.seq if mark is not None else 0
        self._salt = self._find_salt(mark, firsts)
        next_seq = self._committed
        clean = True
        scrub_bytes = LOG_SCRUB_BYTES_MAX
        followers = [*firsts[1:], None] if firsts else []
        for first, follower in reversed(list(zip(firsts, followers, strict=True))):  # newest first
            segment = SegmentMap(segment_path(self._folder, first), first, self._salt)
            sealed = segment.head is not None and segment.index() is not None
            if follower is None:
                clean = sealed
            scrub = not clean and scrub_bytes > 0
            if sealed and scrub:
                scrub_bytes -= segment.bytes
            if not sealed or (scrub and any(found.state is State.DAMAGED for found in segment.walk())):
                next_seq = max(next_seq, self._mend(segment, follower))
            elif segment.trailer is not None:
                next_seq = max(next_seq, segment.trailer.end_seq)
        self._set_mark(mark, next_seq)
        self._damages.reverse()
        for damage in self._damages:
            _log.warning("log: %s", damage)
        return Recovery(next_seq=next_seq, salt=self._salt, clean=clean, damages=self._damages)

    def _mark(self) -> Mark | None:
        path = self._folder / marks.NAME
        return Mark(self._folder, writable=True) if path.exists() and path.stat().st_size >= marks.BYTES else None

    def _find_salt(self, mark: Mark | None, firsts: list[int]) -> int:
        if mark is not None and mark.salt is not None:
            return mark.salt
        for first in firsts:
            head = SegmentMap(segment_path(self._folder, first), first, None).head
            if head is not None:
                return head.salt
        return marks.new_salt()

    def _set_mark(self, mark: Mark | None, next_seq: int) -> None:
        if mark is None or mark.salt is None:
            Mark.create(self._folder, next_seq, self._salt, self._files)
        else:
            mark.move(next_seq)
            mark.flush()

    def _mend(self, segment: SegmentMap, follower: int | None) -> int:
        """Leaves the segment sealed, or removed if no block is in it. Answers the seq after its last record."""
        found = list(segment.walk())
        has_index = bool(found) and found[-1].state is State.INDEX
        blocks = found[:-1] if has_index else found
        while blocks and follower is not None and blocks[-1].first_seq >= follower:
            blocks.pop()  # a block whose sync failed: it was written again in the next segment
        if not has_index:
            while blocks and blocks[-1].state is State.DAMAGED and blocks[-1].first_seq >= self._committed:
                blocks.pop()  # never confirmed: a torn end, not damage
        fd = self._files.open(segment.path)
        try:
            return self._mend_file(segment, fd, blocks, follower, has_index)
        finally:
            self._files.close(fd)

    def _mend_file(
        self, segment: SegmentMap, fd: int, blocks: list[Stretch], follower: int | None, has_index: bool
    ) -> int:
        places = [self._mend_block(segment, fd, block) for block in blocks if block.span_bytes]
        end_seq = blocks[-1].end_seq if blocks else segment.first_seq
        offset = blocks[-1].offset + blocks[-1].span_bytes if blocks else segment.first_block
        lost = 0 if has_index else self._cut(segment, offset, end_seq, follower)
        if lost:
            places.append(self._write_hole(fd, offset, end_seq, lost, HEADER_BYTES, self._at_us(None)))
            end_seq += lost
            offset += HEADER_BYTES
        if not places:
            segment.path.unlink()
            self._files.fsync_dir(self._folder)
            return end_seq
        if segment.head is None:
            self._keep(segment, "head", 0, segment.first_block, segment.first_seq, 0)
            self._files.write(fd, [write_head(segment.first_seq, self._now_us, self._salt)], 0)
        seal_segment(self._files, fd, places, offset, segment.first_seq, end_seq, self._salt)
        return end_seq

    def _mend_block(self, segment: SegmentMap, fd: int, block: Stretch) -> Place:
        at_us = self._at_us(block.header)
        if block.state is State.DAMAGED:
            self._keep(segment, "damaged", block.offset, block.span_bytes, block.first_seq, block.rows)
            return self._write_hole(fd, block.offset, block.first_seq, block.rows, block.span_bytes, at_us)
        if block.end_seq > self._committed:
            # Whole, but its sync is not known to have succeeded. If it had failed, the kernel could hold these pages
            # as clean: writing the same bytes again makes the coming sync mean what it says.
            content = bytes(segment.view[block.offset : block.offset + block.span_bytes])
            self._files.write(fd, [content], block.offset)
        return Place(block.first_seq, block.offset, *at_us)

    def _at_us(self, header: Header | None) -> tuple[int, int]:
        """The times of a block, or now where they are lost: retention then keeps the account for as long as any."""
        return (self._now_us, self._now_us) if header is None else (header.at_min_us, header.at_max_us)

    def _write_hole(
        self, fd: int, offset: int, first_seq: int, rows: int, span_bytes: int, at_us: tuple[int, int]
    ) -> Place:
        hole = Header(Kind.HOLE, min(rows, ROWS_MAX), first_seq, span_bytes - HEADER_BYTES, *at_us, 0)
        self._files.write(fd, [write_header(hole, self._salt)], offset)
        return Place(first_seq, offset, *at_us)

    def _cut(self, segment: SegmentMap, offset: int, end_seq: int, follower: int | None) -> int:
        """What is behind the last whole block of a segment without an index; how many confirmed records that was."""
        size = segment.used_bytes(offset)
        lost = max(0, (self._committed if follower is None else follower) - end_seq)
        if lost or (size and follower is None):
            self._keep(segment, "damaged" if lost else "torn", offset, size, end_seq, lost)
        return lost

    def _keep(self, segment: SegmentMap, kind: str, offset: int, size: int, first_seq: int, rows: int) -> None:
        content = bytes(segment.view[offset : offset + size])
        damage = Damage(
            kind=kind,
            segment=segment.path.name,
            offset=offset,
            bytes=len(content),
            first_seq=first_seq,
            rows=rows,
            found_at_us=self._now_us,
        )
        self._damages.append(quarantine.keep(self._folder, damage, content, self._files))
