"""Building blocks for kernels: CRC-16, UTF-8, and JSON written byte by byte into an array that is large enough."""

from typing import Any, Final

import numpy as np

from wirelake.jit import kernel

Array = Any  # np.ndarray; Numba infers the rest


def ascii_array(text: str) -> Array:
    """Return a text for `put`."""
    return np.frombuffer(text.encode(), np.uint8)


def _crc_tables() -> Array:
    """Return tables to process eight bytes at a time: row k is what a byte adds to a CRC-16/MODBUS k bytes later."""
    tables = np.zeros((8, 256), np.uint16)
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
        tables[0, value] = crc
    for row in range(1, 8):
        before = tables[row - 1]
        tables[row] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_CRC_TABLES: Final = _crc_tables()
_HEX: Final = ascii_array("0123456789abcdef")
_SHORT_ESCAPES: Final = ascii_array("\0\0\0\0\0\0\0\0btn\0fr")


@kernel
def wide(number: int) -> int:
    """Return a number with 64 bits: sums and shifts of a byte must not overflow."""
    return np.int64(number)  # type: ignore[return-value]  # the same to Numba


@kernel
def u16_big(data: Array, at: int) -> int:
    return wide(data[at]) << 8 | wide(data[at + 1])


@kernel
def u16_little(data: Array, at: int) -> int:
    return wide(data[at]) | wide(data[at + 1]) << 8


@kernel
def big(data: Array, at: int, size: int) -> int:
    """Return the number in `size` bytes; one of eight bytes is the negative number of the same bits from 2**63 on."""
    value = wide(0)
    for place in range(at, at + size):
        value = value << 8 | wide(data[place])
    return value


@kernel
def little(data: Array, at: int, size: int) -> int:
    value = wide(0)
    for place in range(size):
        value |= wide(data[at + place]) << 8 * place
    return value


@kernel
def signed(number: int, half: int) -> int:
    """Return the number in two's complement; `half` is its highest bit."""
    return (number ^ half) - half


@kernel
def is_same(data: Array, at: int, expected: Array) -> bool:
    for place in range(expected.size):  # noqa: SIM110 (Numba has no generators here)
        if data[at + place] != expected[place]:
            return False
    return True


@kernel
def crc16(data: Array, start: int, end: int) -> int:
    """Return the CRC-16/MODBUS."""
    tables = _CRC_TABLES
    crc = wide(0xFFFF)
    while end - start >= 8:
        crc = wide(
            tables[7, data[start] ^ crc & 0xFF]
            ^ tables[6, data[start + 1] ^ crc >> 8]
            ^ tables[5, data[start + 2]]
            ^ tables[4, data[start + 3]]
            ^ tables[3, data[start + 4]]
            ^ tables[2, data[start + 5]]
            ^ tables[1, data[start + 6]]
            ^ tables[0, data[start + 7]]
        )
        start += 8
    while start < end:
        crc = wide(tables[0, (crc ^ data[start]) & 0xFF]) ^ crc >> 8
        start += 1
    return crc


@kernel
def utf8_size(data: Array, at: int, end: int) -> int:
    """Return the size of the sequence at `at`, 0 if Python's decoder would refuse it as UTF-8."""
    first = data[at]
    low, high = 0x80, 0xBF  # of the second byte
    if first < 0x80:
        return 1
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 0
    if at + size > end or not low <= data[at + 1] <= high:
        return 0
    for place in range(at + 2, at + size):
        if data[place] & 0xC0 != 0x80:
            return 0
    return size


@kernel
def bad_utf8(data: Array, start: int, end: int) -> int:
    """Return where the first sequence begins that Python's decoder would refuse as UTF-8; -1 if there is none."""
    at = start
    while at < end:
        if data[at] < 0x80:
            at += 1
            continue
        size = utf8_size(data, at, end)
        if not size:
            return at
        at += size
    return -1


# Places in the loops below have no sign: for others Numba checks each time whether they count from the end.


@kernel
def put(out: Array, at: int, text: Array) -> int:
    target = np.uintp(at)
    for place in range(np.uintp(text.size)):
        out[target + place] = text[place]
    return at + len(text)


@kernel
def put_span(out: Array, at: int, data: Array, start: int, end: int) -> int:
    target = np.uintp(at)
    for place in range(np.uintp(start), np.uintp(end)):
        out[target] = data[place]
        target += np.uintp(1)
    return at + (end - start)


@kernel
def room(out: Array, at: int, wanted: int) -> Array:
    """Return `out`, or a longer copy, so that `wanted` bytes fit after `at`."""
    if out.size - at >= wanted:
        return out
    longer = np.empty(max(2 * out.size, at + wanted), np.uint8)
    put_span(longer, 0, out, 0, at)  # assigning a slice would make Numba compile its error messages
    return longer


@kernel
def put_number(out: Array, at: int, number: int) -> int:
    left = wide(number)
    if left < 0:
        out[at] = 45
        at += 1
        if left < -(10**18):  # its negation may not fit: take off the first digit first
            first = -(left // 10**18 + (1 if left % 10**18 else 0))
            left = -(left + first * 10**18)
            out[at] = 48 + first
            for place in range(18, 0, -1):
                out[at + place] = 48 + left % 10
                left //= 10
            return at + 19
        left = -left
    digits = 1
    bound = wide(10)
    while digits < 19 and left >= bound:
        digits += 1
        bound *= 10
    for place in range(digits - 1, -1, -1):
        out[at + place] = 48 + left % 10
        left //= 10
    return at + digits


@kernel
def put_escaped(out: Array, at: int, byte: int) -> int:
    """Write a character that JSON does not have as it is."""
    out[at] = 92
    short = byte if byte >= 0x20 else (_SHORT_ESCAPES[byte] if byte < _SHORT_ESCAPES.size else 0)
    if short:
        out[at + 1] = short
        return at + 2
    out[at + 1] = 117
    out[at + 2] = out[at + 3] = 48
    out[at + 4] = _HEX[byte >> 4]
    out[at + 5] = _HEX[byte & 15]
    return at + 6


@kernel
def put_text(out: Array, at: int, data: Array, start: int, end: int) -> int:
    """Write a JSON string: at most six bytes for each one. Return -1 if it is not UTF-8."""
    out[at] = 34
    at += 1
    place = start
    while place < end:
        byte = data[place]
        if 0x20 <= byte < 0x80 and byte not in (34, 92):
            out[at] = byte
            at += 1
            place += 1
        elif byte < 0x80:
            at = put_escaped(out, at, byte)
            place += 1
        else:
            size = utf8_size(data, place, end)
            if not size:
                return -1
            at = put_span(out, at, data, place, place + size)
            place += size
    out[at] = 34
    return at + 1


_BASE64: Final = ascii_array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


@kernel
def put_unsigned(out: Array, at: int, number: int) -> int:
    """Write a number of 64 bits that is negative from 2**63 on."""
    if number >= 0:
        return put_number(out, at, number)
    tenth = (number >> 1 & 0x7FFF_FFFF_FFFF_FFFF) // 5
    at = put_number(out, at, tenth)
    out[at] = 48 + (number - 10 * tenth)
    return at + 1


@kernel
def put_decimal(out: Array, at: int, number: int, digits: int) -> int:
    """Write a number divided by 10**digits as the shortest float: at least one digit after the point."""
    left = wide(number)
    if left < 0:
        out[at] = 45
        at += 1
        left = -left
    divisor = wide(1)
    for _ in range(digits):
        divisor *= 10
    at = put_number(out, at, left // divisor)
    left %= divisor
    out[at] = 46
    at += 1
    while True:
        divisor //= 10
        out[at] = 48 + left // divisor
        at += 1
        left %= divisor
        if not left:
            return at


@kernel
def put_base64(out: Array, at: int, data: Array, start: int, end: int) -> int:
    """Write bytes as a JSON string: at most four bytes for each three."""
    out[at] = 34
    at += 1
    for place in range(start, end, 3):
        left = end - place
        bits = wide(data[place]) << 16
        if left > 1:
            bits |= wide(data[place + 1]) << 8
        if left > 2:
            bits |= wide(data[place + 2])
        out[at] = _BASE64[bits >> 18]
        out[at + 1] = _BASE64[bits >> 12 & 63]
        out[at + 2] = _BASE64[bits >> 6 & 63] if left > 1 else 61
        out[at + 3] = _BASE64[bits & 63] if left > 2 else 61
        at += 4
    out[at] = 34
    return at + 1


@kernel
def put_comma(out: Array, at: int) -> int:
    """Write a comma, except after the bracket that begins an object."""
    if out[at - 1] == 123:
        return at
    out[at] = 44
    return at + 1
