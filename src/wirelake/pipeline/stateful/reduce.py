"""Collect the events of a span of the log, and reduce the events of a bucket to rows.

Both are pure: the same events and the same state give the same rows. Time is event time, the latest `at` so far; order
is the log's. So it does not matter where the log was cut into batches (except beyond a limit, or if a clock steps back
by more than PIPELINE_CLOCK_STEP_S).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import TABLES
from wirelake.limits import PIPELINE_CLOCK_STEP_S
from wirelake.pipeline.ingest.decode import DecodedBatch
from wirelake.pipeline.stateful.bucket_state import (
    CLOCK,
    STATE_SCHEMA,
    Reduction,
    clock_of,
    clock_state,
    state_of_kind,
)
from wirelake.pipeline.stateful.calls import call_events, reduce_calls
from wirelake.pipeline.stateful.commands import Keys, fragment_events, reduce_commands
from wirelake.pipeline.stateful.deliveries import delivery_events, reduce_deliveries
from wirelake.pipeline.stateful.early_readings import early_reading_events, reduce_early_readings
from wirelake.pipeline.stateful.events import (
    CALL,
    DELIVERY,
    EARLY_READING,
    EVENT_SCHEMA,
    SESSION,
    TALLY,
    assign_buckets,
    from_json,
)
from wirelake.pipeline.stateful.records import record_events, reduce_records
from wirelake.pipeline.stateful.sessions import reduce_sessions, session_events, start_events
from wirelake.pipeline.stateful.tallies import COUNTERS, reduce_tallies, tally_events
from wirelake.pipeline.time_ranges import minutes_of
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reassembly import Reassembly
from wirelake.protocols.records import RecordReader

STEP_US: Final = int(PIPELINE_CLOCK_STEP_S * 1_000_000)
_REDUCERS: Final[dict[str, Callable[[pa.Table, pa.Table, int], Reduction]]] = {
    CALL: reduce_calls,
    DELIVERY: reduce_deliveries,
    EARLY_READING: reduce_early_readings,
    SESSION: reduce_sessions,
    TALLY: reduce_tallies,
}
Rules = Mapping[str, Any]  # by protocol: what its reassembly accepts, where that is not the default


@cache
def reassemblies() -> dict[str, tuple[Protocol, Reassembly]]:
    """Return the protocols whose commands are assembled from packets, by the kind of their events."""
    return _by_kind("reassembly")


@cache
def record_readers() -> dict[str, tuple[Protocol, RecordReader]]:
    """Return the protocols whose requests write records, by the kind of their events."""
    return _by_kind("records")


def _by_kind(attribute: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for protocol in registry.all_protocols():
        if name := getattr(protocol, attribute):
            module = registry.load_module(name)
            found[module.KIND] = protocol, module
    return found


def rules_of(protocol: Protocol, reassembly: Reassembly, rules: Rules) -> Any:
    return rules.get(protocol.name, reassembly.RULES)


def events_of(
    batch: pa.RecordBatch,
    decoded: DecodedBatch,
    buckets: int,
    kind: str | None = None,
    read: pa.RecordBatch | None = None,
) -> pa.RecordBatch:
    """Return the events of a batch of the log, in its order; of all kinds, or of one. `decoded` is the batch, decoded.

    `read` is what was read of the log, if `batch` lacks records that break the decoder: these are counted too.
    """
    sources = _event_sources(batch, decoded, batch if read is None else read)
    kinds = list(sources) if kind is None else [kind]
    starts = _gateway_starts(batch)
    restarted = [start_events(each, starts) for each in kinds if each in (CALL, SESSION, *record_readers())]
    events = pa.concat_tables([*(sources[each]() for each in kinds), *restarted])
    batches = assign_buckets(events, buckets).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], EVENT_SCHEMA)


def _event_sources(batch: Any, decoded: DecodedBatch, read: Any) -> dict[str, Callable[[], pa.Table]]:
    sources: dict[str, Callable[[], pa.Table]] = {}
    for kind, (protocol, reassembly) in reassemblies().items():
        sources[kind] = lambda name=protocol.name, module=reassembly: fragment_events(  # type: ignore[misc]
            module, decoded.packets_of(name)
        )
    sources[CALL] = lambda: call_events(batch, decoded.messages)
    sources[DELIVERY] = lambda: delivery_events(batch)
    sources[EARLY_READING] = lambda: early_reading_events(batch, decoded.early_readings)
    for kind, (protocol, reader) in record_readers().items():
        sources[kind] = lambda name=protocol.name, module=reader: record_events(  # type: ignore[misc]
            name, module, batch, decoded.messages
        )
    sources[SESSION] = lambda: session_events(batch)
    sources[TALLY] = lambda: tally_events(read, decoded.messages, decoded.quarantine)
    return sources


def _gateway_starts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the counters with which gateways started."""
    counters = batch.filter(pc.equal(batch["event"], COUNTERS))
    return counters.filter(
        pa.array([bool(from_json(note).get("start")) for note in counters["note"].to_pylist()], pa.bool_())
    )


class ReducedBucket(Struct):
    """Hold a bucket's tables by name, without empty ones. `open` has every open row, also unchanged ones."""

    final: dict[str, pa.Table]
    open: dict[str, pa.Table]
    state: pa.Table
    dirty_us: dict[str, set[int]]  # minutes in which rows were added or changed, by table
    counts: Counter[str] = field(default_factory=Counter)  # what has no row of its own


def reduce_bucket(
    events: pa.Table, state: pa.Table | None, now_us: int, keys: Keys, rules: Rules | None = None
) -> ReducedBucket:
    """Reduce the events of one bucket, sorted by kind, key and seq. `keys` are the devices' keys by serial."""
    clock_us = clock_of(state, now_us)
    reductions = list(_reductions(events, state, clock_us, keys, rules or {}))
    reduced = ReducedBucket({}, {}, STATE_SCHEMA.empty_table(), {})
    for reduction in reductions:
        _merge(reduction, reduced)
    tables = [table for reduction in reductions for table in reduction.state]
    reduced.state = pa.concat_tables([clock_state(clock_us), *tables, *_foreign_state(state)]).combine_chunks()
    return reduced


def _foreign_state(state: pa.Table | None) -> list[pa.Table]:
    """Return the state of protocols that are not installed now: they may be again."""
    if state is None:
        return []
    known = pa.array([CLOCK, *reassemblies(), *_REDUCERS, *record_readers()])
    return [state.filter(pc.invert(pc.is_in(state["kind"], value_set=known)))]


def _reductions(
    events: pa.Table, state: pa.Table | None, clock_us: int, keys: Keys, rules: Rules
) -> Iterator[Reduction]:
    sure_us = clock_us - STEP_US  # what is over by then stays over, even if a clock steps back
    for kind in (*reassemblies(), *_REDUCERS, *record_readers()):
        own, before = events.filter(pc.equal(events["kind"], kind)), state_of_kind(state, kind)
        if not len(own) and not len(before):
            continue
        if kind in _REDUCERS:
            yield _REDUCERS[kind](own, before, sure_us)
        elif kind in reassemblies():
            protocol, reassembly = reassemblies()[kind]
            yield reduce_commands(
                protocol, reassembly, own, before, clock_us, STEP_US, keys, rules_of(protocol, reassembly, rules)
            )
        else:
            yield reduce_records(*record_readers()[kind], own, before, sure_us)


def _merge(reduction: Reduction, reduced: ReducedBucket) -> None:
    reduced.counts.update(reduction.counts)
    for name, rows in reduction.final.items():
        _append(reduced.final, name, rows)
    for name, rows in reduction.open.items():
        _append(reduced.open, name, pa.concat_tables([rows, reduction.unchanged[name]]))
    for name in {*reduction.final, *reduction.open}:
        minutes = set(reduction.dirty_us.get(name, ()))
        for changed in (reduction.final.get(name), reduction.open.get(name)):
            minutes |= set() if changed is None else minutes_of(TABLES[name], changed)
        if minutes:
            reduced.dirty_us.setdefault(name, set()).update(minutes)


def _append(tables: dict[str, pa.Table], name: str, rows: pa.Table) -> None:
    """Append rows to a table: several protocols may fill it."""
    if len(rows):
        tables[name] = pa.concat_tables([tables[name], rows]) if name in tables else rows
