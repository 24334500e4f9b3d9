import logging
import random
from pathlib import Path

import pytest

from wirelake.clock import SteadyClock
from wirelake.limits import CLOCK_CATCH_UP
from wirelake.state.store import StateStore, Sweeper

DAY_S = 86_400
START_S = 1_700_000_000
KEEP_S = 2 * DAY_S
COUNT = 60


class System:
    """A machine's clocks, which only the test moves."""

    def __init__(self) -> None:
        self.passed_s = 0.0  # really
        self.off_s = 0.0  # of the system's clock

    def wall_ns(self) -> int:
        return int((START_S + self.passed_s + self.off_s) * 1e9)

    def monotonic_ns(self) -> int:
        return int((5_000 + self.passed_s) * 1e9)

    def clock(self) -> SteadyClock:
        return SteadyClock(self.wall_ns, self.monotonic_ns)


def elapsed_s(clock: SteadyClock) -> float:
    return clock.now_ms() / 1000 - START_S


def test_it_is_the_systems_time_while_that_does_not_jump() -> None:
    system = System()
    clock = system.clock()
    for _ in range(1000):
        system.passed_s += 7.3
        system.off_s += 0.0001  # drifts
        assert abs(elapsed_s(clock) - system.passed_s - system.off_s) < 0.01
    assert clock.steps == 0


@pytest.mark.parametrize("step_s", [3 * DAY_S, -3 * DAY_S, 3600, -3600])
def test_after_a_step_it_goes_on_and_follows_slowly(step_s: float, caplog: pytest.LogCaptureFixture) -> None:
    system = System()
    clock = system.clock()
    system.passed_s = 100.0
    assert elapsed_s(clock) == pytest.approx(100.0)
    system.off_s = step_s
    system.passed_s = 101.0
    with caplog.at_level(logging.WARNING):
        assert abs(elapsed_s(clock) - 101.0) <= CLOCK_CATCH_UP + 0.001
        system.passed_s = 200.0
        later_s = elapsed_s(clock)
    assert abs(later_s - 200.0) <= 100 * CLOCK_CATCH_UP + 0.01
    assert (later_s > 200.0) == (step_s > 0)
    assert clock.steps == 1, "one step is reported once"
    assert len(caplog.records) == 1
    system.passed_s += abs(step_s) / CLOCK_CATCH_UP * 1.01
    assert elapsed_s(clock) == pytest.approx(system.passed_s + step_s, abs=1), "it is caught up with in the end"
    assert clock.steps == 1


def test_whatever_the_systems_clock_does_it_keeps_real_time_within_bounds() -> None:
    for seed in range(50):
        chance, system = random.Random(seed), System()
        clock = system.clock()
        last_ms, last_s = clock.now_ms(), 0.0
        for _ in range(300):
            passed_s = chance.choice((0.01, 0.5, 5.0, 3600.0))
            system.passed_s += passed_s
            if chance.random() < 0.1:
                system.off_s = chance.choice((0.0, 0.0, 1.0, -4.0, 3600.0, -DAY_S, 3 * DAY_S))
            now_ms = clock.now_ms()
            gained_s, really_s = (now_ms - last_ms) / 1000, system.passed_s - last_s
            assert now_ms >= last_ms, f"seed {seed}: it went back"
            # between two looks it does not follow at all, and then makes up for both
            assert abs(gained_s - really_s) <= (really_s + 0.1) * CLOCK_CATCH_UP + 0.002, f"seed {seed}"
            last_ms, last_s = now_ms, system.passed_s


def test_a_clock_that_was_wrong_for_a_moment_expires_nothing(tmp_path: Path) -> None:
    """60 notifications wait; the clock jumps by three days for 12 s, while more are published, and back."""
    system = System()
    clock = system.clock()
    store = StateStore(tmp_path / "state.db")
    store.database.write_connection.execute("PRAGMA synchronous = OFF")
    try:
        sweep = Sweeper(store, KEEP_S)
        store.topics.subscribe("ann", "@a")
        published_s: list[float] = []

        def publish() -> None:
            store.topics.publish("@a", b"x", clock.now_ms())[1].wait(30)
            published_s.append(system.passed_s)

        def pending() -> int:
            found = store.topics.delivery_counts("ann", "@a")
            assert found is not None
            return found.pending

        def check() -> None:
            """Nothing is gone before its time, and nothing is there long after it."""
            for _ in range(3):
                sweep.step(clock.now_ms())
                store.barrier().wait(30)
            early = sum(system.passed_s - at_s < KEEP_S * (1 - 2 * CLOCK_CATCH_UP) for at_s in published_s)
            late = sum(system.passed_s - at_s > KEEP_S * (1 + 2 * CLOCK_CATCH_UP) for at_s in published_s)
            assert early <= pending() <= len(published_s) - late

        for _ in range(COUNT):
            publish()
        for step_s in (3 * DAY_S, -3 * DAY_S):
            system.off_s = step_s
            for _ in range(12):
                system.passed_s += 1.0
                publish()
                check()
            system.off_s = 0.0
            system.passed_s += 1.0
            check()
        assert pending() == len(published_s) == COUNT + 24
        for _ in range(30):
            system.passed_s += DAY_S / 10
            check()
        assert pending() == 0
        assert clock.steps == 4
    finally:
        store.close()


def test_what_a_clock_ahead_stamped_holds_up_nothing_behind_it(tmp_path: Path) -> None:
    """The clock was three days ahead until the gateway was started again."""
    store = StateStore(tmp_path / "state.db")
    try:
        store.topics.subscribe("ann", "@a")
        now_ms = START_S * 1000
        for at_ms in (now_ms, now_ms + 3 * DAY_S * 1000, now_ms + 1000):
            store.topics.publish("@a", b"x", at_ms)[1].wait(30)
        sweep = Sweeper(store, KEEP_S)
        sweep.step(now_ms + 1)
        assert store.topics.floor("@a") == 0
        sweep.step(now_ms + KEEP_S * 1000)
        assert store.topics.floor("@a") == 1
        sweep.step(now_ms + KEEP_S * 1000 + 1000)
        assert store.topics.floor("@a") == 3, "it is older than the one behind it, which has expired"
    finally:
        store.close()


@pytest.mark.parametrize(("gone_s", "said"), [(-60, "behind"), (60, ""), (3 * DAY_S, "last run")])
def test_a_clock_that_does_not_fit_the_last_run_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone_s: int, said: str
) -> None:
    system = System()
    system.clock().save(tmp_path)
    system.off_s = gone_s
    with caplog.at_level(logging.WARNING):
        system.clock().compare(tmp_path, KEEP_S)
        SteadyClock().compare(tmp_path / "new", KEEP_S)
    assert [said in record.message for record in caplog.records] == ([True] if said else [])
