from datetime import UTC, datetime
from typing import Any

from pipeline.histories import NODE, SECOND, BucketRun, Record, frame, numbered, record, reduced_rows
from wirelake.message import Kind, Message, Op, control
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

TALLIES = "silver.tallies"
HOUR = 1_700_000_000 // 3600 * 3600
LATE = (HOUR + 3600) * SECOND
T0 = LATE - 10 * SECOND
PING = registry.get("comet").from_message(control(Op.PING), Sender.CLIENT).encode()
OK = registry.get("comet").from_message(Message(kind=Kind.RESPONSE), Sender.SERVER).encode()


def counters(at: int, **note: Any) -> Record:
    return record("counters", at, note={"hours": {}} | note)


def pinged(at: int) -> list[Record]:
    return [frame("comet", "in", PING, at), frame("comet", "out", OK, at)]


def refused(at: int) -> Record:
    note = {"code": "short", "offset": 0, "text": "cut off"}
    return record("quarantine", at, protocol="comet", direction="in", session="s1", frame=b"\xff", note=note)


def test_counted_against_found_by_hour() -> None:
    counted = {
        str(HOUR): {"comet": {"in": 2, "out": 1, "quarantined": 1}},
        str(HOUR + 3600): {"comet": {"in": 1, "out": 1}},
    }
    steps = [
        counters(T0, start=True),
        *pinged(T0),
        frame("comet", "in", b"\x00\x01\xee", T0),
        refused(T0),
        *pinged(LATE),
        counters(LATE + 1, hours=counted),
        *pinged(LATE + 2),
    ]
    hours = [datetime.fromtimestamp(each, UTC) for each in (HOUR, HOUR + 3600)]
    common = {"node": NODE, "from_seq": 2, "until_seq": 8, "protocol": "comet", "missing": None, "settled": True}
    rows = sorted(reduced_rows(steps, TALLIES), key=lambda row: (row["from_seq"], row["hour"]))
    assert rows == [
        {
            **common,
            "hour": hours[0],
            "counted": 3,
            "received": 3,
            "decoded": 1,
            "quarantined": 2,
            "counted_out": 1,
            "sent": 1,
            "day": hours[0].date(),
        },
        {
            **common,
            "hour": hours[1],
            "counted": 1,
            "received": 1,
            "decoded": 1,
            "quarantined": 0,
            "counted_out": 1,
            "sent": 1,
            "day": hours[1].date(),
        },
        {
            **common,
            "from_seq": 9,
            "until_seq": None,
            "hour": hours[1],
            "counted": None,
            "received": 1,
            "decoded": 1,
            "quarantined": 0,
            "counted_out": None,
            "sent": 1,
            "settled": False,
            "day": hours[1].date(),
        },
    ]


def test_before_a_start_nobody_counted() -> None:
    bucketed = BucketRun(3)
    bucketed.batch(numbered(pinged(T0)))
    bucketed.batch(numbered([*pinged(T0), counters(T0 + 1, start=True)], 3), numbered(pinged(T0 + 2), 6))
    bucketed.batch(numbered([counters(T0 + 3, hours={str(HOUR): {"comet": {"in": 5}, "redis": {"in": 1}}})], 8))
    names = ("from_seq", "until_seq", "protocol", "counted", "received", "counted_out", "sent", "settled")
    assert [tuple(row[name] for name in names) for row in bucketed.rows(TALLIES)] == [
        (1, 5, "comet", None, 2, None, 2, True),
        (6, 8, "comet", 5, 1, 0, 1, True),
        (6, 8, "redis", 1, 0, 0, 0, True),
    ]


def test_each_node_counts_for_itself() -> None:
    other = [{**each, "node": "n2"} for each in (*pinged(T0), counters(T0, hours={str(HOUR): {"comet": {"in": 1}}}))]
    rows = reduced_rows([*pinged(T0), *other], TALLIES)
    assert sorted((row["node"], row["received"], row["settled"]) for row in rows) == [
        ("n1", 1, False),
        ("n2", 1, True),
    ]


def test_records_that_the_log_numbered_and_nobody_read_are_missed() -> None:
    counted = {"hours": {str(HOUR): {"comet": {"in": 1}}}}
    bucketed = BucketRun(1)
    bucketed.batch(numbered([counters(T0, start=True), *pinged(T0)]))
    bucketed.batch(numbered([*pinged(T0)], 9))  # records 4 to 8 were skipped, whatever they were
    bucketed.batch(numbered([counters(T0 + 1, **counted), counters(T0 + 2), *pinged(T0), counters(T0 + 3)], 11))
    names = ("from_seq", "until_seq", "protocol", "missing", "received", "settled")
    assert [tuple(row[name] for name in names) for row in bucketed.rows(TALLIES) if row["missing"] is not None] == [
        (2, 11, "", 5, 0, True)
    ]


def test_a_state_of_an_older_version_misses_nothing() -> None:
    from wirelake.pipeline.stateful.tallies import _unpack

    old = _unpack(bytes.fromhex("9205 90".replace(" ", "")))  # msgpack of [5, []]
    assert (old.from_seq, old.records) == (5, None)
