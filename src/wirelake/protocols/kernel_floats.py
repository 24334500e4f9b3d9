"""Write floats as JSON in kernels, in the fewest digits that read as the same float: the algorithm Schubfach.

It is described in Raffaello Giulietti, "The Schubfach way to render doubles". All its numbers are of 64 bits without a
sign: with one that has a sign, Numba would compute in floats.
"""

import math
from typing import Any, Final

import numpy as np

from wirelake.jit import kernel
from wirelake.protocols.kernel_primitives import ascii_array, put, put_number, wide

Array = Any  # np.ndarray; Numba infers the rest

_POWER_MIN: Final = -292  # of ten, that are needed
_POWER_MAX: Final = 324
_NULL: Final = ascii_array("null")
_POINT_MIN: Final = -4  # decimal points further away are written with an exponent
_POINT_MAX: Final = 16


def _powers_of_ten() -> Array:
    """Return the 128 highest bits of each power of ten, rounded up, as two numbers."""
    table = np.empty((_POWER_MAX - _POWER_MIN + 1, 2), np.uint64)
    for power in range(_POWER_MIN, _POWER_MAX + 1):
        top = (power * 1741647 >> 19) + 1  # bits before the point
        if power >= 0:
            number = 10**power
            bits = number << 128 - top if top <= 128 else -(-number >> top - 128)
        else:
            bits = -(-(1 << 128 - top) // 10**-power)
        table[power - _POWER_MIN] = bits >> 64, bits & (1 << 64) - 1
    return table


_POWERS: Final = _powers_of_ten()


@kernel
def _u64(number: int) -> int:
    return np.uint64(number)  # type: ignore[return-value]  # the same to Numba


@kernel
def _product_high(one: int, other: int) -> int:
    """Return the high half of a product of 128 bits."""
    low_bits, half = _u64(0xFFFFFFFF), _u64(32)
    one_low, one_high = one & low_bits, one >> half
    other_low, other_high = other & low_bits, other >> half
    low = one_low * other_low
    middle = one_high * other_low + (low >> half)
    other_middle = one_low * other_high + (middle & low_bits)
    return one_high * other_high + (middle >> half) + (other_middle >> half)


@kernel
def _round_to_odd(high: int, low: int, factor: int) -> int:
    """Return the product of a power of ten and a number, without the low 128 bits; the last bit notes what is lost."""
    lowest = _product_high(low, factor)
    middle = high * factor
    highest = _product_high(high, factor)
    total = middle + lowest
    if total < middle:
        highest += _u64(1)
    return highest | (_u64(1) if total > _u64(1) else _u64(0))


@kernel
def _shortest(significand: int, exponent: int) -> tuple[int, int]:
    """Return digits and a power of ten for the bits of a float that is neither zero nor infinite."""
    one, two, four, ten, forty = _u64(1), _u64(2), _u64(4), _u64(10), _u64(40)
    if exponent:
        c, q = significand | _u64(1 << 52), exponent - 1075
        if 0 <= -q < 53 and c & ((one << _u64(-q)) - one) == _u64(0):
            return c >> _u64(-q), 0
    else:
        c, q = significand, -1074
    is_closer = significand == _u64(0) and exponent > 1
    k = (q * 1262611 - (524031 if is_closer else 0)) >> 22
    h = _u64(q + (-k * 1741647 >> 19) + 1)
    high, low = _POWERS[-k - _POWER_MIN, 0], _POWERS[-k - _POWER_MIN, 1]
    middle = four * c
    lower = _round_to_odd(high, low, (middle - (one if is_closer else two)) << h)
    value = _round_to_odd(high, low, middle << h)
    upper = _round_to_odd(high, low, (middle + two) << h)
    if c & one:
        lower, upper = lower + one, upper - one
    s = value // four
    if s >= ten:
        tenth = s // ten
        is_under = lower <= forty * tenth
        is_over = forty * tenth + forty <= upper
        if is_under != is_over:
            return tenth + (one if is_over else _u64(0)), k + 1
    is_under = lower <= four * s
    is_over = four * s + four <= upper
    if is_under != is_over:
        return s + (one if is_over else _u64(0)), k
    half = four * s + two
    is_up = value > half or (value == half and s & one != _u64(0))
    return s + (one if is_up else _u64(0)), k


@kernel
def put_f64(out: Array, at: int, bits: int) -> int:
    """Write the float with these bits: at most 24 bytes. What is no number is null, as msgspec writes it."""
    number = _u64(bits)
    significand, exponent = number & _u64((1 << 52) - 1), wide(number >> _u64(52)) & 0x7FF
    if exponent == 0x7FF:
        return put(out, at, _NULL)
    if bits < 0:
        out[at] = 45
        at += 1
    if not exponent and significand == _u64(0):
        out[at], out[at + 1], out[at + 2] = 48, 46, 48
        return at + 3
    digits, power = _shortest(significand, exponent)
    left = wide(digits)
    while left % 10 == 0:
        left //= 10
        power += 1
    return _put_digits(out, at, left, power)


@kernel
def _put_digits(out: Array, at: int, digits: int, power: int) -> int:
    """Write the digits times a power of ten."""
    start = at
    at = put_number(out, at, digits)
    count = at - start
    point = count + power
    if point < _POINT_MIN or point > _POINT_MAX:
        if count > 1:
            at = _insert(out, at, start + 1, 1)
            out[start + 1] = 46
        out[at] = 101
        return put_number(out, at + 1, point - 1)
    if point <= 0:
        at = _insert(out, at, start, 2 - point)
        for place in range(start, start + 2 - point):
            out[place] = 48
        out[start + 1] = 46
    elif point < count:
        at = _insert(out, at, start + point, 1)
        out[start + point] = 46
    else:
        for _ in range(point - count):
            out[at] = 48
            at += 1
        out[at], out[at + 1] = 46, 48
        at += 2
    return at


@kernel
def _insert(out: Array, end: int, place: int, size: int) -> int:
    """Move what is from `place` to `end` by so many bytes."""
    for each in range(end - 1, place - 1, -1):
        out[each + size] = out[each]
    return end + size


@kernel
def put_f32(out: Array, at: int, bits: int) -> int:
    """Write the float with these 32 bits."""
    sign, exponent, significand = bits >> 31 & 1, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return put(out, at, _NULL)
    if not exponent and significand:  # too small for a short exponent, not for a long one
        exponent = 1
        while not significand & 0x800000:
            significand <<= 1
            exponent -= 1
        significand &= 0x7FFFFF
        exponent += 896
    elif exponent:
        exponent += 896
    whole = exponent << 52 | significand << 29
    return put_f64(out, at, whole - (1 << 62) - (1 << 62) if sign else whole)


@kernel
def put_float(out: Array, at: int, value: float) -> int:
    """Write a float that is finite, and not closer to zero than 1e-300."""
    if value == 0.0:
        out[at], out[at + 1], out[at + 2] = 48, 46, 48
        return at + 3
    mantissa, exponent = math.frexp(abs(value))
    bits = (wide(exponent) + 1022) << 52 | (wide(int(mantissa * 9007199254740992.0)) & (1 << 52) - 1)
    return put_f64(out, at, bits - (1 << 62) - (1 << 62) if value < 0 else bits)
