from types import SimpleNamespace
from typing import Any

from pyspark.sql import Row

from wirelake.pipeline.listener import OBSERVATION, QUERY, QueryBatch, QueryListener


def event(**rest: Any) -> Any:
    given = {
        "name": QUERY,
        "numInputRows": 2,
        "batchId": 7,
        "durationMs": {"latestOffset": 20, "addBatch": 1500},
        "observedMetrics": {OBSERVATION: Row(records=500, files=3, bytes=None)},
    }
    return SimpleNamespace(progress=SimpleNamespace(**{**given, **rest}))


def test_a_batch_is_passed_on_with_its_phases_and_records() -> None:
    seen: list[QueryBatch] = []
    listener = QueryListener(seen.append)
    listener.onQueryProgress(event())
    assert seen == [QueryBatch(7, {"latest_offset": 0.02, "add_batch": 1.5}, {"records": 500, "files": 3, "bytes": 0})]


def test_other_queries_and_empty_triggers_are_ignored() -> None:
    seen: list[QueryBatch] = []
    listener = QueryListener(seen.append)
    listener.onQueryProgress(event(name="mine"))
    listener.onQueryProgress(event(numInputRows=0))
    assert seen == []
