"""Schedule refreshes of the gold tables: not after every batch, and only for the minutes whose rows changed.

They run in a thread of their own, so that no batch waits for them. What is left to do follows from the manifests after
the last batch of each group's position, so a crash loses nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, json

from wirelake.lake.damage import find_damage
from wirelake.lake.store import Store
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.recovery import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wirelake.pipeline.batch import BatchRunner


_log = logging.getLogger(__name__)

Dirty = dict[str, set[int]]  # table → minutes, in microseconds since 1970, in which rows were added or changed
Refresh = Callable[["SparkSession", Store, Dirty], None]  # (session, lake, dirty): refreshes gold tables


class GoldGroup(Struct, frozen=True):
    """Describe gold tables that are refreshed together, and how often at most."""

    name: str
    refresh: Refresh
    every_s: float


class GoldPosition(Struct, frozen=True):
    """Hold the last batch that a group includes."""

    batch: int = -1
    until_seq: int = 0
    now_us: int = 0


class GoldScheduler:
    def __init__(
        self, spark: "SparkSession", lake: Store, checkpoint: Store, batches: "BatchRunner", groups: Sequence[GoldGroup]
    ) -> None:
        self._lake = lake
        self._batches = batches
        self._manifests = batches.manifests
        self._spark = spark
        self._groups = [_GroupProgress(each, checkpoint) for each in groups]
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refreshing", daemon=True)
        self._thread.start()

    @property
    def position(self) -> GoldPosition:
        """Return the position of the group that is furthest behind."""
        if self._groups:
            return min((group.position for group in self._groups), key=lambda position: position.batch)
        last = self._manifests.last()
        return GoldPosition() if last is None else GoldPosition(last.batch, last.until_seq, last.now_us)

    def after_batch(self) -> None:
        self._requested.set()

    def close(self) -> None:
        """Stop. Return when nothing is running."""
        self._closing.set()
        self._requested.set()
        self._thread.join()

    def finish(self) -> None:
        """Bring every group up to date. One that fails does not stop the others: the ledger may show why it failed."""
        failures: list[Exception] = []
        for group in self._groups:
            try:
                group.catch_up(self._spark, self._lake, self._manifests, self._batches.committed)
            except Exception as error:  # noqa: BLE001 (raised once the others are done)
                failures.append(error)
        self._prune()
        if failures:
            raise failures[0]

    def _run(self) -> None:
        while not self._closing.is_set():
            self._requested.wait()
            self._requested.clear()
            for group in self._groups:
                if self._closing.is_set():
                    return
                if group.is_due:
                    self._try(group)
            self._prune()

    def _try(self, group: "_GroupProgress") -> None:
        try:
            group.catch_up(self._spark, self._lake, self._manifests, self._batches.committed)
        except Exception as error:  # noqa: BLE001 (the tables below are complete, and it is retried)
            why = summarize_error(find_damage(self._lake, error) or error)
            _log.warning("cannot refresh the gold tables (%s): %s; retrying after the next batch", group.name, why)

    def _prune(self) -> None:
        self._manifests.prune(self.position.batch)


class _GroupProgress:
    """Hold a group and its position."""

    def __init__(self, group: GoldGroup, checkpoint: Store) -> None:
        self.name = group.name
        self._group = group
        self._checkpoint = checkpoint
        self._path = f"refreshed-{group.name}.json"
        self._refreshed_s = float("-inf")
        self.position = self._read()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._refreshed_s >= self._group.every_s

    def catch_up(self, spark: "SparkSession", lake: Store, manifests: ManifestStore, committed: int) -> None:
        """Refresh for all batches up to `committed`: a manifest exists before its rows are in the tables."""
        self._refreshed_s = time.monotonic()
        waiting = [manifest for manifest in manifests.since(self.position.batch) if manifest.batch <= committed]
        dirty: Dirty = {}
        for manifest in waiting:
            for name, minutes in manifest.dirty_us.items():
                dirty.setdefault(name, set()).update(minutes)
        if dirty:
            self._group.refresh(spark, lake, dirty)
        if waiting:
            last = waiting[-1]
            self.position = GoldPosition(last.batch, last.until_seq, last.now_us)
            self._checkpoint.write(self._path, json.encode(self.position))

    def _read(self) -> GoldPosition:
        try:
            return json.decode(self._checkpoint.read(self._path), type=GoldPosition)
        except FileNotFoundError:
            return GoldPosition()
