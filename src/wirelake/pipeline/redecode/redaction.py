"""Remove secrets from the tables: what earlier versions wrote before the gateway blanked the secrets of logins.

    bronze ─▶ redact ─▶ new files ─▶ replace ─▶ redecode each protocol ─▶ remove the old files from disk

Old versions of the tables have the secrets too. So the files that only they need are removed now, and not after
`lake.history_days`: these versions cannot be read any more. Every step can be repeated, so a second run after a crash
does the rest.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field, json

from wirelake.errors import InputError
from wirelake.key_source import KeySource
from wirelake.lake.store import Store
from wirelake.lake.tables import FRAMES, MESSAGES, QUARANTINE, READINGS, TABLES, LakeTable
from wirelake.limits import LAKE_HISTORY_DAYS
from wirelake.pipeline.commit.compaction import vacuum_table
from wirelake.pipeline.commit.delta import exists, live_files, open_table, read_table, replace_files, rewrite_lock
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode.redact_task import RedactReport, RedactTask
from wirelake.pipeline.redecode.redecode import OnProgress, RedecodeRequest, RedecodeResult, redecode
from wirelake.pipeline.redecode.replay_task import replay_of
from wirelake.pipeline.redecode.snapshot import check_tables
from wirelake.pipeline.reports import REPORT_SCHEMA
from wirelake.pipeline.stateful.reduce import Rules
from wirelake.protocols import registry
from wirelake.protocols.record_redaction import HTTP, RecordRedactor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DECODED: Final = (MESSAGES, QUARANTINE)


class RedactionRequest(Struct, frozen=True, kw_only=True):
    """Describe what to redact."""

    protocol: str = ""  # "": all
    since_us: int = 0  # frames from this time on
    dry: bool = False  # only report what would change
    rules: Rules = {}
    history_days: float = LAKE_HISTORY_DAYS


class RedactionResult(Struct):
    """Report what changed."""

    examined: dict[str, int] = field(default_factory=dict)  # records of bronze with bytes, by protocol
    redacted: dict[str, int] = field(default_factory=dict)  # of these, changed ones
    not_installed: dict[str, int] = field(default_factory=dict)
    replaced: int = 0  # files of bronze
    redecoded: dict[str, RedecodeResult] = field(default_factory=dict)  # by protocol, as the tables name it
    removed: int = 0  # files, from disk


_report: Final = json.Decoder(RedactReport)


def redact_tables(
    spark: "SparkSession",
    data: Path,
    request: RedactionRequest,
    gold: bool = False,
    on_progress: OnProgress = lambda _done, _all: None,
    lake: Store | None = None,
    key: KeySource | None = None,
) -> RedactionResult:
    """Redact bronze, decode it again, and remove the files that had the secrets.

    Raise InUseError while another process rewrites the tables.
    """
    check(data, request, lake)
    paths = DataPaths.of(data, lake)
    done = RedactionResult()
    with rewrite_lock(paths.lake):
        _redact_bronze(spark, paths, request, done)
    names = _names(paths.lake, request.protocol)
    for name in names:
        again = RedecodeRequest(
            protocol=name,
            since_us=request.since_us,
            dry=request.dry,
            rules=request.rules,
            redact=request.dry,  # else it has been done
        )
        done.redecoded[name] = redecode(spark, data, again, gold, on_progress, lake, key)
    if not request.dry:
        with rewrite_lock(paths.lake):
            for table in _tables_of(names, request.rules):
                done.removed += _remove_history(paths.lake, table, request.history_days)
    return done


def check(data: Path, request: RedactionRequest, lake: Store | None = None) -> None:
    """Refuse what cannot be done, before Spark takes seconds to start."""
    RecordRedactor(request.protocol)
    check_tables(DataPaths.of(data, lake))


def _redact_bronze(spark: "SparkSession", paths: DataPaths, request: RedactionRequest, done: RedactionResult) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (needs pyspark)

    table = open_table(paths.lake, FRAMES)
    since_day = datetime.fromtimestamp(request.since_us / 1e6, UTC).date().isoformat() if request.since_us else ""
    files = [file for file in live_files(table, FRAMES.name) if (file.partition["day"] or "") >= since_day]
    if not files:
        return
    task = RedactTask(paths.lake, request.protocol, request.since_us, files, request.dry)
    numbers = spark.range(0, len(files), 1, len(files))
    rows = numbers.mapInArrow(task.task(), from_arrow_schema(REPORT_SCHEMA)).collect()
    reports = [_report.decode(row.report) for row in rows]
    for report in reports:
        for counts, more in (
            (done.examined, report.examined),
            (done.redacted, report.changed),
            (done.not_installed, report.unknown),
        ):
            _add(counts, more)
    changed = {report.path for report in reports if report.new is not None}
    adds = [report.new for report in reports if report.new is not None]
    if adds:
        removes = [file for file in files if file.path in changed]
        replace_files(paths.lake, table, FRAMES.name, adds, removes, data_change=True)
        done.replaced = len(removes)


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _names(lake: Store, protocol: str) -> list[str]:
    """Return the names under which the tables have rows of this protocol, or of all that are installed."""
    found: set[str] = set()
    for table in _DECODED:
        if exists(lake, table):
            found |= {file.partition["protocol"] or "" for file in live_files(read_table(lake, table), table.name)}
    wanted = _installed(protocol) if protocol else ""
    return sorted(name for name in found if (own := _installed(name)) and wanted in ("", own))


def _installed(name: str) -> str:
    """Return the present name of a protocol; "" if it is not installed."""
    try:
        return name if name == HTTP else registry.get(name).name
    except InputError:
        return ""


def _tables_of(names: list[str], rules: Rules) -> list[LakeTable]:
    """Return the tables that may have bytes of frames, or what was decoded from them."""
    found = {table.name for table in (FRAMES, *_DECODED, READINGS)}
    for name in names:
        replay = replay_of(name, rules)
        found |= {table.name for table in replay.tables} if replay is not None else set()
    return [TABLES[name] for name in sorted(found)]


def _remove_history(lake: Store, table: LakeTable, history_days: float) -> int:
    """Remove the files that the present version of a table does not need. Files of running batches are not touched."""
    if not exists(lake, table):
        return 0
    before = _data_files(lake, table)
    read_table(lake, table).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    vacuum_table(lake, table, history_days)
    return len(before - _data_files(lake, table))


def _data_files(lake: Store, table: LakeTable) -> set[str]:
    return {path for path in lake.list(table.folder) if path.endswith(".parquet") and "/_delta_log/" not in path}
