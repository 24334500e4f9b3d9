"""A segment is a file of blocks. Its name is the seq of its first record.

    head 64 | schema, padded to 64 | block | block | … | index block | trailer 64
                                                         └ once the segment is sealed ┘

    head:     magic | version u16 | columns' version u16 | schema size u32 | first seq u64 | made at i64 µs | salt u32
    index:    for each block: first seq, offset, at min, at max, as i64
    trailer:  magic | blocks u32 | rows u32 | index offset u64 | first seq u64 | end seq u64 | at min i64 | at max i64

Head and trailer are filled up with zeros to 60 bytes and end with the CRC-32C of these.

While a segment is written its file is as long as it may become, zeros behind the last block, so that a sync has no new
length to record and a reader's memory map need not grow. Sealing cuts it to what it holds.
"""

import struct
from array import array
from pathlib import Path
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from wirelake.log.block import Bytes, Kind, aligned, whole_block
from wirelake.log.schema import SCHEMA_MESSAGE, SCHEMA_VERSION

HEAD_BYTES: Final = 64
TRAILER_BYTES: Final = 64
SUFFIX: Final = ".seg"
FIRST_BLOCK: Final = HEAD_BYTES + aligned(len(SCHEMA_MESSAGE))
VERSION: Final = 1
SEQ_DIGITS: Final = 20

_HEAD_MAGIC: Final = b"WLKSEGMT"
_TRAILER_MAGIC: Final = b"WLKTRAIL"
_HEAD: Final = struct.Struct("<8sHHIQqI24x")
_TRAILER: Final = struct.Struct("<8sIIQQQqq4x")
_CHECKED_BYTES: Final = 60


class Head(NamedTuple):
    schema_version: int
    schema_bytes: int
    first_seq: int
    made_at_us: int
    salt: int

    @property
    def first_block(self) -> int:
        return HEAD_BYTES + aligned(self.schema_bytes)


class Trailer(NamedTuple):
    blocks: int
    rows: int
    index_offset: int
    first_seq: int
    end_seq: int
    at_min_us: int
    at_max_us: int


class Place(NamedTuple):
    """Where a block is: a line of the index."""

    first_seq: int
    offset: int
    at_min_us: int
    at_max_us: int


def segment_path(folder: Path, first_seq: int) -> Path:
    return folder / f"{first_seq:0{SEQ_DIGITS}d}{SUFFIX}"


def segment_firsts(folder: Path) -> list[int]:
    """The first seqs of all segments in the folder, in order."""
    names = (path.name.removesuffix(SUFFIX) for path in folder.iterdir() if path.name.endswith(SUFFIX))
    return sorted(int(name) for name in names if name.isdecimal())


def write_head(first_seq: int, made_at_us: int, salt: int) -> bytes:
    """The bytes before the first block."""
    head = _HEAD.pack(_HEAD_MAGIC, VERSION, SCHEMA_VERSION, len(SCHEMA_MESSAGE), first_seq, made_at_us, salt)
    return _with_crc(head) + SCHEMA_MESSAGE.ljust(FIRST_BLOCK - HEAD_BYTES, b"\0")


def read_head(view: memoryview) -> Head | None:
    """None if it does not hold; the file's name and the log's salt are then enough to read on."""
    raw = bytes(view[:HEAD_BYTES])
    if not _crc_holds(raw):
        return None
    magic, version, schema_version, schema_bytes, first_seq, made_at_us, salt = _HEAD.unpack_from(raw)
    if magic != _HEAD_MAGIC or version != VERSION:
        return None
    return Head(schema_version, schema_bytes, first_seq, made_at_us, salt)


def write_footer(places: list[Place], offset: int, first_seq: int, end_seq: int, salt: int) -> list[Bytes]:
    """The index block and the trailer, to be written at `offset`."""
    at_us = (min(place.at_min_us for place in places), max(place.at_max_us for place in places))
    index = array("q", [value for place in places for value in place]).tobytes()
    trailer = _TRAILER.pack(_TRAILER_MAGIC, len(places), end_seq - first_seq, offset, first_seq, end_seq, *at_us)
    return [*whole_block(Kind.INDEX, end_seq, 0, at_us, index, salt), _with_crc(trailer)]


def read_trailer(view: memoryview) -> Trailer | None:
    """None if the segment is not sealed, or its end damaged."""
    raw = bytes(view[-TRAILER_BYTES:])
    if not _crc_holds(raw):
        return None
    magic, *values = _TRAILER.unpack_from(raw)
    trailer = Trailer(*values)
    return trailer if magic == _TRAILER_MAGIC and trailer.index_offset < len(view) else None


def _with_crc(raw: bytes) -> bytes:
    return raw + crc32c(raw).to_bytes(4, "little")


def _crc_holds(raw: bytes) -> bool:
    size_fits = len(raw) == _CHECKED_BYTES + 4
    return size_fits and crc32c(raw[:_CHECKED_BYTES]) == int.from_bytes(raw[_CHECKED_BYTES:], "little")
