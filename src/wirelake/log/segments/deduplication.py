"""Find large frames that the open segment contains already.

A tail is looked up by its length and checksum, and then compared with the bytes on disk, which are in the page cache.
So new frames cost one checksum, and nobody can forge a repeat.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c

from wirelake.limits import LOG_REPEAT_BYTES_MIN, LOG_REPEAT_HEAD_BYTES, LOG_REPEAT_STEP_BYTES, LOG_REPEATS_MAX
from wirelake.log.interface import SCHEMA
from wirelake.log.segments.format import THIS_BLOCK, TailReference, segment_path
from wirelake.log.segments.mapped_segment import MappedSegment

_FRAME: Final = SCHEMA.get_field_index("frame")

TailKey = tuple[int, int]  # length and checksum


class DuplicateScan(NamedTuple):
    """List the frames of a batch that are duplicates, and the large frames that are new with it."""

    references: list[TailReference]
    new: dict[TailKey, int]  # its row

    @property
    def repeated_bytes(self) -> int:
        return sum(reference.tail_bytes for reference in self.references)


class FrameDeduplicator:
    """Remember the large frames of the open segment. Belongs to the thread that writes."""

    def __init__(self, folder: Path, salt: int) -> None:
        self._folder = folder
        self._salt = salt
        self._segment: int | None = None  # its first seq
        self._stored: dict[TailKey, tuple[int, int]] = {}  # offset of the block and row, least recently used first
        self._mapped: MappedSegment | None = None  # opened for the first comparison

    def scan(self, batch: Any, segment: int | None) -> DuplicateScan:
        """Look for frames that the open segment, or the batch itself, contains already."""
        self._switch_to(segment)
        result = DuplicateScan([], {})
        frames = batch.column(_FRAME)
        if frames.nbytes < LOG_REPEAT_BYTES_MIN:
            return result
        lengths = pc.binary_length(frames)
        if pc.max(lengths).as_py() < LOG_REPEAT_BYTES_MIN:
            return result
        for row in pc.indices_nonzero(pc.greater_equal(lengths, LOG_REPEAT_BYTES_MIN)).to_pylist():
            frame = frames[row].as_buffer()
            tail_bytes = (frame.size - LOG_REPEAT_HEAD_BYTES) // LOG_REPEAT_STEP_BYTES * LOG_REPEAT_STEP_BYTES
            tail = frame.slice(frame.size - tail_bytes)
            key = (tail_bytes, crc32c(memoryview(tail)))
            if key in result.new:
                source_row = result.new[key]
                if _ends_with(frames[source_row].as_buffer(), tail):
                    result.references.append(TailReference(row, THIS_BLOCK, source_row, tail_bytes))
            elif (source := self._stored.get(key)) is not None and self._has_tail(source, tail):
                self._stored[key] = self._stored.pop(key)
                result.references.append(TailReference(row, *source, tail_bytes))
            else:
                result.new[key] = row
        return result

    def remember(self, scan: DuplicateScan, segment: int | None, offset: int) -> None:
        """Add the new frames of a block that was written at `offset`."""
        self._switch_to(segment)
        for key, row in scan.new.items():
            self._stored[key] = (offset, row)
        while len(self._stored) > LOG_REPEATS_MAX:
            del self._stored[next(iter(self._stored))]

    def _switch_to(self, segment: int | None) -> None:
        if segment != self._segment:
            self._segment = segment
            self._stored.clear()
            self._mapped = None

    def _has_tail(self, source: tuple[int, int], tail: Any) -> bool:
        if self._mapped is None and self._segment is not None:
            self._mapped = MappedSegment(segment_path(self._folder, self._segment), self._segment, self._salt)
        frames = self._mapped.stored_frames(source[0]) if self._mapped is not None else None
        return frames is not None and _ends_with(frames[source[1]].as_buffer(), tail)


def _ends_with(frame: Any, tail: Any) -> bool:
    return bool(frame.size >= tail.size and frame.slice(frame.size - tail.size).equals(tail))
