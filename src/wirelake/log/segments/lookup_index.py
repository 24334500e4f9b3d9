"""Encode and read lookup indexes: which parts of a sealed segment may contain the records with a key.

A lookup index is a file beside its segment, with the suffix `.idx`. It divides the segment into up to 64 parts of
equally many records. Each of its entries is a part and 26 bits of the hash of a key that occurs in it; the bits before
these select the bucket that the entry is in.

    head 72 | for each bucket: end u32, crc u32 | crc u32 | bucket | bucket | …

    head:    magic | version u16 | bucket bits u16 | rows of a part u32 | first seq u64 | end seq u64
             | at min i64 µs | at max i64 µs | levels u64 | unread parts u64 | salt u32 | crc u32
    bucket:  for each entry, ascending: 26 bits of the hash, then the part in the 6 lowest bits, as u32

All numbers are little endian. `end` counts entries from the start of the first bucket. The checksums are CRC-32C: of
the head before it, of the table of buckets, and of each bucket. A search reads the head, the table and one bucket for
each hash; it never misses a key, and finds one that is not there about once in 60,000 times for each segment. `levels`
has a bit for each level of intervals in use (see lookup_keys.py), and `unread parts` one for each part with records
that were damaged when the index was built: such a part is part of every result, in case they are restored.

An index can always be built again from its segment, so it is replaced without a sync. One that is damaged, or was
built for another segment of the same name, is treated as if there were none.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from fastcrc.crc32 import iscsi as crc32c

from wirelake.log.segments.format import segment_path
from wirelake.log.segments.lookup_keys import Hashes, LookupKey, distinct

PARTS_MAX: Final = 64
_PART_BITS: Final = 6
_PART_MASK: Final = PARTS_MAX - 1
_HASH_BITS: Final = 26  # of an entry
_ENTRY_BITS: Final = _HASH_BITS + _PART_BITS
_BUCKET_ENTRIES: Final = 1024  # on average, at most: a bucket is one read of 4 KiB

_SUFFIX: Final = ".idx"
_MAGIC: Final = b"WLKINDEX"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHHIQQqqQQI")
_CRC_BYTES: Final = 4
_HEAD_BYTES: Final = _HEAD.size + _CRC_BYTES
_BUCKET_BITS_MAX: Final = 20
_ENTRY_BYTES: Final = 4
_TABLE_ROW_BYTES: Final = 8
_FIRST_READ_BYTES: Final = 4096  # the head and the table of most indexes


def index_path(folder: Path, first_seq: int) -> Path:
    """Return the path of the lookup index of the segment that starts with this record."""
    return segment_path(folder, first_seq).with_suffix(_SUFFIX)


def list_indexes(folder: Path) -> list[int]:
    """Return the first seqs of the segments that have an index, in order."""
    names = (path.stem for path in folder.iterdir() if path.suffix == _SUFFIX)
    return sorted(int(name) for name in names if name.isdecimal())


class IndexedRange(NamedTuple):
    """Describe the records that an index covers."""

    first_seq: int
    end_seq: int
    at_min_us: int
    at_max_us: int
    salt: int


def part_rows(first_seq: int, end_seq: int) -> int:
    """Return how many records of a segment make up one part."""
    return max(1, -(-(end_seq - first_seq) // PARTS_MAX))


def encode_index(covered: IndexedRange, parts: Sequence[Hashes], levels: int, unread_parts: int = 0) -> bytes:
    """Return the content of an index file. `parts` are the hashes of the keys of each part."""
    count = sum(len(hashes) for hashes in parts)
    bucket_bits = min((count // _BUCKET_ENTRIES).bit_length(), _BUCKET_BITS_MAX)
    shift = np.uint64(64 - bucket_bits - _HASH_BITS)
    shortened = [(hashes >> shift << np.uint64(_PART_BITS)) | np.uint64(number) for number, hashes in enumerate(parts)]
    values = distinct(np.concatenate(shortened)) if shortened else np.empty(0, np.uint64)
    bounds = np.arange(1 << bucket_bits, dtype=np.uint64) + np.uint64(1)
    ends = np.searchsorted(values, bounds << np.uint64(_ENTRY_BITS)).tolist()
    entries = values.astype("<u4").tobytes()  # the lowest 32 bits
    table = bytearray()
    start = 0
    for end in ends:
        table += struct.pack("<II", end, crc32c(entries[start * _ENTRY_BYTES : end * _ENTRY_BYTES]))
        start = end
    rows = part_rows(covered.first_seq, covered.end_seq)
    first_seq, end_seq, at_min_us, at_max_us, salt = covered
    head = _HEAD.pack(
        _MAGIC, _VERSION, bucket_bits, rows, first_seq, end_seq, at_min_us, at_max_us, levels, unread_parts, salt
    )
    return b"".join((_with_crc(head), _with_crc(bytes(table)), entries))


class LookupIndex:
    """Read an index file. Use as a context manager."""

    def __init__(
        self, fd: int, covered: IndexedRange, rows: int, levels: int, unread_parts: int, bucket_bits: int, table: bytes
    ) -> None:
        self.covered = covered
        self.is_damaged = False  # found while searching: the parts returned so far are not complete
        self._fd = fd
        self._rows = rows
        self._levels = levels
        self._unread_parts = unread_parts
        self._bucket_bits = bucket_bits
        self._table = table

    @classmethod
    def open(cls, folder: Path, first_seq: int, salt: int | None) -> "LookupIndex | None":
        """Return None if the segment has no valid index. `salt` is that of the log, if known."""
        try:
            fd = os.open(index_path(folder, first_seq), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        index = cls._read(fd)
        if index is None or index.covered.first_seq != first_seq or salt not in {None, index.covered.salt}:
            os.close(fd)
            return None
        return index

    @classmethod
    def _read(cls, fd: int) -> "LookupIndex | None":
        start = os.pread(fd, _FIRST_READ_BYTES, 0)
        if not _is_valid(start[:_HEAD_BYTES], _HEAD_BYTES):
            return None
        magic, version, bucket_bits, rows, *covered, levels, unread_parts, salt = _HEAD.unpack_from(start)
        if magic != _MAGIC or version != _VERSION or bucket_bits > _BUCKET_BITS_MAX:
            return None
        table_bytes = (_TABLE_ROW_BYTES << bucket_bits) + _CRC_BYTES
        table = start[_HEAD_BYTES : _HEAD_BYTES + table_bytes]
        if len(table) < table_bytes:
            table = os.pread(fd, table_bytes, _HEAD_BYTES)
        if not _is_valid(table, table_bytes):
            return None
        return cls(fd, IndexedRange._make((*covered, salt)), rows, levels, unread_parts, bucket_bits, table)

    def __enter__(self) -> "LookupIndex":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def find(self, keys: Iterable[LookupKey]) -> list[range]:
        """Return the seqs that may have one of the keys, in order. Check `is_damaged` afterwards."""
        parts = {part for part in range(PARTS_MAX) if self._unread_parts >> part & 1}
        for key in keys:
            for value in _hashes(key, self._levels):
                parts |= self._parts(value)
        return [self._seqs(part) for part in sorted(parts)]

    def is_valid(self) -> bool:
        """Check all of it."""
        for number in range(1 << self._bucket_bits):
            self._bucket(number)
        return not self.is_damaged

    def _seqs(self, part: int) -> range:
        start = self.covered.first_seq + part * self._rows
        return range(start, min(start + self._rows, self.covered.end_seq))

    def _parts(self, value: int) -> set[int]:
        bucket = value >> (64 - self._bucket_bits)
        wanted = (value >> (64 - self._bucket_bits - _HASH_BITS)) & ((1 << _HASH_BITS) - 1)
        entries = self._bucket(bucket)
        start, end = np.searchsorted(entries, [wanted << _PART_BITS, (wanted << _PART_BITS) + PARTS_MAX])
        return set((entries[start:end] & _PART_MASK).tolist())

    def _bucket(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        end, crc = struct.unpack_from("<II", self._table, number * _TABLE_ROW_BYTES)
        (start,) = struct.unpack_from("<I", self._table, (number - 1) * _TABLE_ROW_BYTES) if number else (0,)
        size = (end - start) * _ENTRY_BYTES
        raw = os.pread(self._fd, size, _HEAD_BYTES + len(self._table) + start * _ENTRY_BYTES)
        if len(raw) != size or crc32c(raw) != crc:
            self.is_damaged = True
            return np.empty(0, np.uint32)
        return np.frombuffer(raw, "<u4")


@lru_cache(maxsize=1024)
def _hashes(key: LookupKey, levels: int) -> list[int]:
    """Return the hashes of a key: a search asks many indexes for the same ones."""
    return key.hashes(levels)


def _with_crc(raw: bytes) -> bytes:
    return raw + crc32c(raw).to_bytes(_CRC_BYTES, "little")


def _is_valid(raw: bytes, size: int) -> bool:
    return len(raw) == size and crc32c(raw[:-_CRC_BYTES]) == int.from_bytes(raw[-_CRC_BYTES:], "little")
