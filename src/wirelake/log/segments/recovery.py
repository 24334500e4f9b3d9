"""Repair a log before it is written again, and report what was found.

A block that was being written when the machine or the process stopped was confirmed to nobody: it is cut off. Only one
block is written at a time, so a valid block after a damaged one proves that the damaged one had been confirmed: it
becomes a hole, and its bytes go to the quarantine. Bytes that are cut off go there too. The last segment is then
sealed; the writer starts a new one, so that nothing is ever written behind a repaired place.
"""

import logging
import time
from pathlib import Path

from msgspec import Struct, field

from wirelake.errors import StorageError
from wirelake.files import TEMP_SUFFIX, FileLock, FileSystem
from wirelake.limits import LOG_SCRUB_BYTES_MAX
from wirelake.log.segments.consumer_offsets import OFFSETS_FOLDER
from wirelake.log.segments.format import (
    FIRST_BLOCK_OFFSET,
    HEADER_BYTES,
    ROWS_MAX,
    BlockHeader,
    BlockKind,
    IndexEntry,
    encode_head,
    encode_header,
    list_segments,
    segment_path,
)
from wirelake.log.segments.high_watermark import WATERMARK_BYTES, WATERMARK_FILE, HighWatermark, new_salt
from wirelake.log.segments.integrity import QUARANTINE_FOLDER, Damage, quarantine_bytes
from wirelake.log.segments.lookup_index import index_path
from wirelake.log.segments.mapped_segment import BlockInfo, BlockState, MappedSegment
from wirelake.log.segments.writer import seal_segment

_log = logging.getLogger(__name__)
_LOCK_FILE = "lock"


def lock_log(folder: Path) -> FileLock:
    """Reserve the log for this process to write. Raise InUseError if another process writes it."""
    return FileLock(folder / _LOCK_FILE, f"the log in {folder} is open for writing")


class RecoveryReport(Struct, frozen=True, kw_only=True):
    """Say in which state a log was when it was opened for writing."""

    next_seq: int
    salt: int
    clean: bool  # the last writer closed it
    damages: list[Damage] = field(default_factory=list)

    @property
    def rows_lost(self) -> int:
        """Return how many confirmed records are no longer readable."""
        return sum(damage.rows for damage in self.damages)


def recover(folder: Path, files: FileSystem, now_us: int) -> RecoveryReport:
    """Repair the log. The caller holds its lock."""
    return _LogRepair(folder, files, now_us).run()


def skip_records(folder: Path, from_seq: int, to_seq: int) -> None:
    """Let the log continue at `to_seq`, because the records from `from_seq` on are lost: no seq is ever used twice.

    The lost records become a hole, as damaged blocks do: readers skip and count them. The log must not be open. If it
    has records, `from_seq` is its end.
    """
    files = FileSystem()
    now_us = time.time_ns() // 1000
    lock = lock_log(folder)
    try:
        salt = recover(folder, files, now_us).salt
        for first in range(from_seq, to_seq, ROWS_MAX):
            _write_hole_segment(folder, files, first, min(first + ROWS_MAX, to_seq), now_us, salt)
        watermark = HighWatermark(folder, writable=True)
        watermark.advance(to_seq)
        watermark.flush()
    except OSError as error:
        raise StorageError(f"cannot continue the log in {folder} at record {to_seq}: {error}") from error
    finally:
        lock.release()


def _write_hole_segment(folder: Path, files: FileSystem, first_seq: int, end_seq: int, now_us: int, salt: int) -> None:
    """Write a sealed segment that contains nothing but a hole."""
    hole = BlockHeader(BlockKind.HOLE, end_seq - first_seq, first_seq, 0, now_us, now_us, 0)
    fd = files.create(segment_path(folder, first_seq))
    try:
        files.write(fd, [encode_head(first_seq, now_us, salt)], 0)
        files.write(fd, [encode_header(hole, salt)], FIRST_BLOCK_OFFSET)
        entries = [IndexEntry(first_seq, FIRST_BLOCK_OFFSET, now_us, now_us)]
        seal_segment(files, fd, entries, FIRST_BLOCK_OFFSET + HEADER_BYTES, first_seq, end_seq, salt)
    finally:
        files.close(fd)
    files.fsync_dir(folder)


class _LogRepair:
    def __init__(self, folder: Path, files: FileSystem, now_us: int) -> None:
        self._folder = folder
        self._files = files
        self._now_us = now_us
        self._damages: list[Damage] = []
        self._committed = 0
        self._salt = 0

    def run(self) -> RecoveryReport:
        self._remove_temporary_files()
        firsts = list_segments(self._folder)
        watermark = self._open_watermark()
        self._committed = watermark.seq if watermark is not None else 0
        self._salt = self._find_salt(watermark, firsts)
        next_seq = self._committed
        clean = True
        scrub_bytes = LOG_SCRUB_BYTES_MAX
        next_firsts = [*firsts[1:], None] if firsts else []
        for first, next_first in reversed(list(zip(firsts, next_firsts, strict=True))):  # newest first
            segment = MappedSegment(segment_path(self._folder, first), first, self._salt)
            is_sealed = segment.head is not None and segment.read_index() is not None
            if next_first is None:
                clean = is_sealed
            scrub = not clean and scrub_bytes > 0
            if is_sealed and scrub:
                scrub_bytes -= segment.size_bytes
            if not is_sealed or (scrub and any(block.state is BlockState.DAMAGED for block in segment.scan())):
                next_seq = max(next_seq, self._repair(segment, next_first))
            elif segment.trailer is not None:
                next_seq = max(next_seq, segment.trailer.end_seq)
        self._set_watermark(watermark, next_seq)
        self._damages.reverse()
        for damage in self._damages:
            _log.warning("log: %s", damage)
        return RecoveryReport(next_seq=next_seq, salt=self._salt, clean=clean, damages=self._damages)

    def _remove_temporary_files(self) -> None:
        for folder in (self._folder, self._folder / OFFSETS_FOLDER, self._folder / QUARANTINE_FOLDER):
            for path in folder.glob(f"*{TEMP_SUFFIX}") if folder.exists() else ():
                path.unlink()

    def _open_watermark(self) -> HighWatermark | None:
        path = self._folder / WATERMARK_FILE
        is_complete = path.exists() and path.stat().st_size >= WATERMARK_BYTES
        return HighWatermark(self._folder, writable=True) if is_complete else None

    def _find_salt(self, watermark: HighWatermark | None, firsts: list[int]) -> int:
        if watermark is not None and watermark.salt is not None:
            return watermark.salt
        for first in firsts:
            head = MappedSegment(segment_path(self._folder, first), first, None).head
            if head is not None:
                return head.salt
        return new_salt()

    def _set_watermark(self, watermark: HighWatermark | None, next_seq: int) -> None:
        if watermark is None or watermark.salt is None:
            HighWatermark.create(self._folder, next_seq, self._salt, self._files)
        else:
            watermark.advance(next_seq)
            watermark.flush()

    def _repair(self, segment: MappedSegment, next_first: int | None) -> int:
        """Leave the segment sealed, or removed if it has no blocks. Return the seq after its last record."""
        found = list(segment.scan())
        has_index = bool(found) and found[-1].state is BlockState.INDEX
        blocks = found[:-1] if has_index else found
        while blocks and next_first is not None and blocks[-1].first_seq >= next_first:
            blocks.pop()  # a block whose sync failed: it was written again in the next segment
        if not has_index:
            while blocks and blocks[-1].state is BlockState.DAMAGED and blocks[-1].first_seq >= self._committed:
                blocks.pop()  # never confirmed: a torn end, not damage
        index_path(self._folder, segment.first_seq).unlink(missing_ok=True)  # may name records that are now lost
        fd = self._files.open(segment.path)
        try:
            return self._repair_file(segment, fd, blocks, next_first, has_index)
        finally:
            self._files.close(fd)

    def _repair_file(
        self, segment: MappedSegment, fd: int, blocks: list[BlockInfo], next_first: int | None, has_index: bool
    ) -> int:
        entries = [self._repair_block(segment, fd, block) for block in blocks if block.span_bytes]
        end_seq = blocks[-1].end_seq if blocks else segment.first_seq
        offset = blocks[-1].offset + blocks[-1].span_bytes if blocks else segment.first_block_offset
        lost = 0 if has_index else self._cut_off(segment, offset, end_seq, next_first)
        if lost:
            entries.append(self._write_hole(fd, offset, end_seq, lost, HEADER_BYTES, self._block_times(None)))
            end_seq += lost
            offset += HEADER_BYTES
        if not entries:
            segment.path.unlink()
            self._files.fsync_dir(self._folder)
            return end_seq
        if segment.head is None:
            self._quarantine(segment, "head", 0, segment.first_block_offset, segment.first_seq, 0)
            self._files.write(fd, [encode_head(segment.first_seq, self._now_us, self._salt)], 0)
        seal_segment(self._files, fd, entries, offset, segment.first_seq, end_seq, self._salt)
        return end_seq

    def _repair_block(self, segment: MappedSegment, fd: int, block: BlockInfo) -> IndexEntry:
        at_us = self._block_times(block.header)
        if block.state is BlockState.DAMAGED:
            self._quarantine(segment, "damaged", block.offset, block.span_bytes, block.first_seq, block.rows)
            return self._write_hole(fd, block.offset, block.first_seq, block.rows, block.span_bytes, at_us)
        if block.end_seq > self._committed:
            # Valid, but its sync is not known to have succeeded. If it had failed, the kernel could hold these pages
            # as clean: writing the same bytes again makes the coming sync effective.
            content = bytes(segment.view[block.offset : block.offset + block.span_bytes])
            self._files.write(fd, [content], block.offset)
        return IndexEntry(block.first_seq, block.offset, *at_us)

    def _block_times(self, header: BlockHeader | None) -> tuple[int, int]:
        """Return the times of a block, or now if they are lost: retention then keeps the hole as long as any block."""
        return (self._now_us, self._now_us) if header is None else (header.at_min_us, header.at_max_us)

    def _write_hole(
        self, fd: int, offset: int, first_seq: int, rows: int, span_bytes: int, at_us: tuple[int, int]
    ) -> IndexEntry:
        hole = BlockHeader(BlockKind.HOLE, min(rows, ROWS_MAX), first_seq, span_bytes - HEADER_BYTES, *at_us, 0)
        self._files.write(fd, [encode_header(hole, self._salt)], offset)
        return IndexEntry(first_seq, offset, *at_us)

    def _cut_off(self, segment: MappedSegment, offset: int, end_seq: int, next_first: int | None) -> int:
        """Quarantine what follows the last valid block. Return how many confirmed records that was."""
        size = segment.used_bytes(offset)
        lost = max(0, (self._committed if next_first is None else next_first) - end_seq)
        if lost or (size and next_first is None):
            self._quarantine(segment, "damaged" if lost else "torn", offset, size, end_seq, lost)
        return lost

    def _quarantine(self, segment: MappedSegment, kind: str, offset: int, size: int, first_seq: int, rows: int) -> None:
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
        self._damages.append(quarantine_bytes(self._folder, damage, content, self._files))
