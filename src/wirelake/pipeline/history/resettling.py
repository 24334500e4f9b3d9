"""What is put together over time, put together once more from the beginning, and held against the rows before.

First, in the order of the log, buckets are settled as a stream would; the rows wait in a folder of their own. Then they
are compared with those of the table, range by range, and files are written that can take their place.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from wirelake.lake.tables import DEVICE_COMMANDS, READINGS, RECORDS, TABLES, TIME, Table
from wirelake.limits import PIPELINE_CLOCK_STEP_S
from wirelake.pipeline.bucket import device_keys, read_carry, write_carry
from wirelake.pipeline.file_checks import from_here, worker_name
from wirelake.pipeline.history.difference import Difference, compared_whole, in_order, known
from wirelake.pipeline.history.ranges import EVERYTHING, Range, read_range
from wirelake.pipeline.history.rereading import written
from wirelake.pipeline.items import ITEMS
from wirelake.pipeline.memory.assembly import COMPLETE, RULES, Rules
from wirelake.pipeline.memory.item import FRAGMENT, RECORD
from wirelake.pipeline.parquet import FileAction, write
from wirelake.pipeline.reports import REPORT_KIND, REPORTS, SHUFFLED, delivered
from wirelake.pipeline.settling import settle
from wirelake.protocols.apostol.protocol import PROTOCOL as APOSTOL
from wirelake.protocols.sisnet.protocol import PROTOCOL as SISNET

_STEP_US: Final = int(PIPELINE_CLOCK_STEP_S * 1_000_000)
_REPLAYED: Final = "replayed"
_SHUT: Final = ("no_key", "bad_seal")  # reasons that a key is to blame for
_WHOSE: Final = ("node", "serial", "device_type", "direction", "answer", "command_no")


class Replay(Struct, frozen=True):
    """What a protocol has that takes time: the kind of items, the tables, and whether it has a time-out."""

    kind: str
    tables: tuple[Table, ...]
    ends: bool  # or else it may have begun at any time before


REPLAYS: Final = {
    APOSTOL.name: Replay(FRAGMENT, (DEVICE_COMMANDS, READINGS), ends=True),
    SISNET.name: Replay(RECORD, (RECORDS,), ends=False),  # by a layout that was given whenever
}


def before_us(rules: Rules) -> int:
    """How long before a time a command may have begun that is still open then; and one before it, with its number."""
    return 2 * (rules.timeout_us + _STEP_US)


class Resettled(Struct, frozen=True, tag="resettled"):
    """What became of a bucket."""

    bucket: int
    carry: str
    files: list[FileAction] = []
    carry_bytes: int = 0
    worker: str = ""


class Resettling(Struct, frozen=True):
    """How to settle buckets once more; goes to the executors."""

    scratch: Path  # for the rows, and what is carried
    state: Path
    tables: tuple[str, ...]
    carry: dict[int, str]
    now_us: int
    rules: Rules = RULES

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For mapInArrow over what was shuffled, each partition a bucket."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

            context = TaskContext.get()
            if context is None:
                raise AssertionError("buckets are settled by tasks")
            rows = pa.Table.from_batches(batches, SHUFFLED)
            reported = pc.equal(rows["kind"], REPORT_KIND)
            yield pa.record_batch([rows.filter(reported)["report"].combine_chunks()], REPORTS)
            items = rows.filter(pc.invert(reported)).select(ITEMS.names)
            yield delivered([self.settle(context.partitionId(), items)])

        return run

    def settle(self, bucket: int, items: Any) -> Resettled:
        carried = read_carry(self.scratch, self.carry.get(bucket))
        settled = settle(items, carried, self.now_us, device_keys(self.state), self.rules)
        files = []
        for name in self.tables:
            if name in settled.final:
                whole = replace(TABLES[name], grouped_by=())  # nobody looks for days here
                files += from_here(write(whole, in_order(settled.final[name]), self.scratch, fsync=False))
        name = write_carry(self.scratch, bucket, settled.carry)
        return Resettled(bucket, name, files, (self.scratch / name).stat().st_size, worker_name())


class Comparison(Struct, frozen=True):
    """A range of the log, and the files that have rows of it, by table."""

    part: Range
    old: dict[str, list[FileAction]]
    new: dict[str, list[FileAction]]


class Compared(Struct, frozen=True, tag="compared"):
    differences: dict[str, Difference]
    waited_for: int = 0  # commands that the stream has not settled yet: left to it
    sealed: int = 0  # commands that could be opened then, and cannot with the key of today: as they were
    files: list[FileAction] = []


class Comparing(Struct, frozen=True):
    """How to hold rows against those before; goes to the executors."""

    lake: Path
    scratch: Path
    tables: tuple[str, ...]
    since_us: int
    from_seq: int  # what is older has no frames any more
    open: list[FileAction]  # the stream's own, of commands that it still waits for
    ranges: list[Comparison]
    dry: bool
    rules: Rules = RULES

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For mapInArrow over the numbers of ranges."""

        def compare(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield delivered([self.compare(self.ranges[number]) for number in batch.column(0).to_pylist()])

        return compare

    def compare(self, comparison: Comparison) -> Compared:
        old, kept, new = {}, {}, {}
        for name in self.tables:
            rows = read_range(self.lake, TABLES[name], comparison.old[name], comparison.part)
            old[name], kept[name] = self._split(rows)
            new[name], _ = self._split(read_range(self.scratch, TABLES[name], comparison.new[name], comparison.part))
        waited_for = sealed = 0
        if DEVICE_COMMANDS.name in new:
            waited_for = self._leave_to_the_stream(old, kept, new)
            sealed = _keep_opened(old, new)
            _keep_replayed(old, new)
        differences, files = {}, []
        for name in self.tables:
            differences[name] = compared_whole(TABLES[name], old[name], new[name])
            differences[name].kept = len(kept[name])
            if not self.dry:
                files += written(TABLES[name], self.lake, new[name], kept[name])
        return Compared(differences, waited_for, sealed, files)

    def _split(self, rows: Any) -> tuple[Any, Any]:
        """Those that are read once more, and those that are not."""
        again = pc.greater_equal(rows["seq"], self.from_seq)
        if self.since_us:
            again = pc.and_(again, pc.greater_equal(rows["at"], pa.scalar(self.since_us, TIME)))
        return rows.filter(again), rows.filter(pc.invert(again))

    def _leave_to_the_stream(self, old: dict[str, Any], kept: dict[str, Any], new: dict[str, Any]) -> int:
        """Commands that the stream has not settled: it will, and there would be two rows of one command."""
        begun_us: dict[tuple[Any, ...], int] = {}
        if self.open:
            rows = read_range(self.lake, DEVICE_COMMANDS, self.open, EVERYTHING)
            for *whose, first_at in zip(*_lists(rows, (*_WHOSE, "first_at")), strict=True):
                begun_us[tuple(whose)] = min(first_at, begun_us.get(tuple(whose), first_at))
        if not begun_us:
            return 0
        for rows in (new, old):
            commands, readings = rows[DEVICE_COMMANDS.name], rows[READINGS.name]
            near = _near(commands, begun_us, before_us(self.rules))
            theirs = commands.filter(near)
            of_theirs = pa.array(known(readings, theirs))
            rows[DEVICE_COMMANDS.name] = commands.filter(pc.invert(near))
            rows[READINGS.name] = readings.filter(pc.invert(of_theirs))
            if rows is old:
                kept[DEVICE_COMMANDS.name] = pa.concat_tables([kept[DEVICE_COMMANDS.name], theirs])
                kept[READINGS.name] = pa.concat_tables([kept[READINGS.name], readings.filter(of_theirs)])
            else:
                left = len(theirs)
        return left


def _near(commands: Any, begun_us: dict[tuple[Any, ...], int], within_us: int) -> Any:
    """Those that are, or may be, one with a command that is open."""
    oldest = pa.scalar(min(begun_us.values()) - within_us, TIME)
    found = pc.greater_equal(commands["first_at"], oldest).to_numpy()
    places = np.flatnonzero(found)
    late = commands.take(pa.array(places))
    for place, *whose, first_at in zip(places, *_lists(late, (*_WHOSE, "first_at")), strict=True):
        begun = begun_us.get(tuple(whose))
        found[place] = begun is not None and first_at >= begun - within_us
    return pa.array(found)


def _keep_opened(old: dict[str, Any], new: dict[str, Any]) -> int:
    """A device's key may be another one today: what could be opened then stays open."""
    were, are = old[DEVICE_COMMANDS.name], new[DEVICE_COMMANDS.name]
    opened = were.filter(pc.equal(were["state"], COMPLETE))
    is_shut = pc.fill_null(pc.is_in(are["reason"], pa.array(_SHUT)), fill_value=False)
    shut = are.filter(is_shut)
    stays = opened.filter(pa.array(known(opened, shut)))
    if len(stays):
        given_up = np.logical_and(is_shut.to_numpy(), known(are, stays))
        new[DEVICE_COMMANDS.name] = pa.concat_tables([are.filter(pa.array(~given_up)), stays])
        readings = old[READINGS.name]
        new[READINGS.name] = pa.concat_tables([new[READINGS.name], readings.filter(pa.array(known(readings, stays)))])
    return len(stays)


def _keep_replayed(old: dict[str, Any], new: dict[str, Any]) -> None:
    """What a command was a replay of may lie before what is read once more: it stays one."""
    were, are = old[DEVICE_COMMANDS.name], new[DEVICE_COMMANDS.name]
    replayed = were.filter(pc.fill_null(pc.equal(were["reason"], _REPLAYED), fill_value=False))
    taken = known(are, replayed) & pc.equal(are["state"], COMPLETE).to_numpy()
    if taken.any():
        opened = are.filter(pa.array(taken))
        stays = replayed.filter(pa.array(known(replayed, opened)))
        new[DEVICE_COMMANDS.name] = pa.concat_tables([are.filter(pa.array(~taken)), stays])
        readings = new[READINGS.name]
        new[READINGS.name] = readings.filter(pa.array(~known(readings, opened)))


def _lists(rows: Any, names: tuple[str, ...]) -> list[list[Any]]:
    return [(rows[name].cast(pa.int64()) if rows[name].type == TIME else rows[name]).to_pylist() for name in names]
