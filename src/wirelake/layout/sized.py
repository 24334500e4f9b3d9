"""Numbers after their size: how many bytes they have differs from value to value, as in type, size, value.

class Reading(LayoutFrame, frozen=True):
    type: u8
    value: sized_number
    size: Annotated[int, size_of("value")] = 0
"""

import struct
from typing import Annotated, Final

from msgspec import Struct

from wirelake.errors import EncodeError

_INTEGER_SIZES: Final = (1, 2, 3, 4, 6)
_FLOAT_CODES: Final = {4: "f", 8: "d"}
_SIZE_MAX: Final = 0xFF


class SizedNumber(Struct, frozen=True):
    """A number after one byte with its size; bytes, if no number has that size."""

    integers: tuple[int, ...] = _INTEGER_SIZES
    floats: tuple[int, ...] = (8,)
    written: tuple[int, ...] = ()  # sizes of integers that are written unless one is given; all by default
    is_signed: bool = False
    size_name: str = ""  # the attribute that has the size: see `size_of`
    prefix: int = 1

    def read(self, data: bytes, order: str) -> int | float | bytes:
        """Return the value of these bytes."""
        if len(data) in self.integers:
            return int.from_bytes(data, "little" if order == "little" else "big", signed=self.is_signed)
        if len(data) in self.floats:
            (value,) = struct.unpack(self.float_format(len(data), order), data)
            return float(value)
        return data

    def write(self, value: int | float | bytes, order: str, size: int = 0) -> bytes:
        """Return the size and the value in so many bytes; without a size, in the fewest. Raise EncodeError."""
        packed: bytes | None = None
        if isinstance(value, bytes):
            is_number = len(value) in self.integers or len(value) in self.floats
            size = size or len(value)
            packed = None if is_number or size != len(value) or size > _SIZE_MAX else value
        else:
            size = size or self._fewest(value)
            packed = self._pack(value, size, order)
        if packed is None:
            raise EncodeError(f"{value!r:.80} does not fit {size} bytes")
        return len(packed).to_bytes(1, "big") + packed

    @staticmethod
    def float_format(size: int, order: str) -> str:
        return ("<" if order == "little" else ">") + _FLOAT_CODES[size]

    def _fewest(self, value: int | float) -> int:
        if isinstance(value, float):
            return self.floats[-1] if self.floats else 0
        sizes = self.written or self.integers
        least, most = (-1, 1) if self.is_signed else (0, 2)
        for size in sizes:
            half = 1 << 8 * size - 1
            if least * half <= value < most * half:
                return size
        return sizes[-1]

    def _pack(self, value: int | float, size: int, order: str) -> bytes | None:
        try:
            if size in self.floats:
                return struct.pack(self.float_format(size, order), value)
            if size in self.integers and isinstance(value, int):
                return value.to_bytes(size, "little" if order == "little" else "big", signed=self.is_signed)
        except (struct.error, OverflowError):
            return None
        return None


class SizeOf(Struct, frozen=True):
    """The size of a sized number as an attribute of its own. It has no bytes besides those of the number."""

    field: str


sized_number = Annotated[int | float | bytes, SizedNumber()]


def size_of(field: str) -> SizeOf:
    """Mark an attribute that holds the size of a sized number before it; 0 to write the fewest bytes."""
    return SizeOf(field)
