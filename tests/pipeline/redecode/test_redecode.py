import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest

from pipeline.checking import check_tables, rows_of, seqs_of
from pipeline.conftest import PLUGIN
from pipeline.stateful.test_commands import packets
from pipeline.stateful.test_records import DICT, LINE
from pipeline.traffic import START_US, fill
from wirelake.errors import InputError, InUseError, UnknownProtocolError
from wirelake.lake import tables
from wirelake.lake.progress import JobProgress
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import MESSAGES, TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline import job as job_module
from wirelake.pipeline.commit.compaction import compact
from wirelake.pipeline.commit.delta import live_files, open_table, replace_files, rewrite_lock
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode import redecode as redecode_module
from wirelake.pipeline.redecode.redecode import RedecodeRequest, RedecodeResult, redecode
from wirelake.pipeline.redecode.seq_ranges import EVERYTHING, read_range
from wirelake.pipeline.time_ranges import time_of
from wirelake.protocols import registry
from wirelake.protocols.apostol.commands import DeviceCommand, Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US
FRAMES = (b"news=one", b"news:two", b"news!three", b"nothing")


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch, codec: Path) -> Iterator[None]:
    """Install `mended` in this process too, in its first version."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    forget()
    codec.unlink(missing_ok=True)
    yield
    codec.unlink(missing_ok=True)
    monkeypatch.undo()
    forget()


def forget() -> None:
    registry.refresh()


def say(
    log: SegmentLog, frames: tuple[bytes, ...] = FRAMES, at_us: int = START_US, protocol: str = "mended"
) -> list[int]:
    """Append records, and return their seqs."""
    first = log.next_seq
    for place, frame in enumerate(frames):
        commit = log.append(at_us + place, protocol, "frame", "in", "s", "me", "10.0.0.1:5", frame)
    commit.wait(WAIT_S)
    return list(range(first, log.next_seq))


def once(spark: "SparkSession", data: Path) -> None:
    Job(spark, data, JobSettings(once=True)).run()


def again(spark: "SparkSession", data: Path, protocol: str = "mended", **asked: Any) -> RedecodeResult:
    return redecode(spark, data, RedecodeRequest(protocol=protocol, **asked))


def messages(data: Path) -> dict[int, tuple[str, str]]:
    """Return topic and decoder by seq."""
    rows = rows_of(data, "silver.messages").filter(protocol="mended")
    return {row["seq"]: (row["topic"], row["decoder"]) for row in rows.to_dicts()}


def version(data: Path, name: str = "silver/messages") -> int:
    return len(list((data / "lake" / name / "_delta_log").glob("*.json")))


def test_what_the_decoder_of_today_says_takes_the_place_of_what_an_older_one_said(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path
) -> None:
    fill(log, 200)
    one, two, three, nothing = say(log)
    once(spark, data)
    assert messages(data) == {one: ("News", "mended/1"), three: ("News", "mended/1")}
    others = rows_of(data, "silver.messages").filter(polars.col("protocol") != "mended").sort("seq")
    before = polars.scan_delta(str(data / "lake" / MESSAGES.folder), version=version(data) - 1)
    codec.write_text("2")
    done = again(spark, data)
    assert messages(data) == {one: ("news", "mended/2"), two: ("news", "mended/2")}
    quarantine = rows_of(data, "silver.quarantine").filter(protocol="mended").sort("seq")
    assert quarantine["seq"].to_list() == [three, nothing]
    assert quarantine["decoder"].to_list() == ["mended/2"] * 2
    check_tables(data)
    assert rows_of(data, "silver.messages").filter(polars.col("protocol") != "mended").sort("seq").equals(others)
    assert (done.frames, done.decoded, done.refused) == (4, 1, 1)
    found, refused = done.tables["silver.messages"], done.tables["silver.quarantine"]
    assert (found.same, found.changed, found.new, found.removed, found.fields) == (0, 1, 1, 1, {"topic": 1})
    assert (refused.relabelled, refused.changed, refused.new, refused.removed) == (1, 0, 1, 1)
    assert before.filter(protocol="mended").collect()["seq"].sort().to_list() == [one, three]  # who began before
    commits = version(data)
    done = again(spark, data)  # nothing more to do, nothing done
    assert (done.replaced, version(data)) == ({}, commits)
    assert done.tables["silver.messages"].same == 2


def test_a_dry_run_says_the_same_and_changes_nothing(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path
) -> None:
    say(log)
    once(spark, data)
    codec.write_text("2")
    before = sorted((data / "lake" / "silver").rglob("*"))
    dry = again(spark, data, dry=True)
    assert sorted((data / "lake" / "silver").rglob("*")) == before
    assert not (data / "checkpoints" / "tables" / "redecoding").exists()
    assert dry.replaced == {}
    done = again(spark, data)
    assert (done.decoded, done.refused, done.tables) == (dry.decoded, dry.refused, dry.tables)
    assert done.replaced == {"silver.messages": (1, 1), "silver.quarantine": (1, 1)}


def test_since_a_time_what_is_older_stays_in_the_same_files_and_days(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path
) -> None:
    yesterday = say(log, (b"old=1", b"old:2"), START_US - DAY_US)
    today = say(log, (b"early=1", b"early:2"), START_US)
    later = say(log, (b"late=1", b"late:2"), START_US + MINUTE_US)
    once(spark, data)
    codec.write_text("2")
    done = again(spark, data, since_us=START_US + MINUTE_US)
    assert messages(data) == {
        yesterday[0]: ("Old", "mended/1"),
        today[0]: ("Early", "mended/1"),
        later[0]: ("late", "mended/2"),
        later[1]: ("late", "mended/2"),
    }
    check_tables(data)
    assert (done.frames, done.decoded) == (2, 1)
    assert done.tables["silver.messages"].skipped == 1
    assert done.tables["silver.quarantine"].skipped == 1
    assert again(spark, data).decoded == 2
    assert len(messages(data)) == 6


def test_a_stream_goes_on_meanwhile_and_loses_nothing(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit new batches, with rows of the same protocol and day, between reading and replacing the files."""
    first = say(log)
    fill(log, 100)
    arrived: dict[int, threading.Event] = {log.next_seq: threading.Event()}

    def on_batch(progress: JobProgress) -> None:
        for seq, event in list(arrived.items()):
            if progress.next_seq >= seq:
                event.set()

    job = Job(spark, data, JobSettings(trigger_s=0.1), on_progress=on_batch)
    running = threading.Thread(target=job.run)
    running.start()
    meanwhile: list[int] = []

    def slowly(*arguments: Any, **rest: Any) -> None:
        if not meanwhile:
            meanwhile.extend(say(log))
            fill(log, 100, seed=1)
            event = arrived.setdefault(log.next_seq, threading.Event())
            assert event.wait(WAIT_S)
        replace_files(*arguments, **rest)

    monkeypatch.setattr(redecode_module, "replace_files", slowly)
    try:
        assert next(iter(arrived.values())).wait(WAIT_S)
        codec.write_text("2")
        done = again(spark, data)
    finally:
        job.stop()
        running.join(WAIT_S)
    assert job.progress.restarts == 0
    assert done.decoded == 1
    check_tables(data)
    assert sorted(messages(data)) == [first[0], first[1], meanwhile[0], meanwhile[1]]
    once(spark, data)
    check_tables(data)


def test_a_crash_between_the_two_tables_is_healed_by_doing_it_again(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seqs = say(log)
    once(spark, data)
    codec.write_text("2")

    def fail_at_the_second(lake: Any, table: Any, name: str, *rest: Any, **more: Any) -> None:
        if name == "silver.quarantine":
            raise OSError("no space left on device")
        replace_files(lake, table, name, *rest, **more)

    monkeypatch.setattr(redecode_module, "replace_files", fail_at_the_second)
    with pytest.raises(OSError, match="no space left"):
        again(spark, data)
    assert sorted(seqs_of(data, "silver.messages") + seqs_of(data, "silver.quarantine")) == [0, 1, 1, 3]
    monkeypatch.undo()
    rebuilt: list[tuple[set[str], set[date]]] = []
    monkeypatch.setattr(GoldTables, "rebuild", lambda _, _s, tables, days: rebuilt.append((set(tables), set(days))))
    done = redecode(spark, data, RedecodeRequest(protocol="mended"), gold=True)
    check_tables(data)
    assert sorted(messages(data)) == seqs[:2]
    assert list(done.replaced) == ["silver.quarantine"]
    day = time_of(START_US).date()
    assert rebuilt == [({"silver.messages", "silver.quarantine"}, {day})]  # of both times
    assert redecode(spark, data, RedecodeRequest(protocol="mended"), gold=True).replaced == {}
    assert len(rebuilt) == 1


def test_one_who_rewrites_at_a_time(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    say(log)
    once(spark, data)
    with (
        rewrite_lock(LocalStore(data / "lake")),
        pytest.raises(InUseError, match="another process is rewriting the tables"),
    ):
        again(spark, data)

    def compact_meanwhile(_done: int, _rows: int) -> None:
        with pytest.raises(InUseError, match="another process is rewriting the tables"):
            compact(LocalStore(data / "lake"))

    redecode(spark, data, RedecodeRequest(protocol="mended"), on_progress=compact_meanwhile)


def test_what_was_quarantined_at_the_door_and_what_has_no_frame_any_more_stays(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path
) -> None:
    note = '{"code": "bad_length", "offset": 3, "text": "too long"}'
    log.append(START_US, "mended", "quarantine", "in", "s", "me", "10.0.0.1:5", b"x", note).wait(WAIT_S)
    old = say(log, (b"old=1", b"old:2"), START_US - DAY_US)
    new = say(log, (b"new=1", b"new:2"))
    once(spark, data)
    day = datetime.fromtimestamp((START_US - DAY_US) / 1e6, UTC).date().isoformat()
    table = open_table(LocalStore(data / "lake"), tables.FRAMES)  # somebody cleared the day before away
    files = [file for file in live_files(table, "bronze.frames") if file.partition["day"] == day]
    replace_files(LocalStore(data / "lake"), table, "bronze.frames", [], files, data_change=True)
    codec.write_text("2")
    done = again(spark, data)
    assert sorted(messages(data)) == [old[0], *new]
    quarantine = rows_of(data, "silver.quarantine").sort("seq")
    assert quarantine["seq"].to_list() == [0, old[1]]
    assert quarantine["reason"].to_list() == ["bad_length", "no_topic"]
    assert done.tables["silver.messages"].skipped == 1
    assert done.tables["silver.quarantine"].skipped == 1


@pytest.mark.parametrize("frame", [b"raise", b"die"])
def test_records_that_break_the_decoder_stay_quarantined(
    spark: "SparkSession", log: SegmentLog, data: Path, frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "restart_delay_s", lambda _: 0.01)
    seqs = say(log, (b"fine", frame, b"fine too"), protocol="brittle")
    once(spark, data)
    done = again(spark, data, "brittle")
    assert seqs_of(data, "silver.quarantine") == [seqs[1]]
    assert done.replaced == {}
    assert (done.tables["silver.messages"].same, done.tables["silver.quarantine"].same) == (2, 1)


def test_what_cannot_be_done_is_said(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    say(log)
    with pytest.raises(InputError, match="there are no tables in"):
        again(spark, data)
    with pytest.raises(UnknownProtocolError, match="did you mean mended"):
        again(spark, data, "mendet")


def test_a_protocol_that_never_spoke_has_nothing_to_do(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    say(log)
    once(spark, data)
    done = again(spark, data, "sisnet")
    assert (done.frames, done.replaced) == (0, {})


def tampered(data: Path, name: str, older: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite the table as an older decoder might have left it. Open rows belong to the stream."""
    lake = LocalStore(data / "lake")
    table = open_table(lake, TABLES[name])
    files = live_files(table, name)
    rows = pa.concat_tables(read_range(lake, TABLES[name], [file], EVERYTHING) for file in files)
    replace_files(lake, table, name, write_rows(TABLES[name], older(rows), lake), files, data_change=True)


def replaced(rows: pa.Table, column: str, value: Any) -> pa.Table:
    place = rows.column_names.index(column)
    return rows.set_column(place, rows.schema.field(place), pa.array([value] * len(rows), rows.schema.types[place]))


def table_rows(data: Path, name: str) -> list[dict[str, Any]]:
    return sorted(rows_of(data, name).to_dicts(), key=repr)


def device(log: SegmentLog, number: int, at_us: int, *, count: int | None = None, serial: str = "A1") -> None:
    body = DeviceCommand(1_600_000_000, 4, 0, (Reading(1, 215, 2), Reading(9, number + 0.5))).encode()
    sent = packets(body, number=number, size=9, serial=serial)
    for place, packet in enumerate(sent[:count]):
        at = at_us + place
        log.append(at, "apostol", "frame", "in", "d", serial, "10.0.0.1:5", packet.encode()).wait(WAIT_S)


def test_commands_and_readings_are_put_together_once_more(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    for number in range(20):
        device(log, number, START_US + number * MINUTE_US, serial=f"A{number % 3}")
    device(log, 30, START_US + 20 * MINUTE_US, count=1)  # never complete
    device(log, 31, START_US + 22 * MINUTE_US, count=1)  # still waited for
    once(spark, data)
    names = ("silver.messages", "silver.quarantine", "silver.device_commands", "silver.readings")
    whole = {name: table_rows(data, name) for name in names}
    states = [row["state"] for row in whole["silver.device_commands"]]
    assert {state: states.count(state) for state in states} == {"complete": 20, "expired": 1, "open": 1}
    assert len(whole["silver.readings"]) == 40
    done = again(spark, data, "apostol")
    assert done.replaced == {}
    assert (done.tables["silver.device_commands"].same, done.tables["silver.readings"].same) == (21, 40)
    tampered(data, "silver.device_commands", lambda rows: replaced(rows.slice(3), "fields", "{}"))
    tampered(data, "silver.readings", lambda rows: replaced(rows.slice(7), "decoder", "apostol/0"))
    done = again(spark, data, "apostol")
    assert {name: table_rows(data, name) for name in names} == whole
    commands, readings = done.tables["silver.device_commands"], done.tables["silver.readings"]
    assert (commands.same, commands.removed, commands.new) == (0, 18, 21)
    assert (readings.relabelled, readings.removed, readings.new) == (33, 0, 7)
    assert set(done.replaced) == {"silver.device_commands", "silver.readings"}
    tampered(data, "silver.readings", lambda rows: replaced(rows, "value", 1.0))
    again(spark, data, "apostol", since_us=START_US + 10 * MINUTE_US)
    values = rows_of(data, "silver.readings").sort("received_at")["value"].to_list()
    assert values[:20] == [1.0] * 20
    assert sorted(values[20:]) == sorted([215.0, *(number + 0.5 for number in range(10, 20))] + [215.0] * 9)
    again(spark, data, "apostol")
    assert {name: table_rows(data, name) for name in names} == whole


def test_readings_of_telemetry_follow_the_decoder(
    spark: "SparkSession", log: SegmentLog, data: Path, codec: Path
) -> None:
    device(log, 1, START_US)
    log.append(START_US, "mended", "open", "", "late", "", "10.0.0.1:5", b"", "{}").wait(WAIT_S)
    log.append(START_US, "mended", "frame", "in", "late", "", "10.0.0.1:5", b"#5").wait(WAIT_S)
    log.append(START_US, "mended", "frame", "in", "refused", "", "10.0.0.1:5", b"oslo#6").wait(WAIT_S)
    log.append(START_US, "mended", "login", "", "late", "rome", "10.0.0.1:5", b"", "{}").wait(WAIT_S)
    say(log, (b"oslo#215", b"#-3", b"news=one"))
    say(log, (b"oslo#220",), START_US + DAY_US)

    def readings() -> list[tuple[Any, ...]]:
        rows = rows_of(data, "silver.readings").sort("seq").to_dicts()
        return [(row["serial"], row["name"], row["unit"], row["value"], row["decoder"]) for row in rows]

    once(spark, data)
    others = readings()[:2]
    assert [row[:2] for row in others] == [("A1", "voltage"), ("A1", "reading 9")]
    assert readings()[2:] == [
        ("rome", "celsius", "", 5.0, "mended/1"),
        ("oslo", "celsius", "", 215.0, "mended/1"),
        ("me", "celsius", "", -3.0, "mended/1"),
        ("oslo", "celsius", "", 220.0, "mended/1"),
    ]
    codec.write_text("2")
    done = again(spark, data, since_us=START_US + DAY_US)
    assert (done.tables["silver.readings"].new, done.tables["silver.readings"].removed) == (1, 1)
    assert [row[3] for row in readings()[2:]] == [5.0, 215.0, -3.0, 22.0]
    done = again(spark, data)
    mended = [
        ("rome", "celsius", "°C", 0.5, "mended/2"),
        ("oslo", "celsius", "°C", 21.5, "mended/2"),
        ("me", "celsius", "°C", -0.3, "mended/2"),
        ("oslo", "celsius", "°C", 22.0, "mended/2"),
    ]
    assert readings() == others + mended
    found = done.tables["silver.readings"]
    assert (found.new, found.removed, found.same, found.skipped) == (3, 3, 1, 2)
    assert again(spark, data).replaced == {}
    assert again(spark, data, "apostol").replaced == {}
    assert readings() == others + mended


def test_records_are_read_once_more_by_layouts_of_long_ago(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    def receive(frame: bytes, at_us: int) -> None:
        log.append(at_us, "sisnet", "frame", "in", "s1", "ann", "10.0.0.1:5", frame).wait(WAIT_S)

    receive(DICT, START_US)
    for number in range(3):
        receive(LINE, START_US + number * DAY_US)
    once(spark, data)
    whole = table_rows(data, "silver.records")
    assert len(whole) == 6
    tampered(data, "silver.records", lambda rows: replaced(rows, "key", "wrong"))
    again(spark, data, "sisnet", since_us=START_US + DAY_US)
    assert rows_of(data, "silver.records").sort("received_at")["key"].to_list() == ["wrong"] * 2 + ["sh1"] * 4
    again(spark, data, "sisnet")
    assert table_rows(data, "silver.records") == whole
