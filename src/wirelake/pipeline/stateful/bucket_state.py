"""Hold the state of a bucket between two batches: its open rows, and what is needed to finish them.

Most of it is one small packed state for each key; only the keys that a batch mentions, or that are due, are unpacked.
Sessions and deliveries, of which very many may be open, are stored as columns.

Rows are numbered in the order in which they were written, and never change. A batch removes rows by their numbers and
adds others, so that what it writes depends on what it changes, and not on what is open.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import DAY, DELIVERIES, SESSIONS, TIME, LakeTable
from wirelake.pipeline.time_ranges import time_column

CLOCK: Final = "clock"  # the row that holds the latest `at` so far, as due_us
NEVER_US: Final = 2**62


def _state_fields(table: LakeTable) -> list[pa.Field]:
    """Return the columns of open rows as the state has them: with `at`, as in the log and in earlier versions."""
    own = [field for field in table.schema if field.name != "day"]
    return [field.with_name("at") if field.name == "received_at" else field for field in own]


_OPEN_SESSION: Final = _state_fields(SESSIONS)
_OPEN_DELIVERY: Final = [
    *_state_fields(DELIVERIES),
    pa.field("ids", pa.string()),  # the common prefix of the topic's ids
    pa.field("expired_at", TIME),
]
OPEN_SESSION: Final = pa.schema(_OPEN_SESSION)
OPEN_DELIVERY: Final = pa.schema(_OPEN_DELIVERY)

STATE_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("key", pa.string()),
        ("due_us", pa.int64()),  # when to look at it, even if no event mentions it
        ("shows", pa.int32()),  # number of open rows in it
        ("state", pa.binary()),
        ("session", pa.struct(_OPEN_SESSION)),
        ("delivery", pa.struct(_OPEN_DELIVERY)),
    ]
)
_NO_NUMBERS: Final = np.zeros(0, np.int64)


class Reduction(Struct):
    """Hold the result of one kind of events in one bucket."""

    state: list[pa.Table] = field(default_factory=list)  # what is left of what was taken out of the state, and new
    final: dict[str, pa.Table] = field(default_factory=dict)
    open: dict[str, pa.Table] = field(default_factory=dict)  # of `state`
    replaced: dict[str, pa.Table] = field(default_factory=dict)  # open rows of what was taken out, as they were
    counts: Counter[str] = field(default_factory=Counter)  # what has no row of its own


class StateChange(Struct, frozen=True):
    """Describe how a batch changes the state of a bucket."""

    removed: Any  # numbers of rows, in order
    added: pa.Table


class StatePart:
    """Hold the rows of one file, and the numbers of the earlier rows that it removes."""

    def __init__(self, rows: pa.RecordBatch, removed: np.ndarray = _NO_NUMBERS) -> None:
        self.rows = rows
        self.removed = removed
        self.runs = list(_runs(rows))

    @staticmethod
    def of(change: StateChange) -> "StatePart":
        batches = change.added.combine_chunks().to_batches()
        return StatePart(batches[0] if batches else pa.RecordBatch.from_pylist([], STATE_SCHEMA), change.removed)


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yield runs of rows of one kind: the kind, the index of the first, and one after the last."""
    kinds = rows["kind"].dictionary_encode()
    codes = kinds.indices.to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()] if len(codes) else []
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True) if starts else ():
        yield kinds.dictionary[int(codes[start])].as_py(), start, end


class BucketState:
    """Hold the state of a bucket: the rows of its parts, numbered from 0, without those that a later part removes."""

    def __init__(self, parts: Sequence[StatePart] = ()) -> None:
        self.parts = tuple(parts)
        self._firsts = [0, *np.cumsum([part.rows.num_rows for part in self.parts]).tolist()]
        self._live = np.ones(self._firsts[-1], np.bool_)
        for part in self.parts:
            self._live[part.removed] = False

    @property
    def rows_stored(self) -> int:
        """Return how many rows the parts have, with those that are removed."""
        return len(self._live)

    @property
    def rows_live(self) -> int:
        return int(np.count_nonzero(self._live))

    @property
    def kinds(self) -> list[str]:
        """Return the kinds, in the order of their first rows."""
        return list(dict.fromkeys(kind for part in self.parts for kind, _, _ in part.runs))

    def of_kind(self, kind: str) -> "KindState":
        batches, numbers = [], []
        for part, first in zip(self.parts, self._firsts, strict=False):
            for of_run, start, end in part.runs:
                if of_run == kind:
                    batches.append(part.rows.slice(start, end - start))
                    numbers.append(np.arange(first + start, first + end))
        every = np.concatenate(numbers) if numbers else _NO_NUMBERS
        return KindState(batches, every, self._live[every])

    def apply(self, change: StateChange) -> "BucketState":
        """Return the state after a change."""
        return BucketState([*self.parts, StatePart.of(change)])

    def joined(self, first: int = 0) -> StatePart:
        """Return the parts from this one on as one part, without the rows that were removed."""
        start = self._firsts[first]
        removed = [part.removed[part.removed < start] for part in self.parts[first:]]
        added = [self._live_rows(kind, start) for kind in self.kinds]
        rows = pa.concat_tables([STATE_SCHEMA.empty_table(), *added])
        return StatePart.of(StateChange(np.sort(np.concatenate([_NO_NUMBERS, *removed])), rows))

    def table(self) -> pa.Table:
        """Return the rows that are not removed."""
        return pa.Table.from_batches([self.joined().rows])

    def _live_rows(self, kind: str, start: int) -> pa.Table:
        state = self.of_kind(kind)
        return state.peek(state.numbers >= start)


class KindState:
    """Hold the state of one kind. A reducer takes out what may change, and returns what is left of it."""

    def __init__(self, batches: Sequence[pa.RecordBatch], numbers: np.ndarray, live: np.ndarray) -> None:
        self._batches = batches
        self._live = live  # and not taken
        self._taken = np.zeros(len(live), np.bool_)
        self.numbers = numbers

    def __len__(self) -> int:
        """Return how many rows were not taken."""
        return int(np.count_nonzero(self._live))

    @property
    def rows(self) -> pa.Table:
        """Return every row, also those that were taken or removed: to compute which rows to take."""
        return pa.Table.from_batches(self._batches, STATE_SCHEMA)

    @property
    def shows(self) -> int:
        """Return how many open rows are in the rows that were not taken."""
        return self.sum(self.rows["shows"].fill_null(0).to_numpy())

    def count(self, mask: Any) -> int:
        """Return how many of these rows were not taken."""
        return int(np.count_nonzero(self._live & _as_mask(mask)))

    def sum(self, values: np.ndarray, mask: Any = True) -> int:
        """Return the sum of the values of those of these rows that were not taken."""
        return int(values[self._live & _as_mask(mask)].sum())

    def peek(self, mask: Any = True) -> pa.Table:
        """Return those of these rows that were not taken."""
        return self._select(self._live & _as_mask(mask))

    def take(self, mask: Any = True) -> pa.Table:
        """Take these rows out of the state, and return them."""
        wanted = self._live & _as_mask(mask)
        self._live = self._live & ~wanted
        self._taken |= wanted
        return self._select(wanted)

    def take_keys(self, keys: pa.Array, clock_us: int) -> pa.Table:
        """Take the states of these keys and those that are due."""
        rows = self.rows
        mentioned = pc.is_in(rows["key"], value_set=keys)
        due = pc.fill_null(pc.less_equal(rows["due_us"], clock_us), fill_value=False)
        return self.take(pc.or_(mentioned, due))

    def changes(self, added: Sequence[pa.Table]) -> StateChange:
        """Return what changed, if these rows take the place of those taken. Rows that are the same stay as they are."""
        after = pa.concat_tables([STATE_SCHEMA.empty_table(), *added]).combine_chunks()
        before = self._select(self._taken)
        unused = [name for name in STATE_SCHEMA.names if _is_null(before[name]) and _is_null(after[name])]
        gone, new = changed_rows(before.drop_columns(unused).flatten(), after.drop_columns(unused).flatten())
        return StateChange(self.numbers[self._taken][gone], after.filter(pa.array(new)))

    def _select(self, mask: np.ndarray) -> pa.Table:
        found, start = [], 0
        for batch in self._batches:
            places = np.flatnonzero(mask[start : start + batch.num_rows])
            start += batch.num_rows
            if len(places) == batch.num_rows:
                found.append(batch)
            elif len(places):
                found.append(batch.take(pa.array(places)))
        return pa.Table.from_batches(found, STATE_SCHEMA)


def _as_mask(mask: Any) -> Any:
    if isinstance(mask, pa.Array | pa.ChunkedArray):
        return mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
    return mask


def _is_null(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count == len(column))


def changed_rows(before: pa.Table, after: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of `before` are not in `after`, and the other way round, as masks."""
    size = len(before)
    if not size or not len(after):
        return np.ones(size, np.bool_), np.ones(len(after), np.bool_)
    names = [f"c{number}" for number in range(before.num_columns)]
    rows = pa.concat_tables([before.rename_columns(names), after.rename_columns(names)])
    rows = rows.append_column("place", pa.array(np.arange(len(rows))))
    found = rows.group_by(names, use_threads=False).aggregate([("place", "min"), ("place", "max"), ("place", "count")])
    first, last, count = (found[f"place_{name}"].to_numpy() for name in ("min", "max", "count"))
    is_same = (count == 2) & (first < size) & (last >= size)
    changed = np.ones(len(rows), np.bool_)
    changed[first[is_same]] = changed[last[is_same]] = False
    return changed[:size], changed[size:]


class PackedStates(Struct):
    """Collect packed states, by key."""

    keys: list[str] = field(default_factory=list)
    due_us: list[int] = field(default_factory=list)
    shows: list[int] = field(default_factory=list)
    states: list[bytes] = field(default_factory=list)

    def put(self, key: str, due_us: int, shows: int, state: bytes) -> None:
        self.keys.append(key)
        self.due_us.append(due_us)
        self.shows.append(shows)
        self.states.append(state)

    def table(self, kind: str) -> pa.Table:
        size = len(self.keys)
        return _state_table(kind, size, key=self.keys, due_us=self.due_us, shows=self.shows, state=self.states)


def column_state(kind: str, keys: Any, column: str, rows: pa.Table) -> pa.Table:
    """Return open rows as state, without packing them."""
    structs = rows.to_struct_array()
    return _state_table(kind, len(rows), **{"key": keys, column: structs.combine_chunks() if len(rows) else None})


def clock_state(now_us: int) -> pa.Table:
    return _state_table(CLOCK, 1, key=[""], due_us=[now_us])


def clock_of(state: BucketState) -> int:
    """Return the latest time so far, or 0."""
    clock = state.of_kind(CLOCK)
    return max(clock.peek()["due_us"].to_pylist(), default=0)


def unpack_states(state: pa.Table, unpack: Callable[[bytes], Any]) -> dict[str, Any]:
    packed = zip(state["key"].to_pylist(), state["state"].to_pylist(), strict=True)
    return {key: unpack(each) for key, each in packed}


def _state_table(kind: str, size: int, **columns: Any) -> pa.Table:
    arrays = []
    for column in STATE_SCHEMA:
        given = [kind] * size if column.name == "kind" else columns.get(column.name)
        if given is None:
            arrays.append(pa.nulls(size, column.type))
        else:
            arrays.append(given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given, column.type))
    return pa.Table.from_arrays(arrays, schema=STATE_SCHEMA)


def table_rows(table: LakeTable, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows, given in the order of the table's columns without those that partition it, as a table."""
    names = [name for name in table.schema.names if name != "day"]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(column, table.schema.field(name).type) for name, column in zip(names, columns, strict=True)]
    return with_partition_columns(table, pa.Table.from_arrays(arrays, names=names))


def table_columns(table: LakeTable, columns: Mapping[str, Sequence[Any]], **constants: str) -> pa.Table:
    """Return final rows, given column by column, as a table; `constants` are the same in every row."""
    arrays = {name: pa.array(values, table.schema.field(name).type) for name, values in columns.items()}
    size = len(arrays["seq"])
    arrays |= {name: pa.repeat(pa.scalar(value), size) for name, value in constants.items()}
    return with_partition_columns(table, pa.table(arrays))


def with_partition_columns(table: LakeTable, rows: pa.Table) -> pa.Table:
    """Return rows, which may be those of a state, with the columns of the table."""
    if "at" in rows.column_names:
        rows = rows.rename_columns({"at": "received_at"})
    if "day" in table.schema.names:
        rows = rows.append_column("day", rows[time_column(table)].cast(DAY))
    return rows.select(table.schema.names).cast(table.schema)
