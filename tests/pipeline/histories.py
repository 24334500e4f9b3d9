"""Build records of a log with really encoded frames, as a gateway writes them, and reduce them to tables."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from wirelake.lake.tables import TABLES
from wirelake.log.interface import SCHEMA
from wirelake.message import Message
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.pipeline.stateful.bucket_state import BucketState, StateChange, changed_rows
from wirelake.pipeline.stateful.commands import Keys
from wirelake.pipeline.stateful.events import EVENT_SCHEMA
from wirelake.pipeline.stateful.rebucketing import rebucket
from wirelake.pipeline.stateful.reduce import ReducedBucket, events_of, open_rows, reduce_bucket
from wirelake.protocols import registry
from wirelake.protocols.apostol.reassembly import RULES, Rules
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.frames import MaglineFrame

NODE = "n1"
SECOND = 1_000_000
T0 = 1_700_000_000 * SECOND  # 22:13:20 UTC

Record = dict[str, Any]


def record(event: str, at: int = T0, **columns: Any) -> Record:
    """Return a record. `at` is in microseconds; the note may be any JSON value."""
    row = dict.fromkeys(SCHEMA.names, "") | {"frame": b"", "node": NODE, "event": event, "at": at} | columns
    if not isinstance(row["note"], str):
        row["note"] = json.dumps(row["note"])
    return row


def frame(protocol: str, direction: str, data: bytes, at: int = T0, session: str = "s1", **columns: Any) -> Record:
    return record("frame", at, protocol=protocol, direction=direction, frame=data, session=session, **columns)


def encoded(protocol: str, message: Message, sender: Sender) -> bytes:
    """Encode a message as a session would. The session assigns magline's seq, which is the correlation."""
    encoded_frame = registry.get(protocol).from_message(message, sender)
    if isinstance(encoded_frame, MaglineFrame) and message.correlation:
        encoded_frame = replace(encoded_frame, seq=int(message.correlation))
    return encoded_frame.encode()


def deliver(topic: str, first: int, last: int, to: Iterable[tuple[str, str]], at: int = T0, attempt: int = 1) -> Record:
    note = {"topic": topic, "ids": ids(topic), "first": first, "last": last, "attempt": attempt}
    whom = [(session, identity, "comet") for session, identity in to]
    return record("deliver", at, direction="out", frame=json.dumps(whom).encode(), note=note)


def ids(topic: str) -> str:
    return f"e-{sum(topic.encode()):x}-"


def numbered(records: Sequence[Record], first: int = 1) -> list[Record]:
    return [{**each, "seq": first + place} for place, each in enumerate(records)]


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(records), SCHEMA)


def spans_to_events(spans: Sequence[Sequence[Record]], buckets: int) -> pa.Table:
    found = []
    for span in spans:
        batch = batch_of(span)
        found.append(events_of(batch, decode_batch(batch), buckets))
    return pa.Table.from_batches(found, EVENT_SCHEMA)


class BucketRun:
    """Reduce all buckets, batch after batch, as the job does, but without Spark."""

    def __init__(self, buckets: int = 1, keys: Keys | None = None, rules: Rules = RULES) -> None:
        self.final: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self.counts: dict[str, int] = {}
        self._buckets = buckets
        self._keys = keys or {}
        self._rules = rules
        self.states = [BucketState() for _ in range(buckets)]
        self._open: list[dict[str, pa.Table]] = [{} for _ in range(buckets)]

    def batch(self, *spans: Sequence[Record]) -> list[ReducedBucket]:
        now_us = max((each["at"] for span in spans for each in span), default=0)
        return self.events(spans_to_events(spans, self._buckets), now_us)

    def events(self, events: pa.Table, now_us: int) -> list[ReducedBucket]:
        events = events.sort_by([("kind", "ascending"), ("key", "ascending"), ("seq", "ascending")])
        every = []
        for bucket in range(self._buckets):
            mine = events.filter(pa.compute.equal(events["bucket"], bucket))
            reduced = reduce_bucket(mine, self.states[bucket], now_us, self._keys, {"apostol": self._rules})
            every.append(reduced)
            self.states[bucket] = self.states[bucket].apply(reduced.state)
            self._update_open(self._open[bucket], reduced)
            for name, rows in reduced.final.items():
                self.final[name].append(rows)
            for name, count in reduced.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
        return every

    def rebucket(self, buckets: int) -> None:
        """Change the number of buckets."""
        parts = rebucket(self.states, buckets)
        self.states = [BucketState().apply(StateChange(np.zeros(0, np.int64), rows)) for rows in parts]
        self._buckets = buckets
        self._open = [open_rows(state, {"apostol": self._rules}) for state in self.states]

    def _update_open(self, opened: dict[str, pa.Table], reduced: ReducedBucket) -> None:
        for name, closed in reduced.closed.items():
            left, missing = changed_rows(opened[name], closed)
            assert not missing.any(), f"{name}: what is replaced was not open"
            opened[name] = opened[name].filter(pa.array(left))
        for name, rows in reduced.open.items():
            opened[name] = pa.concat_tables([opened[name], rows]) if name in opened else rows

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the final and open rows, in an order that does not depend on the batches."""
        rows = [row for part in self.final[table] for row in part.to_pylist()]
        if TABLES[table].has_open_rows:
            rows = [{**row, "settled": True} for row in rows]
        return sorted([*rows, *self.open_rows(table)], key=repr)

    def open_rows(self, table: str) -> list[dict[str, Any]]:
        """Return the open rows, in an order that does not depend on the batches."""
        parts = [opened[table] for opened in self._open if table in opened]
        return sorted(({**row, "settled": False} for part in parts for row in part.to_pylist()), key=repr)


def reduced_rows(
    records: Sequence[Record], table: str, keys: Keys | None = None, rules: Rules = RULES
) -> list[dict[str, Any]]:
    """Return the rows of these records as one batch in one bucket."""
    run = BucketRun(1, keys, rules)
    run.batch(numbered(records))
    return run.rows(table)
