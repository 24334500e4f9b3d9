"""Search for text, and for the lengths before it."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log2
from typing import Final

from wirelake.workbench.evidence import ByteOrder, Proposal, chance_bits, cross_rate, number
from wirelake.workbench.limits import WORKBENCH_TEXTS_SHOWN_MAX

_RUN: Final = re.compile(rb"[\x20-\x7e][\t\n\r\x20-\x7e]{3,}")
_CHARACTER_BITS: Final = log2(256 / 98)  # that a byte is a character by chance
_PREFIXES: Final[tuple[tuple[int, ByteOrder], ...]] = ((1, "big"), (2, "big"), (2, "little"), (4, "big"), (4, "little"))
_RUNS_PER_FRAME_MAX: Final = 16


def find_texts(frames: Sequence[bytes]) -> list[Proposal]:
    """Return texts behind their length, and other texts, each by where they begin."""
    runs: dict[int, list[tuple[bytes, int]]] = defaultdict(list)  # by offset: frame, and where the run ends
    for frame in frames:
        for found in list(_RUN.finditer(frame))[:_RUNS_PER_FRAME_MAX]:
            runs[found.start()].append((frame, found.end()))
    findings = [_text(offset, of_place, len(frames)) for offset, of_place in runs.items()]
    prefixed = [_prefixed(runs, *layout) for layout in _PREFIXES]
    every = [each for each in (*prefixed, *findings) if each is not None]
    return sorted(every, key=lambda each: -each.bits)[:WORKBENCH_TEXTS_SHOWN_MAX]


def _text(offset: int, runs: Sequence[tuple[bytes, int]], frames: int) -> Proposal | None:
    if len({frame[offset:end] for frame, end in runs}) < 2:
        return None
    bits = sum(_CHARACTER_BITS * (end - offset) - log2(len(frame)) for frame, end in runs) - log2(frames)
    sample = Counter(frame[offset:end] for frame, end in runs).most_common(1)[0][0][:24].decode("ascii")
    return Proposal(
        kind="text",
        text=f"text such as {sample!r}",
        agree=len(runs),
        of=frames,
        bits=max(0.0, bits),
        offset=offset,
        size=0,
    )


def _prefixed(runs: dict[int, list[tuple[bytes, int]]], size: int, order: ByteOrder) -> Proposal | None:
    """Return how often the bytes before a text are its length. A printable length looks like a part of the text."""
    values, sizes = [], []
    first = None
    for offset, of_place in sorted(runs.items()):
        for frame, end in of_place:
            if offset >= size:
                values.append(number(frame, offset - size, size, order))
                sizes.append(end - offset)
                first = offset - size if first is None and values[-1] == sizes[-1] else first
    agree = sum(one == other for one, other in zip(values, sizes, strict=True))
    if first is None or agree * 2 < len(values):
        return None
    bits = chance_bits(agree, len(values), cross_rate(values, sizes, 8 * size), len(_PREFIXES))
    title = f"u{8 * size}" if size == 1 else f"u{8 * size} {order}"
    return Proposal(
        kind="text",
        text=f"text behind its length, a {title}",
        agree=agree,
        of=len(values),
        bits=bits,
        offset=first,
        size=size,
        order=order,
    )
