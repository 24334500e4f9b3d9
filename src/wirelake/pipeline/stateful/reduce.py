"""Collect the events of a span of the log, and reduce the events of a bucket to rows.

Both are pure: the same events and the same state give the same rows. Time is event time, the latest `at` so far; order
is the log's. So it does not matter where the log was cut into batches (except beyond a limit, or if a clock steps back
by more than PIPELINE_CLOCK_STEP_S).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import CALLS, DELIVERIES, DEVICE_COMMANDS, SESSIONS, TALLIES, LakeTable
from wirelake.limits import PIPELINE_CLOCK_STEP_S
from wirelake.pipeline.ingest.decode import DecodedBatch
from wirelake.pipeline.stateful.bucket_state import (
    CLOCK,
    BucketState,
    KindState,
    Reduction,
    StateChange,
    changed_rows,
    clock_of,
    clock_state,
)
from wirelake.pipeline.stateful.calls import call_events, open_calls, reduce_calls
from wirelake.pipeline.stateful.commands import Keys, fragment_events, open_commands, reduce_commands
from wirelake.pipeline.stateful.deliveries import delivery_events, open_deliveries, reduce_deliveries
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
from wirelake.pipeline.stateful.sessions import open_sessions, reduce_sessions, session_events, start_events
from wirelake.pipeline.stateful.tallies import COUNTERS, open_tallies, reduce_tallies, tally_events
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reassembly import Reassembly
from wirelake.protocols.records import RecordReader

STEP_US: Final = int(PIPELINE_CLOCK_STEP_S * 1_000_000)
_REDUCERS: Final[dict[str, Callable[[pa.Table, KindState, int], Reduction]]] = {
    CALL: reduce_calls,
    DELIVERY: reduce_deliveries,
    EARLY_READING: reduce_early_readings,
    SESSION: reduce_sessions,
    TALLY: reduce_tallies,
}
_OPEN_ROWS: Final[dict[str, tuple[LakeTable, Callable[[pa.Table], pa.Table]]]] = {
    CALL: (CALLS, open_calls),
    DELIVERY: (DELIVERIES, open_deliveries),
    SESSION: (SESSIONS, open_sessions),
    TALLY: (TALLIES, open_tallies),
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
    messages, early_readings, quarantine = (
        _as_logged(rows) for rows in (decoded.messages, decoded.early_readings, decoded.quarantine)
    )
    sources: dict[str, Callable[[], pa.Table]] = {}
    for kind, (protocol, reassembly) in reassemblies().items():
        sources[kind] = lambda name=protocol.name, module=reassembly: fragment_events(  # type: ignore[misc]
            module, decoded.packets_of(name)
        )
    sources[CALL] = lambda: call_events(batch, messages)
    sources[DELIVERY] = lambda: delivery_events(batch)
    sources[EARLY_READING] = lambda: early_reading_events(batch, early_readings)
    for kind, (protocol, reader) in record_readers().items():
        sources[kind] = lambda name=protocol.name, module=reader: record_events(  # type: ignore[misc]
            name, module, batch, messages
        )
    sources[SESSION] = lambda: session_events(batch)
    sources[TALLY] = lambda: tally_events(read, messages, quarantine)
    return sources


def _as_logged(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a table with the names of the log, which events have too."""
    return rows.rename_columns({"received_at": "at"})


def _gateway_starts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the counters with which gateways started."""
    counters = batch.filter(pc.equal(batch["event"], COUNTERS))
    return counters.filter(
        pa.array([bool(from_json(note).get("start")) for note in counters["note"].to_pylist()], pa.bool_())
    )


class ReducedBucket(Struct):
    """Hold what a batch does to a bucket: tables by name, without empty ones."""

    final: dict[str, pa.Table]
    open: dict[str, pa.Table]  # new or changed
    closed: dict[str, pa.Table]  # no longer open, or changed: as they were
    state: StateChange
    is_changed: bool  # anything but the clock
    counts: Counter[str] = field(default_factory=Counter)  # what has no row of its own


def reduce_bucket(
    events: pa.Table, state: BucketState, now_us: int, keys: Keys, rules: Rules | None = None
) -> ReducedBucket:
    """Reduce the events of one bucket, sorted by kind, key and seq. `keys` are the devices' keys by serial."""
    before_us = clock_of(state)
    clock_us = max(now_us, before_us)  # event time does not go back, even if a clock does
    clock = state.of_kind(CLOCK)
    clock.take()
    changes = [clock.changes([clock_state(clock_us)])]
    reduced = ReducedBucket({}, {}, {}, changes[0], False)
    for kind in _kinds():
        own, before = events.filter(pc.equal(events["kind"], kind)), state.of_kind(kind)
        if len(own) or len(before):
            reduction = _reduce(kind, own, before, clock_us, before_us, keys, rules or {})
            changes.append(before.changes(reduction.state))
            _merge(reduction, reduced)
    reduced.is_changed = any(len(change.removed) or len(change.added) for change in changes[1:])
    removed = np.sort(np.concatenate([change.removed for change in changes]))
    reduced.state = StateChange(removed, pa.concat_tables([change.added for change in changes]))
    return reduced


def open_rows(state: BucketState, rules: Rules | None = None) -> dict[str, pa.Table]:
    """Return the open rows of a bucket, by table, as they are after its last batch."""
    found: dict[str, pa.Table] = {}
    clock_us = clock_of(state)
    for kind in state.kinds:
        rows = state.of_kind(kind).peek()
        if kind in _OPEN_ROWS:
            table, rows_of_state = _OPEN_ROWS[kind]
            _append(found, table.name, rows_of_state(rows))
        elif kind in reassemblies():
            protocol, reassembly = reassemblies()[kind]
            of_protocol = rules_of(protocol, reassembly, rules or {})
            opened = open_commands(protocol, reassembly, rows, clock_us, STEP_US, of_protocol)
            _append(found, DEVICE_COMMANDS.name, opened)
    return found


def _kinds() -> list[str]:
    """Return the kinds that can be reduced. The state of protocols that are not installed now stays as it is."""
    return [*reassemblies(), *_REDUCERS, *record_readers()]


def _reduce(
    kind: str, events: pa.Table, state: KindState, clock_us: int, before_us: int, keys: Keys, rules: Rules
) -> Reduction:
    sure_us = clock_us - STEP_US  # what is over by then stays over, even if a clock steps back
    if kind in _REDUCERS:
        return _REDUCERS[kind](events, state, sure_us)
    if kind in reassemblies():
        protocol, reassembly = reassemblies()[kind]
        of_protocol = rules_of(protocol, reassembly, rules)
        return reduce_commands(protocol, reassembly, events, state, clock_us, before_us, STEP_US, keys, of_protocol)
    return reduce_records(*record_readers()[kind], events, state, sure_us)


def _merge(reduction: Reduction, reduced: ReducedBucket) -> None:
    reduced.counts.update(reduction.counts)
    for name, rows in reduction.final.items():
        _append(reduced.final, name, rows)
    for name, rows in reduction.open.items():
        before = reduction.replaced[name]
        gone, new = changed_rows(before, rows)
        _append(reduced.closed, name, before.filter(pa.array(gone)))
        _append(reduced.open, name, rows.filter(pa.array(new)))


def _append(tables: dict[str, pa.Table], name: str, rows: pa.Table) -> None:
    """Append rows to a table: several protocols may fill it."""
    if len(rows):
        tables[name] = pa.concat_tables([tables[name], rows]) if name in tables else rows
