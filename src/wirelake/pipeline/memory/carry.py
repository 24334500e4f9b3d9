"""What a bucket carries from one batch to the next: its open items, and what it takes to know their end.

Most of it is one small state for each key, packed; only those keys that a batch speaks of, or whose time has come, are
unpacked. Sessions and deliveries, of which very many may be open, are carried as columns.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.tables import DELIVERIES, SESSIONS, TIME

CLOCK: Final = "clock"  # the row that holds the largest `at` so far, as due_us

_OPEN_SESSION: Final = [field for field in SESSIONS.schema if field.name not in ("day", "settled")]
_OPEN_DELIVERY: Final = [
    *(field for field in DELIVERIES.schema if field.name not in ("day", "settled")),
    pa.field("ids", pa.string()),  # what the topic's ids begin with
    pa.field("expired_at", TIME),
]
OPEN_SESSION: Final = pa.schema(_OPEN_SESSION)
OPEN_DELIVERY: Final = pa.schema(_OPEN_DELIVERY)

CARRY: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("key", pa.string()),
        ("due_us", pa.int64()),  # when it has to be looked at, whoever speaks of it
        ("shows", pa.int32()),  # how many open rows are in it
        ("state", pa.binary()),
        ("session", pa.struct(_OPEN_SESSION)),
        ("delivery", pa.struct(_OPEN_DELIVERY)),
    ]
)


class Kept(Struct):
    """Packed states, by key."""

    keys: list[str]
    due_us: list[int]
    shows: list[int]
    states: list[bytes]

    def put(self, key: str, due_us: int, shows: int, state: bytes) -> None:
        self.keys.append(key)
        self.due_us.append(due_us)
        self.shows.append(shows)
        self.states.append(state)

    def table(self, kind: str) -> pa.Table:
        size = len(self.keys)
        return _carried(kind, size, key=self.keys, due_us=self.due_us, shows=self.shows, state=self.states)


def kept() -> Kept:
    return Kept([], [], [], [])


def carried_rows(kind: str, keys: Any, column: str, rows: pa.Table) -> pa.Table:
    """Open rows as columns."""
    structs = rows.to_struct_array()
    return _carried(kind, len(rows), **{"key": keys, column: structs.combine_chunks() if len(rows) else None})


def clock_row(now_us: int) -> pa.Table:
    return _carried(CLOCK, 1, key=[""], due_us=[now_us])


def clock_of(carry: pa.Table | None, now_us: int) -> int:
    """Time does not go back, whatever the clocks do."""
    if carry is None:
        return now_us
    before: list[int] = carry.filter(pc.equal(carry["kind"], CLOCK))["due_us"].to_pylist()
    return max([now_us, *before])


def of_kind(carry: pa.Table | None, kind: str) -> pa.Table:
    return CARRY.empty_table() if carry is None else carry.filter(pc.equal(carry["kind"], kind))


def split(carried: pa.Table, keys: pa.Array, clock_us: int) -> tuple[pa.Table, pa.Table]:
    """Those that this batch speaks of or whose time has come, and the rest."""
    spoken_of = pc.is_in(carried["key"], value_set=keys)
    due = pc.fill_null(pc.less_equal(carried["due_us"], clock_us), fill_value=False)
    touched = pc.or_(spoken_of, due)
    return carried.filter(touched), carried.filter(pc.invert(touched))


def states_of(carried: pa.Table, unpack: Callable[[bytes], Any]) -> dict[str, Any]:
    return {
        key: unpack(state) for key, state in zip(carried["key"].to_pylist(), carried["state"].to_pylist(), strict=True)
    }


def _carried(kind: str, size: int, **columns: Any) -> pa.Table:
    arrays = []
    for field in CARRY:
        given = [kind] * size if field.name == "kind" else columns.get(field.name)
        if given is None:
            arrays.append(pa.nulls(size, field.type))
        else:
            arrays.append(given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given, field.type))
    return pa.Table.from_arrays(arrays, schema=CARRY)
