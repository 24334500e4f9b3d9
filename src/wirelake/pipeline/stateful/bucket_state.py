"""Store the state of a bucket between two batches: its open rows, and what is needed to finish them.

Most of it is one small packed state for each key; only the keys that a batch mentions, or that are due, are unpacked.
Sessions and deliveries, of which very many may be open, are stored as columns.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import DAY, DELIVERIES, SESSIONS, TIME, LakeTable
from wirelake.pipeline.time_ranges import time_column

CLOCK: Final = "clock"  # the row that holds the latest `at` so far, as due_us
NEVER_US: Final = 2**62

_OPEN_SESSION: Final = [field for field in SESSIONS.schema if field.name not in ("day", "settled")]
_OPEN_DELIVERY: Final = [
    *(field for field in DELIVERIES.schema if field.name not in ("day", "settled")),
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


class Reduction(Struct):
    """Hold the result of one kind of events in one bucket."""

    state: list[pa.Table] = field(default_factory=list)
    final: dict[str, pa.Table] = field(default_factory=dict)
    open: dict[str, pa.Table] = field(default_factory=dict)  # changed by this batch
    unchanged: dict[str, pa.Table] = field(default_factory=dict)  # open as before
    dirty_us: dict[str, set[int]] = field(default_factory=dict)  # minutes other than those of the rows' own `at`
    counts: Counter[str] = field(default_factory=Counter)  # what has no row of its own


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


def clock_of(state: pa.Table | None, now_us: int) -> int:
    """Return the latest time so far: event time does not go back, even if a clock does."""
    if state is None:
        return now_us
    before: list[int] = state.filter(pc.equal(state["kind"], CLOCK))["due_us"].to_pylist()
    return max([now_us, *before])


def state_of_kind(state: pa.Table | None, kind: str) -> pa.Table:
    return STATE_SCHEMA.empty_table() if state is None else state.filter(pc.equal(state["kind"], kind))


def split_touched(state: pa.Table, keys: pa.Array, clock_us: int) -> tuple[pa.Table, pa.Table]:
    """Return the states of these keys and those that are due, and the rest."""
    mentioned = pc.is_in(state["key"], value_set=keys)
    due = pc.fill_null(pc.less_equal(state["due_us"], clock_us), fill_value=False)
    touched = pc.or_(mentioned, due)
    return state.filter(touched), state.filter(pc.invert(touched))


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


def table_rows(table: LakeTable, rows: Sequence[Sequence[Any]], *, settled: bool = True) -> pa.Table:
    """Return rows, given in the order of the table's columns without those that partition it, as a table."""
    names = [name for name in table.schema.names if name not in ("day", "settled")]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(column, table.schema.field(name).type) for name, column in zip(names, columns, strict=True)]
    return with_partition_columns(table, pa.Table.from_arrays(arrays, names=names), settled=settled)


def table_columns(table: LakeTable, columns: Mapping[str, Sequence[Any]], **constants: str) -> pa.Table:
    """Return final rows, given column by column, as a table; `constants` are the same in every row."""
    arrays = {name: pa.array(values, table.schema.field(name).type) for name, values in columns.items()}
    size = len(arrays["seq"])
    arrays |= {name: pa.repeat(pa.scalar(value), size) for name, value in constants.items()}
    return with_partition_columns(table, pa.table(arrays))


def with_partition_columns(table: LakeTable, rows: pa.Table, *, settled: bool = True) -> pa.Table:
    """Return the rows with the columns that partition the table."""
    if "settled" in table.schema.names:
        rows = rows.append_column("settled", pa.repeat(pa.scalar(settled), len(rows)))
    if "day" in table.schema.names:
        rows = rows.append_column("day", rows[time_column(table)].cast(DAY))
    return rows.select(table.schema.names).cast(table.schema)
