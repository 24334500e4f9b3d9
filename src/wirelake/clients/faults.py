"""Inject network faults, for tests and the simulator: lose, duplicate, delay and corrupt packets."""

from collections.abc import Callable, Iterator
from random import Random

from wirelake.limits import CLIENT_MANGLED_MAX
from wirelake.protocols.frame import Sender

Mangle = Callable[[bytes, Sender], Iterator[bytes]]  # a packet and its sender → the packets that arrive, in order


class Faults:
    """Apply each fault with its probability, from 0 to 1. A delayed packet arrives after one of those that follow."""

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
            packet = self._flip_bit(packet)
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
        """Return how many packets had each fault."""
        return {
            "lost": self.lost,
            "repeated": self.repeated,
            "delayed": self.delayed,
            "corrupted": self.corrupted,
        }

    def _flip_bit(self, packet: bytes) -> bytes:
        index = self._random.randrange(len(packet))
        return packet[:index] + bytes((packet[index] ^ 1 << self._random.randrange(8),)) + packet[index + 1 :]
