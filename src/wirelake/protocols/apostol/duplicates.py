"""Recognise what was received before: packets of finished commands, and sealed commands.

A device sends a packet again when its receipt was lost: `FinishedCommands` recognises it for as long as a command may
take. Most commands are one packet, and a busy device has many of them: so what is remembered of a command is a plain
tuple in a dictionary of the device's own, which `fast_path.py` reads directly.

An attacker may record a sealed command and send it at any later time: `Replays` recognises it however long ago it came.
The time of a command is inside its seal, so it cannot be changed. Commands within a window behind the newest time are
remembered by the end of their seal's tag; a command older than the window is refused, whether it was seen or not. Times
that cannot be ordered (unknown, a clock error, far ahead of the gateway's own clock) do not move the window: of those,
only the last few commands are remembered. The gateway has one `Replays` for each device and stores it; the pipeline
has its own in the state of its batches. So both decide alike.
"""

from itertools import islice
from typing import Final

from msgspec import Struct, field, msgpack

from wirelake.protocols.apostol.constants import (
    APOSTOL_CLOCK_AHEAD_S,
    APOSTOL_SEALS_PER_DEVICE_MAX,
    APOSTOL_SEALS_UNORDERED_MAX,
    FIRST,
    LAST,
    TIME_ERROR,
)
from wirelake.protocols.apostol.frames import Packet

DeviceKey = tuple[int, str]  # device_type, serial
# The fingerprint of packet 0, or those of several by packet_no; when it ended; whether it became complete.
Memory = tuple[int | dict[int, int], float, bool]
BITS_SHIFT: Final = 8  # a command's slot is its number, and above it the bits that distinguish counters
_EVICTED_SHARE: Final = 8  # 1/8 of the commands of a device, or of its seals, is forgotten at once
_MARK_BYTES: Final = 8  # of the tag's 16: enough to distinguish some hundred commands


def fingerprint_of(params: int, data: bytes) -> int:
    """Return what a packet is recognised by; for a plain command in one packet, which most are, the bare hash."""
    return hash(data) ^ params ^ (FIRST | LAST)


def is_same_packet(memory: Memory, packet: Packet) -> bool:
    """Return whether the packet is one of the remembered command."""
    fingerprints = memory[0]
    if isinstance(fingerprints, int):
        return packet.packet_no == 0 and fingerprints == fingerprint_of(packet.params, packet.data)
    return fingerprints.get(packet.packet_no) == fingerprint_of(packet.params, packet.data)


class FinishedCommands:
    """The finished commands of all devices, bounded for each device and in all.

    A device with too many of them loses its oldest; with too many in all, the device that was silent longest does.
    """

    __slots__ = ("_all_max", "_devices", "_timeout_s", "count", "device_max")

    def __init__(self, timeout_s: float, device_max: int, all_max: int) -> None:
        self._timeout_s = timeout_s
        self.device_max = min(device_max, all_max)
        self._all_max = all_max
        self._devices: dict[DeviceKey, dict[int, Memory]] = {}
        self.count = 0

    def of_device(self, device: DeviceKey) -> dict[int, Memory]:
        """Return the commands of a device by slot, the oldest first.

        A caller that changes them updates `count`, and may hold on to them only while there are few devices.
        """
        return self._devices.setdefault(device, {})

    def get(self, device: DeviceKey, slot: int, now_s: float) -> Memory | None:
        """Return what is remembered under this slot, unless its time is over."""
        memories = self._devices.get(device)
        memory = None if memories is None else memories.get(slot)
        return None if memory is None or memory[1] + self._timeout_s <= now_s else memory

    def put(self, device: DeviceKey, slot: int, memory: Memory) -> None:
        """Remember a command, and forget others where there are too many."""
        memories = self._devices.pop(device, {})
        self._devices[device] = memories  # at the end: devices that were silent longest are evicted first
        if memories.pop(slot, None) is not None:
            self.count -= 1
        self.purge(memories, memory[1])
        if len(memories) >= self.device_max:
            self.evict(memories)
        elif self.count >= self._all_max:
            self._evict_from_quietest()
        memories[slot] = memory
        self.count += 1

    def forget(self, device: DeviceKey, slot: int) -> None:
        """Forget a command: its packets, if they come again, make a new one."""
        memories = self._devices.get(device)
        if memories is not None and memories.pop(slot, None) is not None:
            self.count -= 1

    def evict(self, memories: dict[int, Memory]) -> None:
        """Forget the oldest commands of a device: several at once, which is far cheaper than one each time."""
        oldest = list(islice(memories, max(1, self.device_max // _EVICTED_SHARE)))
        for slot in oldest:
            del memories[slot]
        self.count -= len(oldest)

    def purge(self, memories: dict[int, Memory], now_s: float) -> None:
        """Forget the commands of a device whose time is over."""
        over_s = now_s - self._timeout_s
        while memories and memories[oldest := next(iter(memories))][1] <= over_s:
            del memories[oldest]
            self.count -= 1

    def _evict_from_quietest(self) -> None:
        device = next(iter(self._devices))
        memories = self._devices[device]
        del memories[next(iter(memories))]
        self.count -= 1
        if not memories:
            del self._devices[device]


class Replays(Struct, array_like=True, gc=False):
    """The sealed commands of one device that would be accepted again if they were not remembered."""

    newest: int = 0  # the highest device time of a command
    floor: int = 0  # commands up to this time are refused: they may have been forgotten
    seen: dict[int, int] = field(default_factory=dict)  # device time by mark
    unordered: dict[int, int] = field(default_factory=dict)  # the same, of times that cannot be ordered

    def take(self, device_time: int, sealed: bytes, now_s: float, window_s: float) -> bool:
        """Return whether this command is new, by its time and its sealed bytes, and remember it if so."""
        mark = int.from_bytes(sealed[-_MARK_BYTES:], "little")
        if mark in self.seen or mark in self.unordered:
            return False
        if device_time <= TIME_ERROR or device_time > now_s + APOSTOL_CLOCK_AHEAD_S:
            if len(self.unordered) >= APOSTOL_SEALS_UNORDERED_MAX:
                del self.unordered[next(iter(self.unordered))]
            self.unordered[mark] = device_time
            return True
        if device_time <= self.floor:
            return False
        self.seen[mark] = device_time
        if device_time > self.newest:
            self.newest = device_time
            self._forget(max(self.floor, int(device_time - window_s) - 1))
        if len(self.seen) > APOSTOL_SEALS_PER_DEVICE_MAX:
            times = sorted(self.seen.values())
            self._forget(times[len(times) // _EVICTED_SHARE])
        return True

    def _forget(self, floor: int) -> None:
        """Forget commands up to this time. One that came late may stay a little longer, which does no harm."""
        self.floor = floor
        seen = self.seen
        if len(seen) > APOSTOL_SEALS_PER_DEVICE_MAX:
            self.seen = {mark: at for mark, at in seen.items() if at > floor}
            return
        while seen and seen[oldest := next(iter(seen))] <= floor:
            del seen[oldest]


_unpack_replays: Final = msgpack.Decoder(Replays).decode
_pack_replays: Final = msgpack.Encoder().encode


def unpack_replays(stored: bytes) -> Replays:
    return _unpack_replays(stored)


def pack_replays(replays: Replays) -> bytes:
    return _pack_replays(replays)
