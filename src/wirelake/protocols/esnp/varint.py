"""The plain encodings: varints, zigzag, and bytes and text with a length.

varint   seven bits a byte, the lowest first; bit 7 says that more follow; at most ten bytes
zigzag   0 -1 1 -2 2 … as the varints 0 1 2 3 4 …
LenBytes, LenString   zigzag length, then so many bytes

Readers take the bytes and a place and answer the value and the place behind it. Their errors count from the
first of the bytes.
"""

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.tree import utf8

VARINT_BYTES_MAX = 10
INT32_BITS = 32
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def read_uvarint(data: bytes, place: int) -> tuple[int, int]:
    try:
        byte = data[place]
        if byte < 0x80:
            return byte, place + 1
        value = byte & 0x7F
        for index in range(1, VARINT_BYTES_MAX):
            byte = data[place + index]
            if byte < 0x80:
                if index == VARINT_BYTES_MAX - 1 and byte > 1:
                    break
                return value | byte << 7 * index, place + index + 1
            value |= (byte & 0x7F) << 7 * index
    except IndexError:
        raise ProtocolError("short", "the bytes end inside a number", len(data)) from None
    raise ProtocolError("varint_overflow", "a number of more than 64 bits", place + VARINT_BYTES_MAX - 1)


def read_unsigned(data: bytes, place: int, bits: int) -> tuple[int, int]:
    value, end = read_uvarint(data, place)
    if value >> bits:
        raise ProtocolError("int_range", f"{value} is not a UInt{bits}", place)
    return value, end


def read_signed(data: bytes, place: int, bits: int = INT32_BITS) -> tuple[int, int]:
    """A zigzag number. The document's Int is an Int32."""
    if place < len(data) and (folded := data[place]) < 0x80:  # nearly all are: lengths, flags, kinds
        return folded >> 1 ^ -(folded & 1), place + 1
    folded, end = read_uvarint(data, place)
    value = folded >> 1 ^ -(folded & 1)
    if folded >> bits:
        raise ProtocolError("int_range", f"{value} is not an Int{bits}", place)
    return value, end


def read_bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, start = read_signed(data, place)
    if size < 0:
        raise ProtocolError("negative_size", f"a length of {size}", place)
    end = start + size
    if end > len(data):
        raise ProtocolError("short", f"{size} bytes are announced, {len(data) - start} are left", len(data))
    return data[start:end], end


def read_text(data: bytes, place: int) -> tuple[str, int]:
    raw, end = read_bytes(data, place)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return utf8(raw, end - len(raw)), end  # names the bad byte


def write_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def write_unsigned(value: int, bits: int) -> bytes:
    if value < 0 or value >> bits:
        raise EncodeError(f"{value} does not fit a UInt{bits}")
    return write_uvarint(value)


def write_signed(value: int, bits: int = INT32_BITS) -> bytes:
    folded = value << 1 if value >= 0 else ~(value << 1)
    if folded >> bits:
        raise EncodeError(f"{value} does not fit an Int{bits}")
    return write_uvarint(folded)


def write_bytes(data: bytes) -> bytes:
    return write_signed(len(data)) + data


def write_text(text: str) -> bytes:
    return write_bytes(raw_text(text))


def raw_text(text: str) -> bytes:
    """UTF-8 without a length."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"text with half a surrogate pair at {error.start} is not UTF-8") from error
