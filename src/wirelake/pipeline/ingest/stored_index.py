"""List the blocks of a log whose sealed segments were copied to a store, for readers without the log itself."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from msgspec import json
from msgspec.structs import replace

from wirelake.errors import GoneError, InputError, MissingRecordsError
from wirelake.lake.store import Store
from wirelake.log.segments.block_index import BlockRange
from wirelake.log.segments.format import HEADER_BYTES, TRAILER_BYTES, decode_header, decode_trailer, is_body_valid
from wirelake.log.segments.mapped_segment import BlockHint
from wirelake.pipeline.ingest.log_copies import CopiedSegment, copied_logs, copied_segments
from wirelake.pipeline.ingest.segment_parts import SegmentPart, read_at
from wirelake.pipeline.ingest.spans import Span

_SALT_DIGITS: Final = 8
_ADVICE: Final = ": remove it, and restart the pipeline, which copies it again"


class SegmentIndex:
    """Hold where the blocks of a copied segment are, from its footer."""

    def __init__(self, store: Store, copy: CopiedSegment, salt: int) -> None:
        with store.open_input(copy.path) as file:
            size = file.size()
            trailer = decode_trailer(memoryview(read_at(file, size - TRAILER_BYTES, TRAILER_BYTES)), size)
            if trailer is None:
                raise MissingRecordsError(f"{store.name(copy.path)} has a damaged end{_ADVICE}")
            start = trailer.index_offset
            block = memoryview(read_at(file, start, size - TRAILER_BYTES - start))
        header = decode_header(block, 0, salt)
        if header is None or not is_body_valid(block, 0, header):
            raise MissingRecordsError(f"{store.name(copy.path)} has a damaged index{_ADVICE}")
        numbers = block[HEADER_BYTES : HEADER_BYTES + header.body_bytes].cast("q").tolist()
        self.first_seqs, self.offsets, self.at_max_us = numbers[::4], numbers[1::4], numbers[3::4]
        self.end_seqs = [*self.first_seqs[1:], copy.end_seq]
        self.end_offsets = [*self.offsets[1:], start]

    def block_of(self, seq: int) -> int:
        """Return the number of the block with this record, or of the nearest one."""
        return max(0, bisect_right(self.first_seqs, seq) - 1)


class StoredIndex:
    """List the blocks of the log with this salt. Without one, there must be copies of one log only."""

    def __init__(self, store: Store, log: str = "") -> None:
        self._store = store
        self.folder = store.url  # for messages
        self.salt = _choose(store, log)
        self._segments: dict[str, SegmentIndex] = {}

    @property
    def oldest_seq(self) -> int:
        copies = copied_segments(self._store, self.salt)
        return copies[0].first_seq if copies else 0

    @property
    def next_seq(self) -> int:
        """Return the seq after the last record: that of the first segment which is not copied yet."""
        copies = copied_segments(self._store, self.salt)
        end = copies[0].first_seq if copies else 0
        for copy in copies:
            if copy.first_seq > end:
                break
            end = copy.end_seq
        return end

    def ranges(self, from_seq: int, until_seq: int) -> Iterator[BlockRange]:
        """Yield the blocks with the records from `from_seq` on and before `until_seq`, trimmed to these bounds."""
        for copy, index in self._between(from_seq, until_seq):
            for number in range(index.block_of(from_seq), len(index.offsets)):
                first, end = index.first_seqs[number], index.end_seqs[number]
                if first >= until_seq:
                    return
                if end > from_seq:
                    size = index.end_offsets[number] - index.offsets[number]
                    hint = BlockHint(copy.first_seq, index.offsets[number], first)
                    yield BlockRange(max(first, from_seq), min(end, until_seq), size, index.at_max_us[number], hint)

    def locate(self, span: Span) -> Span:
        """Return the span with where to read it."""
        parts = []
        for copy, index in self._between(span.from_seq, span.until_seq):
            first, last = index.block_of(span.from_seq), index.block_of(span.until_seq - 1)
            until_offset = index.end_offsets[last]
            parts.append(
                SegmentPart(copy.first_seq, copy.path, index.offsets[first], index.first_seqs[first], until_offset)
            )
        return replace(span, parts=json.encode(parts).decode())

    def _between(self, from_seq: int, until_seq: int) -> Iterator[tuple[CopiedSegment, SegmentIndex]]:
        copies = copied_segments(self._store, self.salt)
        if copies and from_seq < min(until_seq, copies[0].first_seq):
            raise GoneError(from_seq, copies[0].first_seq)
        for copy in copies:
            if copy.end_seq > from_seq and copy.first_seq < until_seq:
                if copy.path not in self._segments:
                    self._segments[copy.path] = SegmentIndex(self._store, copy, self.salt)
                yield copy, self._segments[copy.path]


def _choose(store: Store, log: str) -> int:
    salts = copied_logs(store)
    names = ", ".join(f"{salt:0{_SALT_DIGITS}x}" for salt in salts)
    if log:
        if log not in names.split(", "):
            raise InputError(f"there is no log {log} in {store.url}; there is: {names or 'none'}")
        return int(log, 16)
    if not salts:
        raise InputError(f"there are no sealed segments in {store.url}: the pipeline copies them for remote executors")
    if len(salts) > 1:
        raise InputError(f"there are several logs in {store.url}: name one with the option log: {names}")
    return salts[0]
