"""What lies in a segment: blocks, each a header of 64 bytes and a body, each beginning at a multiple of 64.

    0       8      10     12     16          24          32       40       48        56       60       64
    +-------+------+------+------+-----------+-----------+--------+--------+---------+--------+--------+------+----
    | magic | ver. | kind | rows | first seq | body size | at min | at max | repeats | body   | header | body | zeros
    |       | u16  | u16  | u32  | u64       | u64       | i64 µs | i64 µs | u64     | crc    | crc    |      |
    +-------+------+------+------+-----------+-----------+--------+--------+---------+--------+--------+------+----

All numbers are little endian. The checksum is CRC-32C: of the body, then of the 60 bytes of the header before it, so
that the second covers both. The header's begins with the log's salt instead of 0: a frame from the wire that imitates
a block cannot know it, and is never taken for one when the bytes after a damaged place are searched for a whole block.

`repeats` is how many bytes larger the records are than the body, because they repeat frames of other blocks.

A header that holds tells the length even where the body does not.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from wirelake.limits import LOG_BLOCK_BYTES_MAX

ALIGNMENT: Final = 64
HEADER_BYTES: Final = 64
MAGIC: Final = b"WLKBLOCK"
VERSION: Final = 1
ROWS_MAX: Final = 2**32 - 1
_HEADER: Final = struct.Struct("<8sHHIQQqqQI")
_CHECKED_BYTES: Final = 60

Bytes = bytes | memoryview


class Kind(IntEnum):
    DATA = 1  # one Arrow IPC record batch
    INDEX = 2  # the footer of a sealed segment: the place of each block
    HOLE = 3  # a damaged block was here: its bytes are in the quarantine, `rows` records are lost
    REFERENCES = 4  # records, as in DATA, of which some repeat frames that the segment holds already: see repeats.py


class Header(NamedTuple):
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
        """From the first byte of this block to that of the next."""
        return HEADER_BYTES + aligned(self.body_bytes)


def aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def write_header(header: Header, salt: int) -> bytes:
    kind, rows, first_seq, body_bytes, at_min_us, at_max_us, body_crc, repeated = header
    raw = _HEADER.pack(MAGIC, VERSION, kind, rows, first_seq, body_bytes, at_min_us, at_max_us, repeated, body_crc)
    return raw + crc32c(raw, salt).to_bytes(4, "little")


def whole_block(
    kind: Kind, first_seq: int, rows: int, at_us: tuple[int, int], body: Bytes, salt: int, repeated_bytes: int = 0
) -> list[Bytes]:
    """The pieces of a block, in the order they are written."""
    size = len(body)
    header = Header(kind, rows, first_seq, size, at_us[0], at_us[1], crc32c(body), repeated_bytes)
    return [write_header(header, salt), body, bytes(aligned(size) - size)]


def read_header(view: memoryview, offset: int, salt: int) -> Header | None:
    """The header at this place, or None if there is none that holds. The body is not looked at."""
    if offset + HEADER_BYTES > len(view):
        return None
    raw = bytes(view[offset : offset + HEADER_BYTES])
    magic, version, kind, rows, first_seq, body_bytes, at_min_us, at_max_us, repeated, body_crc = _HEADER.unpack_from(
        raw
    )
    if magic != MAGIC or version != VERSION or body_bytes > LOG_BLOCK_BYTES_MAX:
        return None
    if crc32c(raw[:_CHECKED_BYTES], salt) != int.from_bytes(raw[_CHECKED_BYTES:], "little"):
        return None
    return Header(kind, rows, first_seq, body_bytes, at_min_us, at_max_us, body_crc, repeated)


def body_holds(view: memoryview, offset: int, header: Header) -> bool:
    """Whether the body after the header at `offset` is all there and unchanged."""
    start = offset + HEADER_BYTES
    body = view[start : start + header.body_bytes]
    return len(body) == header.body_bytes and crc32c(body) == header.body_crc
