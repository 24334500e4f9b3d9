"""Made-up faults of a network, for tests and the simulator: packets get lost, come twice, late, or changed."""

from collections.abc import Callable, Iterator
from random import Random

from wirelake.limits import CLIENT_MANGLED_MAX
from wirelake.protocols.frame import Sender

Mangle = Callable[[bytes, Sender], Iterator[bytes]]  # a packet and who sent it → what arrives, in this order


class Faults:
    """Each chance is from 0 to 1. A packet that is held back comes after one of those that follow it."""

    def __init__(
        self, random: Random, *, lose: float = 0.0, repeat: float = 0.0, delay: float = 0.0, corrupt: float = 0.0
    ) -> None:
        self.lost = self.repeated = self.delayed = self.corrupted = 0
        self._random = random
        self._lose = lose
        self._repeat = repeat
        self._delay = delay
        self._corrupt = corrupt
        self._held: dict[Sender, list[bytes]] = {Sender.CLIENT: [], Sender.SERVER: []}

    def __call__(self, packet: bytes, sender: Sender) -> Iterator[bytes]:
        held = self._held[sender]
        if self._corrupt and packet and self._random.random() < self._corrupt:
            self.corrupted += 1
            packet = self._changed(packet)
        if self._random.random() < self._lose:
            self.lost += 1
        elif len(held) < CLIENT_MANGLED_MAX and self._random.random() < self._delay:
            self.delayed += 1
            held.append(packet)
            return
        else:
            yield packet
            if self._random.random() < self._repeat:
                self.repeated += 1
                yield packet
        while held and self._random.random() < 0.5:
            yield held.pop(self._random.randrange(len(held)))

    @property
    def made(self) -> dict[str, int]:
        return {
            "lost": self.lost,
            "repeated": self.repeated,
            "delayed": self.delayed,
            "corrupted": self.corrupted,
        }

    def _changed(self, packet: bytes) -> bytes:
        """One bit of it is another."""
        place = self._random.randrange(len(packet))
        return packet[:place] + bytes((packet[place] ^ 1 << self._random.randrange(8),)) + packet[place + 1 :]
