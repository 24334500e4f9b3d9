"""Watch peers that do not take what they are sent, so that none of them holds memory for long."""

from collections.abc import Callable
from typing import Protocol

from wirelake.limits import GATEWAY_STALL_LOOK_MAX_S, GATEWAY_STALL_LOOK_S

Later = Callable[[float, Callable[[], object]], object]  # after so many seconds, call this

STALLED = "stalled"  # too slow: the reason of a close
UNREAD = "unread_bytes"  # all that do not read hold too much together: likewise


class Stallable(Protocol):
    """A connection with more pending than its limit."""

    stall: "Stall | None"

    @property
    def pending_max(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    def wake(self) -> None:
        """Look again whether enough was taken."""
        ...

    def give_up(self, code: str, text: str) -> None:
        """Close it."""
        ...


class Stall:
    """One peer, from the moment it had too much pending until half of the limit is left."""

    __slots__ = ("_look_s", "_since_bytes", "_since_s", "_stalls", "bytes", "connection")

    def __init__(self, stalls: "Stalls", connection: Stallable) -> None:
        self._stalls = stalls
        self._look_s = GATEWAY_STALL_LOOK_S
        self._since_s = stalls.now_s()
        self._since_bytes = self.bytes = connection.pending_bytes
        self.connection = connection

    def end(self) -> None:
        self.connection.stall = None
        self._stalls.remove(self)

    def look(self) -> None:
        """Give up a peer that has not taken half of the limit in time."""
        connection = self.connection
        if connection.stall is not self:
            return
        connection.wake()
        if connection.stall is not self:
            return
        now_s, pending = self._stalls.now_s(), connection.pending_bytes
        self._stalls.count(self, pending)
        if pending <= self._since_bytes - connection.pending_max // 2:
            self._since_s, self._since_bytes = now_s, pending
        elif now_s - self._since_s >= self._stalls.stall_s:
            text = f"{pending} bytes were not read within {self._stalls.stall_s:g} s (limits.stall_s)"
            connection.give_up(STALLED, text)
            return
        self._since_bytes = max(self._since_bytes, pending)
        self._look_s = min(2 * self._look_s, GATEWAY_STALL_LOOK_MAX_S)
        self._stalls.later(self._look_s, self.look)

    def start(self) -> None:
        self._stalls.later(self._look_s, self.look)


class Stalls:
    def __init__(self, later: Later, now_s: Callable[[], float], stall_s: float, bytes_max: int) -> None:
        self.later = later
        self.now_s = now_s
        self.stall_s = stall_s
        self.bytes_max = bytes_max
        self.bytes = 0  # pending for all of them
        self._stalled: dict[Stall, None] = {}

    def __len__(self) -> int:
        return len(self._stalled)

    def begin(self, connection: Stallable) -> None:
        stall = connection.stall = Stall(self, connection)
        self._stalled[stall] = None
        self.bytes += stall.bytes
        stall.start()
        self._hold_limit()

    def count(self, stall: Stall, pending: int) -> None:
        if stall in self._stalled:
            self.bytes += pending - stall.bytes
            stall.bytes = pending
            self._hold_limit()

    def remove(self, stall: Stall) -> None:
        if self._stalled.pop(stall, self) is None:
            self.bytes -= stall.bytes

    def _hold_limit(self) -> None:
        """Give up the peer with the most, until the others fit."""
        while self.bytes > self.bytes_max and len(self._stalled) > 1:
            largest = max(self._stalled, key=lambda stall: stall.bytes)
            self.remove(largest)
            text = f"peers that do not read hold more than {self.bytes_max} bytes (limits.unread_bytes)"
            largest.connection.give_up(UNREAD, text)
