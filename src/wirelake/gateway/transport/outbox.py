"""What a connection has to say and may not yet: bytes in order, each with the commit they wait for."""

from collections import deque
from collections.abc import Callable

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.transport.commit_barrier import CommitBarrier


class Outbox:
    """Keeps the order of everything written: what needs no waiting goes behind what does."""

    __slots__ = ("_gate", "_held", "_refused", "_send", "_together_bytes_max", "bytes")

    def __init__(
        self,
        gate: CommitBarrier,
        send: Callable[[bytes], None],
        refused: Callable[[StorageError], None],
        together_bytes_max: int | None = None,  # of what is sent at once: a datagram has an end
    ) -> None:
        self._together_bytes_max = together_bytes_max
        self._gate = gate
        self._send = send
        self._refused = refused
        self._held: deque[_Held] | None = None
        self.bytes = 0

    @property
    def empty(self) -> bool:
        return not self._held

    def hold(self, data: bytes, commit: Commit) -> None:
        """Send this once the commit is durable; never, if it fails."""
        if self._held is None:
            self._held = deque()
        self.bytes += len(data)
        if self._held and self._held[-1].commit is commit:
            self._held[-1].parts.append(data)
        else:
            held = _Held(self, commit, data)
            self._held.append(held)
            self._gate.wait(commit, held)

    def write(self, data: bytes) -> None:
        """Send this now, or behind what waits."""
        if self._held:
            self.bytes += len(data)
            self._held[-1].parts.append(data)
        else:
            self._send(data)

    def discard(self) -> None:
        """The connection is gone: let go of what waits to be sent."""
        self._held = None
        self.bytes = 0

    def advance(self) -> None:
        """Send what may go out, up to the first that may not: commits of two kinds are not decided in order."""
        held = self._held
        if not held or not held[0].is_durable:
            return
        parts = held.popleft().parts
        while held and held[0].is_durable:
            parts += held.popleft().parts
        if not held:
            self._held = None  # most connections are quiet most of the time
        for data in self._together(parts):
            self.bytes -= len(data)
            self._send(data)

    def drop(self, held: "_Held", error: StorageError) -> None:
        """Forget what may never go out."""
        if self._held and held in self._held:  # or everything was discarded meanwhile
            self._held.remove(held)
            self.bytes -= sum(map(len, held.parts))
        self._refused(error)
        self.advance()

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


class _Held:
    """Bytes that wait for one commit."""

    __slots__ = ("_outbox", "commit", "is_durable", "parts")

    def __init__(self, outbox: Outbox, commit: Commit, data: bytes) -> None:
        self._outbox = outbox
        self.commit = commit
        self.parts = [data]
        self.is_durable = False

    def released(self) -> None:
        self.is_durable = True
        self._outbox.advance()

    def refused(self, error: StorageError) -> None:
        self._outbox.drop(self, error)
