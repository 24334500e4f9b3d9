"""Records whose content follows from their seq, so that any record can be checked alone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wirelake.commit import Commit
from wirelake.log.interface import EventLog
from wirelake.log.segments.reader import LogReader

MANY = "many"
AT_US = 1_900_000_000_000_000  # in 2030: no retention by age


def frame_of(seq: int) -> bytes:
    """0 to 1200 bytes."""
    return (b"%d " % seq) * (seq * 7919 % 151)


def expected(seq: int, note: str) -> dict[str, Any]:
    if note == MANY:
        return {"session": "many", "frame": frame_of(seq)}
    return {"session": f"session-{seq % 17}", "note": str(seq), "frame": frame_of(seq)}


def append(log: EventLog, at_us: int | None = None) -> Commit:
    seq = log.next_seq
    when = AT_US + seq if at_us is None else at_us
    session = f"session-{seq % 17}"
    return log.append(when, "comet", "frame", "in", session, "me", "10.0.0.1:5000", frame_of(seq), str(seq))


def append_many(log: EventLog, count: int) -> Commit:
    frames = [frame_of(log.next_seq + number) for number in range(count)]
    return log.append_many(AT_US + log.next_seq, "esnp", "frame", "out", "many", "me", "10.0.0.1:5000", frames, MANY)


def fill(log: EventLog, count: int, per_block: int = 10) -> None:
    """Records on disk, in blocks of about this size."""
    for start in range(0, count, per_block):
        commits = {append(log) for _ in range(min(per_block, count - start))}
        for commit in commits:
            commit.wait(10)


def check(batches: Iterable[Any]) -> list[int]:
    """The seqs in the batches; each record is what it was, and they are in order, each once."""
    seqs: list[int] = []
    for batch in batches:
        assert batch.num_rows
        for row in batch.to_pylist():
            wanted = expected(row["seq"], row["note"])
            assert {name: row[name] for name in wanted} == wanted
            seqs.append(row["seq"])
    assert seqs == sorted(set(seqs))
    return seqs


def seqs_in(folder: Path, from_seq: int | None = None) -> list[int]:
    return check(LogReader(folder).read(from_seq))
