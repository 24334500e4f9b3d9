"""The recorder counts what it hands to the log, so that the tables can be held against it."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirelake.gateway.recorder import Recorder
from wirelake.log.segments.log import SegmentLog

HOUR_US = 3_600_000_000


class Somebody:
    id, protocol, identity, address = "s-1", "comet", "ann", "127.0.0.1:5"


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Two frames in and one out in one hour, one frame and a quarantined one in the next; counted at start and end."""
    log = SegmentLog(tmp_path)
    clock = iter([HOUR_US, *([HOUR_US + 1] * 3), *([2 * HOUR_US] * 4)])
    recorder = Recorder(log, lambda: next(clock))
    recorder.counters()
    recorder.frames(Somebody(), "in", [b"a", b"b"])
    recorder.frames(Somebody(), "out", [b"c"])
    recorder.event(Somebody(), "login", {})
    recorder.event(Somebody(), "frame", {"path": "/"}, "in", b"d")
    recorder.event(Somebody(), "quarantine", {"code": "short"}, "in", b"e")
    recorder.counters()
    recorder.counters()
    log.close()
    return [row for batch in log.read() for row in batch.to_pylist()]


def test_what_was_counted_is_what_was_recorded_by_hour(rows: list[dict[str, Any]]) -> None:
    first, counted, after = [json.loads(row["note"]) for row in rows if row["event"] == "counters"]
    assert first == {"start": True, "hours": {}}
    assert counted == {
        "hours": {"3600": {"comet": {"in": 2, "out": 1}}, "7200": {"comet": {"in": 1, "quarantined": 1}}}
    }
    assert after == {"hours": {}}
