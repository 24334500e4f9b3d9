"""What is kept of finished commands: enough to know their packets again.

Most commands are one packet, and a busy device has many of them: so a memory is a plain tuple in a dictionary of the
device's own, which whoever skims reports (`skimming.py`) looks into directly.
"""

from itertools import islice
from typing import Final

from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.opcodes import FIRST, LAST

DeviceKey = tuple[int, str]  # device_type, serial
# The print of packet 0, or the prints of several by packet_no; when it was done with; whether it was completed.
Memory = tuple[int | dict[int, int], float, bool]
_ROOM_PARTS: Final = 8
BITS_SHIFT: Final = 8  # a command's place is its number, and above it the bits that tell counters apart


def print_of(params: int, data: bytes) -> int:
    """Of a plain command in one packet, which most are, it is the hash as it is."""
    return hash(data) ^ params ^ (FIRST | LAST)


class Finished:
    """The oldest of a device go when there are too many of it, those of the device longest quiet when of all."""

    __slots__ = ("_all_max", "_devices", "_timeout_s", "count", "device_max")

    def __init__(self, timeout_s: float, device_max: int, all_max: int) -> None:
        self._timeout_s = timeout_s
        self.device_max = min(device_max, all_max)
        self._all_max = all_max
        self._devices: dict[DeviceKey, dict[int, Memory]] = {}
        self.count = 0

    def of(self, device: DeviceKey) -> dict[int, Memory]:
        """By place, the oldest first. Who changes it keeps `count`, and holds it only while few devices are here."""
        return self._devices.setdefault(device, {})

    def get(self, device: DeviceKey, place: int, now_s: float) -> Memory | None:
        memories = self._devices.get(device)
        memory = None if memories is None else memories.get(place)
        return None if memory is None or memory[1] + self._timeout_s <= now_s else memory

    def put(self, device: DeviceKey, place: int, memory: Memory) -> None:
        memories = self._devices.pop(device, {})
        self._devices[device] = memories  # heard last, so it is the last to give way
        if memories.pop(place, None) is not None:
            self.count -= 1
        self.purge(memories, memory[1])
        if len(memories) >= self.device_max:
            self.make_room(memories)
        elif self.count >= self._all_max:
            self._give_way()
        memories[place] = memory
        self.count += 1

    def forget(self, device: DeviceKey, place: int) -> None:
        """Take its packets for a new command's if they come again."""
        memories = self._devices.get(device)
        if memories is not None and memories.pop(place, None) is not None:
            self.count -= 1

    def make_room(self, memories: dict[int, Memory]) -> None:
        """Forget the oldest: several at once, which is far cheaper than one each time."""
        oldest = list(islice(memories, max(1, self.device_max // _ROOM_PARTS)))
        for place in oldest:
            del memories[place]
        self.count -= len(oldest)

    def purge(self, memories: dict[int, Memory], now_s: float) -> None:
        """Without those whose time is over."""
        over_s = now_s - self._timeout_s
        while memories and memories[oldest := next(iter(memories))][1] <= over_s:
            del memories[oldest]
            self.count -= 1

    def _give_way(self) -> None:
        device = next(iter(self._devices))
        memories = self._devices[device]
        del memories[next(iter(memories))]
        self.count -= 1
        if not memories:
            del self._devices[device]


def is_print(memory: Memory, packet: Packet) -> bool:
    """Whether the packet is one of the remembered command's."""
    prints = memory[0]
    if isinstance(prints, int):
        return packet.packet_no == 0 and prints == print_of(packet.params, packet.data)
    return prints.get(packet.packet_no) == print_of(packet.params, packet.data)
