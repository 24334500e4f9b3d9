"""Count frames between two counters records, to compare with what the gateway counted."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field, msgpack

from wirelake.lake.tables import TALLIES
from wirelake.limits import PIPELINE_COUNTER_HOURS_MAX
from wirelake.pipeline.stateful.bucket_state import (
    NEVER_US,
    KindState,
    PackedStates,
    Reduction,
    table_rows,
    unpack_states,
)
from wirelake.pipeline.stateful.events import EVENT_SCHEMA, TALLY, event_table, from_json, rows_of, to_json
from wirelake.pipeline.time_ranges import HOUR_US, SECOND_US

FOUND: Final = "counted"
COUNTERS: Final = "counters"
RECEIVED: Final = 0
DECODED: Final = 1
QUARANTINED: Final = 2
SENT: Final = 3
HourKey = tuple[int, str]  # the hour, microseconds since 1970; the protocol


def tally_events(batch: pa.RecordBatch, messages: pa.RecordBatch, quarantine: pa.RecordBatch) -> pa.Table:
    """Return the counters records, and what was found before, between and after them."""
    nodes = pc.unique(batch["node"]).to_pylist()
    if len(nodes) == 1:  # as in every log of a single gateway
        return _node_events(nodes[0], batch, messages, quarantine)
    parts = [_node_events(node, *(_only(node, each) for each in (batch, messages, quarantine))) for node in nodes]
    return pa.concat_tables(parts) if parts else EVENT_SCHEMA.empty_table()


def _only(node: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.equal(rows["node"], node))


def _node_events(node: str, batch: pa.RecordBatch, messages: pa.RecordBatch, quarantine: pa.RecordBatch) -> pa.Table:
    places = _Places(batch)
    is_counters = pc.equal(batch["event"], COUNTERS)
    counters, seqs_read = batch.filter(is_counters), places.seqs[~_as_numpy(is_counters)]
    ends = counters["seq"].to_numpy()
    intervals, starts, totals = np.unique(np.searchsorted(ends, seqs_read), return_index=True, return_counts=True)
    first = dict(zip(intervals.tolist(), seqs_read[starts].tolist(), strict=True))
    records = dict(zip(intervals.tolist(), totals.tolist(), strict=True))
    found: dict[int, dict[tuple[int, str, int], int]] = {interval: {} for interval in records}
    for what, rows in _counted_rows(batch, messages, quarantine, places):
        for interval, hour, protocol, count in places.count(rows, ends):
            found[interval][hour, protocol, what] = count
    seqs, ats, names, numbers, notes = [], [], [], [], []
    last = int(places.seqs[-1]) if len(places.seqs) else 0
    for interval, counts in sorted(found.items()):
        # After what it counts, before the counters record that ends it.
        seqs.append(int(ends[interval]) - 1 if interval < len(ends) else last)
        ats.append(0)
        names.append(FOUND)
        numbers.append(first[interval])
        details = [(*key, count) for key, count in sorted(counts.items())]
        notes.append(to_json([records[interval], details]).decode())
    columns = {"seq": seqs, "at": ats, "name": names, "number": numbers, "note": notes}
    found_events = event_table(TALLY, {**columns, "key": [node] * len(seqs), "node": [node] * len(seqs)})
    columns = {name: counters[name] for name in ("seq", "at", "node", "note")}
    columns |= {"key": counters["node"], "name": counters["event"]}
    return pa.concat_tables([found_events, event_table(TALLY, columns)])


def _counted_rows(
    batch: pa.RecordBatch, messages: pa.RecordBatch, quarantine: pa.RecordBatch, places: "_Places"
) -> list[tuple[int, Any]]:
    """Return what is counted, each with the indices of its records in the batch."""
    is_in = _as_numpy(pc.equal(batch["direction"], "in"))
    is_out = _as_numpy(pc.equal(batch["direction"], "out"))
    is_frame, is_bad = (_as_numpy(pc.equal(batch["event"], event)) for event in ("frame", "quarantine"))
    decoded, quarantined = places.of(messages), places.of(quarantine)
    return [
        (RECEIVED, np.flatnonzero((is_frame | is_bad) & is_in)),
        (DECODED, decoded[is_in[decoded]]),
        (QUARANTINED, quarantined[is_in[quarantined]]),
        (SENT, np.flatnonzero(is_frame & is_out)),
    ]


class _Places:
    """Hold the seq of each record of a batch, and the number of its hour and protocol."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.seqs = batch["seq"].to_numpy()
        protocols = batch["protocol"].dictionary_encode()
        self._protocols = protocols.dictionary.to_pylist()
        hours = batch["at"].cast(pa.int64()).to_numpy() // HOUR_US
        if len(hours) and hours.min() == hours.max():  # almost always: a batch is a second of the log
            self._hours, numbers = hours[:1], np.zeros(len(hours), np.int64)
        else:
            self._hours, numbers = np.unique(hours, return_inverse=True)
        self._codes = numbers * len(self._protocols) + protocols.indices.to_numpy(zero_copy_only=False)

    def of(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the indices of the records that these rows were made of. Both are in the order of the log."""
        return np.asarray(np.searchsorted(self.seqs, rows["seq"].to_numpy()))

    def count(self, rows: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int, str, int]]:
        """Yield (interval, hour, protocol, count) for these records."""
        size = len(self._hours) * len(self._protocols)
        codes = self._codes[rows]
        if len(ends):
            codes = codes + np.searchsorted(ends, self.seqs[rows]) * size
        counts = np.bincount(codes)
        for code in np.flatnonzero(counts).tolist():
            interval, (hour, protocol) = code // size, divmod(code % size, len(self._protocols))
            yield interval, int(self._hours[hour]) * HOUR_US, self._protocols[protocol], int(counts[code])


def _as_numpy(mask: Any) -> np.ndarray:
    return np.asarray(mask.to_numpy(zero_copy_only=False))


class CounterInterval(Struct, array_like=True):
    """Count what was found since the last counters record."""

    from_seq: int
    found: dict[HourKey, list[int]] = field(default_factory=dict)
    records: int | None = 0  # of any kind; None if an older version did not count them


class _Packed(Struct, array_like=True):
    from_seq: int
    found: list[tuple[int, str, list[int]]]
    records: int | None = None


_decode: Final = msgpack.Decoder(_Packed).decode
_encode: Final = msgpack.Encoder().encode


def _unpack(state: bytes) -> CounterInterval:
    packed = _decode(state)
    found = {(hour, protocol): counts for hour, protocol, counts in packed.found}
    return CounterInterval(packed.from_seq, found, packed.records)


def _pack(interval: CounterInterval) -> bytes:
    found = [(*key, counts) for key, counts in sorted(interval.found.items())]
    return _encode(_Packed(interval.from_seq, found, interval.records))


def open_tallies(state: pa.Table) -> pa.Table:
    """Return the open rows of a state."""
    rows = [row for node, each in unpack_states(state, _unpack).items() for row in _rows(node, each, None, None)]
    return table_rows(TALLIES, rows)


def reduce_tallies(events: pa.Table, state: KindState, sure_us: int) -> Reduction:
    touched = state.take_keys(pc.unique(events["key"]), sure_us)
    intervals: dict[str, CounterInterval] = unpack_states(touched, _unpack)
    out = Reduction()
    final: list[tuple[Any, ...]] = []
    columns = ("key", "seq", "at", "name", "number", "note")
    for node, seq, at, name, number, note in zip(*rows_of(events, columns), strict=True):
        interval = intervals.get(node)
        if name == FOUND:
            if interval is None:
                interval = intervals[node] = CounterInterval(number)
            _add(interval, from_json(note), out.counts)
        else:
            counters = from_json(note)
            interval = interval or CounterInterval(seq)
            final += _rows(node, interval, seq, None if counters.get("start") else _counted(counters))
            final += _missing(node, interval, seq, at)
            intervals[node] = CounterInterval(seq + 1)
    opened: list[tuple[Any, ...]] = []
    states = PackedStates()
    for node, interval in intervals.items():
        opened += _rows(node, interval, None, None)
        states.put(node, NEVER_US, len(interval.found), _pack(interval))
    out.state = [states.table(TALLY)]
    out.final = {TALLIES.name: table_rows(TALLIES, final)}
    out.open = {TALLIES.name: table_rows(TALLIES, opened)}
    out.replaced = {TALLIES.name: open_tallies(touched)}
    return out


def _add(interval: CounterInterval, found: tuple[int, list[tuple[int, str, int, int]]], counts: Counter[str]) -> None:
    records, hours = found
    if interval.records is not None:
        interval.records += records
    for hour, protocol, what, count in hours:
        key = (hour, protocol)
        if key not in interval.found and len(interval.found) >= PIPELINE_COUNTER_HOURS_MAX:
            key = next(iter(interval.found))  # a clock far off: the sums stay right, the hour does not
            counts["tally_hours_joined"] += 1
        interval.found.setdefault(key, [0, 0, 0, 0])[what] += count


def _counted(note: dict[str, Any]) -> dict[HourKey, dict[str, int]]:
    return {
        (int(hour) * SECOND_US, protocol): counts
        for hour, protocols in note.get("hours", {}).items()
        for protocol, counts in protocols.items()
    }


def _rows(
    node: str, interval: CounterInterval, until: int | None, counts: dict[HourKey, dict[str, int]] | None
) -> list[Any]:
    """Return the rows of an interval. `counts` are the gateway's; None if it could not count."""
    rows = []
    for key in sorted({*interval.found, *(counts or ())}):
        found = interval.found.get(key, [0, 0, 0, 0])
        counted = counted_out = None
        if counts is not None:
            own = counts.get(key, {})
            counted = own.get("in", 0) + own.get("quarantined", 0)
            counted_out = own.get("out", 0)
        rows.append(
            (
                node,
                interval.from_seq,
                until,
                *key,
                counted,
                found[RECEIVED],
                found[DECODED],
                found[QUARANTINED],
                counted_out,
                found[SENT],
                None,
            )
        )
    return rows


def _missing(node: str, interval: CounterInterval, until: int, at_us: int) -> list[Any]:
    """Return a row if records are missing: the log numbers them without gaps."""
    if interval.records is None or interval.records == until - interval.from_seq:
        return []
    missing = until - interval.from_seq - interval.records
    return [(node, interval.from_seq, until, at_us // HOUR_US * HOUR_US, "", 0, 0, 0, 0, 0, 0, missing)]
