"""Sizes, rates and consumers of a log, from its headers alone: no record is read."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.log import quarantine
from wirelake.log.files import Files
from wirelake.log.mark import Mark
from wirelake.log.positions import Positions
from wirelake.log.retention import Removed, read_removed
from wirelake.log.segment import segment_firsts, segment_path
from wirelake.log.segmentmap import SegmentMap, State

RATE_WINDOWS_S: Final = {"minute": 60, "hour": 3600}


class Consumer(Struct):
    seq: int  # the first record it still needs
    behind_rows: int
    committed_at_us: int


class Rate(Struct):
    """Over so much of the log's own time, up to its newest record."""

    rows_s: float = 0.0
    bytes_s: float = 0.0  # on disk


class Quarantine(Struct):
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
    rates: dict[str, Rate]
    consumers: dict[str, Consumer]
    quarantine: Quarantine
    removed: Removed


class _Block(Struct):
    at_min_us: int
    at_max_us: int
    rows: int
    bytes: int


def read_stats(folder: Path) -> LogStats:
    mark = Mark(folder)
    committed = mark.seq
    firsts = [first for first in segment_firsts(folder) if first < committed]
    segments = [SegmentMap(segment_path(folder, first), first, mark.salt) for first in firsts]
    newest = _blocks(segments[-1], committed) if segments else []
    newest_at_us = max((block.at_max_us for block in newest), default=None)
    oldest = segments[0] if segments else None
    damages = quarantine.reports(folder)
    consumers = {
        name: Consumer(position.seq, max(0, committed - position.seq), position.at_us)
        for name, position in Positions(folder, Files()).all().items()
    }
    return LogStats(
        segments=len(segments),
        bytes=sum(segment.bytes for segment in segments),
        oldest_seq=firsts[0] if firsts else committed,
        next_seq=committed,
        oldest_at_us=_oldest_at_us(oldest, committed) if oldest is not None else None,
        newest_at_us=newest_at_us,
        rates=_rates(segments, committed, newest_at_us),
        consumers=consumers,
        quarantine=Quarantine(
            len(damages), sum(damage.bytes for damage in damages), sum(damage.rows for damage in damages)
        ),
        removed=read_removed(folder),
    )


def _oldest_at_us(segment: SegmentMap, committed: int) -> int | None:
    if segment.trailer is not None:
        return segment.trailer.at_min_us
    return min((block.at_min_us for block in _blocks(segment, committed)), default=None)


def _rates(segments: list[SegmentMap], committed: int, newest_at_us: int | None) -> dict[str, Rate]:
    rates = {name: Rate() for name in RATE_WINDOWS_S}
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


def _blocks(segment: SegmentMap, committed: int) -> list[_Block]:
    return [
        _Block(found.header.at_min_us, found.header.at_max_us, found.rows, found.span_bytes)
        for found in segment.walk(check_bodies=False)
        if found.state is State.WHOLE and found.header is not None and found.end_seq <= committed
    ]
