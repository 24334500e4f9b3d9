"""Run the job: a streaming query over the log that fills the tables, until it is stopped or everything is done."""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wirelake.errors import StorageError
from wirelake.lake.damage import find_damage
from wirelake.lake.progress import JobProgress, write_progress
from wirelake.lake.store import Store
from wirelake.limits import (
    LAKE_COMPACT_EVERY_BATCHES,
    LAKE_HISTORY_DAYS,
    PIPELINE_BUCKETS_MAX,
    PIPELINE_ONCE_ATTEMPTS_MAX,
    PIPELINE_PARTITION_BYTES,
    PIPELINE_PARTITION_ROWS,
    PIPELINE_STOP_S,
    PIPELINE_TRIGGER_S,
    PIPELINE_VIEW_WAIT_S,
)
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.reader import LogReader, damaged_gaps
from wirelake.pipeline.batch import BatchRunner
from wirelake.pipeline.commit.checkpoint import CONSUMER, StreamLock, open_stream
from wirelake.pipeline.commit.compaction import Compactor
from wirelake.pipeline.commit.manifests import DROPPED, Manifest
from wirelake.pipeline.commit.migration import migrate
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.gold.schedule import GoldScheduler
from wirelake.pipeline.ingest.log_copies import FOLDER, write_store_file
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.recovery import (
    FailureLog,
    NoPoisonRecordError,
    are_records_missing,
    find_poison,
    restart_delay_s,
    summarize_error,
)
from wirelake.pipeline.spark.session import default_parallelism, is_alive, ui_address
from wirelake.pipeline.stateful.reduce import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)
_POLL_S: Final = 0.2  # how often a waiting job checks whether it is to stop
_RATE_BATCHES: Final = 10  # over which rows per second are measured


class JobSettings(Struct, frozen=True, kw_only=True):
    once: bool = False
    trigger_s: float = PIPELINE_TRIGGER_S
    gone: str = "fail"  # or "oldest": skip what retention removed before it was read
    batch_rows: int | None = None
    compact_every: int = LAKE_COMPACT_EVERY_BATCHES  # batches; 0 is never
    history_days: float = LAKE_HISTORY_DAYS
    rules: Rules = {}
    buckets: int = 0  # into which the stateful part is divided; 0: as many as Spark runs tasks at a time
    view_wait_s: float = PIPELINE_VIEW_WAIT_S  # for files of other machines to appear


class Job:
    """Run the pipeline of one data folder, with its gold tables or without.

    `on_progress` is called after every batch, from another thread.
    """

    def __init__(
        self,
        spark: "SparkSession",
        data: Path,
        settings: JobSettings = JobSettings(),  # noqa: B008 (frozen)
        gold: bool = False,
        on_progress: Callable[[JobProgress], None] = lambda _: None,
        lake: Store | None = None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._on_progress = on_progress
        self.paths = DataPaths.of(data, lake)
        self._lock = StreamLock(self.paths)
        try:
            self._stream = open_stream(self.paths)
        except BaseException:
            self._lock.release()
            raise
        buckets = settings.buckets or min(default_parallelism(spark), PIPELINE_BUCKETS_MAX)
        self._batches = BatchRunner(
            spark, self.paths, self._stream, settings.rules, settings.view_wait_s, buckets=buckets
        )
        self._failures = FailureLog(self.paths.checkpoint)
        tables = GoldTables(self.paths.lake, self.paths.checkpoint, self._stream.app) if gold else None
        self._gold = GoldScheduler(spark, self.paths.lake, self.paths.checkpoint, tables)
        every = settings.compact_every
        self._compactor = Compactor(self.paths.lake, every, settings.history_days) if every else None
        self._stopping = threading.Event()
        self._failed = 0  # consecutive failures
        self._reason = ""  # of the last batch that failed
        self._recent: list[tuple[float, int]] = []  # when a batch ended, and its rows
        self.progress = JobProgress(pid=os.getpid(), ui=ui_address(spark))

    def run(self) -> None:
        """Run until stopped or, with `once`, until everything is done that was in the log at the start."""
        try:
            self._prepare()
            while not self._stopping.is_set():
                failure = self._run_query()
                if failure is None:
                    break
                self._recover(failure)
            self._gold.close()
            self._refresh_gold()
            self._batches.remove_copies()
        finally:
            self._gold.close()
            if self._compactor is not None:
                self._compactor.close()
            self.progress.running = False
            self._publish_progress()
            self._lock.release()

    def stop(self) -> None:
        """Stop the job. Call this from any thread, or from a signal handler."""
        self._stopping.set()

    def _prepare(self) -> None:
        """Register with the log before reading anything, then finish what an earlier process began."""
        positions = ConsumerOffsets(self.paths.log)
        if positions.get(CONSUMER) is None:
            positions.commit(CONSUMER, LogReader(self.paths.log).oldest_seq, time.time_ns() // 1000)
        self._stream = migrate(self.paths, self._stream, self._on_migration)
        self._batches.recover()
        self._batches.remove_copies()
        last = self._batches.manifests.last()
        if last is not None:
            self._update_progress(last)
        self._publish_progress()

    def _on_migration(self, what: str) -> None:
        self.progress.migrating = what
        self._publish_progress()

    def _run_query(self) -> BaseException | None:
        """Run the query. Return what it failed with, or None if it ended as planned."""
        try:
            query = self._start()
            ended = False
            while not ended and not self._stopping.is_set():
                ended = bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type] # it takes fractions
            if not ended:
                self._stop_query(query)
        except Exception as error:  # noqa: BLE001 (Spark raises whatever the query failed with)
            return None if self._stopping.is_set() else error
        return None

    def _start(self) -> "StreamingQuery":
        parallel = default_parallelism(self._spark)
        rows = self._settings.batch_rows or PIPELINE_PARTITION_ROWS * parallel
        source = self._spark.readStream.format("wirelake").option("view", "spans")
        source = source.option("gone", self._settings.gone).option("maxRows", str(rows))
        if self._batches.copies is not None:
            file = self.paths.spark_checkpoint.parent / "log-copies.json"
            write_store_file(file, self.paths.lake.at(FOLDER))
            source = source.option("copies", str(file))
        spans = source.option("maxBytes", str(PIPELINE_PARTITION_BYTES * parallel)).load(str(self.paths.data))
        writer = spans.writeStream.queryName("tables").foreachBatch(self._process_batch)
        writer = writer.option("checkpointLocation", str(self.paths.spark_checkpoint))
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _stop_query(self, query: "StreamingQuery") -> None:
        """Stop the query. Let a running batch finish first if that is quick; otherwise it is recovered later."""
        deadline_s = time.monotonic() + PIPELINE_STOP_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(_POLL_S / 4)
        query.stop()

    def _process_batch(self, spans: "DataFrame", batch: int) -> None:
        """Process one micro-batch. Called by Spark."""
        if self._stopping.is_set():
            raise StorageError("the job is stopping")
        self._lock.check()
        started_s = time.monotonic()
        manifest = self._batches.manifests.get(batch)
        try:
            if manifest is None:
                manifest = self._compute(spans, batch)
            self._batches.commit(manifest)
        except Exception as error:
            damage = None if isinstance(error, StorageError) else find_damage(self.paths.lake, error)
            self._reason = summarize_error(damage or error)  # Spark would wrap it
            self._failures.add(batch, self._reason)
            raise
        self._failures.clear()
        self._failed = 0
        self.progress.rows += manifest.rows
        self.progress.batches += 1
        self.progress.poisoned += len(manifest.poison)
        self.progress.batch_s = time.monotonic() - started_s
        self._recent = [*self._recent, (time.monotonic(), manifest.rows)][-_RATE_BATCHES:]
        if not self._settings.once:
            self._gold.after_batch()
        if self._compactor is not None:
            self._compactor.after_batch()
        self._update_progress(manifest)
        self._publish_progress()

    def _compute(self, spans: "DataFrame", batch: int) -> Manifest:
        """Compute a batch. If it failed before, retry it as it is, and then search for the records that break it.

        Records that a task cannot read are left out only if they are damaged for this process as well: a worker that
        merely does not see them has to see them first.
        """
        try:
            return self._batches.compute(spans, batch)
        except Exception as error:
            if not self._failures.times(batch) or isinstance(error, StorageError):
                raise
            failure = error
        rows = spans.collect()
        whole = Span(min(r.from_seq for r in rows), max(r.until_seq for r in rows), rows[0].now_us)
        salt = None if rows[0].salt < 0 else rows[0].salt
        damaged = damaged_gaps(self.paths.log, whole.from_seq, whole.until_seq, salt)
        if are_records_missing(failure):
            if not damaged:
                raise failure
            return self._batches.compute(spans, batch, damaged=damaged)
        _log.warning("batch %d failed again: searching for the records that break it", batch)
        try:
            return self._batches.compute(spans, batch, isolate=True, damaged=damaged)
        except Exception as error:  # noqa: BLE001 (the search decides which record, or none)
            try:
                poison = find_poison(self.paths.log, whole, partial(self._batches.dry_run, damaged=damaged))
            except NoPoisonRecordError as reason:
                raise StorageError(f"{reason}: {summarize_error(error)}") from error
        return self._batches.compute(spans, batch, poison=frozenset(poison), isolate=True, damaged=damaged)

    def _recover(self, failure: BaseException) -> None:
        """Wait, longer after each failure, before the query starts again."""
        self._failed += 1
        last = self._failures.last()  # in this process or an earlier one
        times = max(self._failed, last.times if last is not None else 0)
        text, self._reason = self._reason or summarize_error(failure), ""
        self.progress.restarts += 1
        self.progress.add_error(time.time_ns() // 1_000_000, text)
        self._publish_progress()
        if not is_alive(self._spark):
            raise SparkLostError("Spark's own process has ended") from failure
        if self._settings.once and times >= PIPELINE_ONCE_ATTEMPTS_MAX:
            raise StorageError(f"the pipeline failed {times} times at the same batch: {text}") from failure
        seconds = restart_delay_s(times)
        _log.error("the pipeline failed (%s); restarting in %g s", text, seconds)
        self._stopping.wait(seconds)

    def _refresh_gold(self) -> None:
        self._gold.finish()
        position = self._gold.position
        self.progress.gold_seq, self.progress.gold_at_us = position.until_seq, position.now_us

    def _update_progress(self, manifest: Manifest) -> None:
        progress, gold = self.progress, self._gold.position
        progress.batch, progress.next_seq = manifest.batch, manifest.until_seq
        progress.at_us = max(progress.at_us, manifest.now_us)
        progress.dropped = {name: count for name, count in sorted(manifest.totals.items()) if name in DROPPED}
        progress.noted = {name: count for name, count in sorted(manifest.totals.items()) if name not in DROPPED}
        progress.gold_seq, progress.gold_at_us = gold.until_seq, gold.now_us
        if self._compactor is not None:
            progress.files_joined = self._compactor.files_joined
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            progress.rows_s = sum(rows for _, rows in self._recent[1:]) / max(seconds, 1e-3)

    def _publish_progress(self) -> None:
        self.progress.written_at_ms = time.time_ns() // 1_000_000
        write_progress(self.paths.data, self.progress)
        self._on_progress(self.progress)


class SparkLostError(StorageError):
    """Raised if the JVM has exited: only a new process can continue."""
