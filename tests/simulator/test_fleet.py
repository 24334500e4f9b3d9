import pytest

from wirelake.errors import InputError
from wirelake.simulator.fleet import SHARES, fleet, sizes


def test_shares_of_a_hundred() -> None:
    assert sizes(100, list(SHARES)) == SHARES
    assert sizes(1000, ["apostol"]) == {"apostol": 1000}
    assert sizes(72, ["sisnet", "apostol"]) == {"apostol": 60, "sisnet": 12}


@pytest.mark.parametrize("devices", [6, 7, 23, 999])
def test_everybody_is_there_and_nobody_too_many(devices: int) -> None:
    found = sizes(devices, list(SHARES))
    assert sum(found.values()) == devices
    assert min(found.values()) >= 1
    assert list(found) == list(SHARES)


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="at least 6"):
        sizes(5, list(SHARES))
    with pytest.raises(InputError, match="unknown protocol 'smoke': choose from apostol"):
        sizes(5, ["smoke"])


def test_a_seed_makes_the_same_fleet() -> None:
    assert fleet(200, list(SHARES), 7) == fleet(200, list(SHARES), 7)
    assert fleet(200, list(SHARES), 7) != fleet(200, list(SHARES), 8)


def test_what_its_members_are_like() -> None:
    places = fleet(300, list(SHARES), 1, slow_readers=0.25)
    assert len({place.name for place in places}) == 300
    assert all(place.name.startswith("sim-") for place in places)
    meters = [place for place in places if place.protocol == "apostol"]
    assert 60 < sum(place.key is not None for place in meters) < 120
    assert 5 < sum(place.stream for place in meters) < 40
    assert 40 < sum(place.slow for place in places) < 110
    assert {place.identity for place in meters} == {""}
    phones = [place for place in places if place.protocol == "comet"]
    assert len({place.identity for place in phones}) == len(phones)
    assert {place.identity for place in places if place.protocol == "sisnet"} == {"sim-desk"}
