"""Reduce events again from the beginning, and compare the rows with the existing ones.

First, buckets are reduced in the order of the log, as a stream would; the rows go to a scratch folder. Then they are
compared with those of the tables, range by range, and files are written that can replace the existing ones.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.store import Store
from wirelake.lake.tables import DEVICE_COMMANDS, READINGS, RECORDS, TABLES, TIME, LakeTable
from wirelake.pipeline.commit.files import FileAction, worker_name
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.redecode.decode_task import write_files, write_scratch
from wirelake.pipeline.redecode.difference import Difference, compare_row_sets, is_known
from wirelake.pipeline.redecode.seq_ranges import EVERYTHING, SeqRange, read_range
from wirelake.pipeline.reports import REPORT_SCHEMA, driver_reports
from wirelake.pipeline.shuffle import read_shuffled
from wirelake.pipeline.stateful.device_keys import DeviceKeys
from wirelake.pipeline.stateful.reduce import (
    STEP_US,
    Rules,
    reassemblies,
    record_readers,
    reduce_bucket,
    rules_of,
)
from wirelake.pipeline.stateful.state_files import read_state, state_name, write_state
from wirelake.protocols.reassembly import COMPLETE, KEY_REASONS, REPLAYED

_COMMAND_KEY: Final = ("node", "serial", "device_type", "direction", "answer", "command_no")


class Replay(Struct, frozen=True):
    """Describe the rows of a protocol that are reduced from events: the kind of events and the tables."""

    kind: str
    tables: tuple[LakeTable, ...]
    lead_us: int | None  # how long before a time to start; None: at the start of the log


def replay_of(name: str, rules: Rules) -> Replay | None:
    """Return what has to be reduced again for a protocol, or None."""
    for kind, (protocol, reassembly) in reassemblies().items():
        if protocol.name == name:
            # A command may be open at that time, and so may the one before it with the same number.
            lead_us = 2 * (rules_of(protocol, reassembly, rules).timeout_us + STEP_US)
            return Replay(kind, (DEVICE_COMMANDS, READINGS), lead_us)
    for kind, (protocol, _reader) in record_readers().items():
        if protocol.name == name:
            return Replay(kind, (RECORDS,), None)  # a layout may have been sent at any time
    return None


class ReplayTaskReport(Struct, frozen=True, tag="replayed"):
    """Report what became of a bucket."""

    bucket: int
    states: list[StateFile]  # the files of its state
    files: list[FileAction] = []
    worker: str = ""


class ReplayTask(Struct, frozen=True):
    """Describe how to reduce buckets again. This is sent to the executors."""

    scratch: Store  # for the rows and the bucket states
    keys: DeviceKeys
    tables: tuple[str, ...]
    wave: int  # names the files of bucket states
    buckets: int
    states: dict[int, list[StateFile]]
    now_us: int
    rules: Rules = {}

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over shuffled events, each partition a bucket."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext  # noqa: PLC0415 (the rest works without Spark)

            context = TaskContext.get()
            if context is None:
                raise AssertionError("buckets are reduced by tasks")
            events, reports = read_shuffled(batches)
            yield pa.record_batch([pa.array(reports, pa.string())], REPORT_SCHEMA)
            yield driver_reports([self.reduce(context.partitionId(), events)])

        return run

    def reduce(self, bucket: int, events: Any) -> ReplayTaskReport:
        states = self.states.get(bucket, [])
        before = read_state(self.scratch, states)
        reduced = reduce_bucket(events, before, self.now_us, self.keys, self.rules)
        files = []
        for name in self.tables:
            if name in reduced.final:
                files += write_scratch(TABLES[name], reduced.final[name], self.scratch)
        name = state_name(bucket, self.buckets, f"{self.wave:012d}")
        states = write_state(self.scratch, name, before, states, reduced.state)
        return ReplayTaskReport(bucket, states, files, worker_name())


class CompareUnit(Struct, frozen=True):
    """Describe a range of the log, and the files that overlap it, by table."""

    part: SeqRange
    old: dict[str, list[FileAction]]
    new: dict[str, list[FileAction]]


class CompareReport(Struct, frozen=True, tag="compared"):
    differences: dict[str, Difference]
    waited_for: int = 0  # commands that are open in the stream, which finishes them
    sealed: int = 0  # commands that cannot be opened with the current key: left as they were
    files: list[FileAction] = []


class CompareTask(Struct, frozen=True):
    """Describe how to compare rows with the existing ones. This is sent to the executors."""

    lake: Store
    scratch: Store
    protocol: str
    tables: tuple[str, ...]
    since_us: int
    from_seq: int  # older rows have no frames any more
    open: list[FileAction]  # the stream's files of open commands
    ranges: list[CompareUnit]
    dry: bool
    lead_us: int | None = None

    def task(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function for mapInArrow over the numbers of ranges."""

        def compare(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield driver_reports([self.compare(self.ranges[number]) for number in batch.column(0).to_pylist()])

        return compare

    def compare(self, comparison: CompareUnit) -> CompareReport:
        old, unaffected, new = {}, {}, {}
        for name in self.tables:
            rows = read_range(self.lake, TABLES[name], comparison.old[name], comparison.part)
            old[name], unaffected[name] = self._split(rows)
            new[name], _ = self._split(read_range(self.scratch, TABLES[name], comparison.new[name], comparison.part))
        waited_for = sealed = 0
        if DEVICE_COMMANDS.name in new:
            waited_for = self._exclude_open_commands(old, unaffected, new)
            sealed = _keep_decrypted(old, new)
            _keep_replayed(old, new)
        differences, files = {}, []
        for name in self.tables:
            differences[name] = compare_row_sets(TABLES[name], old[name], new[name])
            differences[name].skipped = len(unaffected[name])
            if not self.dry:
                files += write_files(TABLES[name], self.lake, new[name], unaffected[name])
        return CompareReport(differences, waited_for, sealed, files)

    def _split(self, rows: Any) -> tuple[Any, Any]:
        """Return the protocol's rows that were computed again, and all others."""
        again = pc.and_(pc.equal(rows["protocol"], self.protocol), pc.greater_equal(rows["seq"], self.from_seq))
        if self.since_us:
            again = pc.and_(again, pc.greater_equal(rows["received_at"], pa.scalar(self.since_us, TIME)))
        return rows.filter(again), rows.filter(pc.invert(again))

    def _exclude_open_commands(self, old: dict[str, Any], unaffected: dict[str, Any], new: dict[str, Any]) -> int:
        """Exclude commands that are open in the stream: it finishes them, and each must have one row only."""
        first_us: dict[tuple[Any, ...], int] = {}
        if self.open:
            rows = read_range(self.lake, DEVICE_COMMANDS.open_table, self.open, EVERYTHING)
            for *key, first_at in zip(*_lists(rows, (*_COMMAND_KEY, "first_at")), strict=True):
                first_us[tuple(key)] = min(first_at, first_us.get(tuple(key), first_at))
        if not first_us or self.lead_us is None:
            return 0
        for rows in (new, old):
            commands, readings = rows[DEVICE_COMMANDS.name], rows[READINGS.name]
            near = _is_near(commands, first_us, self.lead_us)
            excluded = commands.filter(near)
            of_excluded = pa.array(is_known(readings, excluded))
            rows[DEVICE_COMMANDS.name] = commands.filter(pc.invert(near))
            rows[READINGS.name] = readings.filter(pc.invert(of_excluded))
            if rows is old:
                unaffected[DEVICE_COMMANDS.name] = pa.concat_tables([unaffected[DEVICE_COMMANDS.name], excluded])
                unaffected[READINGS.name] = pa.concat_tables([unaffected[READINGS.name], readings.filter(of_excluded)])
            else:
                count = len(excluded)
        return count


def _is_near(commands: Any, first_us: dict[tuple[Any, ...], int], within_us: int) -> Any:
    """Return which commands are, or may be, the same as an open one."""
    oldest = pa.scalar(min(first_us.values()) - within_us, TIME)
    found = pc.greater_equal(commands["first_at"], oldest).to_numpy()
    indices = np.flatnonzero(found)
    late = commands.take(pa.array(indices))
    for index, *key, first_at in zip(indices, *_lists(late, (*_COMMAND_KEY, "first_at")), strict=True):
        first = first_us.get(tuple(key))
        found[index] = first is not None and first_at >= first - within_us
    return pa.array(found)


def _keep_decrypted(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Keep commands that were decrypted before, if they cannot be with the device's current key."""
    before, after = old[DEVICE_COMMANDS.name], new[DEVICE_COMMANDS.name]
    opened = before.filter(pc.equal(before["state"], COMPLETE))
    is_closed = pc.fill_null(pc.is_in(after["reason"], pa.array(KEY_REASONS)), fill_value=False)
    closed = after.filter(is_closed)
    unchanged = opened.filter(pa.array(is_known(opened, closed)))
    if len(unchanged):
        replaced = np.logical_and(is_closed.to_numpy(), is_known(after, unchanged))
        new[DEVICE_COMMANDS.name] = pa.concat_tables([after.filter(pa.array(~replaced)), unchanged])
        readings = old[READINGS.name]
        of_unchanged = readings.filter(pa.array(is_known(readings, unchanged)))
        new[READINGS.name] = pa.concat_tables([new[READINGS.name], of_unchanged])
    return len(unchanged)


def _keep_replayed(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Keep commands that were refused as replays: the first one may be older than what was reduced again."""
    before, after = old[DEVICE_COMMANDS.name], new[DEVICE_COMMANDS.name]
    replayed = before.filter(pc.fill_null(pc.equal(before["reason"], REPLAYED), fill_value=False))
    accepted = is_known(after, replayed) & pc.equal(after["state"], COMPLETE).to_numpy()
    if accepted.any():
        opened = after.filter(pa.array(accepted))
        unchanged = replayed.filter(pa.array(is_known(replayed, opened)))
        new[DEVICE_COMMANDS.name] = pa.concat_tables([after.filter(pa.array(~accepted)), unchanged])
        readings = new[READINGS.name]
        new[READINGS.name] = readings.filter(pa.array(~is_known(readings, opened)))


def _lists(rows: Any, names: tuple[str, ...]) -> list[list[Any]]:
    return [(rows[name].cast(pa.int64()) if rows[name].type == TIME else rows[name]).to_pylist() for name in names]
