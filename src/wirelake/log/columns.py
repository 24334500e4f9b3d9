"""From what callers handed over to one Arrow record batch.

Callers' values lie in one flat list of cells, `CELLS_PER_RUN` for each run: a run is one record, or several frames that
share all other fields (with a negative count, all but session, identity, peer and note). A flat list costs a caller one
C call for each run and leaves no object behind; a column is a slice of it with a stride.
"""

import logging
from array import array
from itertools import accumulate, chain, repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.log.schema import AT, BYTES, SCHEMA, SEQ, TEXT

# count, at_us, protocol, event, direction, session, identity, peer, note, frame(s), and how many bytes the caller has
# handed over up to and with this run
CELLS_PER_RUN: Final = 11
_FRAMES: Final = 9
_ENDS: Final = pa.int32()
_AT_LIMIT_US: Final = 2**63 - 1
_OF_EACH: Final = (5, 6, 7, 8)  # the cells session, identity, peer and note
_FEW_VALUES: Final = {2, 3, 4, 8}  # the cells protocol, event, direction and note: few different values, ever
_START_ROWS: Final = 4096
_SMALL_ROWS: Final = 512  # up to here plain Python is faster than the calls into Arrow that would replace it
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

    def build(self, cells: list[Any], first_seq: int) -> Rows:
        counts = cells[::CELLS_PER_RUN]
        lists = [cells[cell::CELLS_PER_RUN] for cell in range(1, _FRAMES)]
        frames = cells[_FRAMES::CELLS_PER_RUN]
        rows: dict[int, list[Any]] = {}  # cells that have a value for each record
        if min(counts) < 0:
            rows = {cell: _each(counts, lists[cell - 1]) for cell in _OF_EACH}
            counts = list(map(abs, counts))
        count = sum(counts)
        spread = count != len(counts)
        if spread or rows:
            frames = _flat(frames)
        if spread and count <= _SMALL_ROWS:
            lists = [list(chain.from_iterable(map(repeat, values, counts))) for values in lists]
            spread = False
        at, at_us = _at_column(lists[0])
        texts = [
            _rows_column(rows[cell]) if cell in rows else self._text_column(values, cell)
            for cell, values in enumerate(lists[1:], 2)
        ]
        if spread:
            ends = pa.array(accumulate(counts), _ENDS, size=len(counts))
            at = _spread(at, ends, count)
            texts = [column if cell in rows else _spread(column, ends, count) for cell, column in enumerate(texts, 2)]
        note = texts.pop()
        arrays = [
            self._seqs(first_seq, count),
            at,
            self._repeat(self._node, count),
            *texts,
            _bytes_column(frames),
            note,
        ]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), first_seq, count, at_us)

    def _seqs(self, first_seq: int, count: int) -> Any:
        if count <= _SMALL_ROWS:
            return _from_array(array("q", range(first_seq, first_seq + count)), SEQ)
        if len(self._numbers) < count:
            self._numbers = pa.array(range(2 * count), SEQ)
        return pc.add(self._numbers.slice(0, count), pa.scalar(first_seq, SEQ))

    def _text_column(self, values: list[Any], cell: int) -> Any:
        """Most columns of most blocks hold one value, and to see that is far cheaper than to convert each."""
        first = values[0]
        if cell in _FEW_VALUES and type(first) is str and values.count(first) == len(values):
            return self._repeat(first, len(values))
        return _text_column(values)

    def _repeat(self, value: str, count: int) -> Any:
        column = self._repeated.get(value)
        if column is None or len(column) < count:
            if len(value) > _REPEATED_CHARS_MAX or count > _REPEATED_ROWS_MAX:
                return _text_column([value] * count)
            if len(self._repeated) >= _REPEATED_MAX:
                self._repeated.clear()
            column = self._repeated[value] = _text_column([value] * max(_START_ROWS, 2 * count))
        return column.slice(0, count)


def _flat(frames: list[Any]) -> list[bytes]:
    flat: list[bytes] = []
    for frame in frames:
        if type(frame) is tuple:
            flat += frame
        else:
            flat.append(frame)
    return flat


def _each(counts: list[int], values: list[Any]) -> list[Any]:
    """A value for each record, where some runs have one and others as many as they have records."""
    each: list[Any] = []
    for count, value in zip(counts, values, strict=True):
        each += value if count < 0 else [value] * count
    return each


def _spread(column: Any, ends: Any, count: int) -> Any:
    """A value for each run → a value for each record."""
    runs = pa.run_end_encoded(_ENDS, column.type)
    return pc.run_end_decode(pa.RunEndEncodedArray.from_buffers(runs, count, [None], 0, 0, [ends, column]))


# A value that no column can hold (a lone surrogate from a peer's name, a None where the types were not minded) must not
# cost the other records of the block their place: it is written as close to what it was as the column can say.


def _at_column(values: list[Any]) -> tuple[Any, tuple[int, int]]:
    """The column, and the smallest and largest in it."""
    first = values[0]
    try:
        same = values.count(first) == len(values)  # all from one turn of the event loop
        raw = array("q", (first,)) * len(values) if same else array("q", values)
    except (TypeError, OverflowError):
        _warn("at", values)
        raw = array("q", [_as_time(value) for value in values])
    column = _from_array(raw, AT)
    if len(raw) <= _SMALL_ROWS:
        return column, (min(raw), max(raw))
    bounds = pc.min_max(_from_array(raw, SEQ))
    return column, (bounds["min"].as_py(), bounds["max"].as_py())


def _from_array(raw: "array[int]", kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw)])


def _text_column(values: list[Any]) -> Any:
    try:
        column = pa.array(values, TEXT)
    except (TypeError, ValueError):  # Arrow's own errors are both, and Unicode's is the second
        column = None
    if column is None or column.null_count:
        _warn("text", values)
        column = pa.array([_as_text(value) for value in values], TEXT)
    return column


def _rows_column(values: list[Any]) -> Any:
    """One value is likely for all: what came over one connection."""
    first = values[0]
    if type(first) is str and first.isascii() and values.count(first) == len(values):
        return pa.repeat(pa.scalar(first, TEXT), len(values))
    return _text_column(values)


def _bytes_column(values: list[Any]) -> Any:
    try:
        column = pa.array(values, BYTES)
    except (TypeError, ValueError):
        column = None
    if column is None or column.null_count:
        _warn("frame", values)
        column = pa.array([_as_bytes(value) for value in values], BYTES)
    return column


def _warn(column: str, values: list[Any]) -> None:
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
