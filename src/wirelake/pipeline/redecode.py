"""History decoded with the codecs of today: new files take the place of the old ones, in one commit for each table.

    bronze ─▶ decode ─▶ compare with the rows that are there ─▶ new files ─▶ swap
                └ items ─▶ shuffle by bucket ─▶ settle, from the beginning ─▶ compare ─▶ new files ─▶ swap

It works on the tables as one batch left them. A stream may go on beside it: its files are not looked at, and stay.
Days on which nothing would change stay as they are, too; so doing it again after a crash between two commits does the
rest.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field, json

from wirelake.errors import StorageError
from wirelake.files import replace_file
from wirelake.lake.damage import explain
from wirelake.lake.tables import DEVICE_COMMANDS, FRAMES, MESSAGES, QUARANTINE, TABLES
from wirelake.limits import LAKE_COMMIT_ATTEMPTS_MAX, PIPELINE_REDECODE_UNITS, PIPELINE_VIEW_WAIT_S
from wirelake.pipeline.commits import ReplacedError, open_table, rewriting, swap
from wirelake.pipeline.decode.http import NAME as HTTP
from wirelake.pipeline.failures import sentence
from wirelake.pipeline.file_checks import FileChecks
from wirelake.pipeline.history.difference import Difference
from wirelake.pipeline.history.ranges import Piece, cut, files_of, pieces_of, placed
from wirelake.pipeline.history.rereading import Reread, Rereading, Unit
from wirelake.pipeline.history.resettling import (
    REPLAYS,
    Compared,
    Comparing,
    Comparison,
    Resettled,
    Resettling,
    before_us,
)
from wirelake.pipeline.history.snapshot import check_tables, take_snapshot
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.parquet import FileAction
from wirelake.pipeline.places import Places
from wirelake.pipeline.refreshing import Dirty, Refresh
from wirelake.pipeline.reports import REPORTS, SHUFFLED
from wirelake.protocols import registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPEN: Final = {"settled": "false"}
_NEVER_US: Final = 2**62
_reports = json.Decoder(Reread | Resettled | Compared)


class Redecoding(Struct, frozen=True, kw_only=True):
    """What is asked for."""

    protocol: str
    since_us: int = 0  # frames from this time on
    dry: bool = False  # only say what would change
    rules: Rules = RULES


class Redecoded(Struct):
    """What it came to."""

    frames: int = 0
    decoded: int = 0  # frames that could not be read before
    refused: int = 0  # frames that cannot be read any more
    waited_for: int = 0  # commands that the stream has not settled yet: left to it
    sealed: int = 0  # commands that could be opened then, and cannot with the key of today: as they were
    tables: dict[str, Difference] = field(default_factory=dict)
    swapped: dict[str, tuple[int, int]] = field(default_factory=dict)  # table → files before, files after
    seconds: float = 0.0

    @property
    def rows_s(self) -> float:
        return self.frames / max(self.seconds, 1e-3)


Told = Callable[[int, int], None]  # rows of bronze done, and all of them


def redecode(
    spark: "SparkSession",
    data: Path,
    asked: Redecoding,
    refreshes: Sequence[Refresh] = (),
    told: Told = lambda _done, _all: None,
) -> Redecoded:
    """Refuses while somebody else rewrites the tables."""
    check(data, asked)
    places = Places.of(data)
    started_s = time.monotonic()
    with rewriting(places.lake):
        work = _Work(spark, places, asked, told)
        try:
            work.reread()
            work.compare()
            if not asked.dry:
                work.swap()
                work.refresh(refreshes)
        finally:
            shutil.rmtree(work.scratch, ignore_errors=True)
    work.done.seconds = time.monotonic() - started_s
    return work.done


def check(data: Path, asked: Redecoding) -> None:
    """Refuses what cannot be done, without looking further: before it takes seconds to start Spark."""
    if asked.protocol != HTTP:
        registry.get(asked.protocol)
    check_tables(Places.of(data))


class _Work:
    def __init__(self, spark: "SparkSession", places: Places, asked: Redecoding, told: Told) -> None:
        self._spark = spark
        self._places = places
        self._asked = asked
        self._told = told
        self._replay = REPLAYS.get(asked.protocol)
        self._replayed = self._replay.tables if self._replay is not None else ()
        self._snapshot = take_snapshot(places, (FRAMES, MESSAGES, QUARANTINE, *self._replayed))
        self._pieces = {name: self._pieces_of(name) for name in self._snapshot.files}
        self._new: list[FileAction] = []
        self._waiting: list[FileAction] = []  # rows in the scratch folder
        self._pending = places.checkpoint / "redecoded.json"
        self._checks = FileChecks(PIPELINE_VIEW_WAIT_S)
        self.scratch = places.checkpoint / "redecoding"
        self.done = Redecoded()

    def _pieces_of(self, name: str) -> list[Piece]:
        """Of files that may have rows to be read again, whole; of frames, only those, and what it takes to begin."""
        files = [file for file in self._snapshot.files[name] if self._is_concerned(name, file)]
        pieces = pieces_of(self._places.lake, TABLES[name], files)
        since_us = self._asked.since_us
        if name == FRAMES.name:
            if self._replay is not None:
                since_us = since_us - before_us(self._asked.rules) if self._replay.ends else 0
            return [piece for piece in pieces if piece.at_max_us >= since_us]
        concerned = {piece.file.path for piece in pieces if piece.at_max_us >= since_us}
        return [piece for piece in pieces if piece.file.path in concerned]

    def _is_concerned(self, name: str, file: FileAction) -> bool:
        if name in (MESSAGES.name, QUARANTINE.name):
            return file.groups.get("protocol") == self._asked.protocol
        return not _OPEN.items() <= file.groups.items()

    @cached_property
    def _parallel(self) -> int:
        return self._spark.sparkContext.defaultParallelism

    def reread(self) -> None:
        """Wave after wave in the order of the log, each a Spark job."""
        shutil.rmtree(self.scratch, ignore_errors=True)  # of a process that ended too early
        self.scratch.mkdir()
        units = self._units()
        rows, done = sum(unit.rows for unit in units), 0
        carry: dict[int, str] = {}
        now_us = 0
        size = self._parallel * PIPELINE_REDECODE_UNITS
        self._told(0, rows)
        for start in range(0, len(units), size):
            wave = units[start : start + size]
            now_us = max(now_us, *(unit.at_max_us for unit in wave))
            carry = self._wave(wave, carry, now_us)
            done += sum(unit.rows for unit in wave)
            self._told(done, rows)
        if carry:  # what is open in the end never ends
            self._wave([], carry, _NEVER_US)

    def _units(self) -> list[Unit]:
        frames = self._pieces[FRAMES.name]
        if not frames:
            return []
        parts = cut(frames, self._parallel)
        lying = [placed(self._pieces.get(name, ()), parts) for name in (FRAMES.name, *_DECODED)]
        return [
            Unit(
                part,
                rows=sum(piece.rows for piece in mine if piece.from_seq >= part.from_seq),
                at_max_us=max((piece.at_max_us for piece in mine), default=0),
                frames=files_of(mine),
                messages=files_of(messages),
                quarantine=files_of(quarantine),
            )
            for part, mine, messages, quarantine in zip(parts, *lying, strict=True)
        ]

    def _wave(self, units: list[Unit], carry: dict[int, str], now_us: int) -> dict[int, str]:
        """Answers what is carried on."""
        try:
            reports = self._run_wave(units, carry, now_us, careful=False)
        except Exception:  # noqa: BLE001 (a codec that ends its process: perhaps what is known to do so)
            try:
                reports = self._run_wave(units, carry, now_us, careful=True)
            except Exception as error:
                damage = explain(self._places.lake, error, look_at_data=True)
                said = sentence(damage or error)
                raise StorageError(f"nothing was changed, because decoding failed: {said}") from error
        carried = dict(carry)
        for report in reports:
            if isinstance(report, Reread):
                self._take(report)
            elif isinstance(report, Resettled):
                self._checks.tables(self.scratch, report.files)
                self._checks.file(self.scratch / report.carry, report.carry_bytes, report.worker)
                self._waiting += report.files
                carried[report.bucket] = report.carry
        for name in set(carry.values()) - set(carried.values()):
            (self.scratch / name).unlink()
        return carried

    def _run_wave(self, units: list[Unit], carry: dict[int, str], now_us: int, careful: bool) -> list[Any]:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        asked, replay = self._asked, self._replay
        rereading = Rereading(
            lake=self._places.lake,
            protocol=asked.protocol,
            since_us=asked.since_us,
            buckets=self._snapshot.buckets,
            replayed=replay.kind if replay is not None else None,
            units=units,
            dry=asked.dry,
            careful=careful,
        )
        rows = self._numbers(len(units)).mapInArrow(rereading.task(), from_arrow_schema(SHUFFLED))
        if replay is not None:
            names = tuple(table.name for table in replay.tables)
            resettling = Resettling(self.scratch, self._places.state, names, carry, now_us, asked.rules)
            placed = rows.repartitionById(self._snapshot.buckets, "bucket").sortWithinPartitions("kind", "key", "seq")
            rows = placed.mapInArrow(resettling.task(), from_arrow_schema(REPORTS))
        return _read(rows)

    def _numbers(self, count: int) -> "DataFrame":
        return self._spark.range(0, count, 1, max(1, count))

    def _take(self, report: Reread) -> None:
        self.done.frames += report.frames
        self.done.decoded += report.decoded
        self.done.refused += report.refused
        self._differ(MESSAGES.name, report.messages)
        self._differ(QUARANTINE.name, report.quarantine)
        self._checks.tables(self._places.lake, report.files)
        self._new += report.files

    def _differ(self, name: str, difference: Difference) -> None:
        self.done.tables.setdefault(name, Difference()).add(difference)

    def compare(self) -> None:
        """The rows that were put together once more with those of the tables."""
        if not self._replayed or not self._pieces[FRAMES.name]:
            return
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        names = tuple(table.name for table in self._replayed)
        old = {name: self._pieces.get(name, []) for name in names}
        new = {name: pieces_of(self.scratch, TABLES[name], _of(name, self._waiting)) for name in names}
        parts = cut([piece for pieces in (*old.values(), *new.values()) for piece in pieces], self._parallel)
        old_in, new_in = ({name: placed(pieces, parts) for name, pieces in each.items()} for each in (old, new))
        ranges = [
            Comparison(
                part,
                {name: files_of(old_in[name][number]) for name in names},
                {name: files_of(new_in[name][number]) for name in names},
            )
            for number, part in enumerate(parts)
        ]
        opened = [
            file for file in self._snapshot.files.get(DEVICE_COMMANDS.name, ()) if _OPEN.items() <= file.groups.items()
        ]
        comparing = Comparing(
            lake=self._places.lake,
            scratch=self.scratch,
            tables=names,
            since_us=self._asked.since_us,
            from_seq=min(piece.from_seq for piece in self._pieces[FRAMES.name]),
            open=opened,
            ranges=ranges,
            dry=self._asked.dry,
            rules=self._asked.rules,
        )
        rows = self._numbers(len(ranges)).mapInArrow(comparing.task(), from_arrow_schema(REPORTS))
        for report in _read(rows):
            self.done.waited_for += report.waited_for
            self.done.sealed += report.sealed
            for name, difference in report.differences.items():
                self._differ(name, difference)
            self._checks.tables(self._places.lake, report.files)
            self._new += report.files

    def swap(self) -> None:
        """One commit for each table that changes, for the days on which it does. What changed is written down first:
        should this process end between two commits, the next one still knows which minutes to work out anew.
        """
        dirty = self._dirty()
        if dirty:
            replace_file(self._pending, json.encode({name: sorted(dirty[name]) for name in dirty}))
        for name, difference in self.done.tables.items():
            ours = _of(name, self._new)
            adds = [file for file in ours if file.groups["day"] in difference.days]
            for file in ours:
                if file.groups["day"] not in difference.days:
                    (self._places.lake / TABLES[name].folder / file.path).unlink()
            concerned = {piece.file.path: piece.file for piece in self._pieces.get(name, ())}
            removes = [file for file in concerned.values() if file.groups["day"] in difference.days]
            if adds or removes:
                swap(open_table(self._places.lake, TABLES[name]), name, adds, removes, data_change=True)
                self.done.swapped[name] = len(removes), len(adds)

    def _dirty(self) -> Dirty:
        """Also what a redecode before this one had no time for."""
        dirty = {name: set(found.dirty_us) for name, found in self.done.tables.items() if found.dirty_us}
        if self._pending.exists():
            for name, minutes in json.decode(self._pending.read_bytes(), type=dict[str, list[int]]).items():
                dirty.setdefault(name, set()).update(minutes)
        return dirty

    def refresh(self, refreshes: Sequence[Refresh]) -> None:
        """The gold tables. A job that runs does the same now and then: who comes second tries again."""
        dirty = self._dirty()
        for refresh in refreshes if dirty else ():
            for attempt in range(1, LAKE_COMMIT_ATTEMPTS_MAX + 1):
                try:
                    refresh(self._spark, self._places.lake, dirty)
                except ReplacedError:
                    if attempt == LAKE_COMMIT_ATTEMPTS_MAX:
                        raise
                else:
                    break
        self._pending.unlink(missing_ok=True)


_DECODED: Final = (MESSAGES.name, QUARANTINE.name)


def _read(rows: "DataFrame") -> list[Any]:
    return [_reports.decode(row.report) for row in rows.where("report IS NOT NULL").select("report").collect()]


def _of(name: str, files: Iterable[FileAction]) -> list[FileAction]:
    return [file for file in files if file.table == name]
