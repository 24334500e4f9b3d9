"""Numbers of seven bits a byte, the lowest first, as many protocols write them; zigzag folds the sign into bit 0."""

from collections.abc import Callable
from functools import cache
from typing import Final

from wirelake.errors import EncodeError, ProtocolError

VARINT_BYTES_MAX: Final = 10  # 64 bits
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))

Read = Callable[[bytes, int, int], tuple[int, int]]
Write = Callable[[int], bytes]


def read_varint(frame: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the number at `start`, and where it ends. Raise ProtocolError if it is cut off or has over 64 bits."""
    value = 0
    for index, byte in enumerate(frame[start : min(end, start + VARINT_BYTES_MAX)]):
        if byte < 0x80:
            if index == VARINT_BYTES_MAX - 1 and byte > 1:
                break
            return value | byte << 7 * index, start + index + 1
        value |= (byte & 0x7F) << 7 * index
    if end - start < VARINT_BYTES_MAX:
        raise ProtocolError("short", "the bytes end inside a number", end)
    raise ProtocolError("varint_overflow", "a number of more than 64 bits", start + VARINT_BYTES_MAX - 1)


def write_varint(value: int) -> bytes:
    """Return the bytes of a number that is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


@cache
def varint_reader(bits: int, is_signed: bool) -> Read:
    """Return a function that reads a number of so many bits, in zigzag if it has a sign."""

    def read(frame: bytes, start: int, end: int) -> tuple[int, int]:
        found, stop = read_varint(frame, start, end)
        value = found >> 1 ^ -(found & 1) if is_signed else found
        if found >> bits:
            raise ProtocolError("int_range", f"{value} is not {'an Int' if is_signed else 'a UInt'}{bits}", start)
        return value, stop

    return read


@cache
def varint_writer(bits: int, is_signed: bool) -> Write:
    """Return a function that writes a number of so many bits, in zigzag if it has a sign."""

    def write(value: int) -> bytes:
        folded = value if not is_signed else value << 1 if value >= 0 else ~(value << 1)
        if folded < 0 or folded >> bits:
            raise EncodeError(f"{value} does not fit {'an Int' if is_signed else 'a UInt'}{bits}")
        return write_varint(folded)

    return write


def read_zigzag_size(frame: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the size at `start`, a zigzag number of 32 bits, and where it ends. Refuse a negative one."""
    size, stop = varint_reader(32, True)(frame, start, end)
    if size < 0:
        raise ProtocolError("negative_size", f"a length of {size}", start)
    return size, stop
