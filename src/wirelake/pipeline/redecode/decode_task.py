"""Decode frames of bronze again, in the executors, and compare them with the existing rows."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from wirelake.lake.store import Store
from wirelake.lake.tables import AUDIT, FRAMES, MESSAGES, QUARANTINE, READINGS, TEXT, TIME, LakeTable
from wirelake.limits import PIPELINE_CHUNK_ROWS
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.commit.files import FileAction, TableWriter, mark_worker, write_rows
from wirelake.pipeline.ingest import audit
from wirelake.pipeline.ingest.decode import DecodedBatch, decode_batch
from wirelake.pipeline.ingest.readings import NO_READINGS, rows_of
from wirelake.pipeline.ingest.task import POISON, isolate_failing, poison_rows
from wirelake.pipeline.redecode.difference import Difference, compare_rows, is_known, select_rows, sort_by_seq
from wirelake.pipeline.redecode.redact_task import with_frames
from wirelake.pipeline.redecode.seq_ranges import SeqRange, read_range
from wirelake.pipeline.shuffle import shuffle_events, shuffle_reports
from wirelake.pipeline.stateful.reduce import events_of
from wirelake.pipeline.stateful.tallies import COUNTERS
from wirelake.protocols.record_redaction import RecordRedactor


class DecodeUnit(Struct, frozen=True):
    """Describe a range of the log, and the files that overlap it."""

    part: SeqRange
    rows: int  # of bronze, approximately
    at_max_us: int
    frames: list[FileAction]
    messages: list[FileAction]
    quarantine: list[FileAction]


class DecodeReport(Struct, frozen=True, tag="decoded"):
    """Report what became of a unit."""

    frames: int
    messages: Difference
    quarantine: Difference
    decoded: int  # frames that could not be decoded before
    refused: int  # frames that cannot be decoded any more
    files: list[FileAction] = []
    scratch: list[FileAction] = []  # files of new readings, and of the audit, in the scratch folder


class DecodeTask(Struct, frozen=True):
    """Describe how to decode units again. This is sent to the executors."""

    lake: Store
    protocol: str
    since_us: int
    buckets: int
    replayed: str | None  # the kind of events that are to be reduced again
    units: list[DecodeUnit]
    dry: bool
    careful: bool = False  # do not decode what broke the decoder before
    redact: bool = False  # decode the frames as they will be once they are redacted
    scratch: Store | None = None  # for readings and the audit; None if these are not wanted
    takes_readings: bool = False  # of telemetry
    sessions: list[FileAction] = []  # with the identities of sessions that logged in after their first report

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over the numbers of units."""

        def decode(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.decode(self.units[number])

        return decode

    def decode(self, unit: DecodeUnit) -> Iterator[Any]:
        decoded = self.start(unit)
        readings, audited = [READINGS.schema.empty_table()], [AUDIT.schema.empty_table()]
        for batch in self._frames(unit):
            events = decoded.add(batch)
            if self.replayed is not None:
                yield shuffle_events(events_of(batch, events, self.buckets, self.replayed))
            audited.append(_as_table(audit.rows_of(batch)))
            if self.takes_readings:
                readings += [_as_table(events.readings), _as_table(self._admit(events.early_readings))]
        report = self._compare(decoded)
        if self.scratch is not None:
            files = write_scratch(READINGS, pa.concat_tables(readings), self.scratch)
            files += write_scratch(AUDIT, pa.concat_tables(audited), self.scratch)
            report = replace(report, scratch=files)
        yield shuffle_reports([(0, report)])

    def compare(self, unit: DecodeUnit) -> "tuple[DecodeReport, DecodedUnit]":
        """Decode a unit in this process. Return how its rows compare with the existing ones, and both."""
        decoded = self.start(unit)
        for batch in self._frames(unit):
            decoded.add(batch)
        return self._compare(decoded), decoded

    def start(self, unit: DecodeUnit) -> "DecodedUnit":
        """Read the existing rows of a unit."""
        old_messages = read_range(self.lake, MESSAGES, unit.messages, unit.part)
        old_quarantine = read_range(self.lake, QUARANTINE, unit.quarantine, unit.part)
        return DecodedUnit(old_messages, old_quarantine, self.since_us, self.careful)

    def _admit(self, early: Any) -> Any:
        """Return the readings of sessions that logged in afterwards, as rows of the table."""
        if not len(early):
            return NO_READINGS
        wanted = pc.unique(early["session"])
        identities: dict[str, str] = {}
        for file in self.sessions:
            with self.lake.open_input(file.lake_path) as source:
                rows = pq.ParquetFile(source).read(["session", "identity"])
            found = rows.filter(pc.is_in(rows["session"], wanted))
            identities.update(zip(found["session"].to_pylist(), found["identity"].to_pylist(), strict=True))
        known = pa.array([identities.get(session) or None for session in early["session"].to_pylist()], TEXT)
        admitted = pc.is_valid(known)
        return rows_of(early.filter(admitted), known.filter(admitted))

    def _frames(self, unit: DecodeUnit) -> Iterator[Any]:
        """Yield the frames in the order of the log."""
        rows = read_range(self.lake, FRAMES, unit.frames, unit.part, self._select)
        columns = [rows[name].cast(field.type) for name, field in zip(FRAMES.schema.names, SCHEMA, strict=False)]
        ordered = sort_by_seq(pa.table(columns, schema=SCHEMA)).combine_chunks()
        redactor = RecordRedactor(self.protocol) if self.redact else None
        for batch in ordered.to_batches(PIPELINE_CHUNK_ROWS):
            yield batch if redactor is None else with_frames(batch, redactor.redact(batch))

    def _select(self, rows: Any) -> Any:
        """Return the protocol's records and, to reduce events, the starts of gateways."""
        own = pc.equal(rows["protocol"], self.protocol)
        return rows.filter(own if self.replayed is None else pc.or_(own, pc.equal(rows["event"], COUNTERS)))

    def _compare(self, decoded: "DecodedUnit") -> DecodeReport:
        """Compare with the existing rows. Write files with all rows of the range, also those that stay as they were."""
        old_messages, old_quarantine = decoded.old_messages, decoded.old_quarantine
        messages, quarantine = decoded.messages, decoded.quarantine
        records = [rows.select(["node", "seq"]) for rows in (messages, quarantine)]
        read = pa.concat_tables(records)
        found, files = {}, []
        for table, old, new in ((MESSAGES, old_messages, messages), (QUARANTINE, old_quarantine, quarantine)):
            again = is_known(old, read)
            found[table.name] = compare_rows(table, select_rows(old, again), new)
            unaffected = select_rows(old, ~again)
            found[table.name].skipped = len(unaffected)
            if not self.dry:
                files += write_files(table, self.lake, new, unaffected)
        was_bad, was_good = is_known(messages, old_quarantine), is_known(quarantine, old_messages)
        return DecodeReport(
            frames=len(read),
            messages=found[MESSAGES.name],
            quarantine=found[QUARANTINE.name],
            decoded=int((was_bad & ~is_known(messages, old_messages)).sum()),
            refused=int((was_good & ~is_known(quarantine, old_quarantine)).sum()),
            files=files,
        )


class DecodedUnit:
    """Hold the existing rows of a unit, and those that its frames decode to now."""

    def __init__(self, old_messages: Any, old_quarantine: Any, since_us: int, careful: bool) -> None:
        self.old_messages = old_messages
        self.old_quarantine = old_quarantine
        self._since_us = since_us
        self._poison = old_quarantine.filter(pc.equal(old_quarantine["reason"], POISON))["seq"] if careful else None
        self._messages = [MESSAGES.schema.empty_table()]
        self._quarantine = [QUARANTINE.schema.empty_table()]

    @property
    def messages(self) -> Any:
        return pa.concat_tables(self._messages)

    @property
    def quarantine(self) -> Any:
        return pa.concat_tables(self._quarantine)

    def add(self, batch: Any) -> DecodedBatch:
        """Decode frames, and return the result."""
        decoded, bad = self._decode(batch)
        self._messages.append(self._since(_as_table(decoded.messages)))
        self._quarantine.append(self._since(_as_table(pa.concat_batches([decoded.quarantine, poison_rows(bad)]))))
        return decoded

    def _decode(self, batch: Any) -> tuple[DecodedBatch, Any]:
        """Return the decoded batch, and the records that break the decoder."""
        bad = batch.slice(0, 0)
        if self._poison is not None:
            is_bad = pc.is_in(batch["seq"], self._poison.combine_chunks())
            batch, bad = batch.filter(pc.invert(is_bad)), batch.filter(is_bad)
        try:
            return decode_batch(batch), bad
        except Exception:  # noqa: BLE001 (an installed codec may raise anything: search for the records)
            good, found = isolate_failing(batch, decode_batch)
            return decode_batch(good), pa.concat_batches([bad, found]).sort_by("seq")

    def _since(self, rows: Any) -> Any:
        return (
            rows.filter(pc.greater_equal(rows["received_at"], pa.scalar(self._since_us, TIME)))
            if self._since_us
            else rows
        )


def write_scratch(table: LakeTable, rows: Any, scratch: Store) -> list[FileAction]:
    """Write rows to a scratch folder, from which they are read by ranges; partitions would not help there."""
    unpartitioned = replace(table, partition_by=())
    return mark_worker(write_rows(unpartitioned, sort_by_seq(rows), scratch, fsync=False)) if len(rows) else []


def write_files(table: LakeTable, lake: Store, *rows: Any) -> list[FileAction]:
    """Write new files. They are not part of a table until they are committed."""
    writer = TableWriter(table, lake)
    try:
        for some in rows:
            writer.write(some)
        return mark_worker(writer.close())
    except BaseException:
        writer.discard()
        raise


def _as_table(batch: Any) -> Any:
    return pa.Table.from_batches([batch])
