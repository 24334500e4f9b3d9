"""Columns give what rows give, whatever the history."""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import row_by_row
from pipeline.chance import history
from pipeline.histories import T0, BucketRun, Record, batch_of, record
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.pipeline.ingest.task import notification_rows
from wirelake.pipeline.stateful import calls
from wirelake.pipeline.stateful.call_pairs import split_pairs
from wirelake.pipeline.stateful.deliveries import delivery_events
from wirelake.pipeline.stateful.tallies import FOUND, tally_events

_DELIVERY = ("key", "seq", "at", "node", "session", "name", "service", "correlation", "number", "until", "note")


def on_two_nodes(records: list[Record], seed: int) -> list[Record]:
    chance = Random(seed)
    return [{**each, "node": chance.choice(("n1", "n2"))} for each in records]


@given(st.integers(0, 2**32), st.integers(1, 200))
@settings(max_examples=25)
def test_deliveries(seed: int, steps: int) -> None:
    records = history(seed, steps)
    events = delivery_events(batch_of(records))
    columns = [(events[name].cast(pa.int64()) if name == "at" else events[name]).to_pylist() for name in _DELIVERY]
    found: list[Any] = []
    for *rest, name, service, correlation, number, until, note in zip(*columns, strict=True):
        acked = json.loads(note) if name == "ack" else note
        found.append((*rest, name, service, correlation, number, until, acked))
    assert sorted(found, key=repr) == row_by_row.delivery_events(records)


def test_a_send_in_an_old_log_has_no_protocol() -> None:
    note = {"topic": "@a", "ids": "e-1-", "first": 3, "last": 4, "attempt": 1}
    sent = {**record("deliver", T0, frame=b'[["s1", "me"], ["s2", "me"], ["s3", "you"]]', note=note), "seq": 7}
    events = delivery_events(batch_of([sent]))
    assert events.select(["key", "session", "note", "until"]).to_pylist() == [
        {"key": "me", "session": "s1", "note": "", "until": 4},
        {"key": "you", "session": "s3", "note": "", "until": 4},
    ]


@given(st.integers(0, 2**32), st.integers(1, 200))
@settings(max_examples=25)
def test_tallies(seed: int, steps: int) -> None:
    records = history(seed, steps)
    for of_nodes in (records, on_two_nodes(records, seed)):
        batch = batch_of(of_nodes)
        decoded = decode_batch(batch)
        events = tally_events(batch, decoded.messages, decoded.quarantine).to_pylist()
        found = []
        for each in events:
            if each["name"] == FOUND:
                count, details = json.loads(each["note"])
                counts = {tuple(key): number for *key, number in details}
                found.append((each["node"], each["seq"], each["number"], count, counts))
        seqs = set(decoded.messages["seq"].to_pylist())
        assert sorted(found, key=repr) == sorted(row_by_row.tallies(of_nodes, seqs), key=repr)


def test_notifications() -> None:
    records = [
        {**record("publish", T0 + place * 3_600_000_000, frame=b"x" * place, note=_published(place)), "seq": place}
        for place in range(5)
    ]
    records.insert(2, {**record("ack", T0, note={"identity": "me", "acked": []}), "seq": 9})
    rows = [{name: row[name] for name in row if name not in ("at", "received_at")} for row in _rows(records)]
    assert rows == row_by_row.notifications(records)


def _published(place: int) -> dict[str, Any]:
    return {"topic": "@ä", "id": f"e-1-{place}", "position": place, "type": place, "by": "", "retain": True}


def _rows(records: list[Record]) -> list[dict[str, Any]]:
    return list(notification_rows(batch_of(records)).to_pylist())


@given(st.integers(0, 2**32), st.integers(20, 250), st.integers(1, 4))
@settings(max_examples=25)
def test_calls(seed: int, steps: int, batches: int) -> None:
    """Without the plain pairs taken out first, every call goes through the reducer."""
    records = history(seed, steps)
    size = len(records) // batches + 1
    runs = []
    for split in (split_pairs, _no_pairs):
        run = BucketRun(2)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(calls, "split_pairs", split)
            for start in range(0, len(records), size):
                run.batch(records[start : start + size])
        runs.append(run)
    by_columns, by_rows = runs
    assert by_columns.rows("silver.calls") == by_rows.rows("silver.calls")
    assert by_columns.counts == by_rows.counts


def _no_pairs(events: pa.Table, open_sessions: Any, age_us: int) -> tuple[pa.Table, pa.Table]:
    pairs, _ = split_pairs(events.slice(0, 0), open_sessions, age_us)
    return pairs, events
