import json
from typing import Any

from pyspark.sql import SparkSession

from pipeline.rows import NOON, after, rows_in, rows_out
from wirelake.lake.tables import (
    BARS_MINUTE,
    CALL_MINUTE,
    CALLS,
    DELIVERIES,
    DELIVERY_MINUTE,
    DEVICE_COMMANDS,
    DEVICE_LATEST,
    MESSAGES,
    QUARANTINE,
    READINGS,
    RECORDS,
    TRAFFIC_MINUTE,
)
from wirelake.pipeline.gold.tables import bars_minute, call_minute, delivery_minute, device_latest, traffic_minute


def test_open_high_low_close_in_the_order_of_the_records_own_time(spark: SparkSession) -> None:
    def record(seconds: float, seq: int, price: object, key: str = "sh600600") -> dict[str, object]:
        fields = f'{{"newp":{price}}}' if price is not None else '{"vol":7}'
        place = {"seq": seq, "time": int(after(seconds).timestamp()), "recorded_at": after(seconds)}
        return {**place, "at": after(500), "key": key, "sdb": "now", "fields": fields}

    records = rows_in(
        spark,
        RECORDS,
        record(30, 1, 11),  # came first, but is not the first of its minute
        record(10, 2, 10.5),
        record(20, 3, 9),
        record(40, 4, 10),
        record(40, 5, 10.25),  # the same second, later in the log
        record(61, 6, 8),
        record(1, 7, None),
        record(1, 8, '"cheap"'),
        record(1, 9, 3, "sh2"),
    )
    columns = ("minute", "key", "sdb", "open", "high", "low", "close", "count")
    assert rows_out(bars_minute(records), BARS_MINUTE, *columns) == [
        (NOON, "sh2", "now", 3.0, 3.0, 3.0, 3.0, 1),
        (NOON, "sh600600", "now", 10.5, 11.0, 9.0, 10.25, 5),
        (after(60), "sh600600", "now", 8.0, 8.0, 8.0, 8.0, 1),
    ]


def test_without_a_time_of_its_own_a_record_counts_when_it_came(spark: SparkSession) -> None:
    records = rows_in(spark, RECORDS, {"seq": 1, "at": after(61), "key": "k", "sdb": "s", "fields": '{"newp":1}'})
    assert rows_out(bars_minute(records), BARS_MINUTE, "minute", "count") == [(after(60), 1)]


def test_counts_and_latencies_by_the_minute_of_the_question(spark: SparkSession) -> None:
    one = {"protocol": "esnp", "service": "rates", "op": "get"}
    calls = rows_in(
        spark,
        CALLS,
        {**one, "asked_at": after(1), "status": "ok", "latency_ms": 1.0},
        {**one, "asked_at": after(2), "status": "timeout", "latency_ms": 3.0},
        {**one, "asked_at": after(3), "status": "open"},
        {**one, "asked_at": after(61), "status": "unanswered"},
    )
    columns = ("minute", "protocol", "service", "op", "calls", "failed", "open", "p50_ms", "p99_ms")
    assert rows_out(call_minute(calls), CALL_MINUTE, *columns) == [
        (NOON, "esnp", "rates", "get", 3, 1, 1, 2.0, 2.98),
        (after(60), "esnp", "rates", "get", 1, 1, 0, None, None),
    ]


def test_counts_and_latencies_by_the_minute_of_the_first_sending(spark: SparkSession) -> None:
    deliveries = rows_in(
        spark,
        DELIVERIES,
        *(
            {"topic": "@a", "first_sent_at": after(n), "state": "acked", "attempts": 1, "latency_ms": float(n)}
            for n in range(1, 5)
        ),
        {"topic": "@a", "first_sent_at": after(5), "state": "pending", "attempts": 3},
        {"topic": "@b", "first_sent_at": after(61), "state": "expired", "attempts": 2},
    )
    columns = ("minute", "topic", "deliveries", "acked", "pending", "expired", "attempts", "p50_ms", "p95_ms")
    assert rows_out(delivery_minute(deliveries), DELIVERY_MINUTE, *columns) == [
        (NOON, "@a", 5, 4, 1, 0, 7, 2.5, 3.8499999999999996),
        (after(60), "@b", 1, 0, 0, 1, 2, None, None),
    ]


COLUMNS = ("serial", "device_type", "at", "status", "status_at", "readings", "readings_at")


def status(seq: int, seconds: float, told_state: int, **rest: Any) -> dict[str, Any]:
    common = {"seq": seq, "at": after(seconds), "serial": "m", "device_type": 6, "command_type": 1, "error": 0}
    return {
        **common,
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


def test_a_device_that_only_reports_has_its_newest_readings_by_name(spark: SparkSession) -> None:
    def measured(seq: int, name: str, value: float, unit: str = "", **rest: Any) -> dict[str, Any]:
        about = {"seq": seq, "at": after(seq), "serial": "oslo", "protocol": "beacon"}
        return {**about, "name": name, "value": value, "unit": unit, **rest}

    first = device_latest(
        rows_in(spark, DEVICE_LATEST),
        rows_in(spark, DEVICE_COMMANDS),
        rows_in(spark, READINGS, measured(1, "celsius", 20.5, "°C"), measured(2, "celsius", 21.5, "°C")),
    )
    second = device_latest(
        rows_in(spark, DEVICE_LATEST, *first.toArrow().to_pylist()),
        rows_in(spark, DEVICE_COMMANDS),
        rows_in(
            spark,
            READINGS,
            measured(3, "humidity", 40, "%"),
            measured(4, "celsius", 1.0, "°C", device_time=after(1)),
            measured(5, "voltage", 230, "V", serial="meter", type=1, protocol="other"),
        ),
    )
    at_us = {seq: int(after(seq).timestamp() * 1_000_000) for seq in (2, 3, 5)}
    columns = ("serial", "protocol", "device_type", "at", "readings", "newest")
    assert [(*row[:5], json.loads(row[5])) for row in rows_out(second, DEVICE_LATEST, *columns)] == [
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


def test_frames_bytes_and_errors_by_minute_protocol_and_name(spark: SparkSession) -> None:
    one = {"protocol": "comet", "name": "auth", "direction": "in", "bytes": 10}
    messages = rows_in(
        spark,
        MESSAGES,
        {"at": after(1), **one},
        {"at": after(59.9), **one},
        {"at": after(60), **one},
        {"at": after(1), **one, "direction": "out", "status": "token wrong"},
        {"at": after(2), **one, "direction": "out", "status": "ok"},
    )
    quarantine = rows_in(spark, QUARANTINE, {"at": after(3), "protocol": "esnp", "direction": "in", "frame": b"abc"})
    columns = ("minute", "protocol", "name", "direction", "frames", "bytes", "errors", "day")
    assert rows_out(traffic_minute(messages, quarantine), TRAFFIC_MINUTE, *columns) == [
        (NOON, "comet", "auth", "in", 2, 20, 0, NOON.date()),
        (NOON, "comet", "auth", "out", 2, 20, 1, NOON.date()),
        (NOON, "esnp", "(quarantined)", "in", 1, 3, 1, NOON.date()),
        (after(60), "comet", "auth", "in", 1, 10, 0, NOON.date()),
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
