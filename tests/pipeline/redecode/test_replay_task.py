"""Test the comparison of commands with those before, without Spark."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from wirelake.lake.store import LocalStore
from wirelake.lake.tables import DEVICE_COMMANDS, READINGS, TABLES
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.redecode.replay_task import CompareReport, CompareTask, CompareUnit, replay_of
from wirelake.pipeline.redecode.seq_ranges import EVERYTHING, read_range

REPLAY = replay_of("apostol", {})
LEAD_US = None if REPLAY is None else REPLAY.lead_us
NAMES = (DEVICE_COMMANDS.name, READINGS.name)
AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
COMMON = {"node": "n", "protocol": "apostol", "serial": "A1", "decoder": "apostol/1", "day": date(2030, 1, 1)}


def command(seq: int, state: str = "complete", *, second: int = 0, **rest: Any) -> dict[str, Any]:
    at = AT + timedelta(seconds=second)
    known = {"device_type": 6, "direction": "in", "answer": False, "command_no": 7, "first_at": at, "done_at": at}
    return COMMON | known | {"seq": seq, "received_at": at, "state": state} | rest


def reading(seq: int, value: float, second: int = 0) -> dict[str, Any]:
    return COMMON | {"seq": seq, "received_at": AT + timedelta(seconds=second), "type": 1, "value": value}


class Tables:
    def __init__(self, folder: Path) -> None:
        self.lake, self.scratch = folder / "lake", folder / "scratch"
        self.files: dict[Path, dict[str, list[FileAction]]] = {}

    def given(self, folder: Path, commands: list[dict[str, Any]], readings: list[dict[str, Any]]) -> None:
        self.files[folder] = {
            name: write_rows(TABLES[name], pa.Table.from_pylist(rows, TABLES[name].schema), LocalStore(folder))
            for name, rows in zip(NAMES, (commands, readings), strict=True)
        }

    def compare(self, opened: list[dict[str, Any]] | None = None, since: datetime | None = None) -> CompareReport:
        rows = pa.Table.from_pylist(opened or [], DEVICE_COMMANDS.schema)
        comparing = CompareTask(
            protocol="apostol",
            lake=LocalStore(self.lake),
            scratch=LocalStore(self.scratch),
            tables=NAMES,
            since_us=int(since.timestamp()) * 1_000_000 if since else 0,
            from_seq=0,
            open=write_rows(DEVICE_COMMANDS.open_table, rows, LocalStore(self.lake)),
            ranges=[],
            dry=False,
            lead_us=LEAD_US,
        )
        return comparing.compare(CompareUnit(EVERYTHING, self.files[self.lake], self.files[self.scratch]))

    def written(self, found: CompareReport, name: str) -> list[dict[str, Any]]:
        files = [file for file in found.files if file.table == name]
        rows: list[dict[str, Any]] = (
            read_range(LocalStore(self.lake), TABLES[name], files, EVERYTHING).sort_by("seq").to_pylist()
        )
        return rows


def test_what_the_key_of_today_does_not_open_stays_open(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.given(tables.lake, [command(1), command(2), command(3, "refused")], [reading(1, 1.5), reading(2, 2.5)])
    shut = [command(seq, "refused", reason="no_key") for seq in (1, 3)]
    tables.given(tables.scratch, [*shut, command(2, data=b"x")], [reading(2, 3.5)])
    found = tables.compare()
    assert found.sealed == 1
    commands = tables.written(found, NAMES[0])
    assert [(row["seq"], row["state"], row["reason"]) for row in commands] == [
        (1, "complete", None),
        (2, "complete", None),
        (3, "refused", "no_key"),
    ]
    assert [(row["seq"], row["value"]) for row in tables.written(found, NAMES[1])] == [(1, 1.5), (2, 3.5)]


def test_what_the_stream_still_waits_for_is_left_to_it(tmp_path: Path) -> None:
    """Check that commands that may be the same, by their number, stay as they were."""
    tables = Tables(tmp_path)
    old = [command(1), command(2, second=50, data=b"old"), command(3, second=50, serial="B")]
    tables.given(tables.lake, old, [reading(1, 1.5), reading(2, 2.5, 50)])
    new = [command(1), command(2, second=50, data=b"new"), command(3, second=50, serial="B", data=b"new")]
    tables.given(tables.scratch, [*new, command(9, second=100)], [reading(1, 1.5), reading(9, 9.5, 100)])
    found = tables.compare([command(8, "open", second=100)])
    assert found.waited_for == 2
    rows = tables.written(found, NAMES[0])
    assert [(row["seq"], row["data"]) for row in rows] == [(1, None), (2, b"old"), (3, b"new")]
    assert [(row["seq"], row["value"]) for row in tables.written(found, NAMES[1])] == [(1, 1.5), (2, 2.5)]
    assert found.differences[NAMES[0]].skipped == 1


def test_what_is_older_stays(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.given(tables.lake, [command(1, data=b"old"), command(2, second=10, data=b"old")], [])
    tables.given(tables.scratch, [command(1, data=b"new"), command(2, second=10, data=b"new")], [])
    found = tables.compare(since=AT + timedelta(seconds=5))
    assert [row["data"] for row in tables.written(found, NAMES[0])] == [b"old", b"new"]


def test_what_was_a_replay_stays_one(tmp_path: Path) -> None:
    """Check this because the replayed command may be older than what is read again."""
    tables = Tables(tmp_path)
    old = [command(1), command(2, "refused", reason="replayed"), command(3, "refused", reason="replayed")]
    tables.given(tables.lake, old, [reading(1, 1.5)])
    new = [command(1), command(2), command(3, "refused", reason="bad_seal")]
    tables.given(tables.scratch, new, [reading(1, 1.5), reading(2, 2.5)])
    found = tables.compare()
    commands = tables.written(found, NAMES[0])
    assert [(row["seq"], row["state"], row["reason"]) for row in commands] == [
        (1, "complete", None),
        (2, "refused", "replayed"),
        (3, "refused", "bad_seal"),
    ]
    assert [(row["seq"], row["value"]) for row in tables.written(found, NAMES[1])] == [(1, 1.5)]
