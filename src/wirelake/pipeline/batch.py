"""One micro-batch: one Spark job, an intent, a commit for each table.

spans ─▶ land ─▶ shuffle by bucket, sort ─▶ settle ─▶ reports ─▶ intent ─▶ commits ─▶ the log's position
"""

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from wirelake.lake.tables import TABLES
from wirelake.log.files import Files
from wirelake.log.positions import Positions
from wirelake.pipeline.bucket import Bucketing
from wirelake.pipeline.commits import Commits, committing
from wirelake.pipeline.intents import Intent, Intents
from wirelake.pipeline.land import Landing
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.parquet import FileAction
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

    def __init__(self, spark: "SparkSession", places: Places, stream: Stream, rules: Rules = RULES) -> None:
        self._spark = spark
        self._rules = rules
        self._places = places
        self._stream = stream
        self._positions = Positions(places.log, Files())
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
        self, spans: "DataFrame", batch: int, poison: frozenset[int] = frozenset(), isolate: bool = False
    ) -> Intent:
        """Runs the job and writes the intent down."""
        before = self.intents.last()
        reports = self.run(spans, Landing(self._places.log, self._places.lake, self._stream.buckets, poison, isolate))
        intent = intent_of(batch, reports, before)
        sync_offsets(self._places, batch)
        self.intents.write(intent)
        if before is not None:
            for name in set(before.carry.values()) - set(intent.carry.values()):
                (self._places.carry / name).unlink(missing_ok=True)
        return intent

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

    def try_out(self, spans: list[Span], poison: frozenset[int] = frozenset()) -> None:
        """The same without writing anything: raises if the job fails on these."""
        rows = [astuple(span) for span in spans]
        landing = Landing(self._places.log, self._places.lake, self._stream.buckets, poison, isolate=False, dry=True)
        self.run(self._spark.createDataFrame(rows, _SPANS), landing)


def intent_of(batch: int, reports: list[Report], before: Intent | None) -> Intent:
    """What the tasks wrote, and what it takes the place of."""
    landed = [report for report in reports if isinstance(report, Landed)]
    bucketed = [report for report in reports if isinstance(report, Bucketed)]
    if not landed:
        raise AssertionError("a batch has a span")
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
        adds=adds,
        removes=removes,
        open=open_rows,
        carry=carry,
        dirty_us={name: sorted(minutes) for name, minutes in dirty.items()},
    )


def _add(adds: dict[str, list[FileAction]], files: Iterable[FileAction]) -> None:
    for file in files:
        adds.setdefault(TABLES[file.table].name, []).append(file)
