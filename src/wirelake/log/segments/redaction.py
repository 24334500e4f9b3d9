"""Blank bytes of records that are on disk: write segments anew in which only these bytes differ, and checksums.

Every frame keeps its length, so every block stays where it is: seqs, times, offsets, the index of the segment, its
lookup index and the offsets of consumers stay valid. A new segment is complete and synced before it takes the place of
the old one, so whenever the process or the machine stops, a segment is the old one or the new one. A second run does
the rest.

A tail that several frames share (see format.py) is stored once: what is blanked in one of them is blanked in all.
The bytes of a damaged block that recovery made a hole of are blanked as well; they are in the quarantine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c
from msgspec import Struct, field

from wirelake.errors import InUseError, StorageError
from wirelake.files import FileSystem
from wirelake.log.interface import AT_TYPE
from wirelake.log.segments.format import (
    HEADER_BYTES,
    THIS_BLOCK,
    decode_header,
    encode_header,
    list_segments,
    segment_path,
)
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.integrity import Damage
from wirelake.log.segments.mapped_segment import BlockInfo, BlockState, FramePlaces, MappedSegment
from wirelake.log.segments.recovery import lock_log, recover

Redact = Callable[[Any], dict[int, bytes]]  # records → the frames to be changed, by row; each is as long as before

_SINCE_US: Final = 0
_UNTIL_US: Final = 2**62


class LogRedaction(Struct):
    """Report what was done, or in a dry run what would be."""

    segments: int = 0
    rewritten: list[str] = field(default_factory=list)  # names of segments
    damages: list[Damage] = field(default_factory=list)  # what could not be read, and is as it was


def redact_log(
    folder: Path,
    redact: Redact,
    now_us: int,
    since_us: int | None = None,
    until_us: int | None = None,
    files: FileSystem | None = None,
) -> LogRedaction:
    """Blank what `redact` finds, in all segments. The log must not be open: a crash is repaired first, as at a start.

    Only records from `since_us` on and before `until_us` are changed. Raise InUseError while another process writes.
    """
    HighWatermark(folder)  # raises InputError if there is no log
    files = FileSystem() if files is None else files
    try:
        lock = lock_log(folder)
    except InUseError as error:
        raise InUseError(f"{error}: stop the gateway first, or find out with --dry-run what there is to do") from error
    try:
        recover(folder, files, now_us)
        return _redact_segments(folder, redact, (since_us, until_us), files)
    except OSError as error:
        raise StorageError(f"cannot redact the log in {folder}: {error}") from error
    finally:
        lock.release()


def preview_redaction(
    folder: Path, redact: Redact, since_us: int | None = None, until_us: int | None = None
) -> LogRedaction:
    """Report what `redact_log` would do. Nothing is changed, and the log may be written meanwhile."""
    return _redact_segments(folder, redact, (since_us, until_us), None)


def _redact_segments(
    folder: Path, redact: Redact, times_us: tuple[int | None, int | None], files: FileSystem | None
) -> LogRedaction:
    """Redact all segments; without `files`, only report."""
    report = LogRedaction()
    watermark = HighWatermark(folder)
    since_us = _SINCE_US if times_us[0] is None else times_us[0]
    until_us = _UNTIL_US if times_us[1] is None else times_us[1]
    for first in list_segments(folder):
        try:
            segment = MappedSegment(segment_path(folder, first), first, watermark.salt)
        except FileNotFoundError:  # removed by retention meanwhile
            continue
        report.segments += 1
        content = _SegmentRedaction(segment, redact, since_us, until_us, watermark.seq, report).run()
        if content is not None:
            if files is not None:
                files.replace_file(segment.path, content)
            report.rewritten.append(segment.path.name)
    return report


class _SegmentRedaction:
    """Redact one segment."""

    def __init__(
        self, segment: MappedSegment, redact: Redact, since_us: int, until_us: int, end_seq: int, report: LogRedaction
    ) -> None:
        self._segment = segment
        self._redact = redact
        self._since_us = since_us
        self._until_us = until_us
        self._end_seq = end_seq
        self._report = report
        self._content: bytearray | None = None  # the new segment, once there is something to change
        self._changed: set[int] = set()  # offsets of blocks
        self._places: dict[int, FramePlaces | None] = {}  # of blocks whose frames others refer to, by offset

    def run(self) -> bytes | None:
        """Return the new content of the segment; None if nothing changes."""
        for block in self._segment.scan():
            if block.state is BlockState.INDEX or block.first_seq >= self._end_seq:
                break
            if block.state is BlockState.VALID:
                self._redact_block(block)
            elif block.state is BlockState.HOLE:
                self._blank_hole(block)
            else:
                self._note_damage(block)
        if self._content is None:
            return None
        for offset in self._changed:
            self._correct_checksums(offset)
        return bytes(self._content)

    def _redact_block(self, block: BlockInfo) -> None:
        header = block.header
        if header is None or header.at_max_us < self._since_us or header.at_min_us >= self._until_us:
            return
        records = self._segment.read_batch(block)
        rows = self._rows_between(records)
        found = self._redact(records if len(rows) == records.num_rows else records.take(pa.array(rows)))
        frames = records.column("frame")
        for number, new in found.items():
            row = int(rows[number])
            self._change(block.offset, row, frames[row].as_py(), new)

    def _rows_between(self, records: Any) -> Any:
        at = records.column("at")
        is_late = pc.greater_equal(at, pa.scalar(self._since_us, AT_TYPE))
        is_early = pc.less(at, pa.scalar(self._until_us, AT_TYPE))
        return np.flatnonzero(pc.and_(is_late, is_early).to_numpy(zero_copy_only=False))

    def _change(self, offset: int, row: int, old: bytes, new: bytes) -> None:
        """Write the bytes that differ to where they are stored: in the frame, or in that which has its tail."""
        stored = self._places_of(offset)
        start, end = stored.places[row], stored.places[row + 1]
        head = end - start
        self._overwrite(offset, start, old[:head], new[:head])
        reference = stored.references.get(row)
        if reference is None or old[head:] == new[head:]:
            return
        source = offset if reference.offset == THIS_BLOCK else reference.offset
        tail_at = self._places_of(source).places[reference.source_row + 1] - reference.tail_bytes
        self._overwrite(source, tail_at, old[head:], new[head:])

    def _places_of(self, offset: int) -> FramePlaces:
        if offset not in self._places:
            self._places[offset] = self._segment.frame_places(offset)
        places = self._places[offset]
        if places is None:
            raise StorageError(f"{self._segment.path}: the block at byte {offset} changed while it was read")
        return places

    def _overwrite(self, offset: int, at: int, old: bytes, new: bytes) -> None:
        if old == new:
            return
        if self._segment.view[at : at + len(old)] != old or len(old) != len(new):
            raise AssertionError(f"the frame is not at byte {at} of {self._segment.path}")
        content = self._new_content()
        target = np.frombuffer(content, np.uint8, len(old), at)
        before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
        np.copyto(target, after, where=before != after)
        self._changed.add(offset)

    def _blank_hole(self, block: BlockInfo) -> None:
        start, end = block.offset + HEADER_BYTES, block.offset + block.span_bytes
        if bytes(self._segment.view[start:end]).strip(b"\0"):
            self._new_content()[start:end] = bytes(end - start)

    def _new_content(self) -> bytearray:
        if self._content is None:
            self._content = bytearray(self._segment.view)
        return self._content

    def _correct_checksums(self, offset: int) -> None:
        content, salt = self._new_content(), self._segment.salt
        header = None if salt is None else decode_header(self._segment.view, offset, salt)
        if header is None or salt is None:
            raise AssertionError("only valid blocks are changed")
        start = offset + HEADER_BYTES
        crc = crc32c(bytes(content[start : start + header.body_bytes]))
        content[offset:start] = encode_header(header._replace(body_crc=crc), salt)

    def _note_damage(self, block: BlockInfo) -> None:
        self._report.damages.append(
            Damage(
                kind="damaged",
                segment=self._segment.path.name,
                offset=block.offset,
                bytes=block.span_bytes,
                first_seq=block.first_seq,
                rows=block.rows,
            )
        )
