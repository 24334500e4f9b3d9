"""Describe, quarantine and look for damage in a log."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field, json, structs

from wirelake.files import FileSystem
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.mapped_segment import BlockInfo, BlockState, MappedSegment

QUARANTINE_FOLDER: Final = "quarantine"


class Damage(Struct, frozen=True, kw_only=True):
    """Describe bytes that are not what was written, or were never completely written.

    `torn`: the end of a block that a crash cut short; nothing in it was confirmed, `rows` is 0.
    `damaged`: confirmed records are lost. `head`: the start of a segment; no record is lost.
    """

    kind: str
    segment: str
    offset: int
    bytes: int
    first_seq: int
    rows: int
    found_at_us: int = 0
    kept_as: str = ""  # file in the quarantine

    def __str__(self) -> str:
        place = f"{self.segment} at byte {self.offset}, {self.bytes} bytes"
        if self.kind == "damaged":
            return f"damaged: {place}: records {self.first_seq} to {self.first_seq + self.rows - 1} are lost"
        return f"{self.kind}: {place}: no confirmed record is lost"


def quarantine_bytes(folder: Path, damage: Damage, content: bytes, files: FileSystem) -> Damage:
    """Save the damaged bytes, then the report on them: every report has its bytes."""
    quarantine = folder / QUARANTINE_FOLDER
    if not quarantine.exists():
        quarantine.mkdir()
        files.fsync_dir(folder)
    stem = f"{damage.segment.partition('.')[0]}-{damage.offset}-{damage.found_at_us}"
    files.replace_file(quarantine / f"{stem}.bin", content)
    saved = structs.replace(damage, kept_as=f"{stem}.bin")
    files.replace_file(quarantine / f"{stem}.json", json.encode(saved))
    return saved


def read_quarantine(folder: Path) -> list[Damage]:
    """Return all reports in the quarantine, oldest first."""
    reports = [json.decode(path.read_bytes(), type=Damage) for path in (folder / QUARANTINE_FOLDER).glob("*.json")]
    return sorted(reports, key=lambda damage: (damage.found_at_us, damage.segment, damage.offset))


class VerifyReport(Struct):
    segments: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    rows_lost_before: int = 0  # by damage found earlier, whose bytes are in the quarantine
    damages: list[Damage] = field(default_factory=list)


def verify_log(folder: Path) -> VerifyReport:
    """Check every committed byte: checksums, columns, seqs, and that no segment is missing.

    Nothing is changed, and the log may be written meanwhile.
    """
    watermark = HighWatermark(folder)
    committed = watermark.seq
    firsts = [first for first in list_segments(folder) if first < committed]
    report = VerifyReport()
    for first, next_first in zip(firsts, [*firsts[1:], committed], strict=bool(firsts)):
        _verify_segment(MappedSegment(segment_path(folder, first), first, watermark.salt), next_first, report)
    return report


def _verify_segment(segment: MappedSegment, next_first: int, report: VerifyReport) -> None:
    report.segments += 1
    report.bytes += segment.size_bytes
    if segment.head is None:
        report.damages.append(_damage("head", segment, 0, segment.first_block_offset, segment.first_seq, 0))
    seq, offset, is_sealed = segment.first_seq, segment.first_block_offset, False
    for block in segment.scan():
        if block.state is BlockState.INDEX:
            is_sealed = True
            break
        if block.first_seq >= next_first:  # not committed yet, or written again in the next segment
            break
        _verify_block(segment, block, report)
        seq, offset = block.end_seq, block.offset + block.span_bytes
    if seq < next_first:
        report.damages.append(_damage("damaged", segment, offset, 0, seq, next_first - seq))
    elif is_sealed and segment.read_index() is None:
        report.damages.append(_damage("index", segment, offset, segment.size_bytes - offset, seq, 0))


def _verify_block(segment: MappedSegment, block: BlockInfo, report: VerifyReport) -> None:
    if block.state is BlockState.HOLE:
        report.rows_lost_before += block.rows
    elif block.state is BlockState.DAMAGED or not _are_columns_valid(segment.read_batch(block), block):
        report.damages.append(_damage("damaged", segment, block.offset, block.span_bytes, block.first_seq, block.rows))
    else:
        report.blocks += 1
        report.rows += block.rows


def _are_columns_valid(batch: Any, block: BlockInfo) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    seqs = batch.column("seq")
    first, last = seqs[0].as_py(), seqs[-1].as_py()
    return batch.num_rows == block.rows and (first, last) == (block.first_seq, block.end_seq - 1)


def _damage(kind: str, segment: MappedSegment, offset: int, size: int, first_seq: int, rows: int) -> Damage:
    return Damage(kind=kind, segment=segment.path.name, offset=offset, bytes=size, first_seq=first_seq, rows=rows)
