"""Add up rows by key: counts are summed, sketches merged, and prices keep their first and last by time.

The sums of two parts of the rows can be added up again, so it does not matter which task or batch had which row.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import (
    BARS_MINUTE,
    CALL_MINUTE,
    DAY,
    DELIVERY_MINUTE,
    TRAFFIC_MINUTE,
    LakeTable,
)
from wirelake.pipeline.gold.sketches import QUANTILES, merge_sketches, quantiles_of

SKETCH: Final = "latency_sketch"
_OPENING: Final = ("open_time", "open_seq", "open")
_CLOSING: Final = ("close_time", "close_seq", "close")


class MinuteTable(Struct, frozen=True):
    """Describe how the rows of a gold table of minutes are added up.

    `open` names the columns that count open rows, and for each column that includes them, which ones. Sums are kept
    without them: open rows are counted again whenever the row is written.
    """

    table: LakeTable
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    open_sums: tuple[str, ...] = ()
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_sketch: bool = False
    has_prices: bool = False

    @property
    def schema(self) -> Any:
        """Return the columns of the sums."""
        names = [*self.keys, *self.sums, *self.open_sums]
        if self.has_sketch:
            names.append(SKETCH)
        if self.has_prices:
            names += ["high", "low", *_OPENING, *_CLOSING]
        return pa.schema([self.table.schema.field(name) for name in names])


TRAFFIC: Final = MinuteTable(TRAFFIC_MINUTE, ("minute", "protocol", "name", "direction"), ("frames", "bytes", "errors"))
CALLS: Final = MinuteTable(
    CALL_MINUTE,
    ("minute", "protocol", "service", "op"),
    ("calls", "failed"),
    ("open",),
    {"calls": ("open",)},
    has_sketch=True,
)
DELIVERIES: Final = MinuteTable(
    DELIVERY_MINUTE,
    ("minute", "topic"),
    ("deliveries", "acked", "expired", "attempts"),
    ("pending", "expired_open", "attempts_open"),
    {
        "deliveries": ("pending", "expired_open"),
        "expired": ("expired_open",),
        "attempts": ("attempts_open",),
    },
    has_sketch=True,
)
BARS: Final = MinuteTable(BARS_MINUTE, ("minute", "key", "sdb"), ("count",), has_prices=True)
MINUTE_TABLES: Final = (TRAFFIC, CALLS, DELIVERIES, BARS)


def add_up(gold: MinuteTable, parts: Iterable[Any]) -> Any:
    """Return the sums of several sums, one row for each key."""
    rows = pa.concat_tables([gold.schema.empty_table(), *parts])
    if not len(rows):
        return rows
    aggregates: list[tuple[str, str]] = [(name, "sum") for name in (*gold.sums, *gold.open_sums)]
    if gold.has_sketch:
        aggregates.append((SKETCH, "list"))
    if gold.has_prices:
        aggregates += [("high", "max"), ("low", "min")]
    found = _aggregate(rows, gold.keys, aggregates)
    if gold.has_sketch:
        found = found.set_column(found.schema.get_field_index(SKETCH), SKETCH, _join_sketches(found[SKETCH]))
    if gold.has_prices:
        found = _with_prices(gold, rows, found)
    return found.select(gold.schema.names).cast(gold.schema)


def _aggregate(rows: Any, keys: tuple[str, ...], aggregates: list[tuple[str, str]]) -> Any:
    """Aggregate by key, in order of appearance. The columns keep their names."""
    found = rows.group_by(list(keys), use_threads=False).aggregate(aggregates)
    renamed = {f"{name}_{function}": name for name, function in aggregates}
    return found.rename_columns([renamed.get(name, name) for name in found.schema.names])


def _join_sketches(lists: Any) -> Any:
    joined = []
    for parts in lists.to_pylist():
        known = [part for part in parts if part is not None]
        joined.append(merge_sketches(known) if len(known) > 1 else known[0] if known else None)
    return pa.array(joined, pa.binary())


def _with_prices(gold: MinuteTable, rows: Any, found: Any) -> Any:
    """Add the first and the last price of each key."""
    keys = list(gold.keys)
    for names, function in ((_OPENING, "first"), (_CLOSING, "last")):
        ordered = rows.sort_by([(names[0], "ascending"), (names[1], "ascending")])
        edges = _aggregate(ordered.select([*keys, *names]), gold.keys, [(name, function) for name in names])
        found = _join_by_place(found, edges, keys)
    return found


def _join_by_place(left: Any, right: Any, keys: list[str]) -> Any:
    """Join tables that have the same keys. A join of Arrow's does not match nulls."""
    order = [(key, "ascending") for key in keys]
    left, right = left.sort_by(order), right.sort_by(order)
    for name in right.schema.names:
        if name not in keys:
            left = left.append_column(name, right[name])
    return left


def to_gold(gold: MinuteTable, sums: Any, known: Any = None) -> Any:
    """Return sums as rows of the gold table. `known` are rows whose percentiles hold as long as their sketch does."""
    sums = sums.filter(_has_something(gold, sums))
    columns = {name: sums[name] for name in sums.schema.names}
    for name, of_open in gold.includes.items():
        for each in of_open:
            columns[name] = pc.add(columns[name], sums[each])
    if gold.has_sketch:
        columns |= _percentiles(sums[SKETCH], known)
    columns["day"] = sums["minute"].cast(DAY)
    schema = gold.table.schema
    made = pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
    return made.sort_by([(key, "ascending") for key in gold.keys])


def _has_something(gold: MinuteTable, sums: Any) -> Any:
    counts = [sums[name] for name in (*gold.sums, *gold.open_sums)]
    found = pc.not_equal(counts[0], 0)
    for count in counts[1:]:
        found = pc.or_(found, pc.not_equal(count, 0))
    return found


def _percentiles(sketches: Any, known: Any) -> dict[str, Any]:
    before: dict[bytes, tuple[float, ...]] = {}
    if known is not None:
        values = zip(*(known[name].to_pylist() for name in QUANTILES), strict=True)
        before = dict(zip(known[SKETCH].to_pylist(), values, strict=True))
    found = [
        (None,) * len(QUANTILES) if sketch is None else before.get(sketch) or quantiles_of(sketch)
        for sketch in sketches.to_pylist()
    ]
    columns = zip(*found, strict=True) if found else ((),) * len(QUANTILES)
    return {name: pa.array(values, pa.float64()) for name, values in zip(QUANTILES, columns, strict=True)}


def to_sums(gold: MinuteTable, rows: Any) -> Any:
    """Return rows of the gold table as sums, without what they say of open rows."""
    columns = {name: rows[name] for name in gold.schema.names}
    for name, of_open in gold.includes.items():
        for each in of_open:
            columns[name] = pc.subtract(columns[name], pc.fill_null(rows[each], 0))
    for name in gold.open_sums:
        columns[name] = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    return pa.table([columns[name] for name in gold.schema.names], schema=gold.schema)
