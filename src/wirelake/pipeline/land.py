"""The first half of a batch, in the executors: a span of the log becomes rows on disk, and items for the second half.

What needs no memory is written here: bronze as it is, decoded messages, what could not be decoded, notifications.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.tables import FRAMES, MESSAGES, NOTIFICATIONS, QUARANTINE, Table
from wirelake.limits import PIPELINE_VIEW_WAIT_S
from wirelake.log.segments.range_reader import Gap
from wirelake.pipeline.accounts import ReadCounts
from wirelake.pipeline.decode.batch import decode_batch
from wirelake.pipeline.decode.decoded import Decoded
from wirelake.pipeline.file_checks import from_here
from wirelake.pipeline.items import items_of
from wirelake.pipeline.memory.tallies import COUNTERS
from wirelake.pipeline.notifications import notifications_of
from wirelake.pipeline.parquet import FileAction, TableWriter
from wirelake.pipeline.reading import SpanReader
from wirelake.pipeline.reports import SHUFFLED, Landed, Report, Tick, shuffled
from wirelake.pipeline.spans import Span

POISON: Final = "poison"
_TABLES: Final = (FRAMES, MESSAGES, QUARANTINE, NOTIFICATIONS)
_MINUTE_US: Final = 60_000_000


class Landing(Struct, frozen=True):
    """How to land spans; goes to the executors."""

    log: Path
    lake: Path
    buckets: int
    poison: frozenset[int] = frozenset()  # records that are known to break something: not to be looked into
    isolate: bool = False  # look for such records, when a codec raises what no codec should
    dry: bool = False  # write nothing
    damaged: tuple[Gap, ...] = ()  # records that the driver found damaged too: only these may be left out
    wait_s: float = PIPELINE_VIEW_WAIT_S  # for the records of the span to be seen on this machine

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For mapInArrow over spans."""

        def land(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for row in batch.to_pylist():
                    yield from self.land(Span(**row))

        return land

    def land(self, span: Span) -> Iterator[Any]:
        written = _Written(self)
        poison: list[int] = []
        rows, read = 0, ReadCounts()
        reader = SpanReader(self.log, span, wait_s=self.wait_s, damaged=self.damaged)
        try:
            for batch in reader.batches():
                rows += batch.num_rows
                read.add(batch)
                decoded, items, bad = self._decoded(batch)
                poison += bad["seq"].to_pylist()
                quarantine = pa.concat_batches([decoded.quarantine, poisoned(bad)])
                written.write(FRAMES, with_day(batch))
                written.write(MESSAGES, decoded.messages)
                written.write(QUARANTINE, quarantine)
                written.write(NOTIFICATIONS, notifications_of(batch))
                if items.num_rows:
                    yield as_shuffled(items)
            files = from_here(written.close())
        except BaseException:
            written.discard()
            raise
        landed = Landed(
            span.from_seq,
            span.until_seq,
            span.now_us,
            rows,
            files,
            written.dirty_us,
            poison,
            reader.gaps,
            read.all(),
        )
        reports: list[tuple[int, Report]] = [(0, landed)]
        reports += [(bucket, Tick(span.now_us)) for bucket in range(self.buckets)]
        yield shuffled(reports)

    def _decoded(self, batch: Any) -> tuple[Decoded, Any, Any]:
        """What it says, its items, and the records that are not to be looked into."""
        whole, bad = batch, batch.slice(0, 0)
        if self.poison:
            known = pc.is_in(batch["seq"], pa.array(sorted(self.poison), pa.int64()))
            batch, bad = batch.filter(pc.invert(known)), batch.filter(known)
        if self.isolate:
            batch, found = isolated(batch, lambda some: items_of(some, decode_batch(some), self.buckets))
            bad = pa.concat_batches([bad, found]).sort_by("seq")
        decoded = decode_batch(batch)
        if not bad.num_rows:
            return decoded, items_of(batch, decoded, self.buckets), bad
        tallied = whole.filter(pc.or_(pc.is_in(whole["seq"], batch["seq"]), pc.not_equal(whole["event"], COUNTERS)))
        return decoded, items_of(batch, decoded, self.buckets, read=tallied), bad


def isolated(batch: Any, attempt: Callable[[Any], object]) -> tuple[Any, Any]:
    """The records that can be decoded, and those that cannot even be refused: found by halving."""
    try:
        attempt(batch)
    except Exception:  # noqa: BLE001 (whatever a codec that is not ours raises)
        if batch.num_rows == 1:
            return batch.slice(0, 0), batch
        half = batch.num_rows // 2
        parts = [isolated(part, attempt) for part in (batch.slice(0, half), batch.slice(half))]
        fine, bad = zip(*parts, strict=True)
        return pa.concat_batches(list(fine)), pa.concat_batches(list(bad))
    return batch, batch.slice(0, 0)


class _Written:
    """The files of a task, and the minutes whose rows they hold."""

    def __init__(self, landing: Landing) -> None:
        self._dry = landing.dry
        self._writers = {table.name: TableWriter(table, landing.lake) for table in _TABLES}
        self._minutes: dict[str, set[int]] = {}

    def write(self, table: Table, rows: Any) -> None:
        if self._dry or not rows.num_rows:
            return
        self._writers[table.name].write(rows)
        if table is not FRAMES:  # nothing is worked out from bronze by the minute
            self._minutes.setdefault(table.name, set()).update(minutes_us(rows["at"]))

    def close(self) -> list[FileAction]:
        return [action for writer in self._writers.values() for action in writer.close()]

    def discard(self) -> None:
        for writer in self._writers.values():
            writer.discard()

    @property
    def dirty_us(self) -> dict[str, list[int]]:
        return {name: sorted(minutes) for name, minutes in self._minutes.items()}


def minutes_us(at: Any) -> list[int]:
    """The minutes that these times are in."""
    numbers = at.cast(pa.int64())
    minutes = pc.unique(pc.divide(numbers, _MINUTE_US)).to_pylist()
    return [minute * _MINUTE_US for minute in minutes]


def with_day(batch: Any) -> Any:
    """Records of the log as rows of bronze.frames."""
    return batch.append_column("day", batch["at"].cast(pa.date32()))


def poisoned(bad: Any) -> Any:
    """Such records, as rows of the quarantine."""
    rows = []
    for row in bad.to_pylist():
        kept = {name: row[name] for name in QUARANTINE.schema.names if name in row}
        text = "the decoder fails on this record in a way that no record should make it fail"
        day = datetime.fromtimestamp(row["at"].timestamp(), UTC).date()
        rows.append(kept | {"reason": POISON, "text": text, "offset": 0, "day": day})
    return pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.schema)


def as_shuffled(items: Any) -> Any:
    return pa.record_batch([*items.columns, pa.nulls(items.num_rows, pa.string())], schema=SHUFFLED)
