"""Hold what was written to a connection until its commit is durable."""

import fcntl
import sys
import termios
from asyncio import BaseTransport, WriteTransport
from collections import deque
from collections.abc import Callable
from typing import Final

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.transport.commit_barrier import CommitBarrier

_INT_BYTES: Final = 4


class Outbox:
    """Send bytes in the order in which they were written, each once its commit is durable."""

    __slots__ = ("_barrier", "_datagram_bytes_max", "_on_refused", "_pending", "_send", "bytes")

    def __init__(
        self,
        barrier: CommitBarrier,
        send: Callable[[bytes], None],
        on_refused: Callable[[StorageError], None],
        datagram_bytes_max: int | None = None,  # None for a stream
    ) -> None:
        self._datagram_bytes_max = datagram_bytes_max
        self._barrier = barrier
        self._send = send
        self._on_refused = on_refused
        self._pending: deque[_PendingWrite] | None = None
        self.bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def hold(self, data: bytes, commit: Commit) -> None:
        """Send data once the commit is durable. Drop it if the commit fails."""
        if self._pending is None:
            self._pending = deque()
        self.bytes += len(data)
        if self._pending and self._pending[-1].commit is commit:
            self._pending[-1].parts.append(data)
        else:
            pending = _PendingWrite(self, commit, data)
            self._pending.append(pending)
            self._barrier.wait(commit, pending)

    def write(self, data: bytes) -> None:
        """Send data now, or after the data that is held."""
        if self._pending:
            self.bytes += len(data)
            self._pending[-1].parts.append(data)
        else:
            self._send(data)

    def discard(self) -> None:
        """Drop everything that is held: the connection is closed."""
        self._pending = None
        self.bytes = 0

    def advance(self) -> None:
        """Send held data up to the first that is not durable: commits may complete out of order."""
        pending = self._pending
        if not pending or not pending[0].is_durable:
            return
        parts = pending.popleft().parts
        while pending and pending[0].is_durable:
            parts += pending.popleft().parts
        if not pending:
            self._pending = None  # saves memory: most connections are idle most of the time
        for data in self._coalesce(parts):
            self.bytes -= len(data)
            self._send(data)

    def drop(self, pending: "_PendingWrite", error: StorageError) -> None:
        """Drop data whose commit failed."""
        if self._pending and pending in self._pending:  # else it was discarded already
            self._pending.remove(pending)
            self.bytes -= sum(map(len, pending.parts))
        self._on_refused(error)
        self.advance()

    def _coalesce(self, parts: list[bytes]) -> list[bytes]:
        """Join parts into one write, or into datagrams of whole parts."""
        if len(parts) == 1:
            return parts
        limit = self._datagram_bytes_max
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


class _PendingWrite:
    """Hold the data that waits for one commit."""

    __slots__ = ("_outbox", "commit", "is_durable", "parts")

    def __init__(self, outbox: Outbox, commit: Commit, data: bytes) -> None:
        self._outbox = outbox
        self.commit = commit
        self.parts = [data]
        self.is_durable = False

    def on_durable(self) -> None:
        self.is_durable = True
        self._outbox.advance()

    def on_failed(self, error: StorageError) -> None:
        self._outbox.drop(self, error)


def undelivered_bytes(transport: WriteTransport, tls_buffer_bytes_max: int) -> int:
    """Return how many bytes are in the transport's buffer, or in the kernel's and not acknowledged by the other host.

    A TLS transport has one more buffer, of at most `tls_buffer_bytes_max`, whose size cannot be read. It is empty if
    the kernel's buffer is empty, because it is used only while that one is full.
    """
    queued = _kernel_queue_bytes(transport)
    if queued and transport.get_extra_info("sslcontext") is not None:
        queued += tls_buffer_bytes_max
    return transport.get_write_buffer_size() + queued


def _kernel_queue_bytes(transport: BaseTransport) -> int:
    """Return the size of the kernel's send queue. On systems other than Linux, return 0."""
    if sys.platform != "linux":
        return 0
    socket = transport.get_extra_info("socket")
    if socket is None or (fd := socket.fileno()) < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_INT_BYTES)), sys.byteorder)
