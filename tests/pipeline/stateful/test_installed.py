"""Test that an installed protocol can offer the pipeline what built-in ones do."""

from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

from pipeline import installed
from pipeline.histories import BucketRun, frame, numbered
from wirelake.pipeline.stateful.bucket_state import BucketState, StateChange
from wirelake.pipeline.stateful.calls import call_rules
from wirelake.pipeline.stateful.reduce import reassemblies, record_readers
from wirelake.protocols import registry

CACHES = (reassemblies, record_readers, call_rules)


def forget() -> None:
    registry.refresh()
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _protocol(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = metadata.EntryPoint("installed", "pipeline.installed:PROTOCOL", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_group: [point])
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_columns_records_and_calls() -> None:
    installed.decoded_at_once.clear()
    run = BucketRun(2)
    run.batch(
        numbered(
            [
                frame("installed", "in", b'{"no": 1, "table": "t", "key": "a", "values": [1, 2]}', identity="ann"),
                frame("installed", "in", b'{"no": 2, "table": "t", "key": "b", "values": []}', identity="ann"),
                frame("installed", "out", b'{"no": 2}'),
                frame("installed", "out", b'{"no": 1}'),
            ]
        )
    )
    assert installed.decoded_at_once == [4]
    records = [(row["protocol"], row["key"], row["sdb"], row["fields"]) for row in run.rows("silver.records")]
    assert records == [("installed", "a", "t", '{"value":1}'), ("installed", "a", "t", '{"value":2}')]
    assert {row["decoder"] for row in run.rows("silver.records")} == {"installed/3"}
    calls = [(row["seq"], row["correlation"], row["op"], row["status"]) for row in run.rows("silver.calls")]
    assert calls == [(1, "1", "write", "ok"), (2, "2", "write", "ok")]


def test_the_state_of_a_protocol_that_is_not_installed_now_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run = BucketRun(1)
    opened = b'{"no": 1, "table": "t", "key": "a", "values": []}'
    run.batch(numbered([frame("installed", "in", opened)]))
    state = run.states[0].table()
    foreign = state.set_column(0, "kind", [["record:installed"] * len(state)])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_group: [])
    forget()
    run.states[0] = BucketState().apply(StateChange(np.zeros(0, np.int64), foreign))
    run.batch([])
    kinds = run.states[0].table()["kind"].to_pylist()
    assert kinds.count("record:installed") == len(foreign)
