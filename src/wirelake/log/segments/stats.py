"""Report sizes, rates and consumers of a log from its headers alone: no record is read."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.integrity import read_quarantine
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment
from wirelake.log.segments.retention import RemovedTotals, read_removed

RATE_WINDOWS_S: Final = {"minute": 60, "hour": 3600}


class ConsumerLag(Struct):
    seq: int  # the first record that it still needs
    behind_rows: int
    committed_at_us: int


class AppendRate(Struct):
    """Average over a window that ends with the newest record of the log."""

    rows_s: float = 0.0
    bytes_s: float = 0.0  # on disk


class QuarantineStats(Struct):
    places: int
    bytes: int
    rows_lost: int


class LogStats(Struct):
    segments: int
    bytes: int
    oldest_seq: int
    next_seq: int
    oldest_at_us: int | None
    newest_at_us: int | None
    rates: dict[str, AppendRate]
    consumers: dict[str, ConsumerLag]
    quarantine: QuarantineStats
    removed: RemovedTotals


class _Block(Struct):
    at_min_us: int
    at_max_us: int
    rows: int
    bytes: int


def read_stats(folder: Path) -> LogStats:
    """Collect the figures of the log in this folder, which may be written meanwhile."""
    watermark = HighWatermark(folder)
    committed = watermark.seq
    firsts = [first for first in list_segments(folder) if first < committed]
    segments = [MappedSegment(segment_path(folder, first), first, watermark.salt) for first in firsts]
    newest = _blocks(segments[-1], committed) if segments else []
    newest_at_us = max((block.at_max_us for block in newest), default=None)
    oldest = segments[0] if segments else None
    damages = read_quarantine(folder)
    consumers = {
        name: ConsumerLag(offset.seq, max(0, committed - offset.seq), offset.at_us)
        for name, offset in ConsumerOffsets(folder).all().items()
    }
    return LogStats(
        segments=len(segments),
        bytes=sum(segment.size_bytes for segment in segments),
        oldest_seq=firsts[0] if firsts else committed,
        next_seq=committed,
        oldest_at_us=_oldest_at_us(oldest, committed) if oldest is not None else None,
        newest_at_us=newest_at_us,
        rates=_rates(segments, committed, newest_at_us),
        consumers=consumers,
        quarantine=QuarantineStats(
            len(damages), sum(damage.bytes for damage in damages), sum(damage.rows for damage in damages)
        ),
        removed=read_removed(folder),
    )


def _oldest_at_us(segment: MappedSegment, committed: int) -> int | None:
    if segment.trailer is not None:
        return segment.trailer.at_min_us
    return min((block.at_min_us for block in _blocks(segment, committed)), default=None)


def _rates(segments: list[MappedSegment], committed: int, newest_at_us: int | None) -> dict[str, AppendRate]:
    rates = {name: AppendRate() for name in RATE_WINDOWS_S}
    if newest_at_us is None:
        return rates
    longest_us = max(RATE_WINDOWS_S.values()) * 1_000_000
    for segment in reversed(segments):
        if segment.trailer is not None and segment.trailer.at_max_us < newest_at_us - longest_us:
            break
        for block in _blocks(segment, committed):
            for name, window_s in RATE_WINDOWS_S.items():
                if block.at_max_us >= newest_at_us - window_s * 1_000_000:
                    rates[name].rows_s += block.rows / window_s
                    rates[name].bytes_s += block.bytes / window_s
    return rates


def _blocks(segment: MappedSegment, committed: int) -> list[_Block]:
    return [
        _Block(block.header.at_min_us, block.header.at_max_us, block.rows, block.span_bytes)
        for block in segment.scan(check_bodies=False)
        if block.state is BlockState.VALID and block.header is not None and block.end_seq <= committed
    ]
