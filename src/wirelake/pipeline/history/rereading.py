"""Frames of bronze decoded once more, in the executors, and held against the rows that were made of them before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.tables import FRAMES, MESSAGES, QUARANTINE, TIME, Table
from wirelake.limits import PIPELINE_CHUNK_ROWS
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.decode.batch import decode_batch
from wirelake.pipeline.decode.decoded import Decoded
from wirelake.pipeline.file_checks import from_here
from wirelake.pipeline.history.difference import Difference, chosen, compared, in_order, known
from wirelake.pipeline.history.ranges import Range, read_range
from wirelake.pipeline.items import items_of
from wirelake.pipeline.land import POISON, as_shuffled, isolated, poisoned
from wirelake.pipeline.parquet import FileAction, TableWriter
from wirelake.pipeline.reports import shuffled

_COUNTERS: Final = "counters"


class Unit(Struct, frozen=True):
    """A range of the log, and the files that have something of it."""

    part: Range
    rows: int  # of bronze, about
    at_max_us: int
    frames: list[FileAction]
    messages: list[FileAction]
    quarantine: list[FileAction]


class Reread(Struct, frozen=True, tag="reread"):
    """What became of a unit."""

    frames: int
    messages: Difference
    quarantine: Difference
    decoded: int  # frames that could not be read before
    refused: int  # frames that cannot be read any more
    files: list[FileAction] = []


class Rereading(Struct, frozen=True):
    """How to read units once more; goes to the executors."""

    lake: Path
    protocol: str
    since_us: int
    buckets: int
    replayed: str | None  # the kind of items that are to be put together once more
    units: list[Unit]
    dry: bool
    careful: bool = False  # what broke the decoder before is not tried again

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For mapInArrow over the numbers of units."""

        def reread(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.reread(self.units[number])

        return reread

    def reread(self, unit: Unit) -> Iterator[Any]:
        old_messages = read_range(self.lake, MESSAGES, unit.messages, unit.part)
        old_quarantine = read_range(self.lake, QUARANTINE, unit.quarantine, unit.part)
        poison = old_quarantine.filter(pc.equal(old_quarantine["reason"], POISON))["seq"] if self.careful else None
        messages, quarantine = [MESSAGES.schema.empty_table()], [QUARANTINE.schema.empty_table()]
        for batch in self._frames(unit):
            decoded, bad = self._decoded(batch, poison)
            messages.append(self._since(_table(decoded.messages)))
            quarantine.append(self._since(_table(pa.concat_batches([decoded.quarantine, poisoned(bad)]))))
            if self.replayed is not None:
                yield as_shuffled(items_of(batch, decoded, self.buckets, self.replayed))
        report = self._compared(old_messages, old_quarantine, pa.concat_tables(messages), pa.concat_tables(quarantine))
        yield shuffled([(0, report)])

    def _frames(self, unit: Unit) -> Iterator[Any]:
        """In the order of the log."""
        rows = read_range(self.lake, FRAMES, unit.frames, unit.part, self._concerned)
        columns = [rows[field.name].cast(field.type) for field in SCHEMA]
        ordered = in_order(pa.table(columns, schema=SCHEMA)).combine_chunks()
        yield from ordered.to_batches(PIPELINE_CHUNK_ROWS)

    def _concerned(self, rows: Any) -> Any:
        """Where things are put together, it matters when a gateway began."""
        mine = pc.equal(rows["protocol"], self.protocol)
        return rows.filter(mine if self.replayed is None else pc.or_(mine, pc.equal(rows["event"], _COUNTERS)))

    def _decoded(self, batch: Any, poison: Any) -> tuple[Decoded, Any]:
        """And the records that no codec survives."""
        bad = batch.slice(0, 0)
        if poison is not None:
            is_bad = pc.is_in(batch["seq"], poison.combine_chunks())
            batch, bad = batch.filter(pc.invert(is_bad)), batch.filter(is_bad)
        try:
            return decode_batch(batch), bad
        except Exception:  # noqa: BLE001 (whatever a codec that is not ours raises: the records are looked for)
            fine, found = isolated(batch, decode_batch)
            return decode_batch(fine), pa.concat_batches([bad, found]).sort_by("seq")

    def _since(self, rows: Any) -> Any:
        return rows.filter(pc.greater_equal(rows["at"], pa.scalar(self.since_us, TIME))) if self.since_us else rows

    def _compared(self, old_messages: Any, old_quarantine: Any, messages: Any, quarantine: Any) -> Reread:
        """Files are written of everything that is in the range, also of what stays as it was."""
        places = [rows.select(["node", "seq"]) for rows in (messages, quarantine)]
        read = pa.concat_tables(places)
        found, files = {}, []
        for table, old, new in ((MESSAGES, old_messages, messages), (QUARANTINE, old_quarantine, quarantine)):
            again = known(old, read)
            found[table.name] = compared(table, chosen(old, again), new)
            kept = chosen(old, ~again)
            found[table.name].kept = len(kept)
            if not self.dry:
                files += written(table, self.lake, new, kept)
        was_bad, was_good = known(messages, old_quarantine), known(quarantine, old_messages)
        return Reread(
            frames=len(read),
            messages=found[MESSAGES.name],
            quarantine=found[QUARANTINE.name],
            decoded=int((was_bad & ~known(messages, old_messages)).sum()),
            refused=int((was_good & ~known(quarantine, old_quarantine)).sum()),
            files=files,
        )


def written(table: Table, lake: Path, *rows: Any) -> list[FileAction]:
    """New files, which nobody sees before they are committed."""
    writer = TableWriter(table, lake)
    try:
        for some in rows:
            writer.write(some)
        return from_here(writer.close())
    except BaseException:
        writer.discard()
        raise


def _table(batch: Any) -> Any:
    return pa.Table.from_batches([batch])
