"""When the gold tables are worked out again: not after every batch, and only for the minutes whose rows changed.

What is still to be done follows from the intents after the one that the mark names, so a crash loses none of it.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, json

from wirelake.limits import PIPELINE_REFRESH_EVERY_S
from wirelake.log.files import Files
from wirelake.pipeline.intents import Intents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Dirty = dict[str, set[int]]  # table → minutes, in microseconds since 1970, in which rows were added or changed
Refresh = Callable[["SparkSession", Path, Dirty], None]  # (session, lake, dirty): brings the gold tables up to date


class Mark(Struct, frozen=True):
    batch: int = -1
    until_seq: int = 0
    now_us: int = 0


class Refreshing:
    def __init__(self, spark: "SparkSession", lake: Path, checkpoint: Path, intents: Intents, refresh: Refresh) -> None:
        self._spark = spark
        self._lake = lake
        self._path = checkpoint / "refreshed.json"
        self._intents = intents
        self._refresh = refresh
        self._refreshed_s = 0.0
        self.mark = json.decode(self._path.read_bytes(), type=Mark) if self._path.exists() else Mark()

    def run_if_due(self) -> None:
        if time.monotonic() - self._refreshed_s >= PIPELINE_REFRESH_EVERY_S:
            self.run()

    def run(self) -> None:
        """The gold tables have everything that the others have when this returns."""
        waiting = self._intents.since(self.mark.batch)
        if not waiting:
            return
        dirty: Dirty = {}
        for intent in waiting:
            for name, minutes in intent.dirty_us.items():
                dirty.setdefault(name, set()).update(minutes)
        if dirty:
            self._refresh(self._spark, self._lake, dirty)
        last = waiting[-1]
        self.mark = Mark(last.batch, last.until_seq, last.now_us)
        Files().replace_file(self._path, json.encode(self.mark))
        self._refreshed_s = time.monotonic()
        self._intents.prune(self.mark.batch)


def nothing(_spark: "SparkSession", _lake: Path, _dirty: Dirty) -> None:
    """No gold tables."""
