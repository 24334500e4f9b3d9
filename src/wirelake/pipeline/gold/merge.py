"""Merge sums into the rows of a gold table: which files to write again, and with which rows.

A merge costs what the minutes and the devices in it cost, however many rows the table has.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.store import Store
from wirelake.lake.tables import COUNTS_HOUR, DAY, DEVICE_LATEST
from wirelake.limits import GOLD_DEVICES_PER_FILE
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.gold import counts
from wirelake.pipeline.gold.devices import merge_devices
from wirelake.pipeline.gold.minute_files import (
    file_minutes,
    minute_of_day,
    plan_files,
    plan_joins,
    read_files,
    within,
    write_file,
)
from wirelake.pipeline.gold.partials import READINGS, REPORTS, STATUSES, Partials
from wirelake.pipeline.gold.sums import MinuteTable, add_up, to_gold, to_sums
from wirelake.pipeline.time_ranges import time_of

FilesByDay = Mapping[date, Sequence[FileAction]]


class FileChanges(Struct):
    """Collect the files that a commit adds and removes."""

    adds: list[FileAction] = field(default_factory=list)
    removes: list[FileAction] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.adds or self.removes)


def by_day(files: Iterable[FileAction]) -> dict[date, list[FileAction]]:
    found: dict[date, list[FileAction]] = {}
    for file in files:
        found.setdefault(date.fromisoformat(file.partition["day"] or ""), []).append(file)
    return found


def of_day(rows: Any, time: str, day: date) -> Any:
    return rows.filter(pc.equal(rows[time].cast(DAY), pa.scalar(day, DAY)))


class MinuteMerge(Struct):
    """Merge sums into a table of minutes. `opened` are the sums of all open rows."""

    lake: Store
    gold: MinuteTable
    files: FilesByDay
    opened: Any
    today: date

    def merge(self, sums: Any, touched_us: Iterable[int]) -> FileChanges:
        """Add sums to the rows of their minutes; in these and in the minutes touched, count the open rows again."""
        changes = FileChanges()
        minutes = self._by_day({*touched_us, *sums["minute"].cast(pa.int64()).to_pylist()})
        for day, of_minutes in sorted(minutes.items()):
            ranges, replaced = plan_files(self.files.get(day, ()), of_minutes, file_minutes(day, self.today))
            before = read_files(self.lake, self.gold.table, replaced)
            known = to_sums(self.gold, before)
            for each in ranges:
                parts = [within(rows, "minute", day, each) for rows in (known, sums, self.opened)]
                self._write(day, each.label, to_gold(self.gold, add_up(self.gold, parts), before), changes)
            changes.removes += replaced
        if changes:
            self._join_old_day(minutes, changes)
        return changes

    def replace(self, sums: Any, days: Iterable[date]) -> FileChanges:
        """Replace the rows of these days."""
        changes = FileChanges()
        for day in sorted(days):
            rows = add_up(self.gold, [of_day(each, "minute", day) for each in (sums, self.opened)])
            minutes = sorted(set(minute_of_day(rows["minute"]).to_pylist()))
            ranges, _ = plan_files((), minutes, file_minutes(day, self.today))
            for each in ranges:
                self._write(day, each.label, to_gold(self.gold, within(rows, "minute", day, each)), changes)
            changes.removes += self.files.get(day, ())
        return changes

    def _by_day(self, times_us: set[int]) -> dict[date, list[int]]:
        times = pa.array(sorted(times_us), pa.int64())
        found: dict[date, list[int]] = {}
        for time_us, minute in zip(times.to_pylist(), minute_of_day(times).to_pylist(), strict=True):
            found.setdefault(time_of(time_us).date(), []).append(minute)
        return found

    def _write(self, day: date, label: str, rows: Any, changes: FileChanges) -> None:
        if len(rows):
            changes.adds.append(write_file(self.lake, self.gold.table, {"day": day.isoformat()}, label, rows))

    def _join_old_day(self, touched: Iterable[date], changes: FileChanges) -> None:
        """Join the files of the first day that is over and has several, with the commit that is due anyway."""
        table = self.gold.table
        for day in sorted(day for day in self.files if day < self.today and day not in touched):
            joins = list(plan_joins(self.files[day]))
            for minutes, some in joins:
                rows = read_files(self.lake, table, some)
                changes.adds.append(write_file(self.lake, table, some[0].partition, minutes.label, rows))
                changes.removes += some
            if joins:
                return


def merge_counts(lake: Store, files: FilesByDay, sums: Any) -> FileChanges:
    """Add counts to those of their days."""
    changes = FileChanges()
    for day in sorted(set(sums["hour"].cast(DAY).to_pylist())):
        known = read_files(lake, COUNTS_HOUR, files.get(day, ())).select(counts.SCHEMA.names)
        _write_counts(lake, day, counts.add_up([known, of_day(sums, "hour", day)]), changes)
        changes.removes += files.get(day, ())
    return changes


def replace_counts(lake: Store, files: FilesByDay, columns: Mapping[date, Sequence[str]], sums: Any) -> FileChanges:
    """Replace these columns of the counts of each day."""
    changes = FileChanges()
    for day, names in sorted(columns.items()):
        known = read_files(lake, COUNTS_HOUR, files.get(day, ())).select(counts.SCHEMA.names)
        new = of_day(sums, "hour", day)
        new = counts.without(new, [name for name in (*counts.SUMS, counts.DROPPED_BY) if name not in names])
        _write_counts(lake, day, counts.add_up([counts.without(known, names), new]), changes)
        changes.removes += files.get(day, ())
    return changes


def _write_counts(lake: Store, day: date, rows: Any, changes: FileChanges) -> None:
    if len(rows):
        partition: dict[str, str | None] = {"day": day.isoformat()}
        changes.adds.append(write_file(lake, COUNTS_HOUR, partition, "", counts.rows_of_day(rows)))


_HASH_BITS: Final = 32


class _HashRange(Struct, frozen=True, order=True):
    """Describe which devices a file may hold: those whose serial has a hash that begins with `prefix`."""

    bits: int
    prefix: int

    @property
    def label(self) -> str:
        return f"h{self.bits:02d}{self.prefix:08x}"

    def holds(self, hashed: int) -> bool:
        return hashed >> (_HASH_BITS - self.bits) == self.prefix

    def halves(self) -> "tuple[_HashRange, _HashRange]":
        return _HashRange(self.bits + 1, self.prefix * 2), _HashRange(self.bits + 1, self.prefix * 2 + 1)


_EVERY_HASH: Final = _HashRange(0, 0)
_LABEL_CHARS: Final = len(_EVERY_HASH.label)


def _range_of(file: FileAction) -> _HashRange:
    label = file.path.rpartition("/")[2].removeprefix("part-")[: _LABEL_CHARS + 1]
    if len(label) > _LABEL_CHARS and label[0] == "h" and label[-1] == "-":
        return _HashRange(int(label[1:3]), int(label[3:-1], 16))
    return _EVERY_HASH


def merge_latest(lake: Store, files: Sequence[FileAction], sums: Partials) -> FileChanges:
    """Write the devices that reported again, with those of the same files.

    Devices are in files by a hash of their serial; a file that gets too large is split.
    """
    changes = FileChanges()
    reports = sums.get(REPORTS)
    if reports is None:
        return changes
    ranges = {_range_of(file) for file in files} or {_EVERY_HASH}
    if len(ranges) > 1 and any(_overlaps(one, other) for one in ranges for other in ranges if one < other):
        ranges = {_EVERY_HASH}  # files that were written by others
    serials = pc.unique(reports["serial"]).to_pylist()
    for each in sorted(ranges):
        own = pa.array([serial for serial in serials if each.holds(_hash(serial))], pa.string())
        if not len(own):
            continue
        old = [file for file in files if ranges == {_EVERY_HASH} or _range_of(file) == each]
        before = read_files(lake, DEVICE_LATEST, old)
        parts = [_only(sums.get(name), own) for name in (REPORTS, STATUSES, READINGS)]
        others = before.filter(pc.invert(pc.is_in(before["serial"], own)))
        rows = pa.concat_tables([others, merge_devices(before, *parts)])
        _write_latest(lake, each, rows, changes)
        changes.removes += old
    return changes


def _only(rows: Any, serials: Any) -> Any:
    return None if rows is None else rows.filter(pc.is_in(rows["serial"], serials))


def _overlaps(one: _HashRange, other: _HashRange) -> bool:
    bits = min(one.bits, other.bits)
    return one.prefix >> (one.bits - bits) == other.prefix >> (other.bits - bits)


def _write_latest(lake: Store, hashes: _HashRange, rows: Any, changes: FileChanges) -> None:
    if len(rows) > GOLD_DEVICES_PER_FILE and hashes.bits < _HASH_BITS:
        hashed = [_hash(serial) for serial in rows["serial"].to_pylist()]
        for half in hashes.halves():
            is_own = pa.array([half.holds(each) for each in hashed], pa.bool_())
            _write_latest(lake, half, rows.filter(is_own), changes)
    else:  # also without rows: the file says which hashes it is for
        changes.adds.append(write_file(lake, DEVICE_LATEST, {}, hashes.label, rows.sort_by("serial")))


def _hash(serial: str) -> int:
    return zlib.crc32(serial.encode())
