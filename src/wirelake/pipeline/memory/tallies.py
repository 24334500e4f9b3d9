"""What lies between two counters records: as the gateway counted it, and as it is found in the log."""

from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field, msgpack

from wirelake.lake.tables import TALLIES
from wirelake.limits import PIPELINE_STRETCH_HOURS_MAX
from wirelake.pipeline.memory.carry import kept, split, states_of
from wirelake.pipeline.memory.item import ITEMS, TALLY, from_json, items_table, rows_of, to_json
from wirelake.pipeline.memory.outcome import Outcome, table_rows

FOUND: Final = "counted"
COUNTERS: Final = "counters"
RECEIVED: Final = 0
DECODED: Final = 1
QUARANTINED: Final = 2
SENT: Final = 3
_HOUR_US: Final = 3_600_000_000
_SECOND_US: Final = 1_000_000

Place = tuple[int, str]  # the hour, microseconds since 1970; the protocol


def tally_items(batch: pa.RecordBatch, messages: pa.RecordBatch, quarantine: pa.RecordBatch) -> pa.Table:
    """The counters records, and what was found before, between and behind them."""
    parts = [
        _of_node(node, *(_only(node, each) for each in (batch, messages, quarantine)))
        for node in pc.unique(batch["node"]).to_pylist()
    ]
    return pa.concat_tables(parts) if parts else ITEMS.empty_table()


def _only(node: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.equal(rows["node"], node))


def _of_node(node: str, batch: pa.RecordBatch, messages: pa.RecordBatch, quarantine: pa.RecordBatch) -> pa.Table:
    told = batch.filter(pc.equal(batch["event"], COUNTERS))
    ends = told["seq"].to_numpy()
    frame, bad = pc.equal(batch["event"], "frame"), pc.equal(batch["event"], "quarantine")
    came = pc.equal(batch["direction"], "in")
    counted = [
        (RECEIVED, batch.filter(pc.and_(pc.or_(frame, bad), came))),
        (DECODED, messages.filter(pc.equal(messages["direction"], "in"))),
        (QUARANTINED, quarantine.filter(pc.equal(quarantine["direction"], "in"))),
        (SENT, batch.filter(pc.and_(frame, pc.equal(batch["direction"], "out")))),
    ]
    every = np.setdiff1d(batch["seq"].to_numpy(), ends, assume_unique=True)  # a stretch is what lies between counters
    places, starts, totals = np.unique(np.searchsorted(ends, every), return_index=True, return_counts=True)
    records = dict(zip(places.tolist(), totals.tolist(), strict=True))
    first = dict(zip(places.tolist(), every[starts].tolist(), strict=True))
    found: dict[int, dict[tuple[int, str, int], int]] = {stretch: {} for stretch in records}
    for what, rows in counted:
        for stretch, hour, protocol, count in _counts(rows, ends):
            found[stretch][hour, protocol, what] = count
    seqs, ats, names, numbers, notes = [], [], [], [], []
    last = batch["seq"][len(batch) - 1].as_py() if len(batch) else 0
    for stretch, counts in sorted(found.items()):
        # Behind what it counts, before the counters that end it.
        seqs.append(int(ends[stretch]) - 1 if stretch < len(ends) else last)
        ats.append(0)
        names.append(FOUND)
        numbers.append(first[stretch])
        notes.append(to_json([records[stretch], [(*place, count) for place, count in sorted(counts.items())]]).decode())
    columns = {"seq": seqs, "at": ats, "name": names, "number": numbers, "note": notes}
    pieces = items_table(TALLY, {**columns, "key": [node] * len(seqs), "node": [node] * len(seqs)})
    columns = {name: told[name] for name in ("seq", "at", "node", "note")}
    return pa.concat_tables([pieces, items_table(TALLY, {**columns, "key": told["node"], "name": told["event"]})])


def _counts(rows: pa.RecordBatch, ends: np.ndarray) -> list[tuple[int, int, str, int]]:
    """(stretch, hour, protocol, count)."""
    if not len(rows):
        return []
    stretch = np.searchsorted(ends, rows["seq"].to_numpy())
    hour = rows["at"].cast(pa.int64()).to_numpy() // _HOUR_US * _HOUR_US
    table = pa.table({"stretch": stretch, "hour": hour, "protocol": rows["protocol"], "seq": rows["seq"]})
    found = table.group_by(["stretch", "hour", "protocol"]).aggregate([("seq", "count")])
    columns = ("stretch", "hour", "protocol", "seq_count")
    return list(zip(*(found[name].to_pylist() for name in columns), strict=True))


class Stretch(Struct, array_like=True):
    """Since the last counters record."""

    from_seq: int
    found: dict[Place, list[int]] = field(default_factory=dict)
    records: int | None = 0  # of any kind, that were read; None where an older version did not count them


class _Packed(Struct, array_like=True):
    from_seq: int
    found: list[tuple[int, str, list[int]]]
    records: int | None = None


_decode: Final = msgpack.Decoder(_Packed).decode
_encode: Final = msgpack.Encoder().encode


def _unpack(state: bytes) -> Stretch:
    packed = _decode(state)
    found = {(hour, protocol): counts for hour, protocol, counts in packed.found}
    return Stretch(packed.from_seq, found, packed.records)


def _pack(stretch: Stretch) -> bytes:
    found = [(*place, counts) for place, counts in sorted(stretch.found.items())]
    return _encode(_Packed(stretch.from_seq, found, stretch.records))


def settle_tallies(items: pa.Table, carried: pa.Table, sure_us: int) -> Outcome:
    touched, rest = split(carried, pc.unique(items["key"]), sure_us)
    stretches: dict[str, Stretch] = states_of(touched, _unpack)
    out = Outcome([])
    final: list[tuple[Any, ...]] = []
    columns = ("key", "seq", "at", "name", "number", "note")
    for node, seq, at, name, number, note in zip(*rows_of(items, columns), strict=True):
        stretch = stretches.get(node)
        if name == FOUND:
            if stretch is None:
                stretch = stretches[node] = Stretch(number)
            _add(stretch, from_json(note), out.counts)
        else:
            told = from_json(note)
            stretch = stretch or Stretch(seq)
            final += _rows(node, stretch, seq, None if told.get("start") else _told(told))
            final += _missing(node, stretch, seq, at)
            stretches[node] = Stretch(seq + 1)
    opened: list[tuple[Any, ...]] = []
    carry = kept()
    for node, stretch in stretches.items():
        opened += _rows(node, stretch, None, None)
        carry.put(node, _NEVER_US, len(stretch.found), _pack(stretch))
    still = [row for node, each in states_of(rest, _unpack).items() for row in _rows(node, each, None, None)]
    out.carry = [carry.table(TALLY), rest]
    out.final = {TALLIES.name: table_rows(TALLIES, final)}
    out.open = {TALLIES.name: table_rows(TALLIES, opened, settled=False)}
    out.still = {TALLIES.name: table_rows(TALLIES, still, settled=False)}
    return out


_NEVER_US: Final = 2**62


def _add(stretch: Stretch, found: tuple[int, list[tuple[int, str, int, int]]], counts: Counter[str]) -> None:
    records, places = found
    if stretch.records is not None:
        stretch.records += records
    for hour, protocol, what, count in places:
        place = (hour, protocol)
        if place not in stretch.found and len(stretch.found) >= PIPELINE_STRETCH_HOURS_MAX:
            place = next(iter(stretch.found))  # a clock gone wild: the sums stay right, the hour does not
            counts["tally_hours_joined"] += 1
        stretch.found.setdefault(place, [0, 0, 0, 0])[what] += count


def _told(note: dict[str, Any]) -> dict[Place, dict[str, int]]:
    return {
        (int(hour) * _SECOND_US, protocol): counts
        for hour, protocols in note.get("hours", {}).items()
        for protocol, counts in protocols.items()
    }


def _rows(node: str, stretch: Stretch, until: int | None, told: dict[Place, dict[str, int]] | None) -> list[Any]:
    """`told` is None where nobody counted."""
    rows = []
    for place in sorted({*stretch.found, *(told or ())}):
        found = stretch.found.get(place, [0, 0, 0, 0])
        counted = counted_out = None
        if told is not None:
            counts = told.get(place, {})
            counted = counts.get("in", 0) + counts.get("quarantined", 0)
            counted_out = counts.get("out", 0)
        rows.append(
            (
                node,
                stretch.from_seq,
                until,
                *place,
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


def _missing(node: str, stretch: Stretch, until: int, at_us: int) -> list[Any]:
    """The log numbers its records without gaps: a stretch has as many as its seqs say."""
    if stretch.records is None or stretch.records == until - stretch.from_seq:
        return []
    missing = until - stretch.from_seq - stretch.records
    return [(node, stretch.from_seq, until, at_us // _HOUR_US * _HOUR_US, "", 0, 0, 0, 0, 0, 0, missing)]
