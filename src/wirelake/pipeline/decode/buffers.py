"""Arrow's buffers as arrays for the kernels, and back, without copies."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from wirelake.errors import StorageError

_OFFSET_MAX: Final = 2**31 - 1


def bytes_and_offsets(column: Any) -> tuple[Any, Any]:
    """The bytes under a binary column, and where each value begins in them; a slice begins where it begins.

    Always arrays of the same kind, aligned and read-only: for another kind Numba would compile anew.
    """
    if column.null_count:  # the log has none; other people's tables may
        column = column.fill_null(b"")
    _, places, data = column.buffers()
    if len(column):
        offsets = np.frombuffer(places, np.int32, len(column) + 1, 4 * column.offset)
        offsets = offsets if offsets.flags.aligned else offsets.copy()
    else:
        offsets = np.zeros(1, np.int32)
    below = np.frombuffer(b"" if data is None else data, np.uint8)
    offsets.flags.writeable = below.flags.writeable = False
    return below, offsets


def column_of(kind: Any, ends: Any, data: Any) -> Any:
    """The opposite: a column of text or bytes that lie one after the other, from 0 on."""
    if ends[-1] > _OFFSET_MAX:
        raise StorageError(f"{ends[-1]} bytes of one column in one batch: decode fewer rows at once")
    places = pa.py_buffer(np.ascontiguousarray(ends, np.int32))
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, places, pa.py_buffer(data)])


def flags(values: Any) -> Any:
    """A column of booleans, from anything that is zero or not."""
    bits = np.packbits(values != 0, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
