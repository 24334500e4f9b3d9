"""Search for the field that says how long a frame is, and cut streams with it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from wirelake.workbench.evidence import ORDERS, SIZES, ByteOrder, Proposal, chance_bits, cross_rate, number
from wirelake.workbench.limits import WORKBENCH_HEAD_BYTES, WORKBENCH_LENGTH_SHARE_MIN

_LAYOUTS: Final = [(size, order) for size in SIZES for order in (ORDERS if size > 1 else ("big",))]
_PLUS_MAX: Final = 16  # a length that counts more bytes than this before or after the frame is no length
_TRIED: Final = WORKBENCH_HEAD_BYTES * len(_LAYOUTS)


def find_lengths(frames: Sequence[bytes], share_min: float = WORKBENCH_LENGTH_SHARE_MIN) -> list[Proposal]:
    """Return the lengths that fit, the best first."""
    found = []
    for offset in range(WORKBENCH_HEAD_BYTES):
        for size, order in _LAYOUTS:
            long_enough = [frame for frame in frames if len(frame) >= offset + size]
            if len(long_enough) >= 2 and len(long_enough) * 2 >= len(frames):
                finding = _length(long_enough, offset, size, order, share_min)
                if finding is not None:
                    found.append(finding)
    # A wide field includes its low bytes, which fit as well: of those that agree alike, the wide one is meant.
    return sorted(found, key=lambda each: (-each.agree / each.of, -each.size, -each.bits, each.offset))


def _length(frames: Sequence[bytes], offset: int, size: int, order: ByteOrder, share_min: float) -> Proposal | None:
    values = [number(frame, offset, size, order) for frame in frames]
    differences = Counter(len(frame) - value for frame, value in zip(frames, values, strict=True))
    more, agree = max(differences.items(), key=lambda item: (item[1], -abs(item[0])))
    if agree / len(frames) < share_min or not -_PLUS_MAX <= more <= offset + size + _PLUS_MAX:
        return None
    sizes = [len(frame) - more for frame in frames]
    rate = cross_rate(values, sizes, 8 * size)
    bits = chance_bits(agree - 1, len(frames) - 1, rate, _TRIED * len(differences))
    counts, plus = _meaning(more, offset + size)
    title = {"rest": "the bytes after it", "frame": "the whole frame", "body": "the body"}[counts]
    and_plus = f" and {plus} more" if plus > 0 else f" without {-plus} of them" if plus < 0 else ""
    return Proposal(
        kind="length",
        text=f"{_name(size, order)} counts {title}{and_plus}",
        agree=agree,
        of=len(frames),
        bits=bits,
        offset=offset,
        size=size,
        order=order,
        counts=counts,
        plus=plus,
    )


# ── frames that are records behind one another, each with its own length

_RECORDS: Final = [
    (start, before, size, order) for start in range(9) for before in range(3) for size, order in _LAYOUTS
]
_END_RATE: Final = 0.25  # that a walk over other bytes ends with the frame by chance: an upper bound


def find_records(frames: Sequence[bytes]) -> list[Proposal]:
    """Return layouts of records, type and size and data, that lead to the last byte of every frame."""
    found = []
    for start, before, size, order in _RECORDS:
        walks = [_walk(frame, start, before, size, order) for frame in frames if len(frame) > start]
        agree = sum(len(sizes) > 1 for sizes in walks)
        if len(walks) * 2 < len(frames) or agree < WORKBENCH_LENGTH_SHARE_MIN * len(walks):
            continue
        different = len(set(walks))  # frames of one structure are evidence once
        text = f"records up to the end: {before} bytes, then a size ({_name(size, order)}), then so many bytes"
        bits = chance_bits(different, different, _END_RATE, len(_RECORDS))
        found.append(
            Proposal(
                kind="records",
                text=text,
                agree=agree,
                of=len(walks),
                bits=bits,
                offset=start,
                size=before + size,
                order=order,
            )
        )
    return sorted(found, key=lambda each: (-each.agree / each.of, -each.size, each.offset))


def _walk(frame: bytes, start: int, before: int, size: int, order: ByteOrder) -> tuple[int, ...]:
    """Return the sizes of the records up to the last byte; () if they do not lead there, or if most are empty."""
    sizes = []
    while start < len(frame):
        sizes.append(number(frame, start + before, size, order))
        start += before + size + sizes[-1]
    return tuple(sizes) if start == len(frame) and sizes.count(0) * 2 <= len(sizes) else ()


def _meaning(more: int, end: int) -> tuple[str, int]:
    """Return what a length counts, if a frame has `more` bytes than its value and the field ends at `end`."""
    if more == 0:
        return "frame", 0
    if more == end:
        return "rest", 0
    return ("frame", -more) if abs(more) < abs(more - end) else ("rest", end - more)


def _name(size: int, order: ByteOrder) -> str:
    return f"u{8 * size}" if size == 1 else f"u{8 * size} {order}"


def cut_streams(streams: Iterable[bytes], length: Proposal) -> list[list[bytes]] | None:
    """Return the frames of each stream; None if the length does not lead through most of their bytes."""
    cut: list[list[bytes]] = []
    total = used = 0
    end = length.offset + length.size
    more = (end if length.counts == "rest" else 0) - length.plus
    for stream in streams:
        frames, start = [], 0
        while start + end <= len(stream):
            size = number(stream, start + length.offset, length.size, length.order) + more
            if size < end or start + size > len(stream):
                break
            frames.append(stream[start : start + size])
            start += size
        cut.append(frames)
        total += len(stream)
        used += start
    return cut if total and used >= total * WORKBENCH_LENGTH_SHARE_MIN else None
