import sys
from collections.abc import Iterator
from threading import Event, Thread
from time import sleep

import pytest

from wirelake.commit import Commit
from wirelake.log.accumulator import RecordAccumulator
from wirelake.log.batch_builder import CELLS_PER_RUN

RECORDS = 100_000
SWITCH_S = 1e-6


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("hasty")
def test_no_commit_comes_before_its_records_and_every_one_comes() -> None:
    accumulator = RecordAccumulator(0, 1 << 40, wake=lambda: None)
    enough = Event()

    def take_for_ever() -> None:
        """A writer whose disk takes no time, so that blocks are small and change hands often."""
        taken = 0
        last = False
        while not last:
            last = enough.is_set()
            commit, cells = accumulator.drain()
            taken += len(cells) // CELLS_PER_RUN
            commit.resolve(None, range(taken, taken))

    taker = Thread(target=take_for_ever)
    taker.start()
    last_seqs: dict[Commit, int] = {}
    for seq in range(RECORDS):
        commit = accumulator.append(1, "p", "e", "d", "s", "i", "p", b"")
        last_seqs[commit] = seq
        if seq % 64 == 0:
            sleep(0)  # or the taker may never have its turn
    enough.set()
    for commit, seq in last_seqs.items():
        assert commit.wait(10).stop > seq
    taker.join()
    assert len(last_seqs) > 100
    assert not accumulator.has_records


def test_a_commit_read_after_the_cells_were_taken_is_a_later_one() -> None:
    """The order that the whole scheme stands on, step by step."""
    accumulator = RecordAccumulator(0, 1 << 20, wake=lambda: None)
    first = accumulator.append(1, "p", "e", "d", "s", "i", "p", b"x")
    taken, cells = accumulator.drain()
    assert taken is first
    assert len(cells) == 11
    late = accumulator._commit  # what a caller gets that had added its cells just before
    assert late is not first
    again, nothing = accumulator.drain()
    assert again is late
    assert nothing == []
    assert accumulator.buffered_bytes == 0
