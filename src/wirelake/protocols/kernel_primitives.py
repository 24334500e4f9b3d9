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
def bad_utf8(data: Array, start: int, end: int) -> int:  # noqa: PLR0912 (one branch for each first byte)
    """Return where the first sequence begins that Python's decoder would refuse as UTF-8; -1 if there is none."""
    at = start
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        low, high = 0x80, 0xBF  # of the second byte
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
            return at
        if at + size > end or not low <= data[at + 1] <= high:
            return at
        for place in range(at + 2, at + size):
            if data[place] & 0xC0 != 0x80:
                return at
        at += size
    return -1


@kernel
def put(out: Array, at: int, text: Array) -> int:
    for place in range(text.size):
        out[at + place] = text[place]
    return at + len(text)


@kernel
def put_span(out: Array, at: int, data: Array, start: int, end: int) -> int:
    for place in range(start, end):
        out[at] = data[place]
        at += 1
    return at


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
def put_text(out: Array, at: int, data: Array, start: int, end: int) -> int:
    """Write a JSON string: at most six bytes for each one."""
    out[at] = 34
    at += 1
    for place in range(start, end):
        byte = data[place]
        if byte >= 0x20 and byte not in (34, 92):
            out[at] = byte
            at += 1
            continue
        out[at] = 92
        short = byte if byte >= 0x20 else (_SHORT_ESCAPES[byte] if byte < _SHORT_ESCAPES.size else 0)
        if short:
            out[at + 1] = short
            at += 2
        else:
            out[at + 1] = 117
            out[at + 2] = out[at + 3] = 48
            out[at + 4] = _HEX[byte >> 4]
            out[at + 5] = _HEX[byte & 15]
            at += 6
    out[at] = 34
    return at + 1
