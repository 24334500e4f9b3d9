"""The recorder counts what it appends to the log, and appends content that repeats only once."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, Running, running_gateway
from wirelake.gateway.recorder import Recorder
from wirelake.limits import MIB
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader

HOUR_US = 3_600_000_000
VALUE = Random(3).randbytes(MIB)
ANSWER = b"$%d\r\n%s\r\n" % (len(VALUE), VALUE)
ASKED = 100


class ConnectedPeer:
    id, protocol, identity, address = "s-1", "comet", "ann", "127.0.0.1:5"


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Record two frames in and one out in one hour, then one frame and a quarantined one in the next."""
    log = SegmentLog(tmp_path)
    clock = iter([HOUR_US, *([HOUR_US + 1] * 3), *([2 * HOUR_US] * 4)])
    recorder = Recorder(log, lambda: next(clock))
    recorder.counters()
    recorder.frames(ConnectedPeer(), "in", [b"a", b"b"])
    recorder.frames(ConnectedPeer(), "out", [b"c"])
    recorder.event(ConnectedPeer(), "login", {})
    recorder.event(ConnectedPeer(), "frame", {"path": "/"}, "in", b"d")
    recorder.event(ConnectedPeer(), "quarantine", {"code": "short"}, "in", b"e")
    recorder.counters()
    recorder.counters()
    log.close()
    return [row for batch in log.read() for row in batch.to_pylist()]


def test_what_was_counted_is_what_was_recorded_by_hour(rows: list[dict[str, Any]]) -> None:
    first, counted, after = [json.loads(row["note"]) for row in rows if row["event"] == "counters"]
    assert first == {"start": True, "hours": {}}
    assert counted == {
        "hours": {"3600": {"comet": {"in": 2, "out": 1}}, "7200": {"comet": {"in": 1, "quarantined": 1}}}
    }
    assert after == {"hours": {}}


def log_bytes(folder: Path) -> int:
    """Return the size of the sealed segments; call it after the gateway has stopped."""
    return sum(path.stat().st_size for path in (folder / "data" / "log").glob("*.seg"))


def answers_in(folder: Path) -> list[bytes]:
    batches = LogReader(folder / "data" / "log").read()
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row["frame"] for row in rows if row["event"] == "frame" and row["direction"] == "out"]


async def test_a_hundred_answers_of_a_megabyte_are_logged_once(tmp_path: Path) -> None:
    async def story(count: int) -> None:
        async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:
            async with await RedisConnection.connect(running) as connection:
                if not count:
                    connection.send(b"SET", b"key", VALUE)
                    assert await connection.receive() == b"+OK\r\n"
                for _ in range(count):
                    assert await connection.ask("GET key") == ANSWER
            async with await RedisConnection.connect(running) as one, await RedisConnection.connect(running) as other:
                for connection in (one, other):
                    for _ in range(count and 5):
                        connection.send(b"GET", b"key")
                for connection in (one, other):
                    assert [await connection.receive() for _ in range(count and 5)] == [ANSWER] * (count and 5)

    await story(0)
    before = log_bytes(tmp_path)
    await story(ASKED)  # after a restart
    assert log_bytes(tmp_path) - before < 2 * MIB
    assert answers_in(tmp_path) == [b"+OK\r\n", *[ANSWER] * (ASKED + 10)]


async def test_what_is_shown_of_such_a_record_is_all_of_it(tmp_path: Path) -> None:
    async def story(running: Running) -> None:
        async with await RedisConnection.connect(running) as connection:
            connection.send(b"SET", b"key", VALUE)
            assert await connection.receive() == b"+OK\r\n"
            for _ in range(3):
                assert await connection.ask("GET key") == ANSWER
        found = [row for row in running.records("frame", direction="out") if row["frame"] == ANSWER]
        assert len(found) == 3
        assert all(row["note"] == {} for row in found)

    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:
        assert running.gateway.listeners["redis"].address.host == HOST
        await story(running)
