"""Who is in the fleet: how many of each protocol, and what each of them is like."""

from collections.abc import Sequence
from random import Random
from typing import Final

from msgspec import Struct

from wirelake.errors import InputError

FLEET: Final = "sim"  # begins the name of every identity and device that a simulation makes
KEY_BYTES: Final = 16

# protocol → its share of a fleet. Each phone needs an identity of its own, and tokens are slow to check.
SHARES: Final = {"apostol": 60, "comet": 10, "magline": 10, "sisnet": 12, "esnp": 5, "redis": 3}
NAMES: Final = {
    "apostol": "meter",
    "comet": "phone",
    "magline": "terminal",
    "sisnet": "desk",
    "esnp": "station",
    "redis": "redis",
}


class FleetMember(Struct, frozen=True):
    """One member of the fleet."""

    protocol: str
    number: int  # among those of its protocol
    name: str
    stream: bool = False  # TCP, where the protocol has another way too
    key: bytes | None = None  # a meter that seals
    slow: bool = False  # reads slowly
    fleet: str = FLEET

    @property
    def identity(self) -> str:
        """Phones have one each, meters none; the others share one of their protocol."""
        if self.protocol == "apostol":
            return ""
        return self.name if self.protocol == "comet" else f"{self.fleet}-{NAMES[self.protocol]}"


def sizes(devices: int, protocols: Sequence[str]) -> dict[str, int]:
    """How many of each: by their shares, at least one, and together `devices`."""
    unknown = [name for name in protocols if name not in SHARES]
    if unknown:
        raise InputError(f"unknown protocol {unknown[0]!r}: choose from {', '.join(SHARES)}")
    wanted = [name for name in SHARES if name in protocols]
    if devices < len(wanted):
        raise InputError(f"{len(wanted)} protocols need at least {len(wanted)} devices")
    whole = sum(SHARES[name] for name in wanted)
    found = {name: max(1, devices * SHARES[name] // whole) for name in wanted}
    most = max(found, key=lambda name: found[name])
    found[most] += devices - sum(found.values())
    return found


def fleet(
    devices: int, protocols: Sequence[str], seed: int, slow_readers: float = 0.0, name: str = FLEET
) -> list[FleetMember]:
    random = Random(f"fleet {seed}")  # noqa: S311 (repeatable, not secret)
    return [
        FleetMember(
            protocol=protocol,
            number=number,
            name=f"{name}-{NAMES[protocol]}-{number:04}",
            stream=random.random() < (0.1 if protocol == "apostol" else 0.5),
            key=random.randbytes(KEY_BYTES) if random.random() < 0.5 else None,
            slow=random.random() < slow_readers,
            fleet=name,
        )
        for protocol, count in sizes(devices, protocols).items()
        for number in range(count)
    ]
