"""Disconnect slow consumers: peers that do not read what they are sent, and so use memory."""

from collections.abc import Callable
from typing import Protocol

from wirelake.limits import GATEWAY_STALL_LOOK_MAX_S, GATEWAY_STALL_LOOK_S

Later = Callable[[float, Callable[[], object]], object]  # calls a function after a delay in seconds

STALLED = "stalled"  # close reason: the peer reads too slowly
UNREAD = "unread_bytes"  # close reason: all stalled peers together use too much memory


class MonitoredConnection(Protocol):
    """Let the monitor observe a connection and disconnect it."""

    stall: "Stall | None"

    @property
    def pending_max(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    def wake(self) -> None:
        """Check whether the peer has read enough, and end the stall then."""
        ...

    def disconnect(self, code: str, text: str) -> None:
        """Abort the connection."""
        ...


class Stall:
    """Track one peer from the time its pending bytes exceed the limit until they are half of it."""

    __slots__ = ("_check_s", "_monitor", "_since_bytes", "_since_s", "bytes", "connection")

    def __init__(self, monitor: "StallMonitor", connection: MonitoredConnection) -> None:
        self._monitor = monitor
        self._check_s = GATEWAY_STALL_LOOK_S
        self._since_s = monitor.now_s()
        self._since_bytes = self.bytes = connection.pending_bytes
        self.connection = connection

    def end(self) -> None:
        self.connection.stall = None
        self._monitor.remove(self)

    def check(self) -> None:
        """Disconnect the peer if it has not read half of the limit in time."""
        connection = self.connection
        if connection.stall is not self:
            return
        connection.wake()
        if connection.stall is not self:
            return
        now_s, pending = self._monitor.now_s(), connection.pending_bytes
        self._monitor.update(self, pending)
        if pending <= self._since_bytes - connection.pending_max // 2:
            self._since_s, self._since_bytes = now_s, pending
        elif now_s - self._since_s >= self._monitor.stall_s:
            text = f"{pending} bytes were not read within {self._monitor.stall_s:g} s (limits.stall_s)"
            connection.disconnect(STALLED, text)
            return
        self._since_bytes = max(self._since_bytes, pending)
        self._check_s = min(2 * self._check_s, GATEWAY_STALL_LOOK_MAX_S)
        self._monitor.later(self._check_s, self.check)

    def start(self) -> None:
        self._monitor.later(self._check_s, self.check)


class StallMonitor:
    """Track all stalled peers, and limit the memory that they use together."""

    def __init__(self, later: Later, now_s: Callable[[], float], stall_s: float, bytes_max: int) -> None:
        self.later = later
        self.now_s = now_s
        self.stall_s = stall_s
        self.bytes_max = bytes_max
        self.bytes = 0  # pending bytes of all stalled peers
        self._stalled: dict[Stall, None] = {}

    def __len__(self) -> int:
        return len(self._stalled)

    def add(self, connection: MonitoredConnection) -> None:
        stall = connection.stall = Stall(self, connection)
        self._stalled[stall] = None
        self.bytes += stall.bytes
        stall.start()
        self._enforce_limit()

    def update(self, stall: Stall, pending: int) -> None:
        if stall in self._stalled:
            self.bytes += pending - stall.bytes
            stall.bytes = pending
            self._enforce_limit()

    def remove(self, stall: Stall) -> None:
        if self._stalled.pop(stall, self) is None:
            self.bytes -= stall.bytes

    def _enforce_limit(self) -> None:
        """Disconnect the peer with the most pending bytes until the others are within the limit."""
        while self.bytes > self.bytes_max and len(self._stalled) > 1:
            largest = max(self._stalled, key=lambda stall: stall.bytes)
            self.remove(largest)
            text = f"peers that do not read hold more than {self.bytes_max} bytes (limits.unread_bytes)"
            largest.connection.disconnect(UNREAD, text)
