"""Readings of telemetry, from frames of installed protocols to rows of silver.readings."""

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gateway.devices.station_protocol import PROTOCOL, Login, Report
from gateway.installed_protocol import example, installed_protocols

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, batch_of, frame, numbered, record
from wirelake.lake.tables import READINGS
from wirelake.limits import PIPELINE_EARLY_READING_S
from wirelake.log.imported import imported_session_id
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.protocols.columnar import decode_each
from wirelake.protocols.reading_columns import readings_among

REPORT = Report("", 215, 40, door=True)
DAY = datetime.fromtimestamp(T0 / SECOND, UTC).date()


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    example("beacon")
    points = {"station": "gateway.devices.station_protocol:PROTOCOL", "beacon": "beacon:PROTOCOL"}
    with installed_protocols(points):
        yield


def reported(*reports: Report, identity: str = "north", **rest: Any) -> list[Record]:
    return [frame("station", "in", report.encode(), identity=identity, **rest) for report in reports]


def rows_in(records: list[Record]) -> list[dict[str, Any]]:
    decoded = decode_batch(batch_of(numbered(records)))
    assert decoded.readings.schema.equals(READINGS.schema)
    return list(decoded.readings.to_pylist())


def test_each_numeric_field_is_a_row() -> None:
    about = {"seq": 1, "received_at": datetime.fromtimestamp(T0 / SECOND, UTC), "node": NODE, "protocol": "station"}
    about |= {"serial": "north", "device_time": None, "type": None, "decoder": "station/1", "day": DAY}
    assert rows_in(reported(REPORT)) == [
        {**about, "name": "temperature", "unit": "°C", "value": 21.5},
        {**about, "name": "humidity", "unit": "%", "value": 40.0},
        {**about, "name": "door", "unit": "", "value": 1.0},
    ]


def test_a_reading_is_of_the_device_that_the_message_names_or_of_the_identity() -> None:
    records = reported(REPORT, Report("sensor-1", 1, 2, door=False))
    assert [(row["seq"], row["serial"]) for row in rows_in(records)] == [(1, "north")] * 3 + [(2, "sensor-1")] * 3


def test_rows_are_in_the_order_of_the_log_among_those_of_other_protocols() -> None:
    reading = example("beacon").Reading("Oslo", -75).encode()
    records = [
        frame("beacon", "in", reading, identity="Oslo"),
        *reported(REPORT),
        frame("station", "in", Login("north", "secret").encode(), identity="north"),
        frame("beacon", "in", b"\xbe", identity="Oslo"),
        frame("beacon", "in", reading, identity="Oslo"),
    ]
    rows = [(row["seq"], row["protocol"], row["name"], row["value"]) for row in rows_in(records)]
    assert rows[0] == (1, "beacon", "celsius", -7.5)
    assert [row[:2] for row in rows[1:4]] == [(2, "station")] * 3
    assert rows[4:] == [(5, "beacon", "celsius", -7.5)]


def test_what_the_gateway_sends_is_no_reading() -> None:
    assert rows_in([frame("beacon", "out", example("beacon").Reading("Oslo", 1).encode(), identity="Oslo")]) == []


def test_a_column_decoder_gives_the_same_readings() -> None:
    frames = pa.array([REPORT.encode(), Login("a", "b").encode(), b"junk", Report("x", 1, 2, door=False).encode()])
    from_server = np.zeros(4, bool)
    decoded = decode_each(PROTOCOL, frames, from_server)
    assert len(decoded.readings) == 6
    found = readings_among(PROTOCOL, frames, from_server, decoded.rows, decoded.messages)
    assert found.equals(decoded.readings)
    assert readings_among(PROTOCOL, frames, ~from_server, decoded.rows, decoded.messages) is None


def test_an_imported_capture_has_the_readings_that_name_a_device() -> None:
    session = imported_session_id(T0, 1)
    records = reported(REPORT, Report("sensor-1", 1, 2, door=False), identity="", session=session)
    assert {row["serial"] for row in rows_in(records)} == {"sensor-1"}


# Sessions that report before they are logged in


def login(identity: str, session: str = "s1", at: int = T0) -> Record:
    return record("login", at, protocol="station", session=session, identity=identity)


def early(records: list[Record]) -> list[tuple[Any, ...]]:
    run = BucketRun(2)
    run.batch(numbered(records))
    return found(run)


def found(run: BucketRun) -> list[tuple[Any, ...]]:
    rows = run.rows("silver.readings")
    return sorted((row["seq"], row["serial"], row["name"], row["unit"], row["value"]) for row in rows)


def test_a_report_before_the_login_counts_once_the_session_is_logged_in() -> None:
    records = [*reported(REPORT, Report("sensor-1", 1, 2, door=False), identity=""), login("north")]
    assert rows_in(records) == [], "not before the login"
    assert early(records) == [
        (1, "north", "door", "", 1.0),
        (1, "north", "humidity", "%", 40.0),
        (1, "north", "temperature", "°C", 21.5),
        (2, "sensor-1", "door", "", 0.0),
        (2, "sensor-1", "humidity", "%", 2.0),
        (2, "sensor-1", "temperature", "°C", 0.1),
    ]


@pytest.mark.parametrize(
    "after",
    [
        [],
        [login("south", "s2")],
        [record("refuse", protocol="station", session="s1")],
        [login("north", at=T0 + int(PIPELINE_EARLY_READING_S * SECOND) + 1)],
    ],
)
def test_a_report_of_who_is_not_admitted_is_no_reading(after: list[Record]) -> None:
    assert early([*reported(REPORT, identity=""), *after]) == []


@pytest.mark.parametrize("seed", range(8))
def test_it_does_not_matter_where_the_log_is_cut(seed: int) -> None:
    random = Random(seed)
    records = []
    for number in range(40):
        at, session = T0 + number * 60 * SECOND, f"s{random.randrange(4)}"
        kind = random.choice(("report", "report", "login"))
        records += reported(REPORT, identity="", at=at, session=session) if kind == "report" else []
        records += [login(f"i-{session}", session, at)] if kind == "login" else []
    records = numbered(records)
    whole, cut = BucketRun(1), BucketRun(3)
    whole.batch(records)
    place = 0
    while place < len(records):
        size = random.randrange(1, 6)
        cut.batch(records[place : place + size])
        place += size
    assert found(cut) == found(whole)
    assert found(whole)


def test_readings_that_wait_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.pipeline.stateful.early_readings.PIPELINE_EARLY_READINGS_MAX", 7)
    run = BucketRun(1)
    run.batch(numbered([each for name in "abc" for each in reported(REPORT, identity="", session=name)]))
    assert run.counts == {"readings_forgotten": 3}
    run.batch(numbered([login(name, name) for name in "abc"], 4))
    assert {row[1] for row in found(run)} == {"b", "c"}, "the oldest are dropped"
