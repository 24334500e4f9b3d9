from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, numbered, record, reduced_rows
from wirelake.pipeline.stateful import sessions

SESSIONS = "silver.sessions"
CLOSED = {"reason": "peer_closed", "text": "", "frames_in": 3, "frames_out": 2, "bytes_in": 30, "bytes_out": 9}


def when(us: int) -> datetime:
    return datetime.fromtimestamp(us / SECOND, UTC)


def about(event: str, session: str, at: int = T0, **columns: Any) -> Record:
    return record(event, at, **{"protocol": "comet", "session": session, "peer": "127.0.0.1:5", **columns})


def started(at: int = T0, node: str = NODE) -> Record:
    return record("counters", at, node=node, note={"start": True, "hours": {}})


def test_a_whole_life_and_one_that_goes_on() -> None:
    steps = [
        about("open", "s1", T0),
        about("open", "s2", T0 + 1),
        about("login", "s1", T0 + 2, identity="ann"),
        about("close", "s1", T0 + 5, identity="ann", note=CLOSED),
    ]
    common = {"node": NODE, "protocol": "comet", "peer": "127.0.0.1:5", "day": when(T0).date()}
    assert reduced_rows(steps, SESSIONS) == [
        {
            **common,
            "seq": 1,
            "received_at": when(T0),
            "session": "s1",
            "identity": "ann",
            "opened_at": when(T0),
            "closed_at": when(T0 + 5),
            "reason": "peer_closed",
            "frames_in": 3,
            "frames_out": 2,
            "bytes_in": 30,
            "bytes_out": 9,
            "settled": True,
        },
        {
            **common,
            "seq": 2,
            "received_at": when(T0 + 1),
            "session": "s2",
            "identity": "",
            "opened_at": when(T0 + 1),
            "closed_at": None,
            "reason": None,
            **dict.fromkeys(("frames_in", "frames_out", "bytes_in", "bytes_out")),
            "settled": False,
        },
    ]


def test_a_devices_close_has_no_bytes() -> None:
    note = {"reason": "idle", "text": "", "frames_in": 3, "frames_out": 2}
    steps = [about("open", "d", protocol="apostol"), about("close", "d", protocol="apostol", note=note)]
    (row,) = reduced_rows(steps, SESSIONS)
    assert (row["frames_in"], row["bytes_in"], row["reason"]) == (3, None, "idle")


@pytest.mark.parametrize("batches", [1, 4])
def test_a_gateway_that_was_killed_closes_its_sessions_when_it_starts_again(batches: int) -> None:
    steps = [
        started(),
        about("open", "s1", T0 + 1),
        about("open", "other", T0 + 1, node="n2"),
        started(T0 + 9),
    ]
    steps.append(about("open", "s2", T0 + 10))
    bucketed = BucketRun(2)
    if batches == 1:
        bucketed.batch(numbered(steps))
    else:
        for seq, step in enumerate(steps, 1):
            bucketed.batch(numbered([step], seq))
    rows = {row["session"]: (row["reason"], row["closed_at"], row["settled"]) for row in bucketed.rows(SESSIONS)}
    assert rows == {
        "s1": ("gateway_restarted", when(T0 + 9), True),
        "other": (None, None, False),
        "s2": (None, None, False),
    }


def test_what_was_never_opened_is_counted() -> None:
    bucketed = BucketRun()
    bucketed.batch(numbered([about("close", "s9", note=CLOSED), about("login", "s9")]))
    assert bucketed.rows(SESSIONS) == []
    assert bucketed.counts == {"session_close_without_open": 1, "session_login_without_open": 1}


def test_too_many_and_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PIPELINE_SESSIONS_OPEN_MAX", 2)
    bucketed = BucketRun()
    for seq in range(1, 4):
        bucketed.batch(numbered([about("open", f"s{seq}", T0 + seq)], seq))
    monkeypatch.setattr(sessions, "_AGE_US", 100 * SECOND)
    bucketed.batch(numbered([about("open", "s4", T0 + 3 + 100 * SECOND)], 4))
    rows = {row["session"]: (row["reason"], row["settled"]) for row in bucketed.rows(SESSIONS)}
    assert rows == {
        "s1": ("sessions_open_max", True),
        "s2": ("sessions_open_max", True),
        "s3": (None, False),
        "s4": (None, False),
    }
    bucketed.batch(numbered([record("counters", T0 + 150 * SECOND, note={"hours": {}})], 5))
    rows = {row["session"]: (row["reason"], row["settled"]) for row in bucketed.rows(SESSIONS)}
    assert (rows["s3"], rows["s4"]) == (("end_not_seen", True), (None, False))
    assert bucketed.counts == {"sessions_given_up": 3}
