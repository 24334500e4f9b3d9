"""Test that the gold tables are refreshed in the background, and that what they need stays until then."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.gold.lakes import Lake
from pipeline.rows import after
from wirelake.pipeline.commit import manifests
from wirelake.pipeline.gold import schedule
from wirelake.pipeline.gold.refresh import GoldPosition, GoldTables
from wirelake.pipeline.gold.schedule import GoldScheduler

WAIT_S = 30.0


def message(seconds: float) -> dict[str, Any]:
    return {"received_at": after(seconds), "protocol": "comet", "name": "ping", "direction": "in", "bytes": 1}


class _FailingOnce(GoldTables):
    """Fail at the first refresh."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.store, lake.checkpoint, "test")
        self.refreshes = 0
        self.done = threading.Event()

    def refresh(self, spark: Any = None) -> GoldPosition:
        self.refreshes += 1
        if self.refreshes == 1:
            self.done.set()
            raise OSError("no space left on device")
        found = super().refresh(spark)
        self.done.set()
        return found


def test_a_batch_is_refreshed_soon_and_a_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "GOLD_MERGE_EVERY_S", 0.01)
    lake = Lake(tmp_path)
    lake.commit({"silver.messages": [message(1)]})
    gold = _FailingOnce(lake)
    scheduler = GoldScheduler(cast(Any, None), lake.store, lake.checkpoint, gold)
    try:
        for _ in range(2):
            gold.done.clear()
            scheduler.after_batch()
            assert gold.done.wait(WAIT_S)
    finally:
        scheduler.close()
    assert "cannot refresh the gold tables: no space left on device" in caplog.text
    assert scheduler.position.batch == 0


def test_manifests_and_partials_stay_until_gold_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PIPELINE_MANIFESTS_KEPT", 1)
    lake = Lake(tmp_path)
    scheduler = GoldScheduler(cast(Any, None), lake.store, lake.checkpoint, lake.gold())
    try:
        for number in range(4):
            lake.commit({"silver.messages": [message(number)]})
        assert len(lake.checkpoint.list("partials")) == 4
        assert scheduler.position == GoldPosition()
        scheduler.finish()
        assert scheduler.position.batch == 3
        assert lake.manifests.batches() == [3]
        assert len(lake.checkpoint.list("partials")) == 1
    finally:
        scheduler.close()
