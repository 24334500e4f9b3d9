"""What any event log must do, whatever is behind the interface. A second kind of log is added to `LOGS`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.records import AT_US, append, append_many, check, fill
from wirelake.errors import EncodeError, InputError, StateError
from wirelake.log.interface import SCHEMA, EventLog, FixedSizeFrames
from wirelake.log.segments.log import SegmentLog

LOGS: dict[str, Callable[[Path], EventLog]] = {"segments": lambda path: SegmentLog(path / "log")}


@pytest.fixture(params=LOGS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], EventLog]:
    return lambda: LOGS[request.param](tmp_path)


@pytest.fixture
def log(opener: Callable[[], EventLog]) -> Iterator[EventLog]:
    opened = opener()
    yield opened
    opened.close()


def test_a_record_is_read_as_it_was_appended(log: EventLog) -> None:
    log.append(AT_US, "comet", "frame", "in", "s-1", "anna", "10.0.0.1:9", b"\x00\xff", "hello").wait(10)
    (batch,) = log.read()
    assert batch.schema.equals(SCHEMA)
    (row,) = batch.to_pylist()
    at = row.pop("at")
    assert int(at.timestamp() * 1_000_000) == AT_US
    assert row.pop("node")
    assert row == {
        "seq": 0,
        "protocol": "comet",
        "event": "frame",
        "direction": "in",
        "session": "s-1",
        "identity": "anna",
        "peer": "10.0.0.1:9",
        "frame": b"\x00\xff",
        "note": "hello",
    }


def test_seqs_are_given_in_order_without_gaps(log: EventLog) -> None:
    seqs = []
    commit = None
    for number in range(100):
        seqs.append(log.next_seq)
        commit = append_many(log, 7) if number % 10 == 0 else append(log)
    assert commit is not None
    assert commit.wait(10).stop >= log.next_seq
    assert seqs[:3] == [0, 7, 8]
    assert check(log.read()) == list(range(log.next_seq))


async def test_a_commit_covers_the_record_it_was_given_for(log: EventLog) -> None:
    for _ in range(200):
        seq = log.next_seq
        commit = append(log)
        assert (await commit).stop > seq
        assert seq in check(log.read(from_seq=seq))


def test_many_frames_keep_their_order_and_their_bounds(log: EventLog) -> None:
    frames = [b"", b"a", b"", b"bc", b""]
    append(log)
    log.append_many(AT_US, "redis", "frame", "in", "s", "i", "p", frames, "n")
    append(log).wait(10)
    rows = [row for batch in log.read() for row in batch.to_pylist()]
    assert [row["frame"] for row in rows[1:-1]] == frames
    assert {row["protocol"] for row in rows[1:-1]} == {"redis"}
    assert [row["protocol"] for row in (rows[0], rows[-1])] == ["comet", "comet"]


def test_frames_of_several_sessions_are_rows_like_any_other(log: EventLog) -> None:
    """Between records and runs, few and many, also alone in a block."""
    for count in (1, 3, 700):
        start = log.next_seq
        log.append(AT_US, "esnp", "frame", "in", "s", "i", "p", b"before", "note")
        rows = [
            (f"s{place % 7}", f"i{place}", "p" if count < 9 else f"p{place}", b"%d" % place) for place in range(count)
        ]
        sessions, identities, peers, frames = (tuple(column) for column in zip(*rows, strict=True))
        log.append_rows(AT_US, "apostol", "frame", "out", sessions, identities, peers, frames)
        log.append_many(AT_US, "redis", "frame", "in", "t", "j", "q", [b"x", b"y"]).wait(10)
        log.append_rows(AT_US, "apostol", "frame", "out", sessions, identities, peers, frames).wait(10)
        found = [row for batch in log.read(start) for row in batch.to_pylist()]
        told = [(row["session"], row["identity"], row["peer"], row["frame"]) for row in found]
        assert told == [("s", "i", "p", b"before"), *rows, ("t", "j", "q", b"x"), ("t", "j", "q", b"y"), *rows]
        assert {row["protocol"] for row in found} == {"esnp", "apostol", "redis"}
        assert [row["note"] for row in found] == ["note", *[""] * (2 * count + 2)]
    with pytest.raises(EncodeError):
        log.append_rows(AT_US, "apostol", "frame", "in", ("s",), ("i",), ("p", "q"), (b"x",))


def test_frames_of_one_length_need_not_be_cut(log: EventLog) -> None:
    """Few and many of them, beside others, and with texts for each of them or one for all."""
    for count in (1, 5, 16, 127, 300, 5000):
        start = log.next_seq
        sessions = tuple(f"s{place % 3}" for place in range(count))
        ins, outs = [b"%08d" % place for place in range(count)], [b"%03d" % (place % 1000) for place in range(count)]
        log.append(AT_US, "esnp", "frame", "in", "s", "i", "p", b"before", "note")
        log.append_rows(AT_US, "apostol", "frame", "in", sessions, "é", "p", FixedSizeFrames(b"".join(ins), 8))
        log.append_rows(
            AT_US, "apostol", "frame", "out", sessions, "é", "p", FixedSizeFrames(b"".join(outs), 3), "told"
        )
        log.append_rows(AT_US + 1, "", "publish", "", "", "", "", tuple(outs), sessions).wait(10)
        found = [row for batch in log.read(start) for row in batch.to_pylist()]
        assert [row["frame"] for row in found] == [b"before", *ins, *outs, *outs]
        assert [row["session"] for row in found] == ["s", *sessions, *sessions, *[""] * count]
        assert [row["identity"] for row in found] == ["i", *["é"] * 2 * count, *[""] * count]
        assert [row["note"] for row in found] == ["note", *[""] * count, *["told"] * count, *sessions]
        assert [row["direction"] for row in found] == ["in", *["in"] * count, *["out"] * count, *[""] * count]
        assert [row["seq"] for row in found] == list(range(start, log.next_seq))


def test_reading_from_the_middle_and_up_to_a_seq(log: EventLog) -> None:
    fill(log, 100, per_block=9)
    assert check(log.read(from_seq=37)) == list(range(37, 100))
    assert check(log.read(from_seq=37, until_seq=52)) == list(range(37, 52))
    assert check(log.read(from_seq=100)) == []
    assert check(log.read(from_seq=99)) == [99]


def test_the_next_run_goes_on_where_the_last_one_ended(opener: Callable[[], EventLog]) -> None:
    for number in range(3):
        log = opener()
        assert log.next_seq == number * 20
        fill(log, 20)
        log.close()
    log = opener()
    assert check(log.read()) == list(range(60))
    log.close()


def test_closing_puts_everything_on_disk(opener: Callable[[], EventLog]) -> None:
    log = opener()
    commits = {append(log) for _ in range(500)}
    log.close()
    assert all(commit.is_done for commit in commits)
    again = opener()
    assert check(again.read()) == list(range(500))
    again.close()


def test_nothing_is_taken_after_closing(opener: Callable[[], EventLog]) -> None:
    log = opener()
    append(log)
    log.close()
    log.close()
    with pytest.raises(StateError):
        append(log)


def test_positions_are_kept_for_each_consumer(opener: Callable[[], EventLog]) -> None:
    log = opener()
    assert log.committed_offset("pipeline") is None
    log.commit_offset("pipeline", 12)
    log.commit_offset("console", 3)
    log.commit_offset("pipeline", 15)
    log.close()
    again = opener()
    assert (again.committed_offset("pipeline"), again.committed_offset("console")) == (15, 3)
    again.close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65])
def test_a_consumer_has_a_name_that_can_be_a_files(log: EventLog, name: str) -> None:
    with pytest.raises(InputError):
        log.commit_offset(name, 1)
