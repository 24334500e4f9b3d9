"""Look at the bytes of one place in all frames: constants, opcodes, counters, timestamps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import comb, log2
from typing import Final

from wirelake.workbench.evidence import ORDERS, ByteOrder, Proposal, Sample, chance_bits, cross_rate, number
from wirelake.workbench.limits import WORKBENCH_CONFIDENT_BITS, WORKBENCH_HEAD_BYTES, WORKBENCH_OPCODES_MAX

_YEAR_S: Final = 31_556_952
_EARLIEST_S: Final = 946_684_800  # 2000
_LATEST_S: Final = 2_240_611_200  # 2041
_UNITS: Final = ((4, 1, "seconds"), (8, 1, "seconds"), (8, 1000, "milliseconds"), (6, 1000, "milliseconds"))
_SPAN_S: Final = 10 * _YEAR_S  # between the first and the last time of one capture
_SHARE_MIN: Final = 0.9  # of the frames that agree on a counter or a time
_GROWING_MIN: Final = 0.8  # of the times that are not before the one of the frame before
_STEP_MAX: Final = 16  # of a counter: what grows faster is a time or an amount
_SHOWN_MAX: Final = 24
_NEAR_BYTES: Final = 8


def find_constants(frames: Sequence[bytes], taken: set[int]) -> list[Proposal]:
    """Return runs of bytes that are the same in every frame."""
    least = min(map(len, frames))
    found: list[Proposal] = []
    start = None
    for offset in range(min(least, WORKBENCH_HEAD_BYTES) + 1):
        is_same = offset < min(least, WORKBENCH_HEAD_BYTES) and offset not in taken
        is_same = is_same and len({frame[offset] for frame in frames}) == 1
        if is_same and start is None:
            start = offset
        elif not is_same and start is not None:
            values = frames[0][start:offset]
            bits = max(0.0, 8.0 * (len(frames) - 1) * len(values) - log2(WORKBENCH_HEAD_BYTES))
            found.append(
                Proposal(
                    kind="constant",
                    text=f"always {values.hex(' ')}",
                    agree=len(frames),
                    of=len(frames),
                    bits=bits,
                    offset=start,
                    size=len(values),
                    values=tuple(values),
                )
            )
            start = None
    return found


# ── opcodes


def find_opcodes(frames: Sequence[bytes], taken: set[int], tail_bytes: int) -> list[Proposal]:
    """Return bytes with few values that predict what else is in a frame: the best is the opcode.

    `tail_bytes` at the end of each frame are known. A byte that follows from another candidate near it, but not the
    other way round, comes after all others: a flag of requests, say, follows from the opcode.
    """
    least = min(WORKBENCH_HEAD_BYTES, *(len(frame) - tail_bytes for frame in frames))
    found = []
    for offset in range(least):
        if offset in taken:
            continue
        column = [frame[offset] for frame in frames]
        values = Counter(column)
        if not 2 <= len(values) <= min(WORKBENCH_OPCODES_MAX, len(frames) // 3):
            continue
        rare = len(frames) * log2(256 / len(values)) - log2(comb(256, len(values)))
        bits = min(rare, _predicted_bits(frames, column, offset, taken))
        shown = ", ".join(f"{value:02x} ×{times}" for value, times in values.most_common(_SHOWN_MAX))
        found.append(
            Proposal(
                kind="enumeration",
                text=f"{len(values)} values that predict the rest of the frame: {shown}",
                agree=len(frames),
                of=len(frames),
                bits=max(0.0, bits - log2(WORKBENCH_HEAD_BYTES)),
                offset=offset,
                values=tuple(sorted(values)),
            )
        )
    columns = {each.offset: [frame[each.offset] for frame in frames] for each in found}
    sure = [each for each in found if each.bits >= WORKBENCH_CONFIDENT_BITS]
    derived = {
        each.offset
        for each in sure
        for other in sure
        if other.offset <= each.offset + _NEAR_BYTES and _follows(columns[each.offset], columns[other.offset])
    }
    # Opcodes are near the beginning: evidence counts less with the distance.
    return sorted(found, key=lambda each: (each.offset in derived, -each.bits / (1 + each.offset / _NEAR_BYTES)))


def _follows(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether a column follows from the other one, which says more."""
    pairs, values, others = len(set(zip(one, other, strict=True))), len(set(one)), len(set(other))
    return pairs == others > values


def _predicted_bits(frames: Sequence[bytes], column: Sequence[int], offset: int, taken: set[int]) -> float:
    """Return how much the column says about the length and the other bytes, less what it would say by chance."""
    total = _shared_bits(column, [len(frame) for frame in frames])
    for place in range(min(max(map(len, frames)), WORKBENCH_HEAD_BYTES)):
        if place != offset and place not in taken:
            total += _shared_bits(column, [frame[place] if place < len(frame) else -1 for frame in frames])
    return total


def _shared_bits(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the bits that two columns share, with the penalty of the Bayesian information criterion."""
    count = len(one)
    first, second, both = Counter(one), Counter(other), Counter(zip(one, other, strict=True))
    shared = sum(times * log2(times * count / (first[a] * second[b])) for (a, b), times in both.items())
    penalty = (len(first) - 1) * (len(second) - 1) / 2 * log2(count)
    return max(0.0, shared - penalty)


# ── counters and times


def find_counters(samples: Sequence[Sample], taken: set[int]) -> list[Proposal]:
    """Return numbers that grow by the same step from frame to frame."""
    found = []
    for offset, size, order in _numbers(samples, taken, ((1, 1), (2, 1), (4, 1))):
        values = [number(sample.frame, offset, size, order) for sample in samples]
        if size > 1 and len(tops := {value >> 8 * (size - 1) for value in values}) == 1 and tops != {0}:
            continue  # a constant before a shorter counter, rather than a counter that happens to be large
        pairs = [
            (before, after)
            for before, after, one, other in zip(values, values[1:], samples, samples[1:], strict=False)
            if one.stream == other.stream
        ]
        steps = Counter((after - before) % (1 << 8 * size) for before, after in pairs)
        steps.pop(0, None)
        if len(pairs) < 3 or not steps:
            continue
        step, agree = steps.most_common(1)[0]
        if step > _STEP_MAX:
            continue
        next_values = [(before + step) % (1 << 8 * size) for before, _ in pairs]
        rate = cross_rate(next_values, [after for _, after in pairs], 8 * size)
        bits = chance_bits(agree - 1, len(pairs) - 1, rate, WORKBENCH_HEAD_BYTES * 5 * len(steps))
        if agree / len(pairs) >= _SHARE_MIN:
            text = f"{_title(size, order)} grows by {step} from frame to frame"
            found.append(
                Proposal(
                    kind="counter",
                    text=text,
                    agree=agree,
                    of=len(pairs),
                    bits=bits,
                    offset=offset,
                    size=size,
                    order=order,
                )
            )
    return sorted(found, key=lambda each: (-each.agree / each.of, -each.size, -each.bits))


def find_timestamps(samples: Sequence[Sample], taken: set[int]) -> list[Proposal]:
    """Return numbers that are times since 1970, of one capture: near each other."""
    found = []
    units = tuple((size, per_second) for size, per_second, _ in _UNITS)
    for offset, size, order in _numbers(samples, taken, units):
        for width, per_second, unit in _UNITS:
            if width != size:
                continue
            values = [number(sample.frame, offset, size, order) // per_second for sample in samples]
            middle = sorted(values)[len(values) // 2]
            near = [value for value in values if abs(value - middle) <= _SPAN_S // 2]
            is_plausible = _EARLIEST_S <= middle < _LATEST_S and len(near) >= _SHARE_MIN * len(values)
            distinct = len(set(near))
            if not is_plausible or distinct < 3 or not _grows(samples, values):
                continue
            low = {sample.frame[offset + size - 1 if order == "big" else offset] for sample in samples}
            if len(low) * 2 < min(distinct, 128):
                continue  # a time that differs at all differs in its lowest byte
            span_s = max(near) - min(near) + 1
            rate = min(1.0, span_s * per_second / 2.0 ** (8 * size))
            bits = chance_bits(distinct - 1, distinct - 1, rate, WORKBENCH_HEAD_BYTES * 8)
            first, last = (datetime.fromtimestamp(each, UTC).isoformat()[:19] for each in (min(near), max(near)))
            text = f"{_title(size, order)}, {unit} since 1970: {first} to {last}"
            found.append(
                Proposal(
                    kind="timestamp",
                    text=text,
                    agree=len(near),
                    of=len(values),
                    bits=bits,
                    offset=offset,
                    size=size,
                    order=order,
                )
            )
    return sorted(found, key=lambda each: -each.bits)


def _grows(samples: Sequence[Sample], values: Sequence[int]) -> bool:
    """Return whether times mostly do not go back within a stream."""
    steps = [
        after >= before
        for before, after, one, other in zip(values, values[1:], samples, samples[1:], strict=False)
        if one.stream == other.stream
    ]
    return sum(steps) >= _GROWING_MIN * len(steps)


def _numbers(
    samples: Sequence[Sample], taken: set[int], sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, ByteOrder]]:
    """Yield offset, size and order of the numbers in the head of every frame that nothing else explains."""
    least = min(WORKBENCH_HEAD_BYTES, *(len(sample.frame) for sample in samples))
    for offset in range(least):
        for size in dict.fromkeys(size for size, _ in sizes):
            if offset + size <= least and not taken & set(range(offset, offset + size)):
                for order in ORDERS if size > 1 else ORDERS[:1]:
                    yield offset, size, order


def _title(size: int, order: ByteOrder) -> str:
    return f"u{8 * size}" if size == 1 else f"u{8 * size} {order}"
