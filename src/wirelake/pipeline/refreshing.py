"""When the gold tables are worked out again: not after every batch, and only for the minutes whose rows changed.

It is done in a thread of its own, so that no batch waits for it. What is still to be done follows from the intents
after the one that a part's mark names, so a crash loses none of it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, json

from wirelake.files import replace_file
from wirelake.lake.damage import explain
from wirelake.pipeline.failures import sentence
from wirelake.pipeline.intents import Intents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wirelake.pipeline.batch import Batches

_log = logging.getLogger(__name__)

Dirty = dict[str, set[int]]  # table → minutes, in microseconds since 1970, in which rows were added or changed
Refresh = Callable[["SparkSession", Path, Dirty], None]  # (session, lake, dirty): brings gold tables up to date


class Part(Struct, frozen=True):
    """Gold tables that are worked out together, and how often at most."""

    name: str
    refresh: Refresh
    every_s: float


class Mark(Struct, frozen=True):
    """Up to which batch a part is done."""

    batch: int = -1
    until_seq: int = 0
    now_us: int = 0


class Refreshing:
    def __init__(
        self, spark: "SparkSession", lake: Path, checkpoint: Path, batches: "Batches", parts: Sequence[Part]
    ) -> None:
        self._lake = lake
        self._batches = batches
        self._intents = batches.intents
        self._spark = spark
        self._parts = [_Progress(part, checkpoint / f"refreshed-{part.name}.json") for part in parts]
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refreshing", daemon=True)
        self._thread.start()

    @property
    def mark(self) -> Mark:
        """Of the part that is furthest behind."""
        if self._parts:
            return min((part.mark for part in self._parts), key=lambda mark: mark.batch)
        last = self._intents.last()
        return Mark() if last is None else Mark(last.batch, last.until_seq, last.now_us)

    def after_batch(self) -> None:
        self._wanted.set()

    def close(self) -> None:
        """Returns when nothing is under way."""
        self._closing.set()
        self._wanted.set()
        self._thread.join()

    def finish(self) -> None:
        """Everything that the other tables have is in the gold tables when this returns. One that fails keeps none of
        the others back: the ledger may say why it failed.
        """
        failures: list[Exception] = []
        for part in self._parts:
            try:
                part.catch_up(self._spark, self._lake, self._intents, self._batches.committed)
            except Exception as error:  # noqa: BLE001 (whatever it is: raised once the others are done)
                failures.append(error)
        self._prune()
        if failures:
            raise failures[0]

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            for part in self._parts:
                if self._closing.is_set():
                    return
                if part.is_due:
                    self._try(part)
            self._prune()

    def _try(self, part: "_Progress") -> None:
        try:
            part.catch_up(self._spark, self._lake, self._intents, self._batches.committed)
        except Exception as error:  # noqa: BLE001 (whatever it is: the tables below are whole, and it is tried again)
            why = sentence(explain(self._lake, error) or error)
            _log.warning("the gold tables (%s) could not be brought up to date: %s", part.name, why)

    def _prune(self) -> None:
        self._intents.prune(self.mark.batch)


class _Progress:
    """One part, and how far it has come."""

    def __init__(self, part: Part, path: Path) -> None:
        self.name = part.name
        self._part = part
        self._path = path
        self._done_s = float("-inf")
        self.mark = json.decode(path.read_bytes(), type=Mark) if path.exists() else Mark()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._done_s >= self._part.every_s

    def catch_up(self, spark: "SparkSession", lake: Path, intents: Intents, committed: int) -> None:
        """An intent is written before its rows are in the tables: those after `committed` have to wait."""
        self._done_s = time.monotonic()
        waiting = [intent for intent in intents.since(self.mark.batch) if intent.batch <= committed]
        dirty: Dirty = {}
        for intent in waiting:
            for name, minutes in intent.dirty_us.items():
                dirty.setdefault(name, set()).update(minutes)
        if dirty:
            self._part.refresh(spark, lake, dirty)
        if waiting:
            last = waiting[-1]
            self.mark = Mark(last.batch, last.until_seq, last.now_us)
            replace_file(self._path, json.encode(self.mark))
