"""Refresh the gold tables in a thread of a running job, so that no batch waits for them.

What is left to merge follows from the manifests after the batch that the gold tables have, so a crash loses nothing.
"""

import logging
import threading
import time
from typing import Any

from wirelake.lake.damage import find_damage
from wirelake.lake.store import Store
from wirelake.limits import GOLD_MERGE_EVERY_S
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.gold.refresh import GoldPosition, GoldTables
from wirelake.pipeline.recovery import summarize_error

_log = logging.getLogger(__name__)


class GoldScheduler:
    """Refresh the gold tables after batches. Without `gold` there are none; only old manifests are removed."""

    def __init__(self, spark: Any, lake: Store, checkpoint: Store, gold: GoldTables | None) -> None:
        self._spark = spark
        self._lake = lake
        self._checkpoint = checkpoint
        self._manifests = ManifestStore(checkpoint)
        self._gold = gold
        self._position = self._read_position()
        self._refreshed_s = float("-inf")
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gold", daemon=True)
        self._thread.start()

    @property
    def position(self) -> GoldPosition:
        """Return what the gold tables include."""
        if self._gold is not None:
            return self._position
        last = self._manifests.last()
        return GoldPosition() if last is None else GoldPosition(last.batch, last.until_seq, last.now_us)

    def _read_position(self) -> GoldPosition:
        try:
            return self._gold.position() if self._gold is not None else GoldPosition()
        except Exception as error:  # noqa: BLE001 (a damaged gold table does not stop the others)
            self._warn(error)
            return GoldPosition()

    def after_batch(self) -> None:
        self._requested.set()

    def close(self) -> None:
        """Stop. Return when nothing is running."""
        self._closing.set()
        self._requested.set()
        self._thread.join()

    def finish(self) -> None:
        """Bring the gold tables up to date."""
        if self._gold is not None:
            self._position = self._gold.refresh(self._spark)
        self._prune()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._requested.wait()
            self._closing.wait(self._refreshed_s + GOLD_MERGE_EVERY_S - time.monotonic())
            self._requested.clear()
            if self._closing.is_set():
                return
            self._refreshed_s = time.monotonic()
            try:
                self.finish()
            except Exception as error:  # noqa: BLE001 (the tables below are complete, and it is retried)
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        why = summarize_error(find_damage(self._lake, error) or error)
        _log.warning("cannot refresh the gold tables: %s; retrying after the next batch", why)

    def _prune(self) -> None:
        for manifest in self._manifests.prune(self.position.batch - 1):
            if manifest.partials is not None:
                self._checkpoint.delete(manifest.partials)
