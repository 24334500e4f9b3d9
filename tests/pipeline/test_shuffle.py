"""Events come to their buckets whole and in order, however the log was cut."""

import random

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.pipeline.reports import BatchClock, read_report
from wirelake.pipeline.shuffle import EVENT_ORDER, SHUFFLE_SCHEMA, read_shuffled, shuffle_events, shuffle_reports
from wirelake.pipeline.stateful.events import EVENT_SCHEMA

BUCKETS = 3


def chunk(chance: random.Random, first_seq: int, count: int) -> pa.RecordBatch:
    """Events as a task makes them: not sorted by key, some with equal places."""
    rows = [
        {
            "bucket": chance.randrange(BUCKETS),
            "kind": chance.choice(["call", "session", "early_reading"]),
            "key": chance.choice(["", "a", "b", "ä"]),
            "seq": first_seq + number // 2,
            "at": first_seq,
            "note": str(number),
            "data": bytes([number % 256]) * (number % 5),
        }
        for number in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, EVENT_SCHEMA)


def test_each_bucket_gets_its_events_in_the_order_of_the_log() -> None:
    chance = random.Random(7)
    chunks = [chunk(chance, first_seq, 50) for first_seq in (0, 100, 200)]
    sent = [shuffle_events(each) for each in chunks]
    assert all(batch.num_rows <= BUCKETS for batch in sent)
    arrived = list(sent)
    chance.shuffle(arrived)  # tasks end in any order
    every = pa.Table.from_batches(chunks)
    for bucket in range(BUCKETS):
        own = [batch.filter(pc.equal(batch["bucket"], bucket)) for batch in arrived]
        events, reports = read_shuffled(own)
        expected = every.filter(pc.equal(every["bucket"], bucket)).sort_by(EVENT_ORDER)
        assert events.to_pylist() == expected.to_pylist()
        assert not reports


def test_a_bucket_without_events_gets_the_reports() -> None:
    events, reports = read_shuffled(
        [shuffle_reports([(0, BatchClock(17))]), shuffle_events(chunk(random.Random(), 0, 0))]
    )
    assert events.schema == EVENT_SCHEMA
    assert not len(events)
    assert [read_report(text) for text in reports] == [BatchClock(17)]


def test_nothing_arrives_as_nothing() -> None:
    events, reports = read_shuffled([])
    assert (len(events), reports) == (0, [])
    assert shuffle_reports([]).schema == SHUFFLE_SCHEMA
