"""The fair queue divides the event loop's time among its users, not by how much each of them wants."""

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

import pytest

from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.limits import GATEWAY_SHARE_S, GATEWAY_SHARE_WINDOW_S, GATEWAY_TURN_S


class Loop:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def turn(self) -> None:
        due, self.waiting = self.waiting, []
        for call in due:
            call()

    def run(self) -> None:
        while self.waiting:
            self.turn()


def busy_for(seconds: float) -> None:
    ends_s = monotonic() + seconds
    while monotonic() < ends_s:
        pass


def busy_read(done: list[str], name: str) -> None:
    busy_for(GATEWAY_TURN_S)
    done.append(name)


def job(done: list[str], name: str, steps: int, step_s: float = 0.0) -> Iterator[None]:
    for number in range(steps):
        busy_for(step_s)
        done.append(f"{name}{number}")
        yield


def test_shares_take_turns_however_much_each_has_to_do() -> None:
    loop, done = Loop(), list[str]()
    queue = FairQueue(lambda call: loop.waiting.append(call))
    for number in range(100):
        queue.add_read("hog", partial(busy_read, done, f"hog {number}"))
    queue.add_read("other", lambda: done.append("other"))
    loop.run()
    assert done.index("other") <= 1
    assert [each for each in done if each != "other"] == [f"hog {number}" for number in range(100)]


def test_a_turn_ends_in_time_and_a_job_goes_on_in_the_next() -> None:
    loop, done = Loop(), list[str]()
    queue = FairQueue(lambda call: loop.waiting.append(call))
    queue.add_job("hog", job(done, "a", 10, GATEWAY_TURN_S))
    loop.turn()
    assert done == ["a0"]
    loop.turn()
    assert done == ["a0", "a1"]
    queue.add_job("other", job(done, "b", 1))
    loop.turn()
    loop.turn()
    assert done.index("b0") <= 3, "one step of the other share at most comes before it"
    loop.run()
    assert [each for each in done if each != "b0"] == [f"a{number}" for number in range(10)]


def test_jobs_of_a_share_run_one_after_the_other_and_reads_in_between() -> None:
    loop, done = Loop(), list[str]()
    queue = FairQueue(lambda call: loop.waiting.append(call))
    queue.add_job("me", job(done, "a", 3, GATEWAY_TURN_S))
    queue.add_job("me", job(done, "b", 2, GATEWAY_TURN_S))
    queue.add_read("me", lambda: done.append("read"))
    loop.run()
    assert [each for each in done if each != "read"] == ["a0", "a1", "a2", "b0", "b1"]
    assert done.index("read") <= 1


def test_a_read_queues_when_its_share_had_its_part_of_the_turn() -> None:
    loop = Loop()
    queue = FairQueue(lambda call: loop.waiting.append(call))
    now_s = monotonic()
    assert not queue.must_wait("me", now_s)
    queue.charge("me", GATEWAY_SHARE_S)
    assert queue.must_wait("me", now_s)
    assert not queue.must_wait("other", now_s)
    now_s += 2 * GATEWAY_SHARE_WINDOW_S
    assert not queue.must_wait("me", now_s), "a moment later it may again"
    queue.add_read("me", lambda: None)
    assert queue.must_wait("me", now_s), "the others of its share come first"
    loop.run()
    assert not queue.must_wait("me", now_s)


def test_work_that_fails_keeps_nobody_waiting() -> None:
    loop, done = Loop(), list[str]()
    queue = FairQueue(lambda call: loop.waiting.append(call))
    queue.add_read("bad", lambda: 1 / 0)
    queue.add_read("bad", lambda: done.append("next"))
    queue.add_read("other", lambda: done.append("other"))
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.run()
    assert sorted(done) == ["next", "other"]
