"""Listen to the progress of the streaming query: how long each phase of a batch took, and what Spark counted in it."""

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from pyspark.sql.streaming.listener import StreamingQueryListener

QUERY: Final = "tables"  # its name in Spark's UI
OBSERVATION: Final = "batch"  # the name of its counts in the query progress
_CAPITAL: Final = re.compile(r"(?=[A-Z])")


class QueryBatch(Struct, frozen=True):
    """Hold what Spark reports about a batch."""

    batch: int
    phases_s: dict[str, float]  # latest_offset, query_planning, add_batch, commit_offsets, trigger_execution …
    observed: dict[str, int]  # records, files, bytes …; the source's own rows are spans


class QueryListener(StreamingQueryListener):
    """Call `on_batch` after every batch of the query, in another thread."""

    def __init__(self, on_batch: Callable[[QueryBatch], None]) -> None:
        self._on_batch = on_batch

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: the job has started the query itself."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if progress.name != QUERY or not progress.numInputRows:
            return
        observed = progress.observedMetrics.get(OBSERVATION)
        counts = {name: int(count or 0) for name, count in observed.asDict().items()} if observed is not None else {}
        phases_s = {_snake(name): spent_ms / 1000 for name, spent_ms in progress.durationMs.items()}
        self._on_batch(QueryBatch(progress.batchId, phases_s, counts))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: there is nothing new in the log."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the job waits for the query itself."""


def _snake(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()
