"""The second half of a batch, in the executors: a bucket's items, with what it carried, become rows on disk."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.files import replace_file
from wirelake.lake.tables import TABLES, Table
from wirelake.pipeline.file_checks import from_here, worker_name
from wirelake.pipeline.items import ITEMS
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.parquet import FileAction, write
from wirelake.pipeline.reports import REPORT_KIND, SHUFFLED, Bucketed, Landed, Report, Tick, delivered, read_report
from wirelake.pipeline.settling import settle


class Bucketing(Struct, frozen=True):
    """How to settle buckets; goes to the executors. Keys are looked up where they are needed, and go nowhere."""

    lake: Path
    state: Path
    folder: Path  # of what is carried
    carry: dict[int, str]  # bucket → file, from the batch before
    dry: bool = False  # write nothing
    rules: Rules = RULES

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For mapInArrow over what was shuffled, each partition a bucket."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

            context = TaskContext.get()
            if context is None:
                raise AssertionError("buckets are settled by tasks")
            yield self.run(context.partitionId(), pa.Table.from_batches(batches, SHUFFLED))

        return run

    def run(self, bucket: int, rows: Any) -> Any:
        reported = pc.equal(rows["kind"], REPORT_KIND)
        reports = [read_report(text) for text in rows.filter(reported)["report"].to_pylist()]
        now_us = max((report.now_us for report in reports if isinstance(report, Tick)), default=None)
        passed_on: list[Report] = [report for report in reports if isinstance(report, Landed)]
        if now_us is not None:
            items = rows.filter(pc.invert(reported)).select(ITEMS.names)
            passed_on.append(self._settled(bucket, items, now_us))
        return delivered(passed_on)

    def _settled(self, bucket: int, items: Any, now_us: int) -> Bucketed:
        carried = read_carry(self.folder, self.carry.get(bucket))
        if carried is None and not items.num_rows:
            return Bucketed(bucket)
        settled = settle(items, carried, now_us, device_keys(self.state), self.rules)
        changed = {name for name in (*settled.final, *settled.dirty_us) if TABLES[name].settles}
        if self.dry or not (items.num_rows or settled.final or changed):  # nothing came, nothing ran out: all stays
            return Bucketed(bucket)
        name = write_carry(self.folder, bucket, settled.carry)
        return Bucketed(
            bucket,
            carry=name,
            final=[action for name, rows in settled.final.items() for action in self._write(name, rows, True)],
            open={name: self._write(name, settled.open.get(name), False) for name in sorted(changed)},
            dirty_us={name: sorted(minutes) for name, minutes in settled.dirty_us.items()},
            counts=dict(settled.counts),
            carry_bytes=(self.folder / name).stat().st_size,
            worker=worker_name(),
        )

    def _write(self, name: str, rows: Any, settled: bool) -> list[FileAction]:
        return [] if rows is None else from_here(write(TABLES[name], _complete(TABLES[name], rows, settled), self.lake))


def read_carry(folder: Path, name: str | None) -> Any:
    if name is None:
        return None
    with pa.memory_map(str(folder / name)) as source:
        return pa.ipc.open_file(source).read_all()


def write_carry(folder: Path, bucket: int, carry: Any) -> str:
    """The name of a new file in the folder."""
    name = f"{bucket:04d}-{uuid.uuid4()}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, carry.schema) as writer:
        writer.write_table(carry)
    replace_file(folder / name, sink.getvalue().to_pybytes())
    return name


def device_keys(state: Path) -> Callable[[str], bytes | None]:
    """A device's key by its serial, as the gateway's registry has it now."""

    @cache
    def key_of(serial: str) -> bytes | None:
        if not state.exists():
            return None
        with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT key FROM devices WHERE serial = ?", (serial,)).fetchone()
        return found[0] if found is not None else None

    return key_of


def _complete(table: Table, rows: Any, settled: bool) -> Any:
    """With the columns that the files are grouped by."""
    if table.settles and "settled" not in rows.schema.names:
        rows = rows.append_column("settled", pa.array([settled] * len(rows), pa.bool_()))
    if "day" in table.grouped_by and "day" not in rows.schema.names:
        rows = rows.append_column("day", rows["at"].cast(pa.date32()))
    return rows
