"""Search for checksums: sums, XOR, and the CRCs of 8, 16 and 32 bits that catalogues list."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from operator import xor
from typing import Final, NamedTuple

from fastcrc import crc8, crc16, crc32

from wirelake.workbench.evidence import ORDERS, ByteOrder, Proposal, chance_bits, cross_rate, number
from wirelake.workbench.limits import (
    WORKBENCH_CHECKSUM_OFFSET_MAX,
    WORKBENCH_CHECKSUM_SHARE_MIN,
    WORKBENCH_CHECKSUM_START_MAX,
)

Compute = Callable[[bytes], int]
_FIRST_LOOK: Final = 4  # frames on which an algorithm has to be right for a second look
_FIRST_RIGHT: Final = 3


class Algorithm(NamedTuple):
    name: str
    size: int
    compute: Compute
    expression: str  # in Python, with the modules `crc8`, `crc16` and `crc32` of fastcrc, as a function of bytes


@cache
def algorithms() -> tuple[Algorithm, ...]:
    """Return every algorithm that is tried, the simplest first."""
    found = [
        Algorithm("XOR of all bytes", 1, lambda data: reduce(xor, data, 0), "lambda data: reduce(xor, data, 0)"),
        Algorithm("Adler-32", 4, zlib.adler32, "adler32"),
    ]
    for size in (1, 2, 4):
        mask = (1 << 8 * size) - 1
        found += [
            Algorithm(
                f"sum of all bytes, {8 * size} bits",
                size,
                lambda data, mask=mask: sum(data) & mask,  # type: ignore[misc]
                f"lambda data: sum(data) & {mask:#x}",
            ),
            Algorithm(
                f"sum of all bytes, negated, {8 * size} bits",
                size,
                lambda data, mask=mask: -sum(data) & mask,  # type: ignore[misc]
                f"lambda data: -sum(data) & {mask:#x}",
            ),
            Algorithm(
                f"sum of all bytes, inverted, {8 * size} bits",
                size,
                lambda data, mask=mask: ~sum(data) & mask,  # type: ignore[misc]
                f"lambda data: ~sum(data) & {mask:#x}",
            ),
        ]
    for module, size in ((crc8, 1), (crc16, 2), (crc32, 4)):
        for name in sorted(module.algorithms_available):
            plain = name.replace("-", "_")
            title = f"CRC-{8 * size}/{plain.upper().replace('_', '-')}"
            found.append(Algorithm(title, size, getattr(module, plain), f"crc{8 * size}.{plain}"))
    return tuple(found)


class _Place(NamedTuple):
    """Where a checksum is, and which bytes it covers: from `start` to `stop` bytes before the end."""

    offset: int
    start: int
    stop: int


def _places(size: int) -> Iterator[_Place]:
    for start in range(WORKBENCH_CHECKSUM_START_MAX + 1):
        yield _Place(-size, start, size)
    for offset in range(WORKBENCH_CHECKSUM_OFFSET_MAX + 1):
        yield _Place(offset, offset + size, 0)


def find_checksums(frames: Sequence[bytes], is_over: Callable[[], bool]) -> list[Proposal]:
    """Return the checksums that are right, the best first."""
    found: list[Proposal] = []
    tried = sum(len(list(_places(algorithm.size))) * 2 for algorithm in algorithms())
    for algorithm in algorithms():
        for place in _places(algorithm.size):
            if is_over():
                return found
            for order in ORDERS if algorithm.size > 1 else ORDERS[:1]:
                finding = _check(frames, algorithm, place, order, tried)
                if finding is not None:
                    found.append(finding)
    return sorted(found, key=lambda each: (-each.bits, each.covers))


def _check(
    frames: Sequence[bytes], algorithm: Algorithm, place: _Place, order: ByteOrder, tried: int
) -> Proposal | None:
    size = algorithm.size
    least = max(place.start, place.offset + size if place.offset >= 0 else 0) + place.stop + 1
    usable = [frame for frame in frames if len(frame) >= least]
    if len(usable) < 2 or len(usable) * 2 < len(frames):
        return None
    step = max(1, len(usable) // _FIRST_LOOK)
    look = usable[::step][:_FIRST_LOOK]
    if sum(_is_right(frame, algorithm, place, order) for frame in look) < min(_FIRST_RIGHT, len(look)):
        return None
    computed = [algorithm.compute(frame[place.start : len(frame) - place.stop]) for frame in usable]
    stored = [_stored(frame, size, place, order) for frame in usable]
    agree = sum(one == other for one, other in zip(computed, stored, strict=True))
    if agree / len(usable) < WORKBENCH_CHECKSUM_SHARE_MIN:
        return None
    rate = cross_rate(computed, stored, 8 * size)
    where = "at the end" if place.offset < 0 else f"at byte {place.offset}"
    covers = f"bytes {place.start} up to it" if place.offset < 0 else "all bytes after it"
    shown = f", {order}" if size > 1 else ""
    return Proposal(
        kind="checksum",
        text=f"{algorithm.name} {where}{shown}, of {covers}",
        agree=agree,
        of=len(usable),
        bits=chance_bits(agree, len(usable), rate, tried),
        offset=place.offset,
        size=size,
        order=order,
        algorithm=algorithm.name,
        covers=(place.start, place.stop),
    )


def _is_right(frame: bytes, algorithm: Algorithm, place: _Place, order: ByteOrder) -> bool:
    computed = algorithm.compute(frame[place.start : len(frame) - place.stop])
    return computed == _stored(frame, algorithm.size, place, order)


def _stored(frame: bytes, size: int, place: _Place, order: ByteOrder) -> int:
    offset = place.offset if place.offset >= 0 else len(frame) + place.offset
    return number(frame, offset, size, order)
