"""What the members of a fleet do, and when: decided by a seed before anything happens."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from wirelake.simulator.fleet import FleetMember

# protocol → what its members do, and how often in proportion.
HABITS: Final = {
    "apostol": {"status": 10, "readings": 20, "command": 1},
    "comet": {"environ": 3, "away": 1},
    "magline": {"ask": 6, "publish": 2, "resume": 1},
    "sisnet": {"set": 6, "get": 2, "ask": 1, "publish": 2},
    "esnp": {"ask": 2, "publish": 2},
    "redis": {"quote": 3, "publish": 1},
}


class Act(Struct, frozen=True):
    number: int
    at_s: float  # from the beginning
    member: int  # its place in the fleet
    kind: str
    seed: str

    def random(self) -> Random:
        """Where the act's contents come from: the same each time."""
        return Random(self.seed)  # noqa: S311 (repeatable, not secret)


def acts(places: Sequence[FleetMember], rate: float, seconds: float, seed: int) -> Iterator[Act]:
    """`rate` a second, all members together, evenly spaced."""
    random = Random(f"acts {seed}")  # noqa: S311 (repeatable, not secret)
    kinds = {protocol: (list(habit), list(habit.values())) for protocol, habit in HABITS.items()}
    for number in range(round(rate * seconds)):
        member = random.randrange(len(places))
        names, weights = kinds[places[member].protocol]
        (kind,) = random.choices(names, weights)
        yield Act(number, number / rate, member, kind, f"act {seed} {number}")
