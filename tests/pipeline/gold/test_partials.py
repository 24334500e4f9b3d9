"""Test what rows add to the gold tables, and that it can be added up in any order."""

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pipeline.rows import NOON, after, arrow_rows, literal_rows
from wirelake.lake.tables import (
    BARS_MINUTE,
    CALL_MINUTE,
    CALLS,
    DELIVERIES,
    DELIVERY_MINUTE,
    MESSAGES,
    QUARANTINE,
    RECORDS,
    TRAFFIC_MINUTE,
    LakeTable,
)
from wirelake.pipeline.gold import sums
from wirelake.pipeline.gold.partials import (
    PartialSums,
    bar_sums,
    call_sums,
    decode_partials,
    delivery_sums,
    encode_partials,
    message_traffic,
    open_delivery_sums,
    quarantine_traffic,
)
from wirelake.pipeline.gold.sums import add_up, to_gold, to_sums


def test_open_high_low_close_in_the_order_of_the_records_own_time() -> None:
    def record(seconds: float, seq: int, price: object, key: str = "sh600600") -> dict[str, object]:
        fields = f'{{"newp":{price}}}' if price is not None else '{"vol":7}'
        place = {"seq": seq, "time": int(after(seconds).timestamp()), "recorded_at": after(seconds)}
        return {**place, "received_at": after(500), "key": key, "sdb": "now", "fields": fields}

    records = arrow_rows(
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
    assert literal_rows(to_gold(sums.BARS, bar_sums(records)), BARS_MINUTE, *columns) == [
        (NOON, "sh2", "now", 3.0, 3.0, 3.0, 3.0, 1),
        (NOON, "sh600600", "now", 10.5, 11.0, 9.0, 10.25, 5),
        (after(60), "sh600600", "now", 8.0, 8.0, 8.0, 8.0, 1),
    ]


def test_without_a_time_of_its_own_a_record_counts_when_it_came() -> None:
    records = arrow_rows(RECORDS, {"seq": 1, "received_at": after(61), "key": "k", "sdb": "s", "fields": '{"newp":1}'})
    assert literal_rows(to_gold(sums.BARS, bar_sums(records)), BARS_MINUTE, "minute", "count") == [(after(60), 1)]


def test_counts_and_latencies_by_the_minute_of_the_question() -> None:
    one = {"protocol": "esnp", "service": "rates", "op": "get"}
    calls = arrow_rows(
        CALLS,
        {**one, "asked_at": after(1), "status": "ok", "latency_ms": 1.0},
        {**one, "asked_at": after(2), "status": "timeout", "latency_ms": 3.0},
        {**one, "asked_at": after(3), "status": "open"},
        {**one, "asked_at": after(61), "status": "unanswered"},
    )
    columns = ("minute", "protocol", "service", "op", "calls", "failed", "open", "p50_ms", "p99_ms")
    assert literal_rows(to_gold(sums.CALLS, call_sums(calls)), CALL_MINUTE, *columns) == [
        (NOON, "esnp", "rates", "get", 3, 1, 1, 1.0, 3.0),
        (after(60), "esnp", "rates", "get", 1, 1, 0, None, None),
    ]


def test_counts_and_latencies_by_the_minute_of_the_first_sending() -> None:
    deliveries = arrow_rows(
        DELIVERIES,
        *(
            {"topic": "@a", "first_sent_at": after(n), "state": "acked", "attempts": 1, "latency_ms": float(n)}
            for n in range(1, 5)
        ),
        {"topic": "@b", "first_sent_at": after(61), "state": "expired", "attempts": 2},
    )
    opened = arrow_rows(
        DELIVERIES,
        {"topic": "@a", "first_sent_at": after(5), "state": "pending", "attempts": 3},
        {"topic": "@b", "first_sent_at": after(62), "state": "expired", "attempts": 4},
    )
    found = add_up(sums.DELIVERIES, [delivery_sums(deliveries), open_delivery_sums(opened)])
    columns = ("minute", "topic", "deliveries", "acked", "pending", "expired", "attempts", "p50_ms", "p95_ms")
    assert literal_rows(to_gold(sums.DELIVERIES, found), DELIVERY_MINUTE, *columns) == [
        (NOON, "@a", 5, 4, 1, 0, 7, 2.0, 4.0),
        (after(60), "@b", 2, 0, 0, 2, 6, None, None),
    ]
    settled = to_sums(sums.DELIVERIES, to_gold(sums.DELIVERIES, found))  # what was open is counted anew
    assert literal_rows(to_gold(sums.DELIVERIES, settled), DELIVERY_MINUTE, *columns) == [
        (NOON, "@a", 4, 4, 0, 0, 4, 2.0, 4.0),
        (after(60), "@b", 1, 0, 0, 1, 2, None, None),
    ]


def test_frames_bytes_and_errors_by_minute_protocol_and_name() -> None:
    one = {"protocol": "comet", "name": "auth", "direction": "in", "bytes": 10}
    messages = arrow_rows(
        MESSAGES,
        {"received_at": after(1), **one},
        {"received_at": after(59.9), **one},
        {"received_at": after(60), **one},
        {"received_at": after(1), **one, "direction": "out", "status": "token wrong"},
        {"received_at": after(2), **one, "direction": "out", "status": "ok"},
    )
    quarantine = arrow_rows(
        QUARANTINE, {"received_at": after(3), "protocol": "esnp", "direction": "in", "frame": b"abc"}
    )
    found = add_up(sums.TRAFFIC, [message_traffic(messages), quarantine_traffic(quarantine)])
    columns = ("minute", "protocol", "name", "direction", "frames", "bytes", "errors", "day")
    assert literal_rows(to_gold(sums.TRAFFIC, found), TRAFFIC_MINUTE, *columns) == [
        (NOON, "comet", "auth", "in", 2, 20, 0, NOON.date()),
        (NOON, "comet", "auth", "out", 2, 20, 1, NOON.date()),
        (NOON, "esnp", "(quarantined)", "in", 1, 3, 1, NOON.date()),
        (after(60), "comet", "auth", "in", 1, 10, 0, NOON.date()),
    ]


def _records(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "seq": seq,
            "received_at": after(seq),
            "key": chance.choice(["a", "b", None]),
            "sdb": "s",
            "time": chance.randrange(5),
            "recorded_at": after(chance.randrange(200)),
            "fields": f'{{"newp":{chance.randrange(100)}}}',
        }
        for seq in range(60)
    ]


def _calls(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "seq": seq,
            "received_at": after(seq),
            "protocol": chance.choice(["comet", "esnp"]),
            "service": chance.choice(["s", None]),
            "asked_at": after(seq * 3),
            "status": chance.choice(["ok", "bad"]),
            "latency_ms": chance.choice([None, 1.5, 2.5, 9.0]),
        }
        for seq in range(60)
    ]


@pytest.mark.parametrize(("table", "gold"), [(RECORDS, sums.BARS), (CALLS, sums.CALLS)])
@pytest.mark.parametrize("seed", range(5))
def test_parts_add_up_to_the_whole(table: LakeTable, gold: sums.MinuteTable, seed: int) -> None:
    """Check against one summary of all rows: cut anywhere, in any order, through files and tables."""
    chance = random.Random(seed)
    rows = arrow_rows(table, *(_records(chance) if table is RECORDS else _calls(chance)))
    whole = PartialSums()
    whole.add(table.name, rows)
    expected = to_gold(gold, whole.result()[gold.table.name])
    cuts = sorted({0, *(chance.randrange(len(rows)) for _ in range(4)), len(rows)})
    parts = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    chance.shuffle(parts)
    known = gold.schema.empty_table()
    for part in parts:
        one = PartialSums()
        one.add(table.name, part)
        decoded = decode_partials(encode_partials(one.result()))
        written = to_gold(gold, add_up(gold, [known, decoded[gold.table.name]]))
        known = to_sums(gold, written)
    assert to_gold(gold, known).to_pylist() == _with_sketches_of(to_gold(gold, known), expected)


def _with_sketches_of(found: pa.Table, expected: pa.Table) -> list[dict[str, Any]]:
    """Return the expected rows: a sketch may hold the same values in another order."""
    rows: list[dict[str, Any]] = expected.to_pylist()
    if sums.SKETCH in found.schema.names:
        for row, sketch in zip(rows, found[sums.SKETCH].to_pylist(), strict=True):
            row[sums.SKETCH] = sketch
    return rows
