"""Answers that are too long for one packet: read and sent one packet at a time, at the pace of whoever asked."""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from wirelake.broker.peer import Peer

Later = Callable[[Peer, float, Callable[[], object]], None]  # after so many seconds, call this in the peer's turn


class PacketQueue(Struct, eq=False):
    """`send` reads and says the next packet, given how many follow it."""

    peer: Peer
    left: int
    send: Callable[[int], None]


class Sending:
    """One packet a turn for each peer; a peer that reads slowly waits until it has caught up."""

    def __init__(self, later: Later, pause_s: Callable[[Peer], float]) -> None:
        self._later = later
        self._pause_s = pause_s  # before the next packet, while the disk or the peer is behind
        self._open: dict[str, deque[PacketQueue]] = {}  # peer id → in the order asked
        self._scheduled: set[str] = set()

    def start(self, packets: PacketQueue) -> None:
        waiting = self._open.get(packets.peer.id)
        if waiting is not None:
            waiting.append(packets)
            return
        self._open[packets.peer.id] = deque([packets])
        self._next(packets.peer)

    def on_close(self, peer: Peer) -> None:
        self._open.pop(peer.id, None)

    def on_drain(self, peer: Peer) -> None:
        self._soon(peer, 0.0)

    def _soon(self, peer: Peer, pause_s: float) -> None:
        if peer.id in self._open and peer.id not in self._scheduled:
            self._scheduled.add(peer.id)
            self._later(peer, pause_s, lambda: self._next(peer))

    def _next(self, peer: Peer) -> None:
        self._scheduled.discard(peer.id)
        waiting = self._open.get(peer.id)
        if not waiting or peer.is_congested:  # then `drained` takes it up again
            return
        pause_s = self._pause_s(peer)
        if not pause_s:
            packets = waiting[0]
            packets.left -= 1
            if not packets.left:
                waiting.popleft()
                if not waiting:
                    del self._open[peer.id]
            packets.send(packets.left)
        self._soon(peer, pause_s)
