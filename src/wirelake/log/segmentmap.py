"""A segment in memory: blocks found and checked where they lie, batches that point into the map."""

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from wirelake.limits import KIB
from wirelake.log.block import ALIGNMENT, HEADER_BYTES, MAGIC, Header, Kind, body_holds, read_header
from wirelake.log.repeats import Reference, expand, read_body
from wirelake.log.schema import SCHEMA_VERSION, schema_of
from wirelake.log.segment import FIRST_BLOCK, Trailer, read_head, read_trailer

_RECORDS: Final = (Kind.DATA, Kind.REFERENCES)
_ZEROS_STEP_BYTES: Final = 64 * KIB


class State(Enum):
    WHOLE = "whole"
    DAMAGED = "damaged"
    HOLE = "hole"  # damaged once, its bytes are in the quarantine
    INDEX = "index"  # the segment's blocks end here


class Stretch(NamedTuple):
    """A run of bytes in a segment and what they are."""

    state: State
    offset: int
    span_bytes: int
    first_seq: int
    rows: int
    header: Header | None  # None where it is damaged too

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.rows


class Near(NamedTuple):
    """Where a block is, as somebody found it who came by."""

    segment: int  # its first seq
    offset: int
    seq: int


class SegmentMap:
    """Readers keep one for as long as they read; batches keep it alive after that, even when the file is removed."""

    def __init__(self, path: Path, first_seq: int, log_salt: int | None) -> None:
        self.path = path
        self.first_seq = first_seq
        self._sources: dict[int, Any] = {}  # blocks that others refer to, by offset: checked, and their frames
        self._map()
        head = read_head(self.view)
        self.head = head
        self.salt = head.salt if head is not None else log_salt
        self.schema = schema_of(head.schema_version if head is not None else SCHEMA_VERSION, str(path))
        self.first_block = head.first_block if head is not None else FIRST_BLOCK

    def _map(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.bytes = os.fstat(fd).st_size
            self._mmap = mmap.mmap(fd, self.bytes, access=mmap.ACCESS_READ) if self.bytes else None
        finally:
            os.close(fd)
        self.view = memoryview(self._mmap) if self._mmap is not None else memoryview(b"")
        self._buffer = pa.py_buffer(self.view)
        self.trailer: Trailer | None = read_trailer(self.view)

    def look(self, offset: int, seq: int, check_body: bool = True) -> Stretch | None:
        """What begins at `offset`, where record `seq` is expected. None: nothing whole, here or later."""
        if self.salt is None:
            return None
        if offset + HEADER_BYTES > self.bytes:
            self._map()  # the file has grown since
        header = read_header(self.view, offset, self.salt)
        if header is None or header.first_seq < seq:
            return self._damaged(offset, seq)
        if header.kind == Kind.INDEX:
            return Stretch(State.INDEX, offset, header.span_bytes, header.first_seq, 0, header)
        if header.first_seq > seq:  # blocks are missing without a trace
            return Stretch(State.DAMAGED, offset, 0, seq, header.first_seq - seq, None)
        state = State.HOLE if header.kind == Kind.HOLE else State.WHOLE
        if offset + header.span_bytes > self.bytes:
            self._map()
        if state is State.WHOLE and check_body and not body_holds(self.view, offset, header):
            state = State.DAMAGED
        return Stretch(state, offset, header.span_bytes, header.first_seq, header.rows, header)

    def _damaged(self, offset: int, seq: int) -> Stretch | None:
        """The bytes from `offset` to the next header that holds."""
        found = self._next_header(offset + ALIGNMENT, seq)
        if found is None:
            return None
        start, header = found
        return Stretch(State.DAMAGED, offset, start - offset, seq, header.first_seq - seq, None)

    def _next_header(self, offset: int, seq: int) -> tuple[int, Header] | None:
        """Searched by reading the file: sealing may cut it while we search, and a map does not survive that."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:  # removed by retention meanwhile
            return None
        if self.salt is None:
            return None
        at = 0
        while (at := data.find(MAGIC, at)) >= 0:
            header = read_header(memoryview(data), at, self.salt) if at % ALIGNMENT == 0 else None
            if header is not None and header.first_seq >= seq:
                return offset + at, header
            at += len(MAGIC)
        return None

    def walk(self, check_bodies: bool = True) -> Iterator[Stretch]:
        """All that is in the segment, up to its index or the place after which nothing is whole."""
        offset, seq = self.first_block, self.first_seq
        while (found := self.look(offset, seq, check_bodies)) is not None:
            yield found
            if found.state is State.INDEX:
                return
            offset, seq = offset + found.span_bytes, found.end_seq

    def find(self, seq: int) -> tuple[int, int]:
        """Where to begin in order to read `seq`: an offset, and the seq that is expected there."""
        index = self.index()
        if index is not None:
            line = max(0, bisect_right(index[::4], seq) - 1)
            return index[line * 4 + 1], index[line * 4]
        offset, expected = self.first_block, self.first_seq
        while (found := self.look(offset, expected, check_body=False)) is not None and found.end_seq <= seq:
            if found.state is State.INDEX:
                break
            offset, expected = offset + found.span_bytes, found.end_seq
        return offset, expected

    def begins(self, near: Near) -> bool:
        """Whether a block of this segment begins there, with that record."""
        if near.segment != self.first_seq or self.salt is None or near.offset < self.first_block:
            return False
        header = read_header(self.view, near.offset, self.salt) if near.offset + HEADER_BYTES <= self.bytes else None
        return header is not None and header.first_seq == near.seq

    def index(self) -> memoryview | None:
        """The footer's numbers, four for each block (see `Place`); None if there is none that holds."""
        trailer = self.trailer
        if trailer is None or self.salt is None:
            return None
        header = read_header(self.view, trailer.index_offset, self.salt)
        if header is None or header.kind != Kind.INDEX or not body_holds(self.view, trailer.index_offset, header):
            return None
        start = trailer.index_offset + HEADER_BYTES
        return self.view[start : start + header.body_bytes].cast("q")

    def batch(self, found: Stretch, needs_sources: bool = False) -> Any:
        """Return the records of a whole block, without copying them unless they repeat frames of other blocks.

        Of a frame whose tail lies in a block that is damaged, the head is left, and the note says so. With
        `needs_sources` that holds only where the block is known to be lost; else there are no records.
        """
        header = found.header
        if header is None:
            raise AssertionError("only a whole block has records")
        references, batch = self._stored(found.offset, header)
        if not references:
            return batch
        if needs_sources and any(each.offset and not self._is_known(each.offset) for each in references):
            return batch.slice(0, 0)
        return expand(batch, references, self.stored_frames)

    def _stored(self, offset: int, header: Header) -> tuple[list[Reference], Any]:
        body = self._buffer.slice(offset + HEADER_BYTES, header.body_bytes)
        if header.kind == Kind.REFERENCES:
            return read_body(body, self.schema)
        return [], pa.ipc.read_record_batch(body, self.schema)

    def stored_frames(self, offset: int) -> Any:
        """Return the stored frames of the block there; None if it is not whole."""
        if offset not in self._sources:
            header = None if self.salt is None else read_header(self.view, offset, self.salt)
            if header is None or header.kind not in _RECORDS or not body_holds(self.view, offset, header):
                return None
            self._sources[offset] = self._stored(offset, header)[1].column("frame")
        return self._sources[offset]

    def _is_known(self, offset: int) -> bool:
        """Whether the block there is whole, or a hole that the log's writer made of it."""
        header = None if self.salt is None else read_header(self.view, offset, self.salt)
        return (header is not None and header.kind == Kind.HOLE) or self.stored_frames(offset) is not None

    def used_bytes(self, offset: int) -> int:
        """How many bytes from `offset` on there are before the zeros of room that was not used."""
        end = self.bytes
        while end > offset:
            start = max(offset, end - _ZEROS_STEP_BYTES)
            piece = bytes(self.view[start:end]).rstrip(b"\0")
            if piece:
                return start + len(piece) - offset
            end = start
        return 0
