import numpy as np
import pyarrow as pa
import pytest

from wirelake.errors import StorageError
from wirelake.protocols.columnar import bytes_and_offsets, column_of, flags


def test_there_and_back_without_a_copy() -> None:
    column = pa.array([b"ab", b"", b"cde", b"f"], pa.binary())
    data, offsets = bytes_and_offsets(column)
    assert data.ctypes.data == column.buffers()[2].address
    assert column_of(pa.binary(), offsets, data).equals(column)
    assert bytes_and_offsets(column[2:])[1].tolist() == [2, 5, 6]


def test_nulls_are_empty() -> None:
    data, offsets = bytes_and_offsets(pa.array([None, b"a", None], pa.binary()))
    assert (data[:1].tobytes(), offsets.tolist()) == (b"a", [0, 0, 1, 1])


def test_more_text_than_a_column_can_hold() -> None:
    with pytest.raises(StorageError, match="decode fewer rows at once"):
        column_of(pa.string(), np.array([0, 2**31]), np.empty(0, np.uint8))


def test_flags() -> None:
    values = np.array([0, 1, 4, 0, 0, 0, 0, 0, 9], np.uint8)
    assert flags(values).to_pylist() == [bool(value) for value in values]
