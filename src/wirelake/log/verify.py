"""Looks at every committed byte of a log: checksums, columns, seqs, and that no segment is missing."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from wirelake.log.mark import Mark
from wirelake.log.quarantine import Damage
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import SegmentMap, State, Stretch


class Verified(Struct):
    segments: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    rows_lost_before: int = 0  # damage found earlier, whose bytes are in the quarantine
    damages: list[Damage] = field(default_factory=list)


def verify(folder: Path) -> Verified:
    """Changes nothing; may run while the log is written."""
    mark = Mark(folder)
    committed = mark.seq
    firsts = [first for first in segment_firsts(folder) if first < committed]
    result = Verified()
    for first, follower in zip(firsts, [*firsts[1:], committed], strict=bool(firsts)):
        _verify_segment(SegmentMap(segment_path(folder, first), first, mark.salt), follower, result)
    return result


def _verify_segment(segment: SegmentMap, follower: int, result: Verified) -> None:
    result.segments += 1
    result.bytes += segment.bytes
    if segment.head is None:
        result.damages.append(_damage("head", segment, 0, segment.first_block, segment.first_seq, 0))
    seq, offset, sealed = segment.first_seq, segment.first_block, False
    for found in segment.walk():
        if found.state is State.INDEX:
            sealed = True
            break
        if found.first_seq >= follower:  # not committed yet, or written again in the next segment
            break
        _verify_block(segment, found, result)
        seq, offset = found.end_seq, found.offset + found.span_bytes
    if seq < follower:
        result.damages.append(_damage("damaged", segment, offset, 0, seq, follower - seq))
    elif sealed and segment.index() is None:
        result.damages.append(_damage("index", segment, offset, segment.bytes - offset, seq, 0))


def _verify_block(segment: SegmentMap, found: Stretch, result: Verified) -> None:
    if found.state is State.HOLE:
        result.rows_lost_before += found.rows
    elif found.state is State.DAMAGED or not _columns_hold(segment.batch(found), found):
        result.damages.append(_damage("damaged", segment, found.offset, found.span_bytes, found.first_seq, found.rows))
    else:
        result.blocks += 1
        result.rows += found.rows


def _columns_hold(batch: Any, found: Stretch) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    seqs = batch.column("seq")
    first, last = seqs[0].as_py(), seqs[-1].as_py()
    return batch.num_rows == found.rows and (first, last) == (found.first_seq, found.end_seq - 1)


def _damage(kind: str, segment: SegmentMap, offset: int, size: int, first_seq: int, rows: int) -> Damage:
    return Damage(kind=kind, segment=segment.path.name, offset=offset, bytes=size, first_seq=first_seq, rows=rows)
