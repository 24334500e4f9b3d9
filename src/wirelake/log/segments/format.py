"""Encode and decode segments: files of checksummed blocks. A segment's name is the seq of its first record.

    head 64 | schema, padded to 64 | block | block | … | index block | trailer 64
                                                         └ once the segment is sealed ┘

    head:     magic | version u16 | columns' version u16 | schema size u32 | first seq u64 | made at i64 µs | salt u32
    index:    for each block: first seq, offset, at min, at max, as i64
    trailer:  magic | blocks u32 | rows u32 | index offset u64 | first seq u64 | end seq u64 | at min i64 | at max i64

Head and trailer are padded with zeros to 60 bytes and end with the CRC-32C of these. While a segment is written, its
file has its full size, with zeros after the last block: a sync then has no new length to record, and a reader's memory
map need not grow. Sealing truncates it.

A block has a header of 64 bytes and a body, and starts at a multiple of 64:

    0       8      10     12     16          24          32       40       48        56       60       64
    +-------+------+------+------+-----------+-----------+--------+--------+---------+--------+--------+------+----
    | magic | ver. | kind | rows | first seq | body size | at min | at max | repeats | body   | header | body | zeros
    |       | u16  | u16  | u32  | u64       | u64       | i64 µs | i64 µs | u64     | crc    | crc    |      |
    +-------+------+------+------+-----------+-----------+--------+--------+---------+--------+--------+------+----

All numbers are little endian. The checksums are CRC-32C: of the body, then of the 60 bytes of the header before it, so
that the second covers both. The header's checksum starts with the log's salt instead of 0. A frame from the wire that
imitates a block cannot know the salt, so it is never mistaken for one when a reader searches for the next block behind
a damaged one. A valid header tells the length of the block even where the body is damaged.

`repeats` is how many bytes larger the records are than the body, because they repeat frames of other blocks. Large
values that are requested again and again would fill the log with copies of themselves. So the writer looks for the tail
of every large frame (see deduplication.py): its last bytes, a multiple of 4 KiB, without a head of one to five KiB in
which a request's number or a time may be. If a frame of the same segment has the same tail, the block holds the head
alone and a reference to the tail. Readers put both together (see `MappedSegment.read_batch`). A block of kind
REFERENCES has the body

    count | for each: row, offset of the block with the tail (0: this one), row there, tail bytes | zeros to 64 | batch

with all numbers as i64. References stay inside a segment, because a segment is removed as a whole, and point to stored
frames, never to another reference.
"""

import struct
from array import array
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c
from msgspec import json

from wirelake.files import Buffer
from wirelake.limits import LOG_BLOCK_BYTES_MAX
from wirelake.log.interface import BYTES_TYPE, SCHEMA, SCHEMA_MESSAGE, SCHEMA_VERSION, TEXT_TYPE

ALIGNMENT: Final = 64
HEADER_BYTES: Final = 64
BLOCK_MAGIC: Final = b"WLKBLOCK"
ROWS_MAX: Final = 2**32 - 1  # of a block
THIS_BLOCK: Final = 0  # as the offset of a `TailReference`
MISSING_TAIL_BYTES: Final = "missing_tail_bytes"  # in the note of a record whose tail is lost: how much is missing

_BLOCK_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sHHIQQqqQI")
_CHECKED_BYTES: Final = 60

_HEAD_BYTES: Final = 64
TRAILER_BYTES: Final = 64
_SEGMENT_VERSION: Final = 1
_SEGMENT_SUFFIX: Final = ".seg"
_SEQ_DIGITS: Final = 20
_HEAD_MAGIC: Final = b"WLKSEGMT"
_TRAILER_MAGIC: Final = b"WLKTRAIL"
_HEAD: Final = struct.Struct("<8sHHIQqI24x")
_TRAILER: Final = struct.Struct("<8sIIQQQqq4x")

_NUMBERS: Final = 4
_NUMBER_BYTES: Final = 8
_FRAME: Final = SCHEMA.get_field_index("frame")
_NOTE: Final = SCHEMA.get_field_index("note")

FrameLookup = Callable[[int], Any]  # a block's offset → its frames as they are stored; None if it is damaged


def align(size: int) -> int:
    """Round up to a multiple of `ALIGNMENT`."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


FIRST_BLOCK_OFFSET: Final = _HEAD_BYTES + align(len(SCHEMA_MESSAGE))


# Blocks


class BlockKind(IntEnum):
    DATA = 1  # one Arrow IPC record batch
    INDEX = 2  # the footer of a sealed segment: an entry for each block
    HOLE = 3  # a damaged block was here: its bytes are in the quarantine, `rows` records are lost
    REFERENCES = 4  # as DATA, but some records repeat frames that the segment holds already


class BlockHeader(NamedTuple):
    kind: int
    rows: int
    first_seq: int
    body_bytes: int
    at_min_us: int
    at_max_us: int
    body_crc: int
    repeated_bytes: int = 0

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.rows

    @property
    def span_bytes(self) -> int:
        """Return the distance from the first byte of this block to that of the next."""
        return HEADER_BYTES + align(self.body_bytes)


def encode_header(header: BlockHeader, salt: int) -> bytes:
    kind, rows, first_seq, body_bytes, at_min_us, at_max_us, body_crc, repeated = header
    at_us = (at_min_us, at_max_us)
    raw = _HEADER.pack(BLOCK_MAGIC, _BLOCK_VERSION, kind, rows, first_seq, body_bytes, *at_us, repeated, body_crc)
    return raw + crc32c(raw, salt).to_bytes(4, "little")


def encode_block(
    kind: BlockKind, first_seq: int, rows: int, at_us: tuple[int, int], body: Buffer, salt: int, repeated_bytes: int = 0
) -> list[Buffer]:
    """Return the parts of a block in the order they are written."""
    size = len(body)
    header = BlockHeader(kind, rows, first_seq, size, at_us[0], at_us[1], crc32c(body), repeated_bytes)
    return [encode_header(header, salt), body, bytes(align(size) - size)]


def decode_header(view: memoryview, offset: int, salt: int) -> BlockHeader | None:
    """Return the header at this offset, or None if there is no valid one. The body is not checked."""
    if offset + HEADER_BYTES > len(view):
        return None
    raw = bytes(view[offset : offset + HEADER_BYTES])
    magic, version, kind, rows, first_seq, body_bytes, at_min_us, at_max_us, repeated, body_crc = _HEADER.unpack_from(
        raw
    )
    if magic != BLOCK_MAGIC or version != _BLOCK_VERSION or body_bytes > LOG_BLOCK_BYTES_MAX:
        return None
    if crc32c(raw[:_CHECKED_BYTES], salt) != int.from_bytes(raw[_CHECKED_BYTES:], "little"):
        return None
    return BlockHeader(kind, rows, first_seq, body_bytes, at_min_us, at_max_us, body_crc, repeated)


def is_body_valid(view: memoryview, offset: int, header: BlockHeader) -> bool:
    """Tell whether the body after the header at `offset` is complete and matches its checksum."""
    start = offset + HEADER_BYTES
    body = view[start : start + header.body_bytes]
    return len(body) == header.body_bytes and crc32c(body) == header.body_crc


# Segments


class SegmentHead(NamedTuple):
    schema_version: int
    schema_bytes: int
    first_seq: int
    made_at_us: int
    salt: int

    @property
    def first_block_offset(self) -> int:
        return _HEAD_BYTES + align(self.schema_bytes)


class SegmentTrailer(NamedTuple):
    blocks: int
    rows: int
    index_offset: int
    first_seq: int
    end_seq: int
    at_min_us: int
    at_max_us: int


class IndexEntry(NamedTuple):
    """Locate a block: one entry of the index of a sealed segment."""

    first_seq: int
    offset: int
    at_min_us: int
    at_max_us: int


def segment_path(folder: Path, first_seq: int) -> Path:
    return folder / f"{first_seq:0{_SEQ_DIGITS}d}{_SEGMENT_SUFFIX}"


def list_segments(folder: Path) -> list[int]:
    """Return the first seqs of all segments in the folder, in order."""
    names = (path.stem for path in folder.iterdir() if path.suffix == _SEGMENT_SUFFIX)
    return sorted(int(name) for name in names if name.isdecimal())


def encode_head(first_seq: int, made_at_us: int, salt: int) -> bytes:
    """Return the bytes before the first block."""
    size = len(SCHEMA_MESSAGE)
    head = _HEAD.pack(_HEAD_MAGIC, _SEGMENT_VERSION, SCHEMA_VERSION, size, first_seq, made_at_us, salt)
    return _with_crc(head) + SCHEMA_MESSAGE.ljust(FIRST_BLOCK_OFFSET - _HEAD_BYTES, b"\0")


def decode_head(view: memoryview) -> SegmentHead | None:
    """Return None if the head is damaged; the file's name and the log's salt are then enough to read on."""
    raw = bytes(view[:_HEAD_BYTES])
    if not _is_crc_valid(raw):
        return None
    magic, version, schema_version, schema_bytes, first_seq, made_at_us, salt = _HEAD.unpack_from(raw)
    if magic != _HEAD_MAGIC or version != _SEGMENT_VERSION:
        return None
    return SegmentHead(schema_version, schema_bytes, first_seq, made_at_us, salt)


def encode_footer(entries: list[IndexEntry], offset: int, first_seq: int, end_seq: int, salt: int) -> list[Buffer]:
    """Return the index block and the trailer, to be written at `offset`."""
    at_us = (min(entry.at_min_us for entry in entries), max(entry.at_max_us for entry in entries))
    index = array("q", [value for entry in entries for value in entry]).tobytes()
    trailer = _TRAILER.pack(_TRAILER_MAGIC, len(entries), end_seq - first_seq, offset, first_seq, end_seq, *at_us)
    return [*encode_block(BlockKind.INDEX, end_seq, 0, at_us, index, salt), _with_crc(trailer)]


def decode_trailer(view: memoryview, segment_bytes: int | None = None) -> SegmentTrailer | None:
    """Return None if the segment is not sealed, or its end is damaged. `view` is the segment, or at least its end."""
    raw = bytes(view[-TRAILER_BYTES:])
    if not _is_crc_valid(raw):
        return None
    magic, *values = _TRAILER.unpack_from(raw)
    trailer = SegmentTrailer(*values)
    size = len(view) if segment_bytes is None else segment_bytes
    return trailer if magic == _TRAILER_MAGIC and trailer.index_offset < size else None


def _with_crc(raw: bytes) -> bytes:
    return raw + crc32c(raw).to_bytes(4, "little")


def _is_crc_valid(raw: bytes) -> bool:
    has_size = len(raw) == _CHECKED_BYTES + 4
    return has_size and crc32c(raw[:_CHECKED_BYTES]) == int.from_bytes(raw[_CHECKED_BYTES:], "little")


# References to frames that the segment holds already


class TailReference(NamedTuple):
    """Say where the tail of the frame in `row` is stored."""

    row: int
    offset: int
    source_row: int
    tail_bytes: int


def encode_references(batch: Any, references: list[TailReference]) -> Buffer:
    """Return the body of a block in which these frames are stored without their tails."""
    frames = batch.column(_FRAME)
    heads = [frames[each.row].as_buffer().to_pybytes()[: -each.tail_bytes] for each in references]
    short = batch.set_column(_FRAME, SCHEMA.field(_FRAME), _replace_rows(frames, references, heads, BYTES_TYPE))
    numbers = array("q", [len(references), *(number for each in references for number in each)]).tobytes()
    return b"".join((numbers.ljust(align(len(numbers)), b"\0"), short.serialize()))


def decode_references(body: Any, schema: Any) -> tuple[list[TailReference], Any]:
    """Return the references and the batch as it is stored."""
    view = memoryview(body)
    count = int.from_bytes(view[:_NUMBER_BYTES], "little")
    end = _NUMBER_BYTES * (1 + _NUMBERS * count)
    numbers = view[_NUMBER_BYTES:end].cast("q").tolist()
    references = [TailReference(*numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS)]
    return references, pa.ipc.read_record_batch(body.slice(align(end)), schema)


def resolve_references(batch: Any, references: list[TailReference], lookup: FrameLookup) -> Any:
    """Return the records with complete frames. Where a tail is lost, the frame is the head and the note says so."""
    frames, notes = batch.column(_FRAME), batch.column(_NOTE)
    resolved: list[bytes] = []
    lost: list[tuple[TailReference, str]] = []
    for each in references:
        head = frames[each.row].as_py()
        stored = frames if each.offset == THIS_BLOCK else lookup(each.offset)
        if stored is None:
            resolved.append(head)
            note = notes[each.row].as_py()
            values = {**(json.decode(note) if note else {}), MISSING_TAIL_BYTES: each.tail_bytes}
            lost.append((each, json.encode(values).decode()))
        else:
            tail = memoryview(stored[each.source_row].as_buffer())[-each.tail_bytes :]
            resolved.append(b"".join((head, tail)))
    batch = batch.set_column(_FRAME, SCHEMA.field(_FRAME), _replace_rows(frames, references, resolved, BYTES_TYPE))
    if lost:
        texts = _replace_rows(notes, [each for each, _ in lost], [text for _, text in lost], TEXT_TYPE)
        batch = batch.set_column(_NOTE, SCHEMA.field(_NOTE), texts)
    return batch


def _replace_rows(column: Any, references: list[TailReference], values: list[Any], kind: Any) -> Any:
    """Return the column with the rows of the references replaced by these values."""
    parts: list[Any] = []
    done = 0
    for each, value in zip(references, values, strict=True):
        parts += [column.slice(done, each.row - done), pa.array([value], kind)]
        done = each.row + 1
    return pa.concat_arrays([*parts, column.slice(done)])
