"""How sisnet writes a size, before a message on TCP and before each field of the binary form.

      0 … 250       one byte
    251 … 505       FB  u8   size - 250
    506 … 65785     FC  u16  size - 250, little-endian
  65786 … 2³² - 1   FD  u32  size
      above         FE  u64  size
Each size has one way to be written; another one that would give the same number is refused, so that what is read
can be written back byte for byte.
"""

from wirelake.errors import ProtocolError

ONE_BYTE_MAX = 250
_FB, _FC, _FD, _FE = 0xFB, 0xFC, 0xFD, 0xFE
_FB_MAX = ONE_BYTE_MAX + 0xFF
_FC_MAX = ONE_BYTE_MAX + 0xFFFF
_FD_MAX = 0xFFFF_FFFF
_NUMBER_BYTES = {_FB: 1, _FC: 2, _FD: 4, _FE: 8}
_LEAST = {_FB: ONE_BYTE_MAX + 1, _FC: _FB_MAX + 1, _FD: _FC_MAX + 1, _FE: _FD_MAX + 1}


def size_width(first: int) -> int:
    """How many bytes the size takes that starts with this one. FF starts none: 0."""
    return 1 if first <= ONE_BYTE_MAX else 1 + _NUMBER_BYTES.get(first, -1)


def read_size(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """The size that is written at `start`, and where it ends."""
    if start >= len(data):
        raise ProtocolError("short", "a size is missing", len(data))
    first = data[start]
    if first <= ONE_BYTE_MAX:
        return first, start + 1
    end = start + size_width(first)
    if end == start:
        raise ProtocolError("size_form", "no size begins with FF", start)
    if end > len(data):
        raise ProtocolError("short", f"a size of {end - start} bytes is not whole", len(data))
    size = int.from_bytes(data[start + 1 : end], "little")
    if first <= _FC:
        size += ONE_BYTE_MAX
    if size < _LEAST[first]:
        raise ProtocolError("size_form", f"{size} is written shorter than with {first:02X}", start)
    return size, end


def write_size(size: int) -> bytes:
    if size <= ONE_BYTE_MAX:
        return bytes((size,))
    if size <= _FB_MAX:
        return bytes((_FB, size - ONE_BYTE_MAX))
    if size <= _FC_MAX:
        return bytes((_FC,)) + (size - ONE_BYTE_MAX).to_bytes(2, "little")
    if size <= _FD_MAX:
        return bytes((_FD,)) + size.to_bytes(4, "little")
    return bytes((_FE,)) + size.to_bytes(8, "little")


def sized(data: bytes) -> bytes:
    return write_size(len(data)) + data
