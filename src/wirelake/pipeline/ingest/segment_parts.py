"""Read parts of segments that were copied to a store, on a machine that does not have the log.

A part is a range of blocks. It is read from the copy of a sealed segment, or from an object that holds just these
blocks, because their segment is still being written:

    size u32 of the list | list of (offset, bytes), as JSON | the bytes of each

Both are written to a sparse file with the segment's name in which every block is where it is in the segment, so that
the log's own reader can read it: it verifies the checksum of every block, and that no record is missing. Blocks with
the frames that others repeat (see `format.py` of the log) are included.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, json

from wirelake.errors import MissingRecordsError
from wirelake.lake.store import Store
from wirelake.log.segments.format import (
    FIRST_BLOCK_OFFSET,
    HEADER_BYTES,
    THIS_BLOCK,
    BlockKind,
    decode_head,
    decode_header,
    decode_references,
    is_body_valid,
    segment_path,
)
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment

SEALED_SUFFIX: Final = ".seg"
_SIZE_BYTES: Final = 4


class SegmentPart(Struct, frozen=True, array_like=True):
    """Say where to read some blocks of a segment."""

    segment: int  # its first seq
    path: str  # in the store of log copies
    from_offset: int
    from_seq: int  # expected at that offset
    until_offset: int

    @property
    def is_sealed_copy(self) -> bool:
        return self.path.endswith(SEALED_SUFFIX)


Extent = tuple[int, bytes]  # an offset in the segment, and the bytes there


def fetch_parts(store: Store, parts: list[SegmentPart], folder: Path, salt: int | None) -> None:
    """Write the segments to `folder`, as far as these parts go. Raise MissingRecordsError for what is not there."""
    for part in parts:
        path = segment_path(folder, part.segment)
        try:
            if part.is_sealed_copy:
                _fetch_sealed(store, part, path, salt)
            else:
                _write(path, decode_extents(store.read(part.path)), part.until_offset)
        except FileNotFoundError as error:
            raise MissingRecordsError(
                f"the records from {part.from_seq} on are not in {store.name(part.path)}: the object was removed; "
                "the next attempt at the batch writes it again"
            ) from error


def extents_of(segment: MappedSegment, part: SegmentPart) -> list[Extent]:
    """Return the head of a segment, the blocks of a part, and the blocks before it whose frames they repeat."""
    extents = [(0, segment.first_block_offset), (part.from_offset, part.until_offset - part.from_offset)]
    for offset in _sources_before(segment, part):
        header = None if segment.salt is None else decode_header(segment.view, offset, segment.salt)
        if header is not None:  # a damaged one is as good as none
            extents.append((offset, header.span_bytes))
    return [(offset, bytes(segment.view[offset : offset + size])) for offset, size in extents]


def encode_extents(extents: list[Extent]) -> bytes:
    sizes = json.encode([(offset, len(data)) for offset, data in extents])
    return b"".join([len(sizes).to_bytes(_SIZE_BYTES, "little"), sizes, *(data for _, data in extents)])


def decode_extents(data: bytes) -> list[Extent]:
    start = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "little")
    extents = []
    for offset, size in json.decode(data[_SIZE_BYTES:start], type=list[tuple[int, int]]):
        extents.append((offset, data[start : start + size]))
        start += size
    return extents


def _fetch_sealed(store: Store, part: SegmentPart, path: Path, salt: int | None) -> None:
    with store.open_input(part.path) as file:
        head = decode_head(memoryview(read_at(file, 0, HEADER_BYTES)))
        first = head.first_block_offset if head is not None else FIRST_BLOCK_OFFSET
        ranges = [(0, first), (part.from_offset, part.until_offset - part.from_offset)]
        _write(path, [(offset, read_at(file, offset, size)) for offset, size in ranges], part.until_offset)
        segment = MappedSegment(path, part.segment, salt)
        sources: list[Extent] = []
        for offset in _sources_before(segment, part):
            raw = memoryview(read_at(file, offset, HEADER_BYTES))
            header = None if segment.salt is None else decode_header(raw, 0, segment.salt)
            if header is not None:
                sources.append((offset, read_at(file, offset, header.span_bytes)))
    _write(path, sources, part.until_offset)


def read_at(file: Any, offset: int, size: int) -> bytes:
    file.seek(offset)
    return bytes(file.read(size))


def _write(path: Path, extents: list[Extent], size: int) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(size)
        for offset, data in extents:
            file.seek(offset)
            file.write(data)


def _sources_before(segment: MappedSegment, part: SegmentPart) -> list[int]:
    """Return the offsets of the blocks before a part whose frames its blocks repeat."""
    found: set[int] = set()
    offset, seq = part.from_offset, part.from_seq
    while offset < part.until_offset:
        block = segment.inspect(offset, seq, check_body=False)
        if block is None or block.state is BlockState.INDEX:
            break
        header = block.header
        if header is not None and header.kind == BlockKind.REFERENCES and is_body_valid(segment.view, offset, header):
            found.update(_sources(segment, offset, header.body_bytes))
        offset, seq = offset + block.span_bytes, block.end_seq
    return sorted(source for source in found if source < part.from_offset)


def _sources(segment: MappedSegment, offset: int, body_bytes: int) -> Iterator[int]:
    start = offset + HEADER_BYTES
    references, _ = decode_references(pa.py_buffer(segment.view[start : start + body_bytes]), segment.schema)
    for reference in references:
        if reference.offset != THIS_BLOCK:
            yield reference.offset
