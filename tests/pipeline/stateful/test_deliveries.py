from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, deliver, ids, numbered, record, reduced_rows
from wirelake.pipeline.stateful import deliveries
from wirelake.pipeline.stateful.deliveries import AckedPositions

DELIVERIES = "silver.deliveries"
NEWS = "@news"


def when(us: int) -> datetime:
    return datetime.fromtimestamp(us / SECOND, UTC)


def acked(identity: str, *positions: int, at: int = T0) -> Record:
    return record("ack", at, note={"identity": identity, "acked": [f"{ids(NEWS)}{each:x}" for each in positions]})


def through(identity: str, position: int, at: int = T0) -> Record:
    return record("ack", at, note={"topic": NEWS, "ids": ids(NEWS), "identity": identity, "through": position})


def expired(first: int, last: int, at: int = T0) -> Record:
    return record("expire", at, note={"topic": NEWS, "first": first, "last": last})


def states(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[str, int, bool]]:
    return {(row["identity"], row["position"]): (row["state"], row["attempts"], row["settled"]) for row in rows}


def test_sent_twice_and_acked() -> None:
    steps = [
        deliver(NEWS, 26, 26, [("s1", "ann"), ("s2", "ann"), ("s3", "bob")]),
        deliver(NEWS, 26, 26, [("s2", "ann")], T0 + 30 * SECOND, attempt=2),
        acked("ann", 26, at=T0 + 31 * SECOND),
    ]
    common = {
        "seq": 1,
        "received_at": when(T0),
        "node": NODE,
        "protocol": "comet",
        "id": f"{ids(NEWS)}1a",
        "topic": NEWS,
    }
    common |= {"position": 26, "first_sent_at": when(T0), "day": when(T0).date()}
    assert sorted(reduced_rows(steps, DELIVERIES), key=lambda row: str(row["identity"])) == [
        {
            **common,
            "identity": "ann",
            "session": "s1",
            "acked_at": when(T0 + 31 * SECOND),
            "attempts": 2,
            "state": "acked",
            "latency_ms": 31_000.0,
            "settled": True,
        },
        {
            **common,
            "identity": "bob",
            "session": "s3",
            "acked_at": None,
            "attempts": 1,
            "state": "pending",
            "latency_ms": None,
            "settled": False,
        },
    ]


def test_acked_through_a_position() -> None:
    steps = [deliver(NEWS, 1, 3, [("s1", "ann")]), deliver("@other", 1, 1, [("s1", "ann")]), through("ann", 2)]
    rows = reduced_rows(steps, DELIVERIES)
    of_news = [row for row in rows if row["topic"] == NEWS]
    assert states(of_news) == {
        ("ann", 1): ("acked", 1, True),
        ("ann", 2): ("acked", 1, True),
        ("ann", 3): ("pending", 1, False),
    }
    assert [row["state"] for row in rows if row["topic"] == "@other"] == ["pending"]


@pytest.mark.parametrize("buckets", [1, 5])
def test_an_expiry_ends_what_is_pending_and_an_ack_may_still_correct_it(buckets: int) -> None:
    bucketed = BucketRun(buckets)
    everybody = [(f"s{each}", f"id{each}") for each in range(9)]
    bucketed.batch(numbered([deliver(NEWS, 1, 2, everybody), acked("id0", 1), deliver("@b", 1, 1, everybody)]))
    bucketed.batch(numbered([expired(1, 1, T0 + SECOND)], 4))
    found = states([row for row in bucketed.rows(DELIVERIES) if row["topic"] == NEWS])
    assert found["id0", 1] == ("acked", 1, True)
    assert {found[f"id{each}", 1] for each in range(1, 9)} == {("expired", 1, False)}
    assert {found[f"id{each}", 2] for each in range(9)} == {("pending", 1, False)}
    bucketed.batch(numbered([acked("id3", 1, at=T0 + 60 * SECOND)], 5))
    found = states([row for row in bucketed.rows(DELIVERIES) if row["topic"] == NEWS])
    assert found["id3", 1] == ("acked", 1, True)
    assert bucketed.counts == {"acks_after_expiry": 1}
    bucketed.batch(numbered([record("counters", T0 + 3612 * SECOND, note={"hours": {}})], 6))
    bucketed.batch(numbered([acked("id4", 1, at=T0 + 3613 * SECOND)], 7))
    found = states([row for row in bucketed.rows(DELIVERIES) if row["topic"] == NEWS])
    assert found["id4", 1] == ("expired", 1, True)
    assert found["id4", 2] == ("pending", 1, False)
    assert bucketed.counts == {"acks_after_expiry": 1, "acks_without_delivery": 1}
    assert len(bucketed.rows(DELIVERIES)) == 27


def test_an_expiry_does_not_touch_what_is_sent_later() -> None:
    steps = [expired(1, 5), deliver(NEWS, 1, 1, [("s1", "ann")], T0 + 1)]
    assert states(reduced_rows(steps, DELIVERIES)) == {("ann", 1): ("pending", 1, False)}


def test_acks_of_nothing_are_counted() -> None:
    bucketed = BucketRun()
    rubbish = record("ack", note={"identity": "ann", "acked": ["", "x", "e-1-zz", "e-1-1"]})
    bucketed.batch(numbered([acked("ann", 1, 2), through("ann", 9), rubbish]))
    assert bucketed.counts == {"acks_without_delivery": 6}
    assert bucketed.rows(DELIVERIES) == []


def test_what_was_acked_on_one_session_may_still_be_sent_on_another() -> None:
    bucketed = BucketRun()
    bucketed.batch(numbered([deliver(NEWS, 1, 4, [("s1", "ann")]), acked("ann", 1), acked("ann", 3), acked("ann", 2)]))
    bucketed.batch(numbered([deliver(NEWS, 1, 5, [("s2", "ann")], T0 + 9), acked("ann", 2, at=T0 + 9)], 5))
    assert states(bucketed.rows(DELIVERIES)) == {
        ("ann", 1): ("acked", 1, True),
        ("ann", 2): ("acked", 1, True),
        ("ann", 3): ("acked", 1, True),
        ("ann", 4): ("pending", 2, False),
        ("ann", 5): ("pending", 1, False),
    }
    assert bucketed.counts == {"sent_after_ack": 3, "acks_repeated": 1}


@given(st.lists(st.integers(1, 30)))
def test_runs_hold_what_was_put_in(positions: list[int]) -> None:
    runs = AckedPositions()
    for position in positions:
        runs.add(position, 0)
    assert [each for each in range(40) if each in runs] == sorted(set(positions))
    assert all(one[1] + 1 < other[0] for one, other in pairwise(runs.runs))


def test_one_notification_for_very_many() -> None:
    bucketed = BucketRun(4)
    everybody = [(f"s{each}", f"id{each}") for each in range(100_000)]
    bucketed.batch(numbered([deliver(NEWS, 1, 1, everybody)]))
    assert sum(state.table().nbytes for state in bucketed.states) < 100_000 * 300
    bucketed.batch(numbered([acked("id77", 1, at=T0 + 1)], 2))
    assert sum(len(part) for part in bucketed.final[DELIVERIES]) == 1
    (row,) = bucketed.final[DELIVERIES][0].to_pylist()
    assert (row["identity"], row["state"]) == ("id77", "acked")


def test_too_many_and_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "PIPELINE_DELIVERIES_OPEN_MAX", 2)
    bucketed = BucketRun()
    for seq in range(1, 4):
        bucketed.batch(numbered([deliver(NEWS, seq, seq, [("s", f"id{seq}")], T0 + seq)], seq))
    pending = ("pending", 1, False)
    assert states(bucketed.rows(DELIVERIES)) == {
        ("id1", 1): ("expired", 1, True),
        ("id2", 2): pending,
        ("id3", 3): pending,
    }
    month = 31 * 24 * 3600 * SECOND
    bucketed.batch(numbered([record("counters", T0 + month, note={"hours": {}})], 4))
    assert {state for state, _, settled in states(bucketed.rows(DELIVERIES)).values() if settled} == {"expired"}
    assert bucketed.counts == {"deliveries_given_up": 3}
