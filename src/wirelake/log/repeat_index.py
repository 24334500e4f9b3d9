"""Find large frames that the segment being written holds already.

A tail is known by its length and checksum; whether it is the same is decided by comparing the bytes with those on disk,
which are in the page cache. So frames that are new cost one checksum, and nobody can forge a repeat.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c

from wirelake.limits import LOG_REPEAT_BYTES_MIN, LOG_REPEAT_HEAD_BYTES, LOG_REPEAT_STEP_BYTES, LOG_REPEATS_MAX
from wirelake.log.repeats import THIS_BLOCK, Reference
from wirelake.log.schema import SCHEMA
from wirelake.log.segment import segment_path
from wirelake.log.segmentmap import SegmentMap

_FRAME: Final = SCHEMA.get_field_index("frame")

TailKey = tuple[int, int]  # length and checksum


class Found(NamedTuple):
    """What a batch repeats, and the large frames that are new with it."""

    references: list[Reference]
    new: dict[TailKey, int]  # the row that has it

    @property
    def repeated_bytes(self) -> int:
        return sum(reference.tail_bytes for reference in self.references)


class RepeatIndex:
    """Remember the large frames of the open segment. Belongs to the writer's thread."""

    def __init__(self, folder: Path, salt: int) -> None:
        self._folder = folder
        self._salt = salt
        self._segment: int | None = None  # its first seq
        self._known: dict[TailKey, tuple[int, int]] = {}  # block's offset and row, the latest used last
        self._map: SegmentMap | None = None  # opened for the first comparison

    def find(self, batch: Any, segment: int | None) -> Found:
        """Look for frames that the open segment, or the batch itself, holds already."""
        self._follow(segment)
        found = Found([], {})
        frames = batch.column(_FRAME)
        if frames.nbytes < LOG_REPEAT_BYTES_MIN:
            return found
        lengths = pc.binary_length(frames)
        if pc.max(lengths).as_py() < LOG_REPEAT_BYTES_MIN:
            return found
        for row in pc.indices_nonzero(pc.greater_equal(lengths, LOG_REPEAT_BYTES_MIN)).to_pylist():
            frame = frames[row].as_buffer()
            tail_bytes = (frame.size - LOG_REPEAT_HEAD_BYTES) // LOG_REPEAT_STEP_BYTES * LOG_REPEAT_STEP_BYTES
            tail = frame.slice(frame.size - tail_bytes)
            key = (tail_bytes, crc32c(memoryview(tail)))
            if key in found.new:
                source_row = found.new[key]
                if _ends_with(frames[source_row].as_buffer(), tail):
                    found.references.append(Reference(row, THIS_BLOCK, source_row, tail_bytes))
            elif (place := self._known.get(key)) is not None and self._is_same(place, tail):
                self._known[key] = self._known.pop(key)
                found.references.append(Reference(row, *place, tail_bytes))
            else:
                found.new[key] = row
        return found

    def remember(self, found: Found, segment: int | None, offset: int) -> None:
        """The block in which these were found is on disk now, here."""
        self._follow(segment)
        for key, row in found.new.items():
            self._known[key] = (offset, row)
        while len(self._known) > LOG_REPEATS_MAX:
            del self._known[next(iter(self._known))]

    def _follow(self, segment: int | None) -> None:
        if segment != self._segment:
            self._segment = segment
            self._known.clear()
            self._map = None

    def _is_same(self, place: tuple[int, int], tail: Any) -> bool:
        if self._map is None and self._segment is not None:
            self._map = SegmentMap(segment_path(self._folder, self._segment), self._segment, self._salt)
        stored = self._map.stored_frames(place[0]) if self._map is not None else None
        return stored is not None and _ends_with(stored[place[1]].as_buffer(), tail)


def _ends_with(frame: Any, tail: Any) -> bool:
    return bool(frame.size >= tail.size and frame.slice(frame.size - tail.size).equals(tail))
