"""From what callers handed over to one Arrow record batch.

Callers' values lie in one flat list of cells, `CELLS_PER_RUN` for each run: a run is one record, or several frames that
share all other fields (with a negative count, session, identity, peer and note may be tuples with a value for each). A
flat list costs a caller one C call for each run and leaves no object behind; a column is a slice of it with a stride.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.log.alike import Alike
from wirelake.log.schema import AT, BYTES, SCHEMA, SEQ, TEXT

# count, at_us, protocol, event, direction, session, identity, peer, note, frame(s), and how many bytes the caller has
# handed over up to and with this run
CELLS_PER_RUN: Final = 11
_AT: Final = 1
_TEXTS: Final = range(2, 9)
_FRAMES: Final = 9
_ENDS: Final = pa.int32()
_AT_LIMIT_US: Final = 2**63 - 1
_OF_EACH: Final = (5, 6, 7, 8)  # the cells session, identity, peer and note
_FEW_VALUES: Final = {2, 3, 4, 8}  # the cells protocol, event, direction and note: few different values, ever
_START_ROWS: Final = 4096
_LONG_RUN: Final = 128  # from here on a run's own column pays
_LONG_ALIKE: Final = 16  # the same for frames that need no converting
_SMALL_ROWS: Final = 192  # up to here plain Python is faster than the calls into Arrow that would replace it
# Columns of one value that are kept: their number, and the size of each.
_REPEATED_MAX: Final = 64
_REPEATED_CHARS_MAX: Final = 64
_REPEATED_ROWS_MAX: Final = 65536

_log = logging.getLogger(__name__)


class Rows(Struct, frozen=True):
    """A record batch, and what the block's header says of it."""

    batch: Any  # pa.RecordBatch
    first_seq: int
    count: int
    at_us: tuple[int, int]

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.count


class Columns:
    """Builds batches, one after the other, on one thread. Keeps what it can use again: columns of one value."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._numbers = pa.array(range(_START_ROWS), SEQ)  # 0, 1, 2 …
        self._repeated: dict[str, Any] = {}
        self._bounds: dict[int, Any] = {}  # where frames of one length begin and end

    def build(self, cells: list[Any], first_seq: int) -> Rows:
        counts = list(map(abs, cells[::CELLS_PER_RUN]))
        count = sum(counts)
        spread = _Spread(counts, count)
        at, at_us = _at_column(cells[_AT::CELLS_PER_RUN], spread)
        *texts, note = [self._texts(cells[cell::CELLS_PER_RUN], cell, spread) for cell in _TEXTS]
        arrays = [
            self._seqs(first_seq, count),
            at,
            self._repeat(self._node, count),
            *texts,
            self._frames(cells[_FRAMES::CELLS_PER_RUN], count),
            note,
        ]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), first_seq, count, at_us)

    def _seqs(self, first_seq: int, count: int) -> Any:
        if count <= _SMALL_ROWS:
            return _from_array(array("q", range(first_seq, first_seq + count)), SEQ)
        if len(self._numbers) < count:
            self._numbers = pa.array(range(2 * count), SEQ)
        return pc.add(self._numbers.slice(0, count), pa.scalar(first_seq, SEQ))

    def _frames(self, frames: list[Any], count: int) -> Any:
        if count == len(frames) and set(map(type, frames)) == {bytes}:
            return _bytes_column(frames)
        pieces = _Pieces(_bytes_column)
        for frame in frames:
            if type(frame) is tuple:
                pieces.each += frame
            elif type(frame) is not Alike:
                pieces.each.append(frame)
            elif len(frame) < _LONG_ALIKE:
                pieces.each += frame.cut()
            else:
                pieces.add(self._alike(frame))
        return pieces.joined()

    def _alike(self, frames: Alike) -> Any:
        count, size = len(frames), frames.frame_bytes
        bounds = self._bounds.get(size)
        if bounds is None or bounds.size < (count + 1) * _ENDS.byte_width:
            if len(self._bounds) >= _REPEATED_MAX:
                self._bounds.clear()
            bounds = self._bounds[size] = pa.py_buffer(array("i", range(0, (2 * count + 1) * size, size)))
        return pa.Array.from_buffers(BYTES, count, [None, bounds, pa.py_buffer(frames.joined)])

    def _texts(self, values: list[Any], cell: int, spread: "_Spread") -> Any:
        """Most columns of most blocks hold one value, and to see that is far cheaper than to convert each."""
        first = values[0]
        if type(first) is str and values.count(first) == len(values):
            if cell in _FEW_VALUES:
                return self._repeat(first, spread.count)
            if first.isascii():
                return pa.repeat(pa.scalar(first, TEXT), spread.count)
        if cell in _OF_EACH and tuple in set(map(type, values)):
            return _of_rows(values, spread.counts)
        if spread.few:
            return _text_column(spread.values(values))
        return spread.column(_text_column(values))

    def _repeat(self, value: str, count: int) -> Any:
        column = self._repeated.get(value)
        if column is None or len(column) < count:
            if len(value) > _REPEATED_CHARS_MAX or count > _REPEATED_ROWS_MAX:
                return _text_column([value] * count)
            if len(self._repeated) >= _REPEATED_MAX:
                self._repeated.clear()
            column = self._repeated[value] = _text_column([value] * max(_START_ROWS, 2 * count))
        return column.slice(0, count)


class _Spread:
    """A value for each run → a value for each record."""

    def __init__(self, counts: list[int], count: int) -> None:
        self.counts = counts
        self.count = count
        self.few = count <= _SMALL_ROWS
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


class _Pieces:
    """A column put together from columns, and from values that are converted together."""

    def __init__(self, column: Callable[[list[Any]], Any]) -> None:
        self.each: list[Any] = []
        self._column = column
        self._pieces: list[Any] = []

    def add(self, piece: Any) -> None:
        if self.each:
            self._pieces.append(self._column(self.each))
            self.each = []
        self._pieces.append(piece)

    def joined(self) -> Any:
        if not self._pieces:
            return self._column(self.each)
        if self.each:
            self._pieces.append(self._column(self.each))
        return pa.concat_arrays(self._pieces)


def _of_rows(values: list[Any], counts: list[int]) -> Any:
    """Where some runs have one value and others as many as they have records.

    A long run's column is made once where it comes twice, as of packets and of their receipts.
    """
    made: dict[int, Any] = {}
    pieces = _Pieces(_text_column)
    for value, count in zip(values, counts, strict=True):
        if type(value) is not tuple:
            pieces.each += [value] * count
        elif count < _LONG_RUN:
            pieces.each += value
        else:
            if id(value) not in made:
                made[id(value)] = _text_column(value)
            pieces.add(made[id(value)])
    return pieces.joined()


# A value that no column can hold (a lone surrogate from a peer's name, a None where the types were not minded) must not
# cost the other records of the block their place: it is written as close to what it was as the column can say.


def _at_column(values: list[Any], spread: _Spread) -> tuple[Any, tuple[int, int]]:
    """The column, and the smallest and largest in it."""
    first = values[0]
    try:
        if values.count(first) == len(values):  # all from one turn of the event loop
            return _from_array(array("q", (first,)) * spread.count, AT), (first, first)
        raw = array("q", values)
    except (TypeError, OverflowError):
        _warn("at", values)
        raw = array("q", [_as_time(value) for value in values])
    if len(raw) <= _SMALL_ROWS:
        at_us = min(raw), max(raw)
    else:
        bounds = pc.min_max(_from_array(raw, SEQ))
        at_us = bounds["min"].as_py(), bounds["max"].as_py()
    if spread.few:
        raw = array("q", spread.values(raw.tolist()))
        return _from_array(raw, AT), at_us
    return spread.column(_from_array(raw, AT)), at_us


def _from_array(raw: "array[int]", kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw)])


def _text_column(values: Sequence[Any]) -> Any:
    try:
        column = pa.array(values, TEXT)
    except (TypeError, ValueError):  # Arrow's own errors are both, and Unicode's is the second
        column = None
    if column is None or column.null_count:
        _warn("text", values)
        column = pa.array([_as_text(value) for value in values], TEXT)
    return column


def _bytes_column(values: list[Any]) -> Any:
    try:
        column = pa.array(values, BYTES)
    except (TypeError, ValueError):
        column = None
    if column is None or column.null_count:
        _warn("frame", values)
        column = pa.array([_as_bytes(value) for value in values], BYTES)
    return column


def _warn(column: str, values: Sequence[Any]) -> None:
    text = "log: among %d values for a column %s, one is not of its type; written as near as can be"
    _log.warning(text, len(values), column)


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
