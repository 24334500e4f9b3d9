from collections import Counter

from wirelake.simulator.fleet import SHARES, fleet
from wirelake.simulator.habits import HABITS, acts

PLACES = fleet(100, list(SHARES), 1)


def test_a_seed_does_the_same_again() -> None:
    first, again = list(acts(PLACES, 50, 4, 3)), list(acts(PLACES, 50, 4, 3))
    assert first == again
    assert [act.random().random() for act in first] == [act.random().random() for act in again]
    assert first != list(acts(PLACES, 50, 4, 4))


def test_so_many_and_evenly_spaced() -> None:
    found = list(acts(PLACES, 50, 4, 3))
    assert [act.at_s for act in found] == [number / 50 for number in range(200)]
    assert [act.number for act in found] == list(range(200))
    assert list(acts(PLACES, 50, 0, 3)) == []


def test_each_does_what_its_protocol_does() -> None:
    assert HABITS.keys() == SHARES.keys()
    found = Counter((PLACES[act.member].protocol, act.kind) for act in acts(PLACES, 1000, 20, 5))
    assert found.keys() == {(protocol, kind) for protocol, habit in HABITS.items() for kind in habit}
    assert found["apostol", "readings"] > found["apostol", "status"] > found["apostol", "command"] > 0
    by_protocol = Counter(PLACES[act.member].protocol for act in acts(PLACES, 1000, 20, 5))
    assert all(abs(by_protocol[protocol] - 200 * share) < 200 for protocol, share in SHARES.items())


def test_exact_counts_of_a_seed() -> None:
    found = Counter((PLACES[act.member].protocol, act.kind) for act in acts(PLACES, 100, 2, 11))
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
