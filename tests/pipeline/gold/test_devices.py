from typing import Any

from pipeline.rows import after, rows_in, rows_out
from pyspark.sql import SparkSession

from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, READINGS
from wirelake.pipeline.gold.devices import device_latest

COLUMNS = ("serial", "device_type", "at", "status", "status_at", "readings", "readings_at")


def status(seq: int, seconds: float, told_state: int, **rest: Any) -> dict[str, Any]:
    told = {"seq": seq, "at": after(seconds), "serial": "m", "device_type": 6, "command_type": 1, "error": 0}
    return {
        **told,
        "direction": "in",
        "answer": False,
        "state": "complete",
        "fields": f'{{"status":{{"state":{told_state}}}}}',
        **rest,
    }


def reading(seq: int, seconds: float, kind: int, value: float, **rest: Any) -> dict[str, Any]:
    return {"seq": seq, "at": after(seconds), "serial": "m", "type": kind, "value": value, **rest}


def test_the_newest_of_each(spark: SparkSession) -> None:
    commands = rows_in(
        spark,
        DEVICE_COMMANDS,
        status(1, 1, 1),
        status(4, 4, 4),
        status(5, 5, 5, error=1),
        status(6, 6, 6, state="expired"),
        status(2, 2, 2, serial="n"),
    )
    readings = rows_in(
        spark, READINGS, reading(2, 2, 1, 230.5), reading(3, 3, 1, 231), reading(3, 3, 10, 5), reading(2, 2, 2, 0.5)
    )
    assert rows_out(device_latest(rows_in(spark, DEVICE_LATEST), commands, readings), DEVICE_LATEST, *COLUMNS) == [
        ("m", 6, after(5), '{"state":4}', after(4), '{"1":231.0,"10":5.0,"2":0.5}', after(3)),
        ("n", 6, after(2), '{"state":2}', after(2), None, None),
    ]


def test_what_was_known_before_stays_until_something_newer_comes(spark: SparkSession) -> None:
    known = {"serial": "m", "device_type": 6, "at": after(10), "status": '{"state":9}', "status_at": after(10)}
    before = rows_in(
        spark,
        DEVICE_LATEST,
        {**known, "readings": '{"1":1.0,"2":2.0}', "readings_at": after(10)},
        {**known, "serial": "quiet"},
    )
    commands = rows_in(
        spark, DEVICE_COMMANDS, status(1, 11, 1, device_time=after(5)), status(2, 12, 2, device_type=7, error=2)
    )
    readings = rows_in(
        spark, READINGS, reading(1, 11, 1, 11.0), reading(1, 11, 2, 22.0, device_time=after(9)), reading(1, 11, 3, 33.0)
    )
    assert rows_out(device_latest(before, commands, readings), DEVICE_LATEST, *COLUMNS) == [
        ("m", 7, after(12), '{"state":9}', after(10), '{"1":11.0,"2":2.0,"3":33.0}', after(11)),
        ("quiet", 6, after(10), '{"state":9}', after(10), None, None),
    ]


def test_a_broadcast_is_of_its_device_but_does_not_have_its_type(spark: SparkSession) -> None:
    commands = rows_in(
        spark,
        DEVICE_COMMANDS,
        status(1, 1, 1),
        status(2, 2, 2, device_type=255),
        status(3, 3, 3, serial="n") | {"device_type": 255},
    )
    latest = device_latest(rows_in(spark, DEVICE_LATEST), commands, rows_in(spark, READINGS))
    assert rows_out(latest, DEVICE_LATEST, "serial", "device_type", "status") == [
        ("m", 6, '{"state":2}'),
        ("n", 255, '{"state":3}'),
    ]
