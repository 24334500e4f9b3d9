"""Test that the newest status and readings of each device are found, whatever was known before."""

import json
from typing import Any

import pyarrow as pa

from pipeline.rows import after, arrow_rows, literal_rows
from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, READINGS
from wirelake.pipeline.gold.devices import (
    join_reports,
    merge_devices,
    readings_of,
    reports_of,
    statuses_of,
)


def device_latest(before: pa.Table, commands: pa.Table, readings: pa.Table) -> pa.Table:
    reports = join_reports([reports_of(commands), reports_of(readings)])
    merged = merge_devices(before, reports, statuses_of(commands), readings_of(readings))
    others = [row for row in before.to_pylist() if row["serial"] not in merged["serial"].to_pylist()]
    return pa.concat_tables([merged, arrow_rows(DEVICE_LATEST, *others)])


COLUMNS = ("serial", "device_type", "received_at", "status", "status_at", "readings", "readings_at")


def status(seq: int, seconds: float, told_state: int, **rest: Any) -> dict[str, Any]:
    common = {"seq": seq, "received_at": after(seconds), "serial": "m", "device_type": 6, "command_type": 1, "error": 0}
    return {
        **common,
        "direction": "in",
        "answer": False,
        "state": "complete",
        "fields": f'{{"status":{{"state":{told_state}}}}}',
        **rest,
    }


def reading(seq: int, seconds: float, kind: int, value: float, **rest: Any) -> dict[str, Any]:
    return {"seq": seq, "received_at": after(seconds), "serial": "m", "type": kind, "value": value, **rest}


def test_the_newest_of_each() -> None:
    commands = arrow_rows(
        DEVICE_COMMANDS,
        status(1, 1, 1),
        status(4, 4, 4),
        status(5, 5, 5, error=1),
        status(6, 6, 6, state="expired"),
        status(2, 2, 2, serial="n"),
    )
    readings = arrow_rows(
        READINGS, reading(2, 2, 1, 230.5), reading(3, 3, 1, 231), reading(3, 3, 10, 5), reading(2, 2, 2, 0.5)
    )
    assert literal_rows(device_latest(arrow_rows(DEVICE_LATEST), commands, readings), DEVICE_LATEST, *COLUMNS) == [
        ("m", 6, after(5), '{"state":4}', after(4), '{"1":231.0,"10":5.0,"2":0.5}', after(3)),
        ("n", 6, after(2), '{"state":2}', after(2), None, None),
    ]


def test_what_was_known_before_stays_until_something_newer_comes() -> None:
    known = {"serial": "m", "device_type": 6, "received_at": after(10), "status": '{"state":9}', "status_at": after(10)}
    before = arrow_rows(
        DEVICE_LATEST,
        {**known, "readings": '{"1":1.0,"2":2.0}', "readings_at": after(10)},
        {**known, "serial": "quiet"},
    )
    commands = arrow_rows(
        DEVICE_COMMANDS, status(1, 11, 1, device_time=after(5)), status(2, 12, 2, device_type=7, error=2)
    )
    readings = arrow_rows(
        READINGS, reading(1, 11, 1, 11.0), reading(1, 11, 2, 22.0, device_time=after(9)), reading(1, 11, 3, 33.0)
    )
    assert literal_rows(device_latest(before, commands, readings), DEVICE_LATEST, *COLUMNS) == [
        ("m", 7, after(12), '{"state":9}', after(10), '{"1":11.0,"2":2.0,"3":33.0}', after(11)),
        ("quiet", 6, after(10), '{"state":9}', after(10), None, None),
    ]


def test_a_device_that_only_reports_has_its_newest_readings_by_name() -> None:
    def measured(seq: int, name: str, value: float, unit: str = "", **rest: Any) -> dict[str, Any]:
        about = {"seq": seq, "received_at": after(seq), "serial": "oslo", "protocol": "beacon"}
        return {**about, "name": name, "value": value, "unit": unit, **rest}

    first = device_latest(
        arrow_rows(DEVICE_LATEST),
        arrow_rows(DEVICE_COMMANDS),
        arrow_rows(READINGS, measured(1, "celsius", 20.5, "°C"), measured(2, "celsius", 21.5, "°C")),
    )
    second = device_latest(
        arrow_rows(DEVICE_LATEST, *first.to_pylist()),
        arrow_rows(DEVICE_COMMANDS),
        arrow_rows(
            READINGS,
            measured(3, "humidity", 40, "%"),
            measured(4, "celsius", 1.0, "°C", device_time=after(1)),
            measured(5, "voltage", 230, "V", serial="meter", type=1, protocol="other"),
        ),
    )
    at_us = {seq: int(after(seq).timestamp() * 1_000_000) for seq in (2, 3, 5)}
    columns = ("serial", "protocol", "device_type", "received_at", "readings", "newest")
    assert [(*row[:5], json.loads(row[5])) for row in literal_rows(second, DEVICE_LATEST, *columns)] == [
        (
            "meter",
            "other",
            None,
            after(5),
            '{"1":230.0}',
            {"voltage": {"value": 230.0, "unit": "V", "at_us": at_us[5]}},
        ),
        (
            "oslo",
            "beacon",
            None,
            after(4),
            '{"celsius":21.5,"humidity":40.0}',
            {
                "celsius": {"value": 21.5, "unit": "°C", "at_us": at_us[2]},
                "humidity": {"value": 40.0, "unit": "%", "at_us": at_us[3]},
            },
        ),
    ]


def test_a_broadcast_is_of_its_device_but_does_not_have_its_type() -> None:
    commands = arrow_rows(
        DEVICE_COMMANDS,
        status(1, 1, 1),
        status(2, 2, 2, device_type=255),
        status(3, 3, 3, serial="n") | {"device_type": 255},
    )
    latest = device_latest(arrow_rows(DEVICE_LATEST), commands, arrow_rows(READINGS))
    assert literal_rows(latest, DEVICE_LATEST, "serial", "device_type", "status") == [
        ("m", 6, '{"state":2}'),
        ("n", 255, '{"state":3}'),
    ]
