"""Decode history with today's decoders: new files replace the old ones, in one commit for each table.

    bronze ─▶ decode ─▶ compare with the existing rows ─▶ new files ─▶ replace
                └ events ─▶ shuffle by bucket ─▶ reduce, from the beginning ─▶ compare ─▶ new files ─▶ replace

It works on a snapshot of the tables. A stream may run at the same time: its new files are not touched. Days on which
nothing changes keep their files, so a second run after a crash between two commits does the rest.
"""

import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, field, json

from wirelake.errors import StorageError
from wirelake.key_source import KeySource
from wirelake.lake.damage import find_damage
from wirelake.lake.store import Store
from wirelake.lake.tables import AUDIT, DEVICE_COMMANDS, FRAMES, MESSAGES, QUARANTINE, READINGS, SESSIONS, TABLES
from wirelake.limits import PIPELINE_REDECODE_UNITS, PIPELINE_VIEW_WAIT_S
from wirelake.pipeline.commit.delta import open_table, replace_files, rewrite_lock
from wirelake.pipeline.commit.files import FileAction, FileChecks
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.ingest.http import NAME as HTTP
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.recovery import summarize_error
from wirelake.pipeline.redecode.decode_task import DecodeReport, DecodeTask, DecodeUnit
from wirelake.pipeline.redecode.difference import Difference
from wirelake.pipeline.redecode.replay_task import (
    CompareReport,
    CompareTask,
    CompareUnit,
    ReplayTask,
    ReplayTaskReport,
    replay_of,
)
from wirelake.pipeline.redecode.seq_ranges import RowGroup, files_of, in_ranges, row_groups, split_range
from wirelake.pipeline.redecode.snapshot import check_tables, take_snapshot
from wirelake.pipeline.reports import REPORT_SCHEMA
from wirelake.pipeline.shuffle import SHUFFLE_SCHEMA
from wirelake.pipeline.spark.session import default_parallelism
from wirelake.pipeline.stateful.bucket_state import NEVER_US
from wirelake.pipeline.stateful.device_keys import read_device_keys
from wirelake.pipeline.stateful.reduce import Rules
from wirelake.pipeline.time_ranges import time_of
from wirelake.protocols import registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SESSIONS: Final = (SESSIONS, SESSIONS.open_table)
_PENDING: Final = "redecoded.json"  # minutes of gold tables that are to be computed again
_reports = json.Decoder(DecodeReport | ReplayTaskReport | CompareReport)


class RedecodeRequest(Struct, frozen=True, kw_only=True):
    """Describe what to redecode."""

    protocol: str
    since_us: int = 0  # frames from this time on
    dry: bool = False  # only report what would change
    rules: Rules = {}
    redact: bool = False  # decode the frames as they will be once they are redacted


class RedecodeResult(Struct):
    """Report what changed."""

    frames: int = 0
    decoded: int = 0  # frames that could not be decoded before
    refused: int = 0  # frames that cannot be decoded any more
    waited_for: int = 0  # commands that are open in the stream, which finishes them
    sealed: int = 0  # commands that cannot be decrypted with the current key: left as they were
    tables: dict[str, Difference] = field(default_factory=dict)
    replaced: dict[str, tuple[int, int]] = field(default_factory=dict)  # table → files before, files after
    seconds: float = 0.0

    @property
    def rows_s(self) -> float:
        return self.frames / max(self.seconds, 1e-3)


OnProgress = Callable[[int, int], None]  # rows of bronze done, and their total


def redecode(
    spark: "SparkSession",
    data: Path,
    request: RedecodeRequest,
    gold: bool = False,
    on_progress: OnProgress = lambda _done, _all: None,
    lake: Store | None = None,
    key: KeySource | None = None,
) -> RedecodeResult:
    """Redecode the frames of one protocol, and compute the gold tables again, if told so.

    Raise InUseError while another process rewrites the tables.
    """
    check(data, request, lake)
    paths = DataPaths.of(data, lake, key)
    started_s = time.monotonic()
    with rewrite_lock(paths.lake):
        work = _Redecode(spark, paths, request, on_progress)
        try:
            work.decode()
            work.compare()
            if not request.dry:
                work.replace()
                work.refresh(gold)
        finally:
            work.scratch.delete_all("")
    work.done.seconds = time.monotonic() - started_s
    return work.done


def check(data: Path, request: RedecodeRequest, lake: Store | None = None) -> None:
    """Refuse what cannot be done, before Spark takes seconds to start."""
    if request.protocol != HTTP:
        registry.get(request.protocol)
    check_tables(DataPaths.of(data, lake))


class _Redecode:
    """Run the steps of one redecode."""

    def __init__(
        self, spark: "SparkSession", paths: DataPaths, request: RedecodeRequest, on_progress: OnProgress
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._request = request
        self._on_progress = on_progress
        self._replay = replay_of(request.protocol, request.rules)
        replayed = self._replay.tables if self._replay is not None else ()
        self._takes_readings = READINGS not in replayed  # from telemetry, not from assembled commands
        self._recomputed = (*replayed, READINGS, AUDIT) if self._takes_readings else (*replayed, AUDIT)
        others = [*_SESSIONS, DEVICE_COMMANDS.open_table]
        self._snapshot = take_snapshot(paths, (FRAMES, MESSAGES, QUARANTINE, *self._recomputed, *others))
        affected = (name for name in self._snapshot.files if TABLES[name] not in others)
        self._affected = {name: self._row_groups(name) for name in affected}
        self._new: list[FileAction] = []
        self._reduced: list[FileAction] = []  # files in the scratch folder
        self._checks = FileChecks(PIPELINE_VIEW_WAIT_S)
        self.scratch = paths.checkpoint.at("redecoding")
        self._wave = 0  # jobs that are done
        self.done = RedecodeResult()

    def _row_groups(self, name: str) -> list[RowGroup]:
        """Return the row groups to read: of frames, those affected and some before; of other tables, whole files."""
        files = [file for file in self._snapshot.files[name] if self._is_affected(name, file)]
        groups = row_groups(self._paths.lake, files)
        since_us = self._request.since_us
        if name == FRAMES.name:
            if self._replay is not None:
                since_us = since_us - self._replay.lead_us if self._replay.lead_us is not None else 0
            return [group for group in groups if group.at_max_us >= since_us]
        affected = {group.file.path for group in groups if group.at_max_us >= since_us}
        return [group for group in groups if group.file.path in affected]

    def _is_affected(self, name: str, file: FileAction) -> bool:
        if name in (MESSAGES.name, QUARANTINE.name):
            return file.partition.get("protocol") == self._request.protocol
        return True

    @cached_property
    def _parallel(self) -> int:
        return default_parallelism(self._spark)

    def decode(self) -> None:
        """Decode wave after wave in the order of the log, each a Spark job."""
        self.scratch.delete_all("")  # of a process that was killed
        units = self._units()
        rows, done = sum(unit.rows for unit in units), 0
        states: dict[int, list[StateFile]] = {}
        now_us = 0
        size = self._parallel * PIPELINE_REDECODE_UNITS
        self._on_progress(0, rows)
        for start in range(0, len(units), size):
            wave = units[start : start + size]
            now_us = max(now_us, *(unit.at_max_us for unit in wave))
            states = self._decode_wave(wave, states, now_us)
            done += sum(unit.rows for unit in wave)
            self._on_progress(done, rows)
        if states:  # what is still open will never finish
            self._decode_wave([], states, NEVER_US)

    def _units(self) -> list[DecodeUnit]:
        frames = self._affected[FRAMES.name]
        if not frames:
            return []
        parts = split_range(frames, self._parallel)
        overlapping = [in_ranges(self._affected.get(name, ()), parts) for name in (FRAMES.name, *_DECODED)]
        return [
            DecodeUnit(
                part,
                rows=sum(group.rows for group in of_part if group.from_seq >= part.from_seq),
                at_max_us=max((group.at_max_us for group in of_part), default=0),
                frames=files_of(of_part),
                messages=files_of(messages),
                quarantine=files_of(quarantine),
            )
            for part, of_part, messages, quarantine in zip(parts, *overlapping, strict=True)
        ]

    def _decode_wave(
        self, units: list[DecodeUnit], states: dict[int, list[StateFile]], now_us: int
    ) -> dict[int, list[StateFile]]:
        """Decode units; return the new bucket states."""
        try:
            reports = self._run_wave(units, states, now_us, careful=False)
        except Exception:  # noqa: BLE001 (a codec that crashes: perhaps on records that are known to crash it)
            try:
                reports = self._run_wave(units, states, now_us, careful=True)
            except Exception as error:
                damage = find_damage(self._paths.lake, error, check_files=True)
                reason = summarize_error(damage or error)
                raise StorageError(f"decoding failed, and no table was changed: {reason}") from error
        after = dict(states)
        for report in reports:
            if isinstance(report, DecodeReport):
                self._add(report)
                self._checks.check_tables(self.scratch, report.scratch)
                self._reduced += report.scratch
            elif isinstance(report, ReplayTaskReport):
                self._checks.check_tables(self.scratch, report.files)
                self._checks.check(self.scratch, report.states[-1].name, report.states[-1].bytes, report.worker)
                self._reduced += report.files
                after[report.bucket] = report.states
        for name in _names(states) - _names(after):
            self.scratch.delete(name)
        self._wave += 1
        return after

    def _run_wave(
        self, units: list[DecodeUnit], states: dict[int, list[StateFile]], now_us: int, careful: bool
    ) -> list[Any]:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        request, replay = self._request, self._replay
        decode_task = DecodeTask(
            lake=self._paths.lake,
            protocol=request.protocol,
            since_us=request.since_us,
            buckets=self._snapshot.buckets,
            replayed=replay.kind if replay is not None else None,
            units=units,
            dry=request.dry,
            careful=careful,
            redact=request.redact,
            scratch=self.scratch,
            takes_readings=self._takes_readings,
            sessions=[file for table in _SESSIONS for file in self._snapshot.files.get(table.name, ())],
        )
        rows = self._numbers(len(units)).mapInArrow(decode_task.task(), from_arrow_schema(SHUFFLE_SCHEMA))
        if replay is not None:
            names = tuple(table.name for table in replay.tables)
            replay_task = ReplayTask(
                scratch=self.scratch,
                keys=read_device_keys(self._paths.database, self._paths.state_key),
                tables=names,
                wave=self._wave,
                buckets=self._snapshot.buckets,
                states=states,
                now_us=now_us,
                rules=request.rules,
            )
            shuffled = rows.repartitionById(self._snapshot.buckets, "bucket")
            rows = shuffled.mapInArrow(replay_task.task(), from_arrow_schema(REPORT_SCHEMA))
        return _collect(rows)

    def _numbers(self, count: int) -> "DataFrame":
        return self._spark.range(0, count, 1, max(1, count))

    def _add(self, report: DecodeReport) -> None:
        self.done.frames += report.frames
        self.done.decoded += report.decoded
        self.done.refused += report.refused
        self._add_difference(MESSAGES.name, report.messages)
        self._add_difference(QUARANTINE.name, report.quarantine)
        self._checks.check_tables(self._paths.lake, report.files)
        self._new += report.files

    def _add_difference(self, name: str, difference: Difference) -> None:
        self.done.tables.setdefault(name, Difference()).add(difference)

    def compare(self) -> None:
        """Compare the rows that were computed again with those of the tables."""
        shared = [AUDIT.name, *([READINGS.name] if self._takes_readings else [])]
        without = {name for name in shared if not self._has_rows(name)}
        names = tuple(table.name for table in self._recomputed if table.name not in without)
        if not names or not self._affected[FRAMES.name]:
            return
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

        old = {name: self._affected.get(name, []) for name in names}
        new = {name: row_groups(self.scratch, _files_of_table(name, self._reduced)) for name in names}
        parts = split_range([group for groups in (*old.values(), *new.values()) for group in groups], self._parallel)
        old_in, new_in = ({name: in_ranges(groups, parts) for name, groups in each.items()} for each in (old, new))
        ranges = [
            CompareUnit(
                part,
                {name: files_of(old_in[name][number]) for name in names},
                {name: files_of(new_in[name][number]) for name in names},
            )
            for number, part in enumerate(parts)
        ]
        compare_task = CompareTask(
            lake=self._paths.lake,
            scratch=self.scratch,
            protocol=self._request.protocol,
            tables=names,
            since_us=self._request.since_us,
            from_seq=min(group.from_seq for group in self._affected[FRAMES.name]),
            open=self._snapshot.files.get(DEVICE_COMMANDS.open_table.name, []),
            ranges=ranges,
            dry=self._request.dry,
            lead_us=self._replay.lead_us if self._replay is not None else None,
        )
        rows = self._numbers(len(ranges)).mapInArrow(compare_task.task(), from_arrow_schema(REPORT_SCHEMA))
        for report in _collect(rows):
            self.done.waited_for += report.waited_for
            self.done.sealed += report.sealed
            for name, difference in report.differences.items():
                self._add_difference(name, difference)
            self._checks.check_tables(self._paths.lake, report.files)
            self._new += report.files

    def _has_rows(self, name: str) -> bool:
        """Return whether the protocol has rows, in the table or now. All protocols share the files of the table."""
        if _files_of_table(name, self._reduced):
            return True
        return any(self._has_own_rows(file) for file in files_of(self._affected.get(name, ())))

    def _has_own_rows(self, file: FileAction) -> bool:
        with self._paths.lake.open_input(file.lake_path) as source:
            protocols = pq.ParquetFile(source).read(["protocol"])["protocol"]
        return bool(pc.any(pc.equal(protocols, self._request.protocol)).as_py())

    def replace(self) -> None:
        """Commit once for each table that changes, for the days on which it does.

        The changed minutes are written to a file first: if this process ends between two commits, the next one still
        knows which minutes of the gold tables to compute again.
        """
        dirty = self._dirty()
        if dirty:
            self._paths.checkpoint.write(_PENDING, json.encode({name: sorted(dirty[name]) for name in dirty}))
        for name, difference in self.done.tables.items():
            new = _files_of_table(name, self._new)
            adds = [file for file in new if file.partition["day"] in difference.days]
            for file in new:
                if file.partition["day"] not in difference.days:
                    self._paths.lake.delete(file.lake_path)
            affected = {group.file.path: group.file for group in self._affected.get(name, ())}
            removes = [file for file in affected.values() if file.partition["day"] in difference.days]
            if adds or removes:
                table = open_table(self._paths.lake, TABLES[name])
                replace_files(self._paths.lake, table, name, adds, removes, data_change=True)
                self.done.replaced[name] = len(removes), len(adds)

    def _dirty(self) -> dict[str, set[int]]:
        """Return the changed minutes, including those that an interrupted redecode left."""
        dirty = {name: set(found.dirty_us) for name, found in self.done.tables.items() if found.dirty_us}
        dirty.pop(AUDIT.name, None)  # no gold table is made from it
        try:
            pending = json.decode(self._paths.checkpoint.read(_PENDING), type=dict[str, list[int]])
        except FileNotFoundError:
            return dirty
        for name, minutes in pending.items():
            dirty.setdefault(name, set()).update(minutes)
        return dirty

    def refresh(self, gold: bool) -> None:
        """Compute the gold tables again for the days on which rows changed."""
        dirty = self._dirty()
        if gold and dirty:
            days = {time_of(minute).date() for minutes in dirty.values() for minute in minutes}
            stream = check_tables(self._paths)
            tables = GoldTables(self._paths.lake, self._paths.checkpoint, stream.app)
            tables.rebuild(self._spark, dirty, days)
        self._paths.checkpoint.delete(_PENDING)


_DECODED: Final = (MESSAGES.name, QUARANTINE.name)


def _names(states: dict[int, list[StateFile]]) -> set[str]:
    return {file.name for files in states.values() for file in files}


def _collect(rows: "DataFrame") -> list[Any]:
    return [_reports.decode(row.report) for row in rows.where("report IS NOT NULL").select("report").collect()]


def _files_of_table(name: str, files: Iterable[FileAction]) -> list[FileAction]:
    return [file for file in files if file.table == name]
