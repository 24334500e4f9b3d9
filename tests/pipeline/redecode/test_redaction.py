"""Secrets that earlier versions wrote are removed from the tables, and from the disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from gateway.test_secrets import assert_absent

from pipeline.checking import check_tables, rows_of
from pipeline.traffic import START_US, fill
from protocols.test_record_redaction import HTTP
from protocols.test_redaction import MORE_LOGINS, OTHERS, UNREADABLE
from protocols.test_secrets import LOGINS, SID, TOKEN
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import FRAMES, TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.redaction import redact_log
from wirelake.pipeline.commit.compaction import compact
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode import redaction, snapshot
from wirelake.pipeline.redecode.redaction import RedactionRequest, RedactionResult, redact_tables
from wirelake.protocols.record_redaction import RecordRedactor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HIDDEN = (TOKEN.encode(), SID[:14])
NOTE = '{"code":"bad","offset":0,"text":"bad"}'


def write_logins(log: SegmentLog, at_us: int = START_US) -> None:
    """Append records as an earlier version did: with the secrets of every protocol."""
    for place, (name, frame) in enumerate([*LOGINS, *MORE_LOGINS, *OTHERS]):
        log.append(at_us + place, name, "frame", "in", f"s{place}", "ann", "10.0.0.1:9", frame)
    for name, data in UNREADABLE:
        log.append(at_us, name, "quarantine", "in", "q", "", "10.0.0.1:9", data, NOTE)
    for stored in HTTP:
        direction = stored.get("direction", "in")
        commit = log.append(at_us, "http", "frame", direction, "h", "", "", stored["frame"], stored["note"])
    commit.wait(60)


def once(spark: "SparkSession", data: Path) -> None:
    Job(spark, data, JobSettings(once=True), gold=True).run()


def redact_both(spark: "SparkSession", data: Path, log: SegmentLog, **asked: Any) -> RedactionResult:
    log.close()
    redact_log(data / "log", RecordRedactor().redact, START_US)
    return redact_tables(spark, data, RedactionRequest(**asked), gold=True)


def parquet_values(path: Path) -> bytes:
    """Return all values of a file."""
    rows = pq.ParquetFile(path).read().to_pylist()
    values = [value for row in rows for value in row.values()]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


def assert_no_secret(folder: Path) -> None:
    """Search every file on disk, whether or not a table refers to it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        if path.suffix == ".parquet":
            assert_absent(str(path), parquet_values(path), *HIDDEN)
        assert_absent(str(path), path.read_bytes(), HIDDEN[0])  # its footer is not compressed; the sid is 0, 1, 2 …


def version(data: Path, name: str = FRAMES.name) -> int:
    return DeltaTable(str(data / "lake" / TABLES[name].folder)).version()


def ledger_faults(data: Path) -> list[Any]:
    paths = DataPaths.of(data)
    faults: list[Any] = GoldTables(paths.lake, paths.checkpoint, snapshot.check_tables(paths).app).check().to_pylist()
    return faults


def test_no_file_has_a_secret_and_all_else_is_as_before(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    write_logins(log)
    once(spark, data)
    compact(LocalStore(data / "lake"))  # the files before it stay for the history
    with pytest.raises(AssertionError, match="bronze/frames"):
        assert_no_secret(data / "lake" / "bronze")
    old_version, before = version(data), {name: rows_of(data, name) for name in TABLES}
    dry = redact_tables(spark, data, RedactionRequest(dry=True))
    assert version(data) == old_version
    with pytest.raises(AssertionError, match="bronze/frames"):
        assert_no_secret(data / "lake" / "bronze")
    done = redact_both(spark, data, log)
    assert_no_secret(data / "lake")
    assert_no_secret(data / "checkpoints")
    assert (done.redacted, done.examined) == (dry.redacted, dry.examined)
    assert sum(done.redacted.values()) == len(LOGINS) + len(MORE_LOGINS) + len(UNREADABLE) + len(HTTP)
    assert {name: each.tables for name, each in done.redecoded.items()} == {
        name: each.tables for name, each in dry.redecoded.items()
    }
    assert done.replaced
    assert done.removed
    check_tables(data)  # bronze is what the log is now, and every frame is in one of messages and quarantine
    assert ledger_faults(data) == []
    for name in TABLES:
        after, hidden = rows_of(data, name), [each for each in ("frame", "payload", "fields") if each in before[name]]
        order = [column for column in after.columns if column not in hidden]
        if not name.startswith("gold.") and not name.startswith("silver.open_"):
            assert after.select(order).sort(order).equals(before[name].select(order).sort(order)), name
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        DeltaTable(str(data / "lake" / FRAMES.folder), version=old_version).to_pyarrow_table()


def test_a_second_run_changes_nothing_and_the_pipeline_continues(
    spark: "SparkSession", log: SegmentLog, data: Path
) -> None:
    write_logins(log)
    once(spark, data)
    redact_both(spark, data, log)
    live = DeltaTable(str(data / "lake" / FRAMES.folder)).file_uris()
    again = redact_tables(spark, data, RedactionRequest())
    assert (sum(again.redacted.values()), again.replaced, again.removed) == (0, 0, 0)
    assert not any(each.replaced for each in again.redecoded.values())
    assert DeltaTable(str(data / "lake" / FRAMES.folder)).file_uris() == live
    more = SegmentLog(data / "log")
    fill(more, 100)
    more.close()
    once(spark, data)
    check_tables(data)
    assert ledger_faults(data) == []


def test_killed_between_its_steps_a_second_run_does_the_rest(
    spark: "SparkSession", log: SegmentLog, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logins(log)
    once(spark, data)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("redecode", "_remove_history"):
        with monkeypatch.context() as patched:
            patched.setattr(redaction, step, die)
            with pytest.raises(KeyboardInterrupt):
                redact_both(spark, data, log)
        with pytest.raises(AssertionError):
            assert_no_secret(data / "lake")
    redact_tables(spark, data, RedactionRequest())
    assert_no_secret(data / "lake")
    check_tables(data)
