"""Build one Arrow record batch from the values that callers appended.

The values are in one flat list of cells, `CELLS_PER_RUN` for each run. A run is one record, or several frames that
share all other fields; with a negative count, session, identity, peer and note may be tuples with a value for each
record. A flat list costs the caller one C call for each run and allocates no object; a column is a slice of it with a
stride.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.log.interface import AT_TYPE, BYTES_TYPE, SCHEMA, SEQ_TYPE, TEXT_TYPE, FixedSizeFrames

# count, at_us, protocol, event, direction, session, identity, peer, note, frame(s), and the total of bytes appended up
# to and including this run
CELLS_PER_RUN: Final = 11
_AT: Final = 1
_TEXTS: Final = range(2, 9)
_FRAMES: Final = 9
_ENDS: Final = pa.int32()
_AT_LIMIT_US: Final = 2**63 - 1
_PER_RECORD: Final = (5, 6, 7, 8)  # the cells session, identity, peer and note
_FEW_VALUES: Final = {2, 3, 4, 8}  # the cells protocol, event, direction and note: few distinct values
_INITIAL_ROWS: Final = 4096
_LONG_RUN: Final = 128  # from this length, a column of its own is worth it
_LONG_FIXED_SIZE: Final = 16  # the same for `FixedSizeFrames`, which need no conversion
_SMALL_ROWS: Final = 192  # up to here, plain Python is faster than calls into Arrow
# Limits of the cache of columns that repeat one value.
_REPEATED_MAX: Final = 64
_REPEATED_CHARS_MAX: Final = 64
_REPEATED_ROWS_MAX: Final = 65536

_log = logging.getLogger(__name__)


class BlockRecords(Struct, frozen=True):
    """Hold a record batch and the bounds that the header of its block contains."""

    batch: Any  # pa.RecordBatch
    first_seq: int
    count: int
    at_us: tuple[int, int]

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.count


class BatchBuilder:
    """Build batches one after the other, on one thread. Columns that repeat one value are cached."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._sequence = pa.array(range(_INITIAL_ROWS), SEQ_TYPE)  # 0, 1, 2 …
        self._repeated: dict[str, Any] = {}
        self._offsets: dict[int, Any] = {}  # of frames of one size, by that size

    def build(self, cells: list[Any], first_seq: int) -> BlockRecords:
        """Convert all cells to one batch whose first record gets `first_seq`."""
        counts = list(map(abs, cells[::CELLS_PER_RUN]))
        count = sum(counts)
        expander = _RunExpander(counts, count)
        at, at_us = _at_column(cells[_AT::CELLS_PER_RUN], expander)
        *texts, note = [self._texts(cells[cell::CELLS_PER_RUN], cell, expander) for cell in _TEXTS]
        arrays = [
            self._seqs(first_seq, count),
            at,
            self._repeat(self._node, count),
            *texts,
            self._frames(cells[_FRAMES::CELLS_PER_RUN], count),
            note,
        ]
        return BlockRecords(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), first_seq, count, at_us)

    def _seqs(self, first_seq: int, count: int) -> Any:
        if count <= _SMALL_ROWS:
            return _from_array(array("q", range(first_seq, first_seq + count)), SEQ_TYPE)
        if len(self._sequence) < count:
            self._sequence = pa.array(range(2 * count), SEQ_TYPE)
        return pc.add(self._sequence.slice(0, count), pa.scalar(first_seq, SEQ_TYPE))

    def _frames(self, frames: list[Any], count: int) -> Any:
        if count == len(frames) and set(map(type, frames)) == {bytes}:
            return _bytes_column(frames)
        column = _ColumnConcatenator(_bytes_column)
        for frame in frames:
            if type(frame) is tuple:
                column.values += frame
            elif type(frame) is not FixedSizeFrames:
                column.values.append(frame)
            elif len(frame) < _LONG_FIXED_SIZE:
                column.values += frame.split()
            else:
                column.add(self._fixed_size(frame))
        return column.concatenate()

    def _fixed_size(self, frames: FixedSizeFrames) -> Any:
        count, size = len(frames), frames.frame_bytes
        offsets = self._offsets.get(size)
        if offsets is None or offsets.size < (count + 1) * _ENDS.byte_width:
            if len(self._offsets) >= _REPEATED_MAX:
                self._offsets.clear()
            offsets = self._offsets[size] = pa.py_buffer(array("i", range(0, (2 * count + 1) * size, size)))
        return pa.Array.from_buffers(BYTES_TYPE, count, [None, offsets, pa.py_buffer(frames.joined)])

    def _texts(self, values: list[Any], cell: int, expander: "_RunExpander") -> Any:
        """Build a text column.

        Most hold a single value, and detecting that is far cheaper than converting each cell.
        """
        first = values[0]
        if type(first) is str and values.count(first) == len(values):
            if cell in _FEW_VALUES:
                return self._repeat(first, expander.count)
            if first.isascii():
                return pa.repeat(pa.scalar(first, TEXT_TYPE), expander.count)
        if cell in _PER_RECORD and tuple in set(map(type, values)):
            return _mixed_column(values, expander.counts)
        if expander.is_small:
            return _text_column(expander.values(values))
        return expander.column(_text_column(values))

    def _repeat(self, value: str, count: int) -> Any:
        column = self._repeated.get(value)
        if column is None or len(column) < count:
            if len(value) > _REPEATED_CHARS_MAX or count > _REPEATED_ROWS_MAX:
                return _text_column([value] * count)
            if len(self._repeated) >= _REPEATED_MAX:
                self._repeated.clear()
            column = self._repeated[value] = _text_column([value] * max(_INITIAL_ROWS, 2 * count))
        return column.slice(0, count)


class _RunExpander:
    """Repeat the value of each run for each of its records."""

    def __init__(self, counts: list[int], count: int) -> None:
        self.counts = counts
        self.count = count
        self.is_small = count <= _SMALL_ROWS
        self._ends: Any = None

    def values(self, values: list[Any]) -> list[Any]:
        if self.count == len(values):
            return values
        return list(chain.from_iterable(map(repeat, values, self.counts)))

    def column(self, column: Any) -> Any:
        if self.count == len(column):
            return column
        if self._ends is None:
            self._ends = pa.array(accumulate(self.counts), _ENDS, size=len(self.counts))
        kind, children = pa.run_end_encoded(_ENDS, column.type), [self._ends, column]
        return pc.run_end_decode(pa.RunEndEncodedArray.from_buffers(kind, self.count, [None], 0, 0, children))


class _ColumnConcatenator:
    """Concatenate a column from columns, and from values that are converted together."""

    def __init__(self, column: Callable[[list[Any]], Any]) -> None:
        self.values: list[Any] = []
        self._column = column
        self._parts: list[Any] = []

    def add(self, part: Any) -> None:
        if self.values:
            self._parts.append(self._column(self.values))
            self.values = []
        self._parts.append(part)

    def concatenate(self) -> Any:
        if not self._parts:
            return self._column(self.values)
        if self.values:
            self._parts.append(self._column(self.values))
        return pa.concat_arrays(self._parts)


def _mixed_column(values: list[Any], counts: list[int]) -> Any:
    """Build a column where some runs have one value and others a value for each record.

    A long tuple that occurs twice, as for packets and their receipts, is converted once.
    """
    converted: dict[int, Any] = {}
    column = _ColumnConcatenator(_text_column)
    for value, count in zip(values, counts, strict=True):
        if type(value) is not tuple:
            column.values += [value] * count
        elif count < _LONG_RUN:
            column.values += value
        else:
            if id(value) not in converted:
                converted[id(value)] = _text_column(value)
            column.add(converted[id(value)])
    return column.concatenate()


# A value that a column cannot hold (a lone surrogate in a peer's name, a None despite the type hints) must not make the
# other records of the block fail: the closest value that the column can hold is written instead.


def _at_column(values: list[Any], expander: _RunExpander) -> tuple[Any, tuple[int, int]]:
    """Return the column, and the smallest and largest value in it."""
    first = values[0]
    try:
        if values.count(first) == len(values):  # all from one iteration of the event loop
            return _from_array(array("q", (first,)) * expander.count, AT_TYPE), (first, first)
        raw = array("q", values)
    except (TypeError, OverflowError):
        _warn("at", values)
        raw = array("q", [_as_time(value) for value in values])
    if len(raw) <= _SMALL_ROWS:
        at_us = min(raw), max(raw)
    else:
        bounds = pc.min_max(_from_array(raw, SEQ_TYPE))
        at_us = bounds["min"].as_py(), bounds["max"].as_py()
    if expander.is_small:
        raw = array("q", expander.values(raw.tolist()))
        return _from_array(raw, AT_TYPE), at_us
    return expander.column(_from_array(raw, AT_TYPE)), at_us


def _from_array(raw: "array[int]", kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw)])


def _text_column(values: Sequence[Any]) -> Any:
    try:
        column = pa.array(values, TEXT_TYPE)
    except (TypeError, ValueError):  # Arrow's errors are one of these, UnicodeEncodeError is a ValueError
        column = None
    if column is None or column.null_count:
        _warn("text", values)
        column = pa.array([_as_text(value) for value in values], TEXT_TYPE)
    return column


def _bytes_column(values: list[Any]) -> Any:
    try:
        column = pa.array(values, BYTES_TYPE)
    except (TypeError, ValueError):
        column = None
    if column is None or column.null_count:
        _warn("frame", values)
        column = pa.array([_as_bytes(value) for value in values], BYTES_TYPE)
    return column


def _warn(column: str, values: Sequence[Any]) -> None:
    _log.warning("log: %d values for column %s: at least one has a wrong type and was converted", len(values), column)


def _as_time(value: Any) -> int:
    return max(-_AT_LIMIT_US, min(_AT_LIMIT_US, value)) if isinstance(value, int) else 0


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return "" if value is None else str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return b"" if value is None else _as_text(value).encode()
