"""Send events and reports from the tasks that read the log to those that reduce buckets, as few rows as possible.

A row holds all events of one bucket in a chunk of the log, as an Arrow stream in one binary value: the conversion of
each event to a row of Spark, the sort there, and the way back are spared.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, json

from wirelake.pipeline.stateful.events import EVENT_SCHEMA

SHUFFLE_SCHEMA: Final = pa.schema([("bucket", pa.int32()), ("events", pa.binary()), ("report", pa.string())])
# The order in which a bucket is reduced: all events of a thing together, as in the log.
EVENT_ORDER: Final = [("kind", "ascending"), ("key", "ascending"), ("seq", "ascending")]


def shuffle_events(events: Any) -> Any:
    """Return events as rows to be shuffled: one for each of their buckets."""
    buckets, offsets, sink = [], [0], pa.BufferOutputStream()
    for bucket, own in _by_bucket(events):
        buckets.append(bucket)
        with pa.ipc.new_stream(sink, EVENT_SCHEMA) as writer:
            writer.write_batch(own)
        offsets.append(sink.tell())
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), sink.getvalue()]
    packed = pa.Array.from_buffers(pa.binary(), len(buckets), buffers)
    columns = [pa.array(buckets, pa.int32()), packed, pa.nulls(len(buckets), pa.string())]
    return pa.record_batch(columns, schema=SHUFFLE_SCHEMA)


def shuffle_reports(bucket_reports: Sequence[tuple[int, Struct]]) -> Any:
    """Return reports to buckets as rows to be shuffled."""
    buckets = [bucket for bucket, _ in bucket_reports]
    reports = [json.encode(report).decode() for _, report in bucket_reports]
    return pa.record_batch(
        [pa.array(buckets, pa.int32()), pa.nulls(len(buckets), pa.binary()), pa.array(reports, pa.string())],
        schema=SHUFFLE_SCHEMA,
    )


def read_shuffled(batches: Iterable[Any]) -> tuple[Any, list[str]]:
    """Return the events that were sent to a bucket, in order, and the reports."""
    events: list[Any] = []
    reports: list[str] = []
    for batch in batches:
        events += [_unpack(packed) for packed in batch["events"] if packed.is_valid]
        reports += [report for report in batch["report"].to_pylist() if report is not None]
    table = pa.concat_tables(events) if events else EVENT_SCHEMA.empty_table()
    return table.combine_chunks().sort_by(EVENT_ORDER), reports


def _by_bucket(events: Any) -> Iterator[tuple[int, Any]]:
    """Yield each bucket and its events, in their order."""
    buckets = events["bucket"].to_numpy()
    order = np.argsort(buckets, kind="stable")
    found, starts = np.unique(buckets[order], return_index=True)
    ends = [*starts[1:], len(order)]
    ordered = events.take(pa.array(order))
    for bucket, start, end in zip(found.tolist(), starts, ends, strict=False):
        yield bucket, ordered.slice(start, end - start)


def _unpack(packed: Any) -> Any:
    with pa.ipc.open_stream(packed.as_buffer()) as reader:
        return reader.read_all()
