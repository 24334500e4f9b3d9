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

from wirelake.errors import InUseError, StorageError
from wirelake.key_source import KeySource
from wirelake.lake.progress import JobProgress, write_progress
from wirelake.lake.store import LocalStore, Store
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
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.reader import LogReader, damaged_gaps
from wirelake.pipeline.batch import BatchCommitter
from wirelake.pipeline.commit.checkpoint import CONSUMER, StreamLock, open_stream, planned_end
from wirelake.pipeline.commit.compaction import Compactor
from wirelake.pipeline.commit.cut_commits import remove_cut_commits
from wirelake.pipeline.commit.manifests import DROPPED, Manifest, next_batch
from wirelake.pipeline.commit.migration import migrate
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.gold.schedule import GoldScheduler
from wirelake.pipeline.ingest.log_copies import FOLDER, LogCopies, write_store_file
from wirelake.pipeline.ingest.spans import Span
from wirelake.pipeline.listener import OBSERVATION, QUERY, QueryBatch, QueryListener
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.query import OBSERVED, StreamPlan, Treatment, dry_run, reports_of
from wirelake.pipeline.recovery import (
    FailureLog,
    NoPoisonRecordError,
    are_records_missing,
    find_poison,
    is_commit_error,
    restart_delay_s,
    summarize_error,
)
from wirelake.pipeline.sink import NAME, read_commit_times, tables_source
from wirelake.pipeline.spark.session import default_parallelism, is_alive, is_local, ui_address
from wirelake.pipeline.stateful.reduce import Rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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
        key: KeySource | None = None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._on_progress = on_progress
        self.paths = DataPaths.of(data, lake, key)
        self._lock = StreamLock(self.paths)
        try:
            remove_cut_commits(self.paths)
            self._stream = open_stream(self.paths)
        except BaseException:
            self._lock.release()
            raise
        self._buckets = settings.buckets or min(default_parallelism(spark), PIPELINE_BUCKETS_MAX)
        self._batches = BatchCommitter(self.paths, self._stream, settings.view_wait_s, self._buckets)
        # Executors that do not see the data folder read the log from the store.
        has_copies = not isinstance(self.paths.lake, LocalStore) and not is_local(spark.conf.get("spark.master") or "")
        self._copies = LogCopies(self.paths.log, self.paths.lake.at(FOLDER)) if has_copies else None
        self._failures = FailureLog(self.paths.checkpoint)
        tables = GoldTables(self.paths.lake, self.paths.checkpoint, self._stream.app) if gold else None
        self._gold = GoldScheduler(spark, self.paths.lake, self.paths.checkpoint, tables)
        every = settings.compact_every
        self._compactor = Compactor(self.paths.lake, every, settings.history_days) if every else None
        self._stopping = threading.Event()
        self._publishing = threading.Lock()
        self._listener = QueryListener(self._on_query_batch)
        self._positions = ConsumerOffsets(self.paths.log)
        self._noted_seq = 0  # batches up to here are in the progress
        self._treatment = Treatment()
        self._failed = 0  # consecutive failures
        self._reason = ""  # of the last batch that failed
        self._recent: list[tuple[float, int]] = []  # when a batch ended, and its rows
        self.progress = JobProgress(pid=os.getpid(), ui=ui_address(spark))

    def run(self) -> None:
        """Run until stopped or, with `once`, until everything is done that was in the log at the start."""
        self._spark.streams.addListener(self._listener)
        try:
            self._prepare()
            while not self._stopping.is_set():
                failure = self._run_query()
                if failure is None:
                    break
                if not self._treat(failure):
                    self._recover(failure)
            self._gold.close()
            self._refresh_gold()
            self._remove_copies()
        finally:
            if is_alive(self._spark):
                self._spark.streams.removeListener(self._listener)
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
        if self._positions.get(CONSUMER) is None:
            self._positions.commit(CONSUMER, LogReader(self.paths.log).oldest_seq, time.time_ns() // 1000)
        self._stream = migrate(self.paths, self._stream, self._on_migration)
        self._batches.recover()
        self._remove_copies()
        last = self._batches.manifests.last()
        if last is not None:
            self._noted_seq = last.until_seq
            self._update_progress(last)
        self._publish_progress()

    def _on_migration(self, what: str) -> None:
        self.progress.migrating = what
        self._publish_progress()

    def _remove_copies(self) -> None:
        """Remove copies of the log that only committed batches needed. The source does so while it runs."""
        last = self._batches.manifests.last()
        if self._copies is not None and last is not None:
            self._copies.refresh()
            self._copies.remove_read(last.until_seq)

    def _run_query(self) -> BaseException | None:
        """Run the query. Return what it failed with, or None if it ended as planned."""
        query: StreamingQuery | None = None
        try:
            query = self._start()
            ended = False
            while not ended and not self._stopping.is_set():
                ended = bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type] # it takes fractions
                self._lock.check()
                self._note_batches()
            if not ended:
                self._stop_query(query)
        except InUseError:
            if query is not None:
                query.stop()
            raise
        except Exception as error:  # noqa: BLE001 (Spark raises whatever the query failed with)
            return None if self._stopping.is_set() else error
        finally:
            self._note_batches()
        return None

    def _start(self) -> "StreamingQuery":
        from pyspark.sql.functions import sum as sum_of  # noqa: PLC0415 (needs pyspark)

        parallel = default_parallelism(self._spark)
        rows = self._settings.batch_rows or PIPELINE_PARTITION_ROWS * parallel
        options = {
            "path": str(self.paths.data),
            "gone": self._settings.gone,
            "maxRows": str(rows),
            "maxBytes": str(PIPELINE_PARTITION_BYTES * parallel),
        }
        if self._copies is not None:
            file = self.paths.spark_checkpoint.parent / "log-copies.json"
            write_store_file(file, self.paths.lake.at(FOLDER))
            options["copies"] = str(file)
        plan = self._plan(self._treatment)
        # Makes the session the active one of this thread: Spark looks for the sink there only.
        self._spark.createDataFrame([], "nothing int")
        self._spark.dataSource.register(tables_source(plan, options))
        reports = reports_of(self._spark.readStream.format(NAME).load(), plan)
        observed = reports.observe(OBSERVATION, *(sum_of(name).alias(name) for name in OBSERVED))
        writer = observed.writeStream.queryName(QUERY).format(NAME)
        writer = writer.option("checkpointLocation", str(self.paths.spark_checkpoint))
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _plan(self, treatment: Treatment) -> StreamPlan:
        settings = self._settings
        return StreamPlan.of(
            self.paths,
            self._stream,
            self._buckets,
            rules=settings.rules,
            wait_s=settings.view_wait_s,
            treatment=treatment,
        )

    def _stop_query(self, query: "StreamingQuery") -> None:
        """Stop the query. Let a running batch finish first if that is quick; otherwise it is recovered later."""
        deadline_s = time.monotonic() + PIPELINE_STOP_S
        position = self._positions.get(CONSUMER)
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            if self._positions.get(CONSUMER) != position:  # the next batch has only begun
                break
            time.sleep(_POLL_S / 4)
        query.stop()

    def _note_batches(self) -> None:
        """Take note of the batches that the sink has committed since the last time."""
        position = self._positions.get(CONSUMER) or 0
        if position <= self._noted_seq:
            return
        for manifest in self._batches.manifests.since(self._batches.committed):
            if manifest.until_seq <= position:
                self._after_batch(manifest)
        self._noted_seq = position

    def _after_batch(self, manifest: Manifest) -> None:
        times = read_commit_times(self.paths.data)
        self._batches.committed = manifest.batch
        self._failures.clear()
        self._failed = 0
        if manifest.until_seq >= self._treatment.until_seq:
            self._treatment = Treatment()
        self.progress.rows += manifest.rows
        self.progress.batches += 1
        self.progress.poisoned += len(manifest.poison)
        if times.batch == manifest.batch:
            self.progress.batch_s = times.seconds
        self._recent = [*self._recent, (time.monotonic(), manifest.rows)][-_RATE_BATCHES:]
        if not self._settings.once:
            self._gold.after_batch()
        if self._compactor is not None:
            self._compactor.after_batch()
        progress = self.progress
        progress.files = sum(map(len, manifest.adds.values()))
        progress.bytes = sum(file.bytes for files in manifest.adds.values() for file in files)
        self._update_progress(manifest)
        self._publish_progress()

    def _on_query_batch(self, batch: QueryBatch) -> None:
        """Publish how long the phases of a batch took. Called by Spark in another thread, after the batch."""
        times = read_commit_times(self.paths.data)
        own = times.phases_s if times.batch == batch.batch else {}
        self.progress.phases_s = {**batch.phases_s, **own}
        figures = {f"{name}_s": round(seconds, 3) for name, seconds in self.progress.phases_s.items()}
        counts = {name: count for name, count in batch.observed.items() if name in ("records", "files", "bytes")}
        state = {"state_bytes": self.progress.state_bytes, "open_rows": sum(self.progress.open_rows.values())}
        _log.info("batch committed", extra={"batch": batch.batch, **counts, **state, **figures})
        self._publish_progress()

    def _treat(self, failure: BaseException) -> bool:
        """Return whether to run the batch again at once, in another way. Otherwise it is retried as it is, later.

        A batch that failed before is searched for the records that break it. Records that a task cannot read are left
        out only if they are damaged for this process as well: a worker that merely does not see them has to see them
        first.
        """
        last = self._batches.manifests.last()
        is_computed = last is not None and self._batches.committed < last.batch
        batch = next_batch(last) - is_computed  # the last one, if only its commits are missing
        self._reason = summarize_error(failure)
        if not is_computed and not is_commit_error(failure) and self._failures.times(batch):
            try:
                treatment = self._next_treatment(batch, last, failure)
            except StorageError as error:
                self._reason = summarize_error(error)
            else:
                if treatment is not None:
                    self._treatment = treatment
                    return True
        self._treatment = Treatment()
        self._failures.add(batch, self._reason)
        return False

    def _next_treatment(self, batch: int, last: Manifest | None, failure: BaseException) -> Treatment | None:
        """Return what to try next with a batch that failed again, or None if everything was tried."""
        until_seq = planned_end(self.paths, batch)
        if until_seq is None:
            return None
        index = BlockIndex(self.paths.log)
        from_seq = max(index.oldest_seq, 0 if last is None else last.until_seq)
        now_us = max((block.at_max_us for block in index.ranges(from_seq, until_seq)), default=0)
        before = self._treatment
        damaged = tuple(damaged_gaps(self.paths.log, from_seq, until_seq, index.salt))
        if are_records_missing(failure):
            return Treatment(until_seq, damaged=damaged) if damaged and not before.damaged else None
        if not before.isolate:
            _log.warning("batch %d failed again: searching for the records that break it", batch)
            return Treatment(until_seq, isolate=True, damaged=damaged)
        if before.poison:
            return None
        plan = self._plan(Treatment(until_seq, damaged=damaged))
        try:
            poison = find_poison(
                self.paths.log, Span(from_seq, until_seq, now_us), partial(dry_run, self._spark, plan, self._copies)
            )
        except NoPoisonRecordError as reason:
            raise StorageError(f"{reason}: {summarize_error(failure)}") from failure
        return Treatment(until_seq, frozenset(poison), isolate=True, damaged=damaged)

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
        progress.state_bytes = sum(file.bytes for files in manifest.bucket_states.values() for file in files)
        progress.open_rows = manifest.open_rows
        progress.gold_seq, progress.gold_at_us = gold.until_seq, gold.now_us
        if self._compactor is not None:
            progress.files_joined = self._compactor.files_joined
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            progress.rows_s = sum(rows for _, rows in self._recent[1:]) / max(seconds, 1e-3)

    def _publish_progress(self) -> None:
        with self._publishing:
            self.progress.written_at_ms = time.time_ns() // 1_000_000
            write_progress(self.paths.data, self.progress)
            self._on_progress(self.progress)


class SparkLostError(StorageError):
    """Raised if the JVM has exited: only a new process can continue."""
