"""Map a segment into memory: find and check blocks in place, and return batches that point into the map."""

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from wirelake.limits import KIB
from wirelake.log.interface import SCHEMA_VERSION, schema_for_version
from wirelake.log.segments.format import (
    ALIGNMENT,
    BLOCK_MAGIC,
    FIRST_BLOCK_OFFSET,
    HEADER_BYTES,
    BlockHeader,
    BlockKind,
    SegmentTrailer,
    TailReference,
    decode_head,
    decode_header,
    decode_references,
    decode_trailer,
    is_body_valid,
    resolve_references,
)

_RECORD_KINDS: Final = (BlockKind.DATA, BlockKind.REFERENCES)
_ZEROS_STEP_BYTES: Final = 64 * KIB


class BlockState(Enum):
    VALID = "valid"
    DAMAGED = "damaged"
    HOLE = "hole"  # was damaged; recovery moved its bytes to the quarantine
    INDEX = "index"  # no more blocks follow


class BlockInfo(NamedTuple):
    """Describe a block, or a damaged run of bytes, in a segment."""

    state: BlockState
    offset: int
    span_bytes: int
    first_seq: int
    rows: int
    header: BlockHeader | None  # None if it is damaged too

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.rows


class BlockHint(NamedTuple):
    """Say where an earlier reader found a block."""

    segment: int  # its first seq
    offset: int
    seq: int


class FramePlaces(NamedTuple):
    """Say where the frames of a block are in the file: each reaches to the next place."""

    places: list[int]
    references: dict[int, TailReference]  # rows whose frames are stored without their tails


class MappedSegment:
    """Give access to the blocks of one segment file.

    Batches keep the map alive after the reader is gone, even if the file is removed.
    """

    def __init__(self, path: Path, first_seq: int, log_salt: int | None, is_copied: bool = False) -> None:
        """With `is_copied`, read the file into memory: a map does not survive that somebody truncates the file."""
        self.path = path
        self._is_copied = is_copied
        self.first_seq = first_seq
        self._sources: dict[int, Any] = {}  # frames of blocks that others refer to, by offset; these are checked
        self._map()
        head = decode_head(self.view)
        self.head = head
        self.salt = head.salt if head is not None else log_salt
        self.schema = schema_for_version(head.schema_version if head is not None else SCHEMA_VERSION, str(path))
        self.first_block_offset = head.first_block_offset if head is not None else FIRST_BLOCK_OFFSET

    def _map(self) -> None:
        if self._is_copied:
            self.view = memoryview(self.path.read_bytes())
            self.size_bytes = len(self.view)
        else:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size_bytes = os.fstat(fd).st_size
                mapped = mmap.mmap(fd, self.size_bytes, access=mmap.ACCESS_READ) if self.size_bytes else b""
            finally:
                os.close(fd)
            self.view = memoryview(mapped)
        self._buffer = pa.py_buffer(self.view)
        self.trailer: SegmentTrailer | None = decode_trailer(self.view)

    def inspect(self, offset: int, seq: int, check_body: bool = True) -> BlockInfo | None:
        """Describe what starts at `offset`, where record `seq` is expected. None if no valid block follows."""
        if self.salt is None:
            return None
        if offset + HEADER_BYTES > self.size_bytes:
            self._map()  # the file has grown since
        header = decode_header(self.view, offset, self.salt)
        if header is None or header.first_seq < seq:
            return self._damaged_run(offset, seq)
        if header.kind == BlockKind.INDEX:
            return BlockInfo(BlockState.INDEX, offset, header.span_bytes, header.first_seq, 0, header)
        if header.first_seq > seq:  # blocks are missing without a trace
            return BlockInfo(BlockState.DAMAGED, offset, 0, seq, header.first_seq - seq, None)
        state = BlockState.HOLE if header.kind == BlockKind.HOLE else BlockState.VALID
        if offset + header.span_bytes > self.size_bytes:
            self._map()
        if state is BlockState.VALID and check_body and not is_body_valid(self.view, offset, header):
            state = BlockState.DAMAGED
        return BlockInfo(state, offset, header.span_bytes, header.first_seq, header.rows, header)

    def _damaged_run(self, offset: int, seq: int) -> BlockInfo | None:
        """Describe the bytes from `offset` to the next valid header."""
        found = self._next_header(offset + ALIGNMENT, seq)
        if found is None:
            return None
        start, header = found
        return BlockInfo(BlockState.DAMAGED, offset, start - offset, seq, header.first_seq - seq, None)

    def _next_header(self, offset: int, seq: int) -> tuple[int, BlockHeader] | None:
        """Search the file, not the map: sealing may truncate the file meanwhile, which a map does not survive."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:  # removed by retention meanwhile
            return None
        if self.salt is None:
            return None
        at = 0
        while (at := data.find(BLOCK_MAGIC, at)) >= 0:
            header = decode_header(memoryview(data), at, self.salt) if at % ALIGNMENT == 0 else None
            if header is not None and header.first_seq >= seq:
                return offset + at, header
            at += len(BLOCK_MAGIC)
        return None

    def scan(self, check_bodies: bool = True) -> Iterator[BlockInfo]:
        """Yield everything in the segment, up to its index or the point after which nothing is valid."""
        offset, seq = self.first_block_offset, self.first_seq
        while (block := self.inspect(offset, seq, check_bodies)) is not None:
            yield block
            if block.state is BlockState.INDEX:
                return
            offset, seq = offset + block.span_bytes, block.end_seq

    def seek(self, seq: int) -> tuple[int, int]:
        """Return where to start in order to read `seq`: an offset, and the seq that is expected there."""
        index = self.read_index()
        if index is not None:
            entry = max(0, bisect_right(index[::4], seq) - 1)
            return index[entry * 4 + 1], index[entry * 4]
        offset, expected = self.first_block_offset, self.first_seq
        while (block := self.inspect(offset, expected, check_body=False)) is not None and block.end_seq <= seq:
            if block.state is BlockState.INDEX:
                break
            offset, expected = offset + block.span_bytes, block.end_seq
        return offset, expected

    def has_block_at(self, hint: BlockHint) -> bool:
        """Tell whether a block of this segment starts there, with that record."""
        if hint.segment != self.first_seq or self.salt is None or hint.offset < self.first_block_offset:
            return False
        is_inside = hint.offset + HEADER_BYTES <= self.size_bytes
        header = decode_header(self.view, hint.offset, self.salt) if is_inside else None
        return header is not None and header.first_seq == hint.seq

    def read_index(self) -> memoryview | None:
        """Return the numbers of the index, four for each block (see `IndexEntry`), or None without a valid index."""
        trailer = self.trailer
        if trailer is None or self.salt is None:
            return None
        offset = trailer.index_offset
        header = decode_header(self.view, offset, self.salt)
        if header is None or header.kind != BlockKind.INDEX or not is_body_valid(self.view, offset, header):
            return None
        start = offset + HEADER_BYTES
        return self.view[start : start + header.body_bytes].cast("q")

    def read_batch(self, block: BlockInfo, needs_sources: bool = False) -> Any:
        """Return the records of a valid block, without a copy unless they repeat frames of other blocks.

        If the tail of a frame is in a damaged block, the frame is its head and the note says so. With `needs_sources`
        that holds only where the block is known to be lost; otherwise there are no records.
        """
        header = block.header
        if header is None:
            raise AssertionError("only a valid block has records")
        references, batch = self._stored_batch(block.offset, header)
        if not references:
            return batch
        if needs_sources and any(each.offset and not self._is_source_known(each.offset) for each in references):
            return batch.slice(0, 0)
        return resolve_references(batch, references, self.stored_frames)

    def _stored_batch(self, offset: int, header: BlockHeader) -> tuple[list[TailReference], Any]:
        body = self._buffer.slice(offset + HEADER_BYTES, header.body_bytes)
        if header.kind == BlockKind.REFERENCES:
            return decode_references(body, self.schema)
        return [], pa.ipc.read_record_batch(body, self.schema)

    def frame_places(self, offset: int) -> FramePlaces | None:
        """Return where the file has the stored frames of the block at `offset`; None if the block is not valid."""
        header = None if self.salt is None else decode_header(self.view, offset, self.salt)
        if header is None or header.kind not in _RECORD_KINDS or not is_body_valid(self.view, offset, header):
            return None
        references, batch = self._stored_batch(offset, header)
        frames = batch.column("frame")
        _, ends, data = frames.buffers()
        start = 0 if data is None else data.address - self._buffer.address
        places = memoryview(ends).cast("i")[frames.offset : frames.offset + len(frames) + 1].tolist()
        return FramePlaces([start + place for place in places], {each.row: each for each in references})

    def stored_frames(self, offset: int) -> Any:
        """Return the frames of the block at `offset` as they are stored; None if it is not valid."""
        if offset not in self._sources:
            header = None if self.salt is None else decode_header(self.view, offset, self.salt)
            if header is None or header.kind not in _RECORD_KINDS or not is_body_valid(self.view, offset, header):
                return None
            self._sources[offset] = self._stored_batch(offset, header)[1].column("frame")
        return self._sources[offset]

    def _is_source_known(self, offset: int) -> bool:
        """Tell whether the block there is valid, or a hole that recovery made of it."""
        header = None if self.salt is None else decode_header(self.view, offset, self.salt)
        return (header is not None and header.kind == BlockKind.HOLE) or self.stored_frames(offset) is not None

    def used_bytes(self, offset: int) -> int:
        """Return how many bytes from `offset` on precede the zeros of reserved space."""
        end = self.size_bytes
        while end > offset:
            start = max(offset, end - _ZEROS_STEP_BYTES)
            content = bytes(self.view[start:end]).rstrip(b"\0")
            if content:
                return start + len(content) - offset
            end = start
        return 0
