"""Redact files of bronze, and remove the files that had the secrets, without Spark."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from pipeline.traffic import START_US
from protocols.test_secrets import LOGINS, TOKEN
from wirelake.errors import InputError, UnknownProtocolError
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import FRAMES, MESSAGES
from wirelake.pipeline.commit.compaction import compact_table
from wirelake.pipeline.commit.delta import live_files, open_table, read_table, replace_files
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.redecode import redaction
from wirelake.pipeline.redecode.redact_task import RedactTask
from wirelake.pipeline.redecode.redaction import RedactionRequest, RedactionResult, redact_tables
from wirelake.pipeline.redecode.redecode import RedecodeRequest, RedecodeResult
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

FRAME = LOGINS[0][1]
BLANKED = registry.get("comet").redact(FRAME, Sender.CLIENT)
DAY_US = 24 * 3600 * 1_000_000


def frames_table(times_us: list[int], first_seq: int = 0, frame: bytes = FRAME) -> Any:
    """Return rows of bronze with a login each."""
    rows = [
        {
            "seq": first_seq + place,
            "received_at": datetime.fromtimestamp(at_us / 1e6, UTC),
            "node": "n",
            "protocol": "comet",
            "event": "frame",
            "direction": "in",
            "frame": frame,
            "note": "",
            "day": datetime.fromtimestamp(at_us / 1e6, UTC).date(),
        }
        for place, at_us in enumerate(times_us)
    ]
    return pa.Table.from_pylist(rows, FRAMES.schema)


def task_for(lake: LocalStore, times_us: list[int]) -> RedactTask:
    return RedactTask(lake, "", 0, write_rows(FRAMES, frames_table(times_us), lake), dry=False)


def test_only_rows_from_the_time_on_are_changed(lake: LocalStore) -> None:
    task = replace(task_for(lake, [START_US, START_US + 1, START_US + 2]), since_us=START_US + 1)
    report = task.redact(task.files[0])
    assert report.changed == {"comet": 2}
    assert report.new is not None
    frames = polars.read_parquet(lake.folder / report.new.lake_path)["frame"].to_list()
    assert frames == [FRAME, BLANKED, BLANKED]
    assert (report.new.rows, report.new.partition) == (3, task.files[0].partition)


def test_a_file_without_secrets_is_not_written_again(lake: LocalStore) -> None:
    task = task_for(lake, [START_US])
    first = task.redact(task.files[0])
    assert first.new is not None
    files = lake.list()
    second = replace(task, files=[first.new]).redact(first.new)
    assert (second.new, second.changed, second.examined) == (None, {"comet": 0}, {"comet": 1})
    assert replace(task, dry=True).redact(task.files[0]).new is None
    assert lake.list() == files


def test_what_cannot_be_done_is_refused_before_spark_starts(data: Path) -> None:
    with pytest.raises(UnknownProtocolError, match="nonesuch"):
        redaction.check(data, RedactionRequest(protocol="nonesuch"))
    with pytest.raises(InputError, match="there are no tables"):
        redaction.check(data, RedactionRequest())


# All of it, with tasks that run in this process


class InProcess:
    """Stand in for Spark: run the tasks of a job one after the other."""

    def range(self, start: int, end: int, _step: int, _slices: int) -> "InProcess":
        self._numbers = list(range(start, end))
        return self

    def mapInArrow(self, task: Any, _schema: Any) -> "InProcess":  # noqa: N802 (Spark's name)
        batch = pa.record_batch([pa.array(self._numbers)], ["id"])
        self._rows = pa.Table.from_batches(list(task(iter([batch])))).to_struct_array().to_pylist()
        return self

    def collect(self) -> list[Any]:
        return [type("Row", (), row) for row in self._rows]


@pytest.fixture
def tables(lake: LocalStore, monkeypatch: pytest.MonkeyPatch) -> list[RedecodeRequest]:
    """Write bronze in three commits, join its files, and list the redecodes that are asked for."""
    for number in range(3):
        rows = frames_table([START_US + number * DAY_US // 2, START_US], number * 2)
        replace_files(lake, open_table(lake, FRAMES), FRAMES.name, write_rows(FRAMES, rows, lake), [], data_change=True)
    assert compact_table(lake, FRAMES, 2).files_joined
    fields = {"protocol": "comet", "fields": "{}"}
    message = frames_table([START_US]).drop(["frame"]).to_pylist()[0] | fields
    rows = pa.Table.from_pylist([message], MESSAGES.schema)
    replace_files(lake, open_table(lake, MESSAGES), MESSAGES.name, write_rows(MESSAGES, rows, lake), [], True)
    asked: list[RedecodeRequest] = []

    def redecode(_spark: Any, _data: Path, request: RedecodeRequest, *_: Any) -> RedecodeResult:
        asked.append(request)
        return RedecodeResult()

    monkeypatch.setattr(redaction, "redecode", redecode)
    monkeypatch.setattr(redaction, "check_tables", lambda _paths: None)
    return asked


def redact(lake: LocalStore, **asked: Any) -> RedactionResult:
    return redact_tables(InProcess(), lake.folder, RedactionRequest(**asked), lake=lake)  # type: ignore[arg-type]


def frames_in(lake: LocalStore) -> list[bytes]:
    rows = polars.read_delta(lake.table_uri(FRAMES.folder)).sort("seq")
    assert rows["seq"].to_list() == list(range(6))
    found: list[bytes] = rows["frame"].to_list()
    return found


def frames_on_disk(lake: LocalStore) -> set[bytes]:
    files = [path for path in lake.list(FRAMES.folder) if path.endswith(".parquet") and "_delta_log" not in path]
    return {frame for path in files for frame in polars.read_parquet(lake.folder / path)["frame"].to_list()}


def test_bronze_is_redacted_and_its_old_files_are_removed_now(lake: LocalStore, tables: list[RedecodeRequest]) -> None:
    opened = read_table(lake, FRAMES)
    rows = sum(file.rows for file in live_files(opened, FRAMES.name))
    dry = redact(lake, dry=True)
    assert (dry.redacted, dry.replaced, dry.removed) == ({"comet": 6}, 0, 0)
    assert frames_in(lake) == [FRAME] * 6
    done = redact(lake)
    assert (done.examined, done.redacted, done.not_installed) == ({"comet": 6}, {"comet": 6}, {})
    assert frames_in(lake) == [BLANKED] * 6
    assert frames_on_disk(lake) == {BLANKED}
    assert TOKEN.encode() not in b"".join(path.read_bytes() for path in lake.folder.rglob("*.parquet"))
    assert done.removed > done.replaced > 0, "also the files that were joined before"
    assert sum(file.rows for file in live_files(read_table(lake, FRAMES), FRAMES.name)) == rows
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        DeltaTable(lake.table_uri(FRAMES.folder), version=opened.version()).to_pyarrow_table()
    assert [(each.protocol, each.dry, each.redact) for each in tables] == [
        ("comet", True, True),
        ("comet", False, False),
    ]


def test_a_second_run_changes_no_file(lake: LocalStore, tables: list[RedecodeRequest]) -> None:
    redact(lake)
    live = live_files(read_table(lake, FRAMES), FRAMES.name)
    again = redact(lake)
    assert (again.redacted, again.replaced, again.removed) == ({"comet": 0}, 0, 0)
    assert live_files(read_table(lake, FRAMES), FRAMES.name) == live
    assert len(tables) == 2, "silver is compared again: the first run may have been killed before"


def test_a_run_that_is_killed_before_the_end_is_completed_by_the_next(
    lake: LocalStore, tables: list[RedecodeRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(redaction, "_remove_history", die)
        with pytest.raises(KeyboardInterrupt):
            redact(lake)
    assert len(tables) == 1
    assert frames_in(lake) == [BLANKED] * 6
    assert FRAME in frames_on_disk(lake)
    assert redact(lake).removed
    assert frames_on_disk(lake) == {BLANKED}


def test_other_protocols_and_earlier_days_stay(lake: LocalStore, tables: list[RedecodeRequest]) -> None:
    assert redact(lake, protocol="redis").redacted == {}
    assert tables == []
    later = START_US + DAY_US // 2
    assert redact(lake, since_us=later).redacted == {"comet": 2}
    assert frames_in(lake) == [FRAME, FRAME, BLANKED, FRAME, BLANKED, FRAME]
    assert [each.since_us for each in tables] == [later]
