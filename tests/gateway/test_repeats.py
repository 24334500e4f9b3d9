"""Answers that repeat stored content do not fill the log."""

from pathlib import Path
from random import Random

from gateway.running import HOST, Running, running_gateway
from gateway.test_redis_values import Line
from wirelake.limits import MIB
from wirelake.log.segments.reader import LogReader

VALUE = Random(3).randbytes(MIB)
ANSWER = b"$%d\r\n%s\r\n" % (len(VALUE), VALUE)
ASKED = 100


def log_bytes(folder: Path) -> int:
    """Of segments that are sealed, once the gateway has ended."""
    return sum(path.stat().st_size for path in (folder / "data" / "log").glob("*.seg"))


def answers_in(folder: Path) -> list[bytes]:
    batches = LogReader(folder / "data" / "log").read()
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row["frame"] for row in rows if row["event"] == "frame" and row["direction"] == "out"]


async def test_a_hundred_answers_of_a_megabyte_are_logged_once(tmp_path: Path) -> None:
    async def story(count: int) -> None:
        async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:
            async with await Line.call(running) as line:
                if not count:
                    line.say(b"SET", b"key", VALUE)
                    assert await line.hear() == b"+OK\r\n"
                for _ in range(count):
                    assert await line.ask("GET key") == ANSWER
            async with await Line.call(running) as one, await Line.call(running) as other:
                for line in (one, other):
                    for _ in range(count and 5):
                        line.say(b"GET", b"key")
                for line in (one, other):
                    assert [await line.hear() for _ in range(count and 5)] == [ANSWER] * (count and 5)

    await story(0)
    before = log_bytes(tmp_path)
    await story(ASKED)  # after a restart
    assert log_bytes(tmp_path) - before < 2 * MIB
    assert answers_in(tmp_path) == [b"+OK\r\n", *[ANSWER] * (ASKED + 10)]


async def test_what_is_shown_of_such_a_record_is_all_of_it(tmp_path: Path) -> None:
    async def story(running: Running) -> None:
        async with await Line.call(running) as line:
            line.say(b"SET", b"key", VALUE)
            assert await line.hear() == b"+OK\r\n"
            for _ in range(3):
                assert await line.ask("GET key") == ANSWER
        found = [row for row in running.records("frame", direction="out") if row["frame"] == ANSWER]
        assert len(found) == 3
        assert all(row["note"] == {} for row in found)

    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:
        assert running.gateway.listeners["redis"].address.host == HOST
        await story(running)
