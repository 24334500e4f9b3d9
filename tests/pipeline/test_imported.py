"""Imported records are older than those before them in the log: the tables do not depend on where it is cut."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars
import pytest
from pcap_writer import START_US, CapturedPacket, TcpConversation, capture_file, udp_packet
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from pipeline.histories import BucketRun, Record, frame, numbered, record
from wirelake.capture.importer import import_capture
from wirelake.config import default_settings
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender

NOW_US = START_US + 400 * 24 * 3_600_000_000  # the capture is more than a year old
HOUR_US = 3_600_000_000
METER = ("10.0.0.3", 40_000), ("10.0.0.1", 7332)
TABLES = ("silver.calls", "silver.sessions", "silver.device_commands", "silver.tallies")


def packet(number: int, params: int) -> bytes:
    return Packet(1, params, 6, "meter", 7, number, bytes([number]) * 30).encode()


def capture(start_us: int) -> list[CapturedPacket]:
    """Return requests and responses that take minutes, and a command of three packets."""
    talk = TcpConversation(server=("10.0.0.1", 7334), at_us=start_us)
    talk.open()
    for _ in range(3):
        talk.send(Sender.CLIENT, comet.GetTopicList().encode())
        talk.at_us += 60_000_000
        talk.send(Sender.SERVER, comet.TopicList(("@a",)).encode())
    talk.send(Sender.CLIENT, comet.Heartbeat().encode())
    talk.close()
    sent = [packet(0, FIRST), packet(1, 0), packet(2, LAST)]
    command = [CapturedPacket(start_us + at, udp_packet(*METER, each)) for at, each in enumerate(sent)]
    return sorted(talk.packets + command)


def import_it(folder: Path, now_us: int = NOW_US, start_us: int = START_US) -> Path:
    file = folder / "old.pcap"
    file.write_bytes(capture_file(capture(start_us)))
    import_capture(file, folder / "data", default_settings(), None, lambda: now_us)
    return folder / "data"


def records_in(data: Path) -> list[Record]:
    rows = [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]
    return [{**row, "at": round(row["at"].timestamp() * 1e6)} for row in rows]


@pytest.fixture
def history(tmp_path: Path) -> list[Record]:
    """Return an import between the records of a gateway, which has a command of the same device open."""
    start = record("counters", NOW_US - HOUR_US, note='{"start": true, "hours": {}}')
    live = [start, frame("apostol", "in", packet(0, FIRST), NOW_US - 1, "s9", identity="meter")]
    again = [record("counters", NOW_US + HOUR_US, note='{"start": true, "hours": {}}')]
    return numbered([{**each, "node": "n1"} for each in (*live, *records_in(import_it(tmp_path)), *again)])


def run(*batches: Sequence[Record]) -> BucketRun:
    found = BucketRun(2)
    for batch in batches:
        found.batch(batch)
    return found


def test_the_rows_do_not_depend_on_where_the_log_is_cut(history: list[Record]) -> None:
    whole, one_by_one = run(history), run(*([each] for each in history))
    for table in TABLES:
        assert one_by_one.rows(table) == whole.rows(table), table
    assert one_by_one.counts == whole.counts


def test_what_was_imported_is_complete(history: list[Record]) -> None:
    found = run(*([each] for each in history))
    calls = [row for row in found.rows("silver.calls") if row["session"].startswith("import")]
    assert sorted(row["status"] for row in calls) == ["ok", "ok", "ok", "unanswered"]
    assert {row["protocol"]: row["reason"] for row in found.rows("silver.sessions") if row["reason"]} == {
        "comet": "peer_closed",
        "apostol": "capture_ended",
    }
    states = {(row["first_at"].year, row["state"], row["packets"]) for row in found.rows("silver.device_commands")}
    assert states == {(2023, "complete", 3), (2024, "expired", 1)}, "the live command is another one"


def test_the_gateway_starts_again_after_an_import_that_broke_off(history: list[Record]) -> None:
    broken = [each for each in history if each["event"] != "close"][:-2]
    found = run(*([each] for each in numbered([*broken, history[-1]])))
    assert {row["reason"] for row in found.rows("silver.sessions")} == {"gateway_restarted"}


def test_the_ledger_balances_after_an_import(spark: SparkSession, tmp_path: Path) -> None:
    data = import_it(tmp_path)
    Job(spark, data, JobSettings(once=True, batch_rows=3), gold=True).run()
    import_it(tmp_path, NOW_US + HOUR_US, START_US + 600_000_000)
    Job(spark, data, JobSettings(once=True, batch_rows=5), gold=True).run()
    check_tables(data)
    ledger = rows_of(data, "gold.ledger")
    assert ledger["balanced"].all(), ledger.filter(~polars.col("balanced"))["why"].to_list()
    sums: dict[str, Any] = {
        row["protocol"]: (row["hour"].year, row["received"], row["counted"], row["uncounted"], row["decoded"])
        for row in ledger.filter(polars.col("protocol") != "").to_dicts()
    }
    assert sums == {"comet": (2023, 8, 8, 0, 8), "apostol": (2023, 6, 6, 0, 6)}
    assert set(rows_of(data, "silver.device_commands")["state"]) == {"complete"}
    done = redecode(spark, data, RedecodeRequest(protocol="apostol"))
    assert (done.frames, done.replaced) == (6, {}), "history decodes to the same rows again"
    opened = rows_of(data, "bronze.frames").filter(polars.col("event") == "open")["note"][0]
    assert msgspec.json.decode(opened)["import"] == "old.pcap"
