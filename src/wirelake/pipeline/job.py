"""The job: a streaming query over the log that fills the tables, until it is told to stop or all is done."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from wirelake.errors import StorageError
from wirelake.lake.damage import explain
from wirelake.lake.progress import Progress, write_progress
from wirelake.limits import (
    LAKE_COMPACT_EVERY_BATCHES,
    PIPELINE_ONCE_ATTEMPTS_MAX,
    PIPELINE_PARTITION_BYTES,
    PIPELINE_PARTITION_ROWS,
    PIPELINE_STOP_S,
    PIPELINE_TRIGGER_S,
    PIPELINE_VIEW_WAIT_S,
)
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.range_reader import damaged_gaps
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.accounts import DROPPED
from wirelake.pipeline.batch import Batches
from wirelake.pipeline.compaction import Compacting
from wirelake.pipeline.failures import Failures, are_records_missing, pause_s, sentence
from wirelake.pipeline.intents import Intent
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.places import Places
from wirelake.pipeline.poison import NotTheRecordsError, find_poison
from wirelake.pipeline.refreshing import Part, Refreshing
from wirelake.pipeline.spans import Span
from wirelake.pipeline.stream import CONSUMER, StreamLock, open_stream, spark_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)
_LOOK_S: Final = 0.2  # how often a waiting job looks whether it is to stop
_RATE_BATCHES: Final = 10  # over which rows per second are told


class JobSettings(Struct, frozen=True, kw_only=True):
    once: bool = False
    trigger_s: float = PIPELINE_TRIGGER_S
    gone: str = "fail"  # or "oldest": what retention removed before it was read is left out
    batch_rows: int | None = None
    compact_every: int = LAKE_COMPACT_EVERY_BATCHES  # batches; 0 is never
    rules: Rules = RULES
    view_wait_s: float = PIPELINE_VIEW_WAIT_S  # for what another machine wrote to be seen


class Job:
    """One process's work on one data folder. `told` is called after every batch, from another thread."""

    def __init__(
        self,
        spark: "SparkSession",
        data: Path,
        settings: JobSettings = JobSettings(),  # noqa: B008 (frozen)
        gold: Sequence[Part] = (),
        told: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._told = told
        self.places = Places.of(data)
        self._lock = StreamLock(self.places)
        try:
            self._stream = open_stream(self.places)
        except BaseException:
            self._lock.release()
            raise
        self._batches = Batches(spark, self.places, self._stream, settings.rules, settings.view_wait_s)
        self._failures = Failures(self.places.checkpoint)
        self._refreshing = Refreshing(spark, self.places.lake, self.places.checkpoint, self._batches, gold)
        every = settings.compact_every
        self._compacting = Compacting(self.places.lake, every) if every else None
        self._stopping = threading.Event()
        self._failed = 0  # times in a row
        self._reason = ""  # of the last batch that failed
        self._recent: list[tuple[float, int]] = []  # (when a batch ended, its rows)
        self.progress = Progress(pid=os.getpid(), ui=spark.sparkContext.uiWebUrl or "")

    def run(self) -> None:
        """Returns when told to stop or, with `once`, when everything is done that was in the log at the start."""
        try:
            self._prepare()
            while not self._stopping.is_set():
                failure = self._run_query()
                if failure is None:
                    break
                self._recover(failure)
            self._refreshing.close()
            self._refresh()
        finally:
            self._refreshing.close()
            if self._compacting is not None:
                self._compacting.close()
            self.progress.running = False
            self._tell()
            self._lock.release()

    def stop(self) -> None:
        """From any thread, or a signal's handler."""
        self._stopping.set()

    def _prepare(self) -> None:
        """Register with the log before anything is read, then finish what an earlier process began."""
        positions = ConsumerOffsets(self.places.log)
        if positions.get(CONSUMER) is None:
            positions.commit(CONSUMER, LogReader(self.places.log).oldest_seq, time.time_ns() // 1000)
        self._batches.heal()
        last = self._batches.intents.last()
        if last is not None:
            self._note(last)
        self._tell()

    def _run_query(self) -> BaseException | None:
        """What it failed with; None if it was to end."""
        try:
            query = self._start()
            ended = False
            while not ended and not self._stopping.is_set():
                ended = bool(query.awaitTermination(_LOOK_S))  # type: ignore[arg-type] # it takes fractions
            if not ended:
                self._end(query)
        except Exception as error:  # noqa: BLE001 (of Spark: whatever the query failed with)
            return None if self._stopping.is_set() else error
        return None

    def _start(self) -> "StreamingQuery":
        parallel = self._spark.sparkContext.defaultParallelism
        rows = self._settings.batch_rows or PIPELINE_PARTITION_ROWS * parallel
        source = self._spark.readStream.format("wirelake").option("view", "spans")
        source = source.option("gone", self._settings.gone).option("maxRows", str(rows))
        spans = source.option("maxBytes", str(PIPELINE_PARTITION_BYTES * parallel)).load(str(self.places.data))
        writer = spans.writeStream.queryName("tables").foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(spark_checkpoint(self.places)))
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _end(self, query: "StreamingQuery") -> None:
        """A batch under way is finished first, if that does not take long; it could be left: it would be healed."""
        deadline_s = time.monotonic() + PIPELINE_STOP_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S / 4)
        query.stop()

    def _batch(self, spans: "DataFrame", batch: int) -> None:
        """One micro-batch, called by Spark."""
        if self._stopping.is_set():
            raise StorageError("the job is being stopped")
        started_s = time.monotonic()
        intent = self._batches.intents.get(batch)
        try:
            if intent is None:
                intent = self._computed(spans, batch)
            self._batches.commit(intent)
        except Exception as error:
            damage = None if isinstance(error, StorageError) else explain(self.places.lake, error)
            self._reason = sentence(damage or error)  # Spark would wrap it in its own words
            self._failures.note(batch, self._reason)
            raise
        self._failures.clear()
        self._failed = 0
        self.progress.rows += intent.rows
        self.progress.batches += 1
        self.progress.poisoned += len(intent.poison)
        self.progress.batch_s = time.monotonic() - started_s
        self._recent = [*self._recent, (time.monotonic(), intent.rows)][-_RATE_BATCHES:]
        if not self._settings.once:
            self._refreshing.after_batch()
        if self._compacting is not None:
            self._compacting.after_batch()
        self._note(intent)
        self._tell()

    def _computed(self, spans: "DataFrame", batch: int) -> Intent:
        """A batch that failed before is tried once more as it is; then the records that break it are looked for.

        Records that a task cannot read are not among them: they are left out only if they are damaged where this
        process reads them too. A worker that does not see them has to see them first.
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
        damaged = damaged_gaps(self.places.log, whole.from_seq, whole.until_seq, salt)
        if are_records_missing(failure):
            if not damaged:
                raise failure
            return self._batches.compute(spans, batch, damaged=damaged)
        _log.warning("batch %d failed again: looking for the records that break it", batch)
        try:
            return self._batches.compute(spans, batch, isolate=True, damaged=damaged)
        except Exception as error:  # noqa: BLE001 (the search says which record, or that it is none)
            try:
                poison = find_poison(self.places.log, whole, partial(self._batches.try_out, damaged=damaged))
            except NotTheRecordsError as reason:
                raise StorageError(f"{reason}: {sentence(error)}") from error
        return self._batches.compute(spans, batch, poison=frozenset(poison), isolate=True, damaged=damaged)

    def _recover(self, failure: BaseException) -> None:
        """A pause that grows, so that a fault of the machine has time to pass; then the query is started anew."""
        self._failed += 1
        last = self._failures.last()  # of a batch, from this process or one before
        times = max(self._failed, last.times if last is not None else 0)
        text, self._reason = self._reason or sentence(failure), ""
        self.progress.restarts += 1
        self.progress.fail(time.time_ns() // 1_000_000, text)
        self._tell()
        if not is_alive(self._spark):
            raise SparkLostError("Spark's own process has ended") from failure
        if self._settings.once and times >= PIPELINE_ONCE_ATTEMPTS_MAX:
            raise StorageError(f"the pipeline failed {times} times at the same place: {text}") from failure
        seconds = pause_s(times)
        _log.error("the pipeline failed (%s); it starts again in %g s", text, seconds)
        self._stopping.wait(seconds)

    def _refresh(self) -> None:
        self._refreshing.finish()
        self.progress.gold_seq, self.progress.gold_at_us = self._refreshing.mark.until_seq, self._refreshing.mark.now_us

    def _note(self, intent: Intent) -> None:
        progress, mark = self.progress, self._refreshing.mark
        progress.batch, progress.next_seq = intent.batch, intent.until_seq
        progress.at_us = max(progress.at_us, intent.now_us)
        progress.dropped = {name: count for name, count in sorted(intent.totals.items()) if name in DROPPED}
        progress.noted = {name: count for name, count in sorted(intent.totals.items()) if name not in DROPPED}
        progress.gold_seq, progress.gold_at_us = mark.until_seq, mark.now_us
        if self._compacting is not None:
            progress.files_joined = self._compacting.files_joined
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            progress.rows_s = sum(rows for _, rows in self._recent[1:]) / max(seconds, 1e-3)

    def _tell(self) -> None:
        self.progress.written_at_ms = time.time_ns() // 1_000_000
        write_progress(self.places.data, self.progress)
        self._told(self.progress)


class SparkLostError(StorageError):
    """The JVM is gone: only a new process can go on."""


def is_alive(spark: Any) -> bool:
    """Whether the JVM still answers."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 (py4j has many words for it)
        return False
