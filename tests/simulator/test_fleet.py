"""Who is in a fleet, what each member does, and when."""

from collections import Counter

import pytest

from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.simulator.fleet import KINDS, Pacer, SimulatedAction, count_members, make_fleet, schedule
from wirelake.simulator.limits import SIMULATOR_GRAIN_S, SIMULATOR_TURN_ACTIONS
from wirelake.simulator.member_kinds import MEMBERS

SHARES = {protocol: kind.share for protocol, kind in KINDS.items()}
FLEET = make_fleet(100, list(SHARES), 1)


def test_every_built_in_protocol_has_members() -> None:
    assert set(KINDS) == set(registry.BUILT_IN)
    assert list(MEMBERS) == list(KINDS)


def test_shares_of_a_hundred() -> None:
    assert count_members(100, list(SHARES)) == SHARES
    assert count_members(1000, ["apostol"]) == {"apostol": 1000}
    assert count_members(72, ["sisnet", "apostol"]) == {"apostol": 60, "sisnet": 12}


@pytest.mark.parametrize("devices", [6, 7, 23, 999])
def test_everybody_is_there_and_nobody_too_many(devices: int) -> None:
    found = count_members(devices, list(SHARES))
    assert sum(found.values()) == devices
    assert min(found.values()) >= 1
    assert list(found) == list(SHARES)


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="at least 6"):
        count_members(5, list(SHARES))
    with pytest.raises(InputError, match="unknown protocol 'smoke': choose from apostol"):
        count_members(5, ["smoke"])


def test_a_seed_makes_the_same_fleet() -> None:
    assert make_fleet(200, list(SHARES), 7) == make_fleet(200, list(SHARES), 7)
    assert make_fleet(200, list(SHARES), 7) != make_fleet(200, list(SHARES), 8)


def test_what_its_members_are_like() -> None:
    fleet = make_fleet(300, list(SHARES), 1, slow_readers=0.25)
    assert len({member.name for member in fleet}) == 300
    assert all(member.name.startswith("sim-") for member in fleet)
    meters = [member for member in fleet if member.protocol == "apostol"]
    assert 60 < sum(member.key is not None for member in meters) < 120
    assert 5 < sum(member.stream for member in meters) < 40
    assert 40 < sum(member.slow for member in fleet) < 110
    assert {member.identity for member in meters} == {""}
    phones = [member for member in fleet if member.protocol == "comet"]
    assert len({member.identity for member in phones}) == len(phones)
    assert {member.identity for member in fleet if member.protocol == "sisnet"} == {"sim-desk"}


def test_a_seed_does_the_same_again() -> None:
    first, again = list(schedule(FLEET, 50, 4, 3)), list(schedule(FLEET, 50, 4, 3))
    assert first == again
    assert [action.random().random() for action in first] == [action.random().random() for action in again]
    assert first != list(schedule(FLEET, 50, 4, 4))


def test_so_many_and_evenly_spaced() -> None:
    found = list(schedule(FLEET, 50, 4, 3))
    assert [action.at_s for action in found] == [number / 50 for number in range(200)]
    assert [action.number for action in found] == list(range(200))
    assert list(schedule(FLEET, 50, 0, 3)) == []


def test_each_does_what_its_protocol_does() -> None:
    assert all(kind.actions for kind in KINDS.values())
    found = Counter((FLEET[action.member].protocol, action.kind) for action in schedule(FLEET, 1000, 20, 5))
    assert found.keys() == {(protocol, kind) for protocol, kinds in KINDS.items() for kind in kinds.actions}
    assert found["apostol", "readings"] > found["apostol", "status"] > found["apostol", "command"] > 0
    by_protocol = Counter(FLEET[action.member].protocol for action in schedule(FLEET, 1000, 20, 5))
    assert all(abs(by_protocol[protocol] - 200 * share) < 200 for protocol, share in SHARES.items())


def test_exact_counts_of_a_seed() -> None:
    found = Counter((FLEET[action.member].protocol, action.kind) for action in schedule(FLEET, 100, 2, 11))
    assert found == {
        ("apostol", "readings"): 83,
        ("apostol", "status"): 37,
        ("apostol", "command"): 6,
        ("comet", "environ"): 11,
        ("comet", "away"): 3,
        ("magline", "ask"): 20,
        ("magline", "publish"): 5,
        ("magline", "resume"): 1,
        ("sisnet", "set"): 10,
        ("sisnet", "get"): 2,
        ("sisnet", "ask"): 3,
        ("sisnet", "publish"): 6,
        ("esnp", "publish"): 6,
        ("esnp", "ask"): 5,
        ("redis", "quote"): 2,
    }


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


def plan(count: int, every_s: float) -> list[SimulatedAction]:
    return [SimulatedAction(number, number * every_s, 0, "status", "") for number in range(count)]


async def walk(time: Time, actions: list[SimulatedAction]) -> tuple[Pacer, list[float]]:
    pacer = Pacer(time.clock, time.sleep)

    async def work() -> list[float]:
        return [time.now_s - 100.0 async for _ in pacer.run(actions)]

    return pacer, await work()


async def test_lateness_does_not_add_up() -> None:
    time = Time(late_s=0.004)
    pacer, at_s = await walk(time, plan(1000, 0.01))
    assert all(0 <= now_s - number * 0.01 < 0.0041 for number, now_s in enumerate(at_s))
    assert pacer.behind_s == 0.0


async def test_actions_near_to_each_other_go_together() -> None:
    time = Time()
    _, at_s = await walk(time, plan(1000, SIMULATOR_GRAIN_S / 10))
    assert len(time.sleeps) < 110
    assert all(now_s <= number * SIMULATOR_GRAIN_S / 10 + 1e-9 for number, now_s in enumerate(at_s))


async def test_who_is_behind_still_lets_others_have_their_turn() -> None:
    time = Time()
    actions = plan(3 * SIMULATOR_TURN_ACTIONS, 0.0)
    pacer, _ = await walk(time, actions)
    assert time.sleeps == [0.0] * 3
    time = Time(late_s=5.0)
    pacer, _ = await walk(time, [*plan(2, 0.1), SimulatedAction(2, 0.2, 0, "status", "")])
    assert 4.8 < pacer.behind_s < 5.0
