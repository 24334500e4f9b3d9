"""Summarize rows while the tasks of a batch still have them in memory: partial sums by minute, hour and device.

The driver merges the partials of committed batches into the gold tables, so no row is read again. The same functions
summarize rows of files if history has changed.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, json, msgpack

from wirelake.lake import tables as lake
from wirelake.lake.store import Store
from wirelake.pipeline.gold import counts, devices
from wirelake.pipeline.gold.sketches import sketch_of
from wirelake.pipeline.gold.sums import BARS, CALLS, DELIVERIES, MINUTE_TABLES, SKETCH, TRAFFIC, MinuteTable, add_up
from wirelake.pipeline.time_ranges import AT, MINUTE_US

QUARANTINED: Final = "(quarantined)"  # the name of frames that have none
PRICE: Final = "newp"
COUNTS: Final = lake.COUNTS_HOUR.name
REPORTS: Final = "device reports"
STATUSES: Final = "device statuses"
READINGS: Final = "device readings"

Partials = dict[str, Any]  # by gold table, or by part of gold.device_latest: sums


def minutes(times: Any) -> Any:
    """Return the minute of each time."""
    return pc.multiply(pc.divide(times.cast(pa.int64()), MINUTE_US), MINUTE_US).cast(lake.TIME)


def _sums(gold: MinuteTable, columns: Mapping[str, Any]) -> Any:
    """Return the sums of rows, given by column. Columns that are missing count nothing."""
    size = len(columns["minute"])
    arrays = [
        _cast(columns[each.name], each.type)
        if each.name in columns
        else pa.repeat(pa.scalar(0, each.type), size)
        if each.name in (*gold.sums, *gold.open_sums)
        else pa.nulls(size, each.type)
        for each in gold.schema
    ]
    return add_up(gold, [pa.table(arrays, schema=gold.schema)])


def _cast(column: Any, type_: Any) -> Any:
    return column if column.type == type_ else column.cast(type_)


def _ones(condition: Any) -> Any:
    return pc.fill_null(condition, fill_value=False).cast(pa.int64())


def _each(size: int) -> Any:
    return pa.repeat(pa.scalar(1, pa.int64()), size)


def message_traffic(rows: Any) -> Any:
    return _sums(
        TRAFFIC,
        {
            "minute": minutes(rows[AT]),
            "protocol": rows["protocol"],
            "name": rows["name"],
            "direction": rows["direction"],
            "frames": _each(rows.num_rows),
            "bytes": rows["bytes"],
            "errors": _ones(pc.not_equal(rows["status"], "ok")),
        },
    )


def quarantine_traffic(rows: Any) -> Any:
    return _sums(
        TRAFFIC,
        {
            "minute": minutes(rows[AT]),
            "protocol": rows["protocol"],
            "name": pa.repeat(pa.scalar(QUARANTINED), rows.num_rows),
            "direction": rows["direction"],
            "frames": _each(rows.num_rows),
            "bytes": pc.binary_length(rows["frame"]),
            "errors": _each(rows.num_rows),
        },
    )


def call_sums(rows: Any) -> Any:
    """Return the sums of calls, settled or open."""
    status = rows["status"]
    is_open = _ones(pc.equal(status, "open"))
    columns = {name: rows[name] for name in ("protocol", "service", "op")} | {"minute": minutes(rows["asked_at"])}
    is_failed = pc.and_(pc.not_equal(status, "ok"), pc.not_equal(status, "open"))
    columns |= {"calls": pc.subtract(1, is_open), "failed": _ones(is_failed), "open": is_open}
    return _with_sketches(CALLS, columns, rows["latency_ms"])


def delivery_sums(rows: Any) -> Any:
    """Return the sums of settled deliveries."""
    state = rows["state"]
    columns = {"minute": minutes(rows["first_sent_at"]), "topic": rows["topic"]}
    columns |= {"deliveries": _each(rows.num_rows), "attempts": rows["attempts"]}
    columns |= {name: _ones(pc.equal(state, name)) for name in ("acked", "expired")}
    return _with_sketches(DELIVERIES, columns, rows["latency_ms"])


def open_delivery_sums(rows: Any) -> Any:
    columns = {"minute": minutes(rows["first_sent_at"]), "topic": rows["topic"], "attempts_open": rows["attempts"]}
    columns |= {"pending": _ones(pc.equal(rows["state"], "pending"))}
    columns |= {"expired_open": _ones(pc.equal(rows["state"], "expired"))}
    return _sums(DELIVERIES, columns)


def _with_sketches(gold: MinuteTable, columns: dict[str, Any], latencies: Any) -> Any:
    """Return the sums, with a sketch of the latencies of each key."""
    sums = _sums(gold, columns)
    known = pc.is_valid(latencies)
    rows = pa.table({name: columns[name] for name in gold.keys} | {"latency": latencies}).filter(known)
    if not len(rows):
        return sums
    lists = rows.group_by(list(gold.keys), use_threads=False).aggregate([("latency", "list")])
    listed = lists["latency_list"].combine_chunks()
    values, offsets = np.array(listed.flatten()), np.array(listed.offsets)  # a sketch takes no array of Arrow's own
    offsets = offsets - offsets[0]
    sketches = [sketch_of(values[start:end]) for start, end in pairwise(offsets)]
    found = {name: lists[name] for name in gold.keys}
    found |= {name: pa.repeat(pa.scalar(0, pa.int64()), len(lists)) for name in (*gold.sums, *gold.open_sums)}
    found[SKETCH] = pa.array(sketches, pa.binary())
    more = pa.table([_cast(found[each.name], each.type) for each in gold.schema], schema=gold.schema)
    return add_up(gold, [sums, more])


class _Priced(Struct):
    newp: Any = None


_price_of: Final = json.Decoder(_Priced).decode


def bar_sums(records: Any) -> Any:
    """Return open, high, low and close of records that have a price."""
    records = records.filter(pc.fill_null(pc.match_substring(records["fields"], f'"{PRICE}"'), fill_value=False))
    prices = pa.array([_number(text) for text in records["fields"].to_pylist()], pa.float64())
    records, prices = records.filter(pc.is_valid(prices)), prices.drop_null()
    columns = {name: records[name] for name in ("key", "sdb")} | {"count": _each(len(prices))}
    columns |= {"minute": minutes(pc.coalesce(records["recorded_at"], records[AT]))}
    columns |= dict.fromkeys(("open", "high", "low", "close"), prices)
    columns |= dict.fromkeys(("open_time", "close_time"), records["time"])
    columns |= dict.fromkeys(("open_seq", "close_seq"), records["seq"])
    return _sums(BARS, columns)


def _number(fields: str) -> float | None:
    """Return the price as a number; a text counts if it is one."""
    price = _price_of(fields).newp
    if isinstance(price, bool) or not isinstance(price, int | float | str):
        return None
    try:
        return float(price)
    except (ValueError, OverflowError):
        return None


Summary = Callable[[Any], Any]

# By table of bronze and silver: what its (settled) rows add to which gold tables.
SUMMARIES: Final[dict[str, dict[str, Summary]]] = {
    lake.MESSAGES.name: {TRAFFIC.table.name: message_traffic},
    lake.QUARANTINE.name: {TRAFFIC.table.name: quarantine_traffic},
    lake.CALLS.name: {CALLS.table.name: call_sums},
    lake.DELIVERIES.name: {DELIVERIES.table.name: delivery_sums},
    lake.RECORDS.name: {BARS.table.name: bar_sums},
    lake.DEVICE_COMMANDS.name: {REPORTS: devices.reports_of, STATUSES: devices.statuses_of},
    lake.READINGS.name: {REPORTS: devices.reports_of, READINGS: devices.readings_of},
}
for _name, _counted in counts.COUNTED.items():
    SUMMARIES.setdefault(_name, {})[COUNTS] = _counted.count

_JOINS: Final[dict[str, Callable[[Iterable[Any]], Any]]] = {
    **{gold.table.name: (lambda parts, gold=gold: add_up(gold, parts)) for gold in MINUTE_TABLES},  # type: ignore[misc]
    COUNTS: counts.add_up,
    REPORTS: devices.join_reports,
    STATUSES: devices.join_statuses,
    READINGS: devices.join_readings,
}


class PartialSums:
    """Collect the partials of rows."""

    def __init__(self, only: Collection[str] | None = None) -> None:
        """Collect all partials, or those for some gold tables `only`."""
        self._only = only
        self._parts: dict[str, list[Any]] = {}

    def add(self, table: str, rows: Any) -> None:
        """Add rows of a table. Open rows are counted when the gold tables are written, not here."""
        if rows.num_rows:
            for name, summarize in SUMMARIES.get(table, {}).items():
                if self._only is None or name in self._only:
                    self._parts.setdefault(name, []).append(summarize(rows))

    def merge(self, partials: Partials) -> None:
        for name, sums in partials.items():
            self._parts.setdefault(name, []).append(sums)

    def result(self) -> Partials:
        """Return the sums of all that was added, without empty ones."""
        joined = {name: _JOINS[name](parts) if len(parts) > 1 else parts[0] for name, parts in self._parts.items()}
        return {name: sums for name, sums in joined.items() if len(sums)}


_FOLDER: Final = "partials"
_IPC: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def encode_partials(partials: Partials) -> bytes:
    """Return partials as bytes, for a report or a file."""
    encoded = {}
    for name, sums in partials.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, sums.schema, options=_IPC) as writer:
            writer.write_table(sums)
        encoded[name] = sink.getvalue().to_pybytes()
    return msgpack.encode(encoded)


_encoded: Final = msgpack.Decoder(dict[str, bytes]).decode


def decode_partials(data: bytes) -> Partials:
    return {name: pa.ipc.open_stream(stream).read_all() for name, stream in _encoded(data).items()} if data else {}


def write_partials(checkpoint: Store, batch: int, partials: Partials) -> str:
    """Write the partials of a batch before its manifest, which names the file."""
    path = f"{_FOLDER}/{batch:012d}-{uuid.uuid4()}.partials"
    checkpoint.write(path, encode_partials(partials))
    return path


def clean_partials(checkpoint: Store, needed: Collection[str | None]) -> None:
    """Delete the partials of batches that failed before they had a manifest."""
    for path in checkpoint.list(_FOLDER):
        if path not in needed:
            checkpoint.delete(path)
