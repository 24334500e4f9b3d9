from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from wirelake.lake.store import LocalStore
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.gold.schedule import Dirty, GoldGroup, GoldScheduler


def test_what_is_only_intended_is_not_taken_for_done(tmp_path: Path) -> None:
    manifests = ManifestStore(LocalStore(tmp_path))
    for batch in (0, 1):
        dirty = {"silver.messages": [batch * 60_000_000]}
        manifests.create(
            Manifest(batch=batch, from_seq=batch, until_seq=batch + 1, now_us=batch, rows=1, dirty_us=dirty)
        )
    seen: list[Dirty] = []
    batches = SimpleNamespace(manifests=manifests, committed=0)
    group = GoldGroup("all", lambda _spark, _lake, changed: seen.append(changed), 0.0)
    scheduler = GoldScheduler(cast(Any, None), LocalStore(tmp_path), LocalStore(tmp_path), cast(Any, batches), [group])
    try:
        scheduler.finish()
        assert (scheduler.position.batch, seen) == (0, [{"silver.messages": {0}}]), (
            "the rows of the other are not there"
        )
        batches.committed = 1
        scheduler.finish()
        assert (scheduler.position.batch, seen[1:]) == (1, [{"silver.messages": {60_000_000}}])
    finally:
        scheduler.close()
