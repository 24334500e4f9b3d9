"""Know a sealed command again, however long ago it came: nobody may record one and send it a second time.

The time of a command stands inside its seal, so it cannot be changed. Commands within a window behind the newest time
are remembered by the end of their seal's tag; what is older than the window is refused, whether it was seen or not.
Times that cannot be ordered (unknown, a clock error, far ahead of the gateway's own clock) leave the window where it
is: of those the last few commands are remembered.

The gateway keeps one of these for each device and stores it; the pipeline keeps its own in what it carries. So both
judge alike.
"""

from typing import Final

from msgspec import Struct, field, msgpack

from wirelake.protocols.apostol.limits import (
    APOSTOL_CLOCK_AHEAD_S,
    APOSTOL_SEALS_PER_DEVICE_MAX,
    APOSTOL_SEALS_UNORDERED_MAX,
)
from wirelake.protocols.apostol.opcodes import TIME_ERROR

_MARK_BYTES: Final = 8  # of the tag's 16: enough to tell some hundred commands apart
_FORGET_PARTS: Final = 8


class Replays(Struct, array_like=True, gc=False):
    """The sealed commands of one device that would still be taken, were they not known."""

    newest: int = 0  # the highest device time of a command
    floor: int = 0  # commands up to this time are refused: they may have been forgotten
    seen: dict[int, int] = field(default_factory=dict)  # device time by mark
    unordered: dict[int, int] = field(default_factory=dict)  # the same, of times that cannot be ordered

    def take(self, device_time: int, sealed: bytes, now_s: float, window_s: float) -> bool:
        """Whether this command is new, by its time and its sealed bytes. If so, it is remembered."""
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
            self._forget(times[len(times) // _FORGET_PARTS])
        return True

    def _forget(self, floor: int) -> None:
        """Leave behind what came up to this time. What came late may stay a little longer, which does no harm."""
        self.floor = floor
        seen = self.seen
        if len(seen) > APOSTOL_SEALS_PER_DEVICE_MAX:
            self.seen = {mark: at for mark, at in seen.items() if at > floor}
            return
        while seen and seen[oldest := next(iter(seen))] <= floor:
            del seen[oldest]


_unpack: Final = msgpack.Decoder(Replays).decode
_pack: Final = msgpack.Encoder().encode


def unpack(stored: bytes) -> Replays:
    return _unpack(stored)


def pack(replays: Replays) -> bytes:
    return _pack(replays)
