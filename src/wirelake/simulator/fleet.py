"""Decide from a seed who is in the fleet, what each member does, and when."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.simulator.limits import SIMULATOR_GRAIN_S, SIMULATOR_TURN_ACTIONS

FLEET: Final = "sim"  # the default prefix of the names of a fleet's identities and devices
KEY_BYTES: Final = 16


class MemberKind(Struct, frozen=True):
    """Describe the members that speak one protocol."""

    name: str
    share: int  # percent of a fleet of all protocols
    actions: dict[str, int]  # kind of action → how often, in proportion to the others
    has_own_identities: bool = False  # one for each member; otherwise they share one
    stream_share: float = 0.5  # share of the members that use TCP, where the protocol has another transport too


# By protocol. The order decides what a seed gives. Few phones, because each has its own identity, and logins are slow.
KINDS: Final = {
    "apostol": MemberKind("meter", 60, {"status": 10, "readings": 20, "command": 1}, stream_share=0.1),
    "comet": MemberKind("phone", 10, {"environ": 3, "away": 1}, has_own_identities=True),
    "magline": MemberKind("terminal", 10, {"ask": 6, "publish": 2, "resume": 1}),
    "sisnet": MemberKind("desk", 12, {"set": 6, "get": 2, "ask": 1, "publish": 2}),
    "esnp": MemberKind("station", 5, {"ask": 2, "publish": 2}),
    "redis": MemberKind("redis", 3, {"quote": 3, "publish": 1}),
}


class MemberProfile(Struct, frozen=True):
    """Describe one member of the fleet."""

    protocol: str
    number: int  # among the members of its protocol
    name: str
    stream: bool = False  # uses TCP, where the protocol has another transport too
    key: bytes | None = None  # of a meter that seals, or of a phone with encrypted content
    slow: bool = False  # reads slowly
    fleet: str = FLEET

    @property
    def is_device(self) -> bool:
        return registry.get(self.protocol).device_of is not None

    @property
    def identity(self) -> str:
        """Return the name that the member logs in with; "" for a device."""
        if self.is_device:
            return ""
        kind = KINDS[self.protocol]
        return self.name if kind.has_own_identities else f"{self.fleet}-{kind.name}"


def count_members(devices: int, protocols: Sequence[str]) -> dict[str, int]:
    """Return the number of members of each protocol: by their shares, at least one, and `devices` in total."""
    unknown = [name for name in protocols if name not in KINDS]
    if unknown:
        raise InputError(f"unknown protocol {unknown[0]!r}: choose from {', '.join(KINDS)}")
    wanted = {name: kind.share for name, kind in KINDS.items() if name in protocols}
    if devices < len(wanted):
        raise InputError(f"{len(wanted)} protocols need at least {len(wanted)} devices")
    whole = sum(wanted.values())
    counts = {name: max(1, devices * share // whole) for name, share in wanted.items()}
    largest = max(counts, key=lambda name: counts[name])
    counts[largest] += devices - sum(counts.values())
    return counts


def make_fleet(
    devices: int, protocols: Sequence[str], seed: int, slow_readers: float = 0.0, name: str = FLEET
) -> list[MemberProfile]:
    """Return the members of a fleet. The same seed gives the same fleet."""
    random = Random(f"fleet {seed}")  # noqa: S311 (repeatable, not secret)
    return [
        MemberProfile(
            protocol=protocol,
            number=number,
            name=f"{name}-{KINDS[protocol].name}-{number:04}",
            stream=random.random() < KINDS[protocol].stream_share,
            key=random.randbytes(KEY_BYTES) if random.random() < 0.5 else None,
            slow=random.random() < slow_readers,
            fleet=name,
        )
        for protocol, count in count_members(devices, protocols).items()
        for number in range(count)
    ]


class SimulatedAction(Struct, frozen=True):
    """One thing that a member does."""

    number: int
    at_s: float  # from the start of the run
    member: int  # index in the fleet
    kind: str
    seed: str

    def random(self) -> Random:
        """Return the source of the action's contents, which gives the same each time."""
        return Random(self.seed)  # noqa: S311 (repeatable, not secret)


def schedule(fleet: Sequence[MemberProfile], rate: float, seconds: float, seed: int) -> Iterator[SimulatedAction]:
    """Yield the actions of all members, `rate` per second, evenly spaced."""
    random = Random(f"acts {seed}")  # noqa: S311 (repeatable, not secret)
    weighted = {protocol: (list(kind.actions), list(kind.actions.values())) for protocol, kind in KINDS.items()}
    for number in range(round(rate * seconds)):
        member = random.randrange(len(fleet))
        kinds, weights = weighted[fleet[member].protocol]
        (kind,) = random.choices(kinds, weights)
        yield SimulatedAction(number, number / rate, member, kind, f"act {seed} {number}")


class Pacer:
    """Yield actions at their times, counted from the start, so that delays do not add up."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self.behind_s = 0.0  # the largest delay of an action
        self._clock = clock
        self._sleep = sleep

    async def run(self, actions: Iterable[SimulatedAction]) -> AsyncIterator[SimulatedAction]:
        """Yield actions that are due within one grain together, and let other tasks run in between."""
        started_s = self._clock()
        together = 0
        for action in actions:
            wait_s = started_s + action.at_s - self._clock()
            self.behind_s = max(self.behind_s, -wait_s)
            together += 1
            if wait_s > SIMULATOR_GRAIN_S or together >= SIMULATOR_TURN_ACTIONS:
                together = 0
                await self._sleep(max(wait_s, 0.0))
            yield action
