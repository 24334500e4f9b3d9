from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from wirelake.pipeline.intents import Intent, Intents
from wirelake.pipeline.refreshing import Dirty, Part, Refreshing


def test_what_is_only_intended_is_not_taken_for_done(tmp_path: Path) -> None:
    intents = Intents(tmp_path)
    for batch in (0, 1):
        dirty = {"silver.messages": [batch * 60_000_000]}
        intents.write(Intent(batch=batch, from_seq=batch, until_seq=batch + 1, now_us=batch, rows=1, dirty_us=dirty))
    seen: list[Dirty] = []
    batches = SimpleNamespace(intents=intents, committed=0)
    part = Part("all", lambda _spark, _lake, changed: seen.append(changed), 0.0)
    refreshing = Refreshing(cast(Any, None), tmp_path, tmp_path, cast(Any, batches), [part])
    try:
        refreshing.finish()
        assert (refreshing.mark.batch, seen) == (0, [{"silver.messages": {0}}]), "the rows of the other are not there"
        batches.committed = 1
        refreshing.finish()
        assert (refreshing.mark.batch, seen[1:]) == (1, [{"silver.messages": {60_000_000}}])
    finally:
        refreshing.close()
