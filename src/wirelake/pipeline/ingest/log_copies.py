"""Copy the log to a store, for executors that do not see the gateway's disk. The driver does this as it plans a batch.

    SALT/segments/FIRST_SEQ-END_SEQ-VERSION.seg    a sealed segment, as it is on disk
    SALT/tail/FROM_SEQ-UNTIL_SEQ                   the blocks of one span in a segment that is still being written

The salt identifies the log. A sealed segment changes only if recovery replaces a damaged block; it then has another
version. Copies of sealed segments stay for PIPELINE_LOG_COPIES_KEEP_S, for other readers of the log; a tail is removed
once its batch is committed.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import json
from msgspec.structs import replace

from wirelake.errors import MissingRecordsError
from wirelake.files import replace_file
from wirelake.lake.store import Store, open_store
from wirelake.limits import PIPELINE_LOG_COPIES_KEEP_S
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment
from wirelake.pipeline.ingest.segment_parts import SEALED_SUFFIX, SegmentPart, encode_extents, extents_of
from wirelake.pipeline.ingest.spans import Span

FOLDER: Final = "log"  # of the copies, in the lake's store
_SEGMENTS: Final = "segments"
_TAIL: Final = "tail"
_SEQ_DIGITS: Final = 20
_PRIVATE: Final = 0o600


class CopiedSegment(NamedTuple):
    """Name the copy of a sealed segment."""

    first_seq: int
    end_seq: int
    path: str


class LogCopies:
    """Copy what the spans of a batch need, and remove what nobody needs any more."""

    def __init__(self, folder: Path, store: Store, keep_s: float = PIPELINE_LOG_COPIES_KEEP_S) -> None:
        self._folder = folder
        self._store = store
        self._keep_s = keep_s
        salt = HighWatermark(folder).salt
        if salt is None:
            raise MissingRecordsError(
                f"the log in {folder} cannot be copied for the executors, because the file that identifies it is "
                "damaged: start the gateway, which repairs it"
            )
        self._salt = salt
        self.refresh()

    def refresh(self) -> None:
        """List what is in the store: another process may have copied something since."""
        self._sealed = {copy.first_seq: copy for copy in copied_segments(self._store, self._salt)}
        self._tails = {path: int(path.rpartition("-")[2]) for path in self._store.list(_prefix(self._salt, _TAIL))}

    def publish(self, spans: list[Span]) -> list[Span]:
        """Return the spans with where to read them. Everything is in the store when this returns."""
        return [replace(span, parts=json.encode(list(self._parts(span))).decode()) for span in spans]

    def remove_read(self, before_seq: int) -> None:
        """Remove the copies that only readers of records before this seq need."""
        for path in [path for path, until_seq in self._tails.items() if until_seq <= before_seq]:
            self._store.delete(path)
            del self._tails[path]
        for copy in [copy for copy in self._sealed.values() if copy.end_seq <= before_seq and self._is_old(copy)]:
            self._store.delete(copy.path)
            del self._sealed[copy.first_seq]

    def renew(self) -> int:
        """Replace the copies of segments that were written anew, and remove those of tails. Return how many.

        The batch that a tail was copied for copies it again.
        """
        paths = [*self._tails]
        for copy in list(self._sealed.values()):
            try:
                segment = MappedSegment(segment_path(self._folder, copy.first_seq), copy.first_seq, self._salt)
            except FileNotFoundError:  # removed by the log's own retention
                del self._sealed[copy.first_seq]
                paths.append(copy.path)
                continue
            if self._copy_sealed(segment, copy.end_seq) != copy.path:
                paths.append(copy.path)
        for path in paths:
            self._store.delete(path)
        self._tails.clear()
        return len(paths)

    def _is_old(self, copy: CopiedSegment) -> bool:
        try:
            sealed_at_s = segment_path(self._folder, copy.first_seq).stat().st_mtime
        except FileNotFoundError:  # removed by the log's own retention
            return True
        return time.time() - sealed_at_s > self._keep_s

    def _parts(self, span: Span) -> Iterator[SegmentPart]:
        firsts = list_segments(self._folder)
        for first, next_first in zip(firsts, [*firsts[1:], span.until_seq], strict=True):
            if first < span.until_seq and next_first > span.from_seq:
                segment = MappedSegment(segment_path(self._folder, first), first, self._salt)
                part = _locate(segment, span)
                if segment.trailer is not None:
                    path = self._copy_sealed(segment, segment.trailer.end_seq)
                else:
                    path = self._copy_tail(segment, part, span)
                yield replace(part, path=path)

    def _copy_sealed(self, segment: MappedSegment, end_seq: int) -> str:
        first, version = segment.first_seq, segment.path.stat().st_mtime_ns
        name = f"{first:0{_SEQ_DIGITS}d}-{end_seq:0{_SEQ_DIGITS}d}-{version:x}{SEALED_SUFFIX}"
        copy = CopiedSegment(first, end_seq, f"{_prefix(self._salt, _SEGMENTS)}/{name}")
        before = self._sealed.get(first)
        if copy != before:
            self._store.create(copy.path, segment.path.read_bytes())
            self._sealed[first] = copy
            if before is not None:
                self._store.delete(before.path)
        return copy.path

    def _copy_tail(self, segment: MappedSegment, part: SegmentPart, span: Span) -> str:
        name = f"{max(segment.first_seq, span.from_seq):0{_SEQ_DIGITS}d}-{span.until_seq:0{_SEQ_DIGITS}d}"
        path = f"{_prefix(self._salt, _TAIL)}/{name}"
        self._store.write(path, encode_extents(extents_of(segment, part)))
        self._tails[path] = span.until_seq
        return path


def _locate(segment: MappedSegment, span: Span) -> SegmentPart:
    """Find the blocks of a segment that a span needs."""
    hint = span.near
    if hint is not None and segment.has_block_at(hint):
        offset, seq = hint.offset, hint.seq
    else:
        offset, seq = segment.seek(span.from_seq)
    part = SegmentPart(segment.first_seq, "", offset, seq, offset)
    if segment.trailer is not None and span.until_seq >= segment.trailer.end_seq:
        return replace(part, until_offset=segment.trailer.index_offset)
    while seq < span.until_seq:
        block = segment.inspect(offset, seq, check_body=False)
        if block is None or block.state is BlockState.INDEX:
            break
        offset, seq = offset + block.span_bytes, block.end_seq
    return replace(part, until_offset=offset)


def _prefix(salt: int, kind: str) -> str:
    return f"{salt:08x}/{kind}"


def copied_logs(store: Store) -> list[int]:
    """Return the salts of the logs of which there are copies."""
    return sorted({int(path.partition("/")[0], 16) for path in store.list() if path.endswith(SEALED_SUFFIX)})


def copied_segments(store: Store, salt: int) -> list[CopiedSegment]:
    """Return the copies of sealed segments in order."""
    found = []
    for path in store.list(_prefix(salt, _SEGMENTS)):
        first, end, _ = path.rpartition("/")[2].split("-")
        found.append(CopiedSegment(int(first), int(end), path))
    return sorted(found)


def write_store_file(path: Path, store: Store) -> None:
    """Write where the copies go to a file that only this user can read.

    Spark starts the process that plans batches, and shows the options of a source, which must not have credentials.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.encode((store.url, store.delta_options)), mode=_PRIVATE)


def read_store_file(path: Path) -> Store:
    url, options = json.decode(path.read_bytes(), type=tuple[str, dict[str, str]])
    return open_store(url, options)
