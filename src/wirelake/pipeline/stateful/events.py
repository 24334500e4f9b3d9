"""Define events: what a span of the log contributes to rows that are built up over time.

All events about one thing have one key and are in one bucket, so that a bucket can be reduced by itself. Events that
concern every bucket (a gateway's start, an expiry, a table's layout) go to each of them under the empty key, which
sorts first.

| kind | key | name | the other columns |
| --- | --- | --- | --- |
| call | session | request | service, op, correlation; number: responses expected |
| | | response | correlation, status; until: number of parts that follow |
| | | end | |
| delivery | identity | deliver | session, service: topic, correlation: prefix of ids, number, until: positions |
| | | ack | note: JSON list of ids |
| | | through | correlation: prefix of ids, until: position |
| | (every bucket) | expire | service: topic, number, until: positions |
| early_reading | session | | note: source, device_time, type, value, decoder, name, unit as a JSON list |
| | | login | identity |
| fragment | direction/type/=serial | | flags: params, number: command_no << 8 | packet_no, data |
| record | session | layout, write, end | service, note: the fields as JSON, data: the payload |
| | (every bucket) | create | service, note |
| session | session | open, login, close | status: the peer; note: of the close |
| (call, record, session) | (every bucket) | start | of a gateway: what was open on its node is over |
| tally | node | counted | note: what was found since the event before, number: seq of its first record |
| | | counters | note: of the record |

Each protocol with a reassembly or a record reader has its own kind of fragments or records.
"""

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.json import Decoder, Encoder

from wirelake.lake.tables import TIME

CALL: Final = "call"
DELIVERY: Final = "delivery"
EARLY_READING: Final = "early_reading"
SESSION: Final = "session"
TALLY: Final = "tally"
EVERY: Final = ""  # the key of events for every bucket
START: Final = "start"

EVENT_SCHEMA: Final = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("seq", pa.int64()),
        ("at", TIME),
        ("node", pa.string()),
        ("protocol", pa.string()),
        ("session", pa.string()),
        ("identity", pa.string()),
        ("name", pa.string()),
        ("service", pa.string()),
        ("op", pa.string()),
        ("correlation", pa.string()),
        ("status", pa.string()),
        ("flags", pa.int32()),
        ("number", pa.int64()),
        ("until", pa.int64()),
        ("data", pa.binary()),
        ("note", pa.string()),
    ]
)

to_json: Final = Encoder().encode
from_json: Final = Decoder().decode


def event_table(kind: str, columns: dict[str, Any]) -> pa.Table:
    """Return events from columns (Arrow arrays or lists); missing columns are null. Buckets are assigned later."""
    size = len(columns["seq"])
    arrays = []
    for field in EVENT_SCHEMA:
        given = columns.get(field.name)
        if field.name == "kind":
            arrays.append(pa.array([kind], pa.string()).take(pa.array(np.zeros(size, np.int32))))
        elif given is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(given, pa.Array | pa.ChunkedArray):
            arrays.append(given if given.type == field.type else given.cast(field.type))
        else:
            arrays.append(pa.array(given, field.type))
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def assign_buckets(events: pa.Table, buckets: int) -> pa.Table:
    """Assign each event to the bucket of its key; copy those for every bucket to all of them."""
    everywhere = pc.equal(events["key"], EVERY)
    if pc.any(everywhere).as_py():
        common = events.filter(everywhere)
        events = _assign_by_key(events.filter(pc.invert(everywhere)), buckets)
        copies = [_with_bucket(common, np.full(len(common), bucket, np.int32)) for bucket in range(buckets)]
        return pa.concat_tables([events, *copies])
    return _assign_by_key(events, buckets)


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a key: the same in every process, unlike Python's own hash."""
    return crc32(key.encode()) % buckets


def _assign_by_key(events: pa.Table, buckets: int) -> pa.Table:
    keys = events["key"].combine_chunks().dictionary_encode()
    of_key = np.array([bucket_of(key, buckets) for key in keys.dictionary.to_pylist()], np.int32)
    index = keys.indices.to_numpy(zero_copy_only=False)
    return _with_bucket(events, of_key[index] if len(index) else np.zeros(0, np.int32))


def _with_bucket(events: pa.Table, bucket: np.ndarray) -> pa.Table:
    return events.set_column(0, EVENT_SCHEMA.field("bucket"), pa.array(bucket, pa.int32()))


def rows_of(events: pa.Table, names: Sequence[str]) -> list[list[Any]]:
    """Return columns as lists, times as microseconds."""
    return [events[name].cast(pa.int64()).to_pylist() if name == "at" else events[name].to_pylist() for name in names]
