"""Positions acked ahead of a cursor, as bounds of runs: `(3, 5, 9, 10)` is 3, 4 and 9.

Runs, because one notification that stays unacked before a hundred thousand acked ones is the common case.
"""

from bisect import bisect_left, bisect_right

Bounds = tuple[int, ...]  # start, end, start, end …: rising, ends not included


def holds(bounds: Bounds, position: int) -> bool:
    return bisect_right(bounds, position) % 2 == 1


def count(bounds: Bounds) -> int:
    return sum(bounds[1::2]) - sum(bounds[::2])


def count_through(bounds: Bounds, last: int) -> int:
    """How many are not after `last`."""
    inside = bounds[: bisect_right(bounds, last)]
    return count(inside if len(inside) % 2 == 0 else (*inside, last + 1))


def with_run(bounds: Bounds, first: int, last: int) -> Bounds:
    """With `first` to `last` added; runs that touch become one."""
    before = bisect_left(bounds, first)
    after = bisect_right(bounds, last + 1)
    start = (first,) if before % 2 == 0 else ()
    end = (last + 1,) if after % 2 == 0 else ()
    return bounds[:before] + start + end + bounds[after:]


def beyond(bounds: Bounds, last: int) -> Bounds:
    """Without those up to `last`."""
    place = bisect_right(bounds, last + 1)
    return bounds[place:] if place % 2 == 0 else (last + 1, *bounds[place:])


def pack(bounds: Bounds, cursor: int) -> bytes:
    """Differences as base-128 varints, the first from the cursor."""
    packed = bytearray()
    before = cursor
    for bound in bounds:
        step, before = bound - before, bound
        while step > 0x7F:
            packed.append(0x80 | step & 0x7F)
            step >>= 7
        packed.append(step)
    return bytes(packed)


def unpack(packed: bytes, cursor: int) -> Bounds:
    bounds = []
    bound, step, shift = cursor, 0, 0
    for byte in packed:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            bound += step
            bounds.append(bound)
            step = shift = 0
    return tuple(bounds)
