"""An item is what a span of the log contributes to something that is put together over time.

All items about one thing have one key and lie in one bucket, so that a bucket can be settled alone. What concerns every
bucket (a gateway's start, an expiry, a table's layout) goes to each of them, under the empty key, which sorts first.

| kind | key | name | the other columns |
| --- | --- | --- | --- |
| call | session | ask | service, op, correlation; number: answers expected |
| | | answer | correlation, status; until: how many parts still follow |
| | | end | |
| delivery | identity | deliver | session, service: topic, correlation: what ids begin with, number, until: positions |
| | | ack | note: JSON list of ids |
| | | through | correlation: what ids begin with, until: position |
| | (every bucket) | expire | service: topic, number, until: positions |
| fragment | direction/type/=serial | | flags: params, number: command_no << 8 | packet_no, data |
| record | session | dict, set, end | service, note: the fields as JSON, data: the payload |
| | (every bucket) | create | service, note |
| session | session | open, login, close | status: the peer; note: of the close |
| (call, record, session) | (every bucket) | start | of a gateway: what was open on its node is over |
| tally | node | counted | note: what was found since the item before, number: seq of its first record |
| | | counters | note: of the record |
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
FRAGMENT: Final = "fragment"
RECORD: Final = "record"
SESSION: Final = "session"
TALLY: Final = "tally"
EVERY: Final = ""  # the key of what goes to every bucket
START: Final = "start"

ITEMS: Final = pa.schema(
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


def items_table(kind: str, columns: dict[str, Any]) -> pa.Table:
    """Columns by name, Arrow arrays or lists; those that are not given are null. Buckets come later."""
    size = len(columns["seq"])
    arrays = []
    for field in ITEMS:
        given = columns.get(field.name)
        if field.name == "kind":
            arrays.append(pa.array([kind], pa.string()).take(pa.array(np.zeros(size, np.int32))))
        elif given is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(given, pa.Array | pa.ChunkedArray):
            arrays.append(given if given.type == field.type else given.cast(field.type))
        else:
            arrays.append(pa.array(given, field.type))
    return pa.Table.from_arrays(arrays, schema=ITEMS)


def in_buckets(items: pa.Table, buckets: int) -> pa.Table:
    """Each item in its key's bucket; what concerns every bucket in all of them."""
    everywhere = pc.equal(items["key"], EVERY)
    if pc.any(everywhere).as_py():
        common = items.filter(everywhere)
        items = _placed(items.filter(pc.invert(everywhere)), buckets)
        copies = [_with_bucket(common, np.full(len(common), bucket, np.int32)) for bucket in range(buckets)]
        return pa.concat_tables([items, *copies])
    return _placed(items, buckets)


def bucket_of(key: str, buckets: int) -> int:
    """The same in every process, unlike Python's own hash."""
    return crc32(key.encode()) % buckets


def _placed(items: pa.Table, buckets: int) -> pa.Table:
    keys = items["key"].combine_chunks().dictionary_encode()
    of_key = np.array([bucket_of(key, buckets) for key in keys.dictionary.to_pylist()], np.int32)
    place = keys.indices.to_numpy(zero_copy_only=False)
    return _with_bucket(items, of_key[place] if len(place) else np.zeros(0, np.int32))


def _with_bucket(items: pa.Table, bucket: np.ndarray) -> pa.Table:
    return items.set_column(0, ITEMS.field("bucket"), pa.array(bucket, pa.int32()))


def rows_of(items: pa.Table, names: Sequence[str]) -> list[list[Any]]:
    """Columns as lists; times as microseconds."""
    return [items[name].cast(pa.int64()).to_pylist() if name == "at" else items[name].to_pylist() for name in names]
