"""Hold readings of sessions that have not logged in, until they do.

The gateway logs a frame before it decides on the login that the frame asks for. So the first report of a session may
precede its login in the log; if no login follows in time, the report was refused and its readings are no rows.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import msgpack

from wirelake.lake.tables import READINGS
from wirelake.limits import PIPELINE_EARLY_READING_S, PIPELINE_EARLY_READINGS_MAX
from wirelake.pipeline.stateful.bucket_state import KindState, PackedStates, Reduction, table_rows, unpack_states
from wirelake.pipeline.stateful.events import EARLY_READING, event_table, from_json, rows_of, to_json

LOGIN: Final = "login"
_AGE_US: Final = int(PIPELINE_EARLY_READING_S * 1_000_000)
_OWN: Final = ("source", "device_time", "type", "value", "decoder", "name", "unit")  # in the note of an event
_Reading = tuple[Any, ...]  # seq, at, node, protocol, and _OWN

_decode: Final = msgpack.Decoder(list[tuple[Any, ...]]).decode
_encode: Final = msgpack.Encoder().encode


def early_reading_events(batch: pa.RecordBatch, readings: pa.RecordBatch) -> pa.Table:
    """Return an event for each reading of a session without a login, and one for each login."""
    logins = batch.filter(pc.and_(pc.equal(batch["event"], LOGIN), pc.not_equal(batch["session"], "")))
    columns = {name: logins[name] for name in ("seq", "at", "node", "identity")}
    found = [event_table(EARLY_READING, {**columns, "key": logins["session"], "name": [LOGIN] * len(logins)})]
    if len(readings):
        times = readings["device_time"].cast(pa.int64())
        own = [(times if name == "device_time" else readings[name]).to_pylist() for name in _OWN]
        columns = {name: readings[name] for name in ("seq", "at", "node", "protocol")}
        columns |= {"key": readings["session"], "note": [to_json(each).decode() for each in zip(*own, strict=True)]}
        found.append(event_table(EARLY_READING, columns))
    return pa.concat_tables(found)


def reduce_early_readings(events: pa.Table, state: KindState, sure_us: int) -> Reduction:
    out = Reduction()
    touched = state.take_keys(pc.unique(events["key"]), sure_us)
    waiting: dict[str, list[_Reading]] = unpack_states(touched, _decode)
    rows: list[_Reading] = []
    columns = ("key", "seq", "at", "node", "protocol", "identity", "name", "note")
    for key, seq, at, node, protocol, identity, name, note in zip(*rows_of(events, columns), strict=True):
        if name == LOGIN:
            admitted = [each for each in waiting.pop(key, ()) if at <= each[1] + _AGE_US]
            rows += [_row(each, identity) for each in admitted if each[4] or identity]
        else:
            waiting.setdefault(key, []).append((seq, at, node, protocol, *from_json(note)))
    states = PackedStates()
    still = {key: [each for each in of_key if each[1] + _AGE_US > sure_us] for key, of_key in waiting.items()}
    held = sum(map(len, still.values())) + state.shows
    over = held - PIPELINE_EARLY_READINGS_MAX
    if over > 0:
        out.counts["readings_forgotten"] += _drop_oldest(still, over)
    for key, of_key in still.items():
        if of_key:
            states.put(key, of_key[0][1] + _AGE_US, len(of_key), _encode(of_key))
    out.state = [states.table(EARLY_READING)]
    out.final = {READINGS.name: table_rows(READINGS, rows)}
    return out


def _row(reading: _Reading, identity: str) -> tuple[Any, ...]:
    """Return the columns of the table, without the one that partitions it."""
    *place, source, device_time, kind, value, decoder, name, unit = reading
    return (*place, source or identity, device_time, kind, value, decoder, name, unit)


def _drop_oldest(waiting: dict[str, list[_Reading]], over: int) -> int:
    """Drop at least so many readings, session by session, the oldest first. Return how many."""
    dropped = 0
    for key in sorted(waiting, key=lambda each: waiting[each][0][0] if waiting[each] else 0):
        if dropped >= over:
            break
        dropped += len(waiting.pop(key))
    return dropped
