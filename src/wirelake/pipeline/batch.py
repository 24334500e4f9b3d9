"""One micro-batch: one Spark job, an intent, a commit for each table.

spans ─▶ land ─▶ shuffle by bucket, sort ─▶ settle ─▶ reports ─▶ intent ─▶ commits ─▶ the log's position
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple, replace

from wirelake.errors import MissingRecordsError
from wirelake.lake.tables import BATCHES, FRAMES, TABLES
from wirelake.limits import PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.range_reader import Gap
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.accounts import HOUR_US, RECORDS_LOST, RECORDS_REMOVED, account_rows, joined
from wirelake.pipeline.bucket import Bucketing
from wirelake.pipeline.commits import Commits, committing
from wirelake.pipeline.file_checks import FileChecks
from wirelake.pipeline.intents import Intent, Intents
from wirelake.pipeline.land import Landing
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.memory.outcome import minutes_of
from wirelake.pipeline.parquet import FileAction, write
from wirelake.pipeline.places import Places
from wirelake.pipeline.reports import REPORTS, SHUFFLED, Bucketed, Landed, Report, read_report
from wirelake.pipeline.spans import Span
from wirelake.pipeline.stream import CONSUMER, Stream, sync_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_SPANS: Final = ", ".join(f"{name} long" for name in Span.__struct_fields__)


class Batches:
    """Computes batches and puts them into the tables. What is written of a batch that fails is never seen."""

    def __init__(
        self,
        spark: "SparkSession",
        places: Places,
        stream: Stream,
        rules: Rules = RULES,
        wait_s: float = PIPELINE_VIEW_WAIT_S,
    ) -> None:
        self._spark = spark
        self._rules = rules
        self._wait_s = wait_s
        self._places = places
        self._stream = stream
        self._positions = ConsumerOffsets(places.log)
        self.commits = Commits(places.lake, stream.app)
        self.intents = Intents(places.checkpoint)
        self.committed = -1  # the newest batch that is known to be in every table

    def heal(self) -> None:
        """Finish what was begun: by a process that ended too early, or before the power went."""
        for intent in self.intents.since(-1):
            for name in intent.tables:
                if self.commits.version(name) < intent.batch:
                    self.commits.present(intent.adds.get(name, ()))
            self._into_tables(intent)
        last = self.intents.last()
        if last is not None:
            self.commit(last)
        needed = set(last.carry.values()) if last is not None else set()
        for path in self._places.carry.iterdir():
            if path.name not in needed:
                path.unlink()

    def commit(self, intent: Intent) -> None:
        """Into every table that does not have it; only then the log may forget its records."""
        self._into_tables(intent)
        self._positions.commit(CONSUMER, intent.until_seq, time.time_ns() // 1000)

    def _into_tables(self, intent: Intent) -> None:
        with committing(self._places.lake):
            for name in intent.tables:
                self.commits.commit(name, intent.batch, intent.adds.get(name, ()), intent.removes.get(name, ()))
        self.committed = max(self.committed, intent.batch)

    def compute(
        self,
        spans: "DataFrame",
        batch: int,
        poison: frozenset[int] = frozenset(),
        isolate: bool = False,
        damaged: Sequence[Gap] = (),
    ) -> Intent:
        """Runs the job and writes the intent down."""
        before = self.intents.last()
        reports = self.run(spans, self._landing(poison=poison, isolate=isolate, damaged=tuple(damaged)))
        intent = intent_of(batch, reports, before)
        intent = replace(intent, removed=self._removed(intent, before))
        self._check_files(intent, reports)
        intent = self._accounted(intent, before)
        sync_offsets(self._places, batch)
        self.intents.write(intent)
        if before is not None:
            for name in set(before.carry.values()) - set(intent.carry.values()):
                (self._places.carry / name).unlink(missing_ok=True)
        return intent

    def _landing(self, **rest: Any) -> Landing:
        places = self._places
        return Landing(places.log, places.lake, self._stream.buckets, wait_s=self._wait_s, **rest)

    def _check_files(self, intent: Intent, reports: list[Report]) -> None:
        """What the tables and the next batch are going to refer to is there, as this process sees it."""
        checks = FileChecks(self._wait_s)
        for files in intent.adds.values():
            checks.tables(self._places.lake, files)
        for report in reports:
            if isinstance(report, Bucketed) and report.carry is not None:
                checks.file(self._places.carry / report.carry, report.carry_bytes, report.worker)

    def _accounted(self, intent: Intent, before: Intent | None) -> Intent:
        """With the driver's own account of the batch, as one more file."""
        if before is None:
            since_us = 0
        elif before.accounted_us is None:  # the tables are older than the account: it begins with the next hour
            since_us = (intent.now_us // HOUR_US + 1) * HOUR_US
        else:
            since_us = before.accounted_us
        counts = Counter(intent.counts)
        counts[RECORDS_LOST] = sum(gap.rows for gap in intent.gaps)
        counts[RECORDS_REMOVED] = intent.removed
        counts = +counts
        rows = account_rows(
            intent.batch, (intent.from_seq, intent.until_seq), intent.now_us, intent.read, counts, since_us
        )
        return replace(
            intent,
            counts=dict(counts),
            totals=dict(counts + Counter(before.totals if before is not None else {})),
            accounted_us=since_us,
            adds={**intent.adds, BATCHES.name: write(BATCHES, rows, self._places.lake)},
            dirty_us={**intent.dirty_us, BATCHES.name: sorted(minutes_of(BATCHES, rows))},
        )

    def _removed(self, intent: Intent, before: Intent | None) -> int:
        """How many records before this batch nobody read, because retention removed them. Nothing else may lie there:
        a batch begins where the one before it ended.
        """
        expected_seq = intent.from_seq if before is None else before.until_seq
        removed = intent.from_seq - expected_seq
        if removed and not expected_seq < intent.from_seq <= LogReader(self._places.log).oldest_seq:
            raise MissingRecordsError(
                f"batch {intent.batch} begins with record {intent.from_seq}, but the one before it ended before record "
                f"{expected_seq}: the checkpoint in {self._places.checkpoint} does not fit the tables; bring both back"
            )
        return removed

    def run(self, spans: "DataFrame", landing: Landing) -> list[Report]:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        before = self.intents.last()
        carry = dict(before.carry) if before is not None else {}
        bucketing = Bucketing(
            self._places.lake, self._places.state, self._places.carry, carry, landing.dry, self._rules
        )
        landed = spans.mapInArrow(landing.task(), from_arrow_schema(SHUFFLED))
        sorted_items = landed.repartitionById(landing.buckets, "bucket").sortWithinPartitions("kind", "key", "seq")
        rows = sorted_items.mapInArrow(bucketing.task(), from_arrow_schema(REPORTS)).collect()
        return [read_report(row.report) for row in rows]

    def try_out(self, spans: list[Span], damaged: Sequence[Gap] = ()) -> None:
        """The same without writing anything: raises if the job fails on these."""
        rows = [astuple(span) for span in spans]
        self.run(self._spark.createDataFrame(rows, _SPANS), self._landing(dry=True, damaged=tuple(damaged)))


def intent_of(batch: int, reports: list[Report], before: Intent | None) -> Intent:
    """What the tasks wrote, and what it takes the place of."""
    landed = [report for report in reports if isinstance(report, Landed)]
    bucketed = [report for report in reports if isinstance(report, Bucketed)]
    if not landed:
        raise AssertionError("a batch has a span")
    _check_complete(landed)
    adds: dict[str, list[FileAction]] = {}
    removes: dict[str, list[FileAction]] = {}
    dirty: dict[str, set[int]] = {}
    open_rows = {name: dict(buckets) for name, buckets in before.open.items()} if before is not None else {}
    carry = dict(before.carry) if before is not None else {}
    for report in landed:
        _add(adds, report.files)
    for each in bucketed:
        _add(adds, each.final)
        for name, files in each.open.items():
            old = open_rows.setdefault(name, {}).pop(each.bucket, [])
            if old:
                removes.setdefault(name, []).extend(old)
            if files:
                open_rows[name][each.bucket] = files
            _add(adds, files)
        if each.carry is not None:
            carry[each.bucket] = each.carry
    for changed in (*(report.dirty_us for report in landed), *(each.dirty_us for each in bucketed)):
        for name, minutes in changed.items():
            dirty.setdefault(name, set()).update(minutes)
    return Intent(
        batch=batch,
        from_seq=min(report.from_seq for report in landed),
        until_seq=max(report.until_seq for report in landed),
        now_us=max(report.now_us for report in landed),
        rows=sum(report.rows for report in landed),
        poison=sorted(seq for report in landed for seq in report.poison),
        read=joined([report.read for report in landed]),
        counts=dict(sum((Counter(each.counts) for each in bucketed), Counter())),
        gaps=sorted((gap for report in landed for gap in report.gaps), key=lambda gap: gap.first_seq),
        adds=adds,
        removes=removes,
        open=open_rows,
        carry=carry,
        dirty_us={name: sorted(minutes) for name, minutes in dirty.items()},
    )


def _check_complete(landed: list[Landed]) -> None:
    """Every record of the batch was read by one task, or is known to be lost; and what was read was written."""
    spans = sorted(landed, key=lambda report: report.from_seq)
    for report, following in zip(spans, [*spans[1:], None], strict=True):
        what = f"the task for records {report.from_seq} to {report.until_seq - 1}"
        lost = sum(gap.rows for gap in report.gaps)
        if report.rows + lost != report.until_seq - report.from_seq:
            raise MissingRecordsError(f"{what} read {report.rows} records, with {lost} lost")
        written = sum(file.rows for file in report.files if file.table == FRAMES.name)
        if written != report.rows:
            raise MissingRecordsError(f"{what} read {report.rows} records, but wrote {written} to {FRAMES.name}")
        if following is not None and following.from_seq != report.until_seq:
            raise MissingRecordsError(f"{what} is followed by one that begins with record {following.from_seq}")


def _add(adds: dict[str, list[FileAction]], files: Iterable[FileAction]) -> None:
    for file in files:
        adds.setdefault(TABLES[file.table].name, []).append(file)
