"""Ingest a span of the log in an executor: write rows to disk, and return events for the second half of the batch.

Everything that needs no memory is written here: bronze as it is, decoded messages, quarantined frames, notifications,
the readings of telemetry, and the audit.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.json import Decoder

from wirelake.lake.store import Store
from wirelake.lake.tables import AUDIT, FRAMES, MESSAGES, NOTIFICATIONS, QUARANTINE, READINGS, LakeTable
from wirelake.limits import PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.reader import Gap
from wirelake.pipeline.commit.files import FileAction, TableWriter, mark_worker
from wirelake.pipeline.commit.manifests import ReadCounter
from wirelake.pipeline.gold.partials import PartialSums, encode_partials
from wirelake.pipeline.ingest import audit
from wirelake.pipeline.ingest.decode import DecodedBatch, decode_batch
from wirelake.pipeline.ingest.log_copies import FOLDER
from wirelake.pipeline.ingest.spans import Span, SpanReader
from wirelake.pipeline.reports import BatchClock, SpanReport, TaskReport
from wirelake.pipeline.shuffle import shuffle_events, shuffle_reports
from wirelake.pipeline.stateful.reduce import events_of
from wirelake.pipeline.stateful.tallies import COUNTERS

POISON: Final = "poison"
_TABLES: Final = (FRAMES, MESSAGES, QUARANTINE, NOTIFICATIONS, READINGS, AUDIT)


class IngestTask(Struct, frozen=True):
    """Describe how to ingest spans. This is sent to the executors."""

    log: Path
    lake: Store
    buckets: int
    poison: frozenset[int] = frozenset()  # records that are known to break the decoder: not decoded
    isolate: bool = False  # search for such records, if a codec raises what no codec should
    dry: bool = False  # write nothing
    damaged: tuple[Gap, ...] = ()  # records that the driver found damaged too: only these may be left out
    wait_s: float = PIPELINE_VIEW_WAIT_S  # for the records of the span to appear on this machine

    def ingest(self, span: Span) -> Iterator[Any]:
        """Write the rows of a span; yield its events, and the reports to buckets and driver."""
        files = _TaskFiles(self)
        poison: list[int] = []
        rows, read = 0, ReadCounter()
        copies = self.lake.at(FOLDER)
        reader = SpanReader(self.log, span, copies=copies, wait_s=self.wait_s, damaged=self.damaged)
        try:
            for batch in reader.batches():
                rows += batch.num_rows
                read.add(batch)
                decoded, events, bad = self._decode(batch)
                poison += bad["seq"].to_pylist()
                files.write(FRAMES, with_day(batch))
                files.write(MESSAGES, decoded.messages)
                files.write(QUARANTINE, pa.concat_batches([decoded.quarantine, poison_rows(bad)]))
                files.write(NOTIFICATIONS, notification_rows(batch))
                files.write(READINGS, decoded.readings)
                files.write(AUDIT, audit.rows_of(batch))
                if events.num_rows:
                    yield shuffle_events(events)
            actions = mark_worker(files.close())
        except BaseException:
            files.discard()
            raise
        report = SpanReport(
            span.from_seq,
            span.until_seq,
            span.now_us,
            rows,
            actions,
            files.partials,
            poison,
            reader.gaps,
            read.counts(),
        )
        reports: list[tuple[int, TaskReport]] = [(0, report)]
        reports += [(bucket, BatchClock(span.now_us)) for bucket in range(self.buckets)]
        yield shuffle_reports(reports)

    def _decode(self, batch: Any) -> tuple[DecodedBatch, Any, Any]:
        """Return the decoded batch, its events, and the records that were not decoded."""
        unfiltered, bad = batch, batch.slice(0, 0)
        if self.poison:
            known = pc.is_in(batch["seq"], pa.array(sorted(self.poison), pa.int64()))
            batch, bad = batch.filter(pc.invert(known)), batch.filter(known)
        if self.isolate:
            batch, found = isolate_failing(batch, lambda some: events_of(some, decode_batch(some), self.buckets))
            bad = pa.concat_batches([bad, found]).sort_by("seq")
        decoded = decode_batch(batch, by_protocol=True)
        if not bad.num_rows:
            return decoded, events_of(batch, decoded, self.buckets), bad
        tallied = unfiltered.filter(
            pc.or_(pc.is_in(unfiltered["seq"], batch["seq"]), pc.not_equal(unfiltered["event"], COUNTERS))
        )
        return decoded, events_of(batch, decoded, self.buckets, read=tallied), bad


def isolate_failing(batch: Any, attempt: Callable[[Any], object]) -> tuple[Any, Any]:
    """Return the records on which `attempt` succeeds and those on which it raises, found by bisection."""
    try:
        attempt(batch)
    except Exception:  # noqa: BLE001 (an installed codec may raise anything)
        if batch.num_rows == 1:
            return batch.slice(0, 0), batch
        half = batch.num_rows // 2
        parts = [isolate_failing(part, attempt) for part in (batch.slice(0, half), batch.slice(half))]
        good, bad = zip(*parts, strict=True)
        return pa.concat_batches(list(good)), pa.concat_batches(list(bad))
    return batch, batch.slice(0, 0)


class _TaskFiles:
    """Write the files of a task, and summarize their rows."""

    def __init__(self, task: IngestTask) -> None:
        self._dry = task.dry
        self._writers = {table.name: TableWriter(table, task.lake) for table in _TABLES}
        self._sums = PartialSums()

    def write(self, table: LakeTable, rows: Any) -> None:
        if self._dry or not rows.num_rows:
            return
        self._writers[table.name].write(rows)
        self._sums.add(table.name, rows)

    def close(self) -> list[FileAction]:
        return [action for writer in self._writers.values() for action in writer.close()]

    def discard(self) -> None:
        for writer in self._writers.values():
            writer.discard()

    @property
    def partials(self) -> bytes:
        return encode_partials(self._sums.result())


def with_day(batch: Any) -> Any:
    """Return records of the log as rows of bronze.frames."""
    columns = [*batch.columns, batch["at"].cast(pa.date32())]
    return pa.record_batch(columns, names=FRAMES.schema.names)


def poison_rows(bad: Any) -> Any:
    """Return records that break the decoder as rows of silver.quarantine."""
    rows = []
    for row in bad.to_pylist():
        columns = {name: row[name] for name in QUARANTINE.schema.names if name in row}
        columns["received_at"] = row["at"]
        text = "the decoder raises an unexpected error or crashes on this record: fix the decoder and redecode"
        day = datetime.fromtimestamp(row["at"].timestamp(), UTC).date()
        rows.append(columns | {"reason": POISON, "text": text, "byte_offset": 0, "day": day})
    return pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.schema)


class _PublishNote(Struct, frozen=True, gc=False):
    """Hold the note of a record of a publish."""

    id: str
    topic: str
    position: int
    type: int
    by: str


_publish_note: Final = Decoder(_PublishNote).decode


def notification_rows(batch: Any) -> Any:
    """Return the records of publishes as rows of silver.notifications."""
    found = batch.filter(pc.equal(batch["event"], "publish"))
    notes = [_publish_note(text) for text in found["note"].to_pylist()]
    columns = {name: found[name] for name in ("seq", "node", "protocol")}
    columns |= {
        "received_at": found["at"],
        "id": pa.array([note.id for note in notes], pa.string()),
        "topic": pa.array([note.topic for note in notes], pa.string()),
        "position": pa.array([note.position for note in notes], pa.int64()),
        "type": pa.array([note.type for note in notes], pa.int64()),
        "publisher": pa.array([note.by for note in notes], pa.string()),
        "content": found["frame"],
        "day": found["at"].cast(pa.date32()),
    }
    return pa.record_batch([columns[name] for name in NOTIFICATIONS.schema.names], NOTIFICATIONS.schema)
