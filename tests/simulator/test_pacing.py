from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_GRAIN_S, SIMULATOR_TURN_ACTS
from wirelake.simulator.pacing import Pacer


class Time:
    """Stands still but for sleep, which oversleeps a little each time."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.sleeps: list[float] = []
        self._late_s = late_s

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, for_s: float) -> None:
        self.sleeps.append(for_s)
        self.now_s += for_s + self._late_s


def plan(count: int, every_s: float) -> list[Act]:
    return [Act(number, number * every_s, 0, "status", "") for number in range(count)]


async def walk(time: Time, acts: list[Act]) -> tuple[Pacer, list[float]]:
    pacer = Pacer(time.clock, time.sleep)

    async def work() -> list[float]:
        return [time.now_s - 100.0 async for _ in pacer.run(acts)]

    return pacer, await work()


async def test_lateness_does_not_add_up() -> None:
    time = Time(late_s=0.004)
    pacer, at_s = await walk(time, plan(1000, 0.01))
    assert all(0 <= now_s - number * 0.01 < 0.0041 for number, now_s in enumerate(at_s))
    assert pacer.behind_s == 0.0


async def test_acts_near_to_each_other_go_together() -> None:
    time = Time()
    _, at_s = await walk(time, plan(1000, SIMULATOR_GRAIN_S / 10))
    assert len(time.sleeps) < 110
    assert all(now_s <= number * SIMULATOR_GRAIN_S / 10 + 1e-9 for number, now_s in enumerate(at_s))


async def test_who_is_behind_still_lets_others_have_their_turn() -> None:
    time = Time()
    acts = plan(3 * SIMULATOR_TURN_ACTS, 0.0)
    pacer, _ = await walk(time, acts)
    assert time.sleeps == [0.0] * 3
    time = Time(late_s=5.0)
    pacer, _ = await walk(time, [*plan(2, 0.1), Act(2, 0.2, 0, "status", "")])
    assert 4.8 < pacer.behind_s < 5.0
