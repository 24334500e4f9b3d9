"""What a connection has to say and may not yet: bytes in order, each with the block of the log they wait for."""

from collections import deque
from collections.abc import Callable

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.gate import Gate


class Outbox:
    """Keeps the order of everything written: what needs no waiting goes behind what does."""

    __slots__ = ("_gate", "_held", "_refused", "_send", "_together_bytes_max", "bytes")

    def __init__(
        self,
        gate: Gate,
        send: Callable[[bytes], None],
        refused: Callable[[StorageError], None],
        together_bytes_max: int | None = None,  # of what is sent at once: a datagram has an end
    ) -> None:
        self._together_bytes_max = together_bytes_max
        self._gate = gate
        self._send = send
        self._refused = refused
        self._held: deque[tuple[Commit, list[bytes]]] | None = None
        self.bytes = 0

    @property
    def empty(self) -> bool:
        return not self._held

    def hold(self, data: bytes, commit: Commit) -> None:
        """Send this once the block is on disk."""
        if self._held is None:
            self._held = deque()
        self.bytes += len(data)
        if self._held and self._held[-1][0] is commit:
            self._held[-1][1].append(data)
        else:
            self._held.append((commit, [data]))
            self._gate.wait(commit, self)

    def write(self, data: bytes) -> None:
        """Send this now, or behind what waits."""
        if self._held:
            self.bytes += len(data)
            self._held[-1][1].append(data)
        else:
            self._send(data)

    def discard(self) -> None:
        """The connection is gone: let go of what waits to be sent."""
        self._held = None
        self.bytes = 0

    def released(self) -> None:
        held = self._held
        if not held:
            return
        _, parts = held.popleft()
        if not held:
            self._held = None  # most connections are quiet most of the time
        for data in self._together(parts):
            self.bytes -= len(data)
            self._send(data)

    def _together(self, parts: list[bytes]) -> list[bytes]:
        if len(parts) == 1:
            return parts
        limit = self._together_bytes_max
        if limit is None:
            return [b"".join(parts)]
        groups: list[list[bytes]] = [[]]
        size = 0
        for part in parts:
            if size and size + len(part) > limit:
                groups.append([])
                size = 0
            groups[-1].append(part)
            size += len(part)
        return [b"".join(group) for group in groups]

    def refused(self, error: StorageError) -> None:
        self._held = None
        self.bytes = 0
        self._refused(error)
