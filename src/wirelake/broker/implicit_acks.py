"""Ack notifications for peers whose protocol has no acks.

What was written to a connection may still be lost: in the gateway's buffers, in the kernel's, on the way. So a
notification counts as acked once the bytes up to its end have drained, and then the peer has sent anything, or has
stayed connected for `implicit_ack_s`. What is not acked when the peer closes is sent again when its identity subscribes
again.

No work is done for a single notification: a timer compares the byte counters of the peers that have something unacked,
a bounded number of peers at a time.
"""

import logging
from collections.abc import Callable

from msgspec import Struct, field

from wirelake.broker.consumer import Consumer
from wirelake.broker.peer import Peer
from wirelake.errors import StorageError
from wirelake.limits import (
    BROKER_IMPLICIT_ACK_PEERS,
    BROKER_IMPLICIT_ACK_S,
    BROKER_IMPLICIT_ACK_TICK_S,
    BROKER_RUNS_PER_PAUSE,
)

_log = logging.getLogger(__name__)

Positions = dict[Consumer, int]
Ack = Callable[[Consumer, int], None]


class _Drained(Struct):
    """Notifications that reached the peer's host at about the same time."""

    since_s: float
    at_s: float  # when the last of them did
    positions: Positions


class _Unacked(Struct):
    """Positions that were written to one peer and are not acked."""

    peer: Peer
    fresh: Positions = field(default_factory=dict)  # written since the last check
    written: Positions = field(default_factory=dict)  # not drained at the last check
    written_bytes: int = 0  # `written` is drained when so many of the peer's bytes are
    drained: list[_Drained] = field(default_factory=list)  # oldest first
    bytes_in: int = 0  # received from the peer at the last check


class ImplicitAcks:
    def __init__(self, ack: Ack, implicit_ack_s: float = BROKER_IMPLICIT_ACK_S) -> None:
        """`ack` acks a consumer's notifications up to a position; it may raise StorageError."""
        self.implicit_ack_s = implicit_ack_s
        self._ack = ack
        self._unacked: dict[str, _Unacked] = {}  # peer id →; the one checked last is the last
        self._due_s = 0.0

    @property
    def runs(self) -> int:
        """Return how many runs of drained positions are held, for all peers."""
        return sum(len(unacked.drained) for unacked in self._unacked.values())

    @property
    def due_s(self) -> float | None:
        """Return when `tick` next has something to do."""
        return self._due_s if self._unacked else None

    def on_write(self, consumer: Consumer, now_s: float) -> None:
        """Note that the consumer's peer was written to, up to the consumer's position."""
        unacked = self._unacked.get(consumer.peer.id)
        if unacked is None:
            if not self._unacked:
                self._due_s = now_s + BROKER_IMPLICIT_ACK_TICK_S
            unacked = self._unacked[consumer.peer.id] = _Unacked(consumer.peer)
        unacked.fresh[consumer] = consumer.position

    def tick(self, now_s: float) -> None:
        """Check the peers that were not checked for the longest time."""
        if not self._unacked or self._due_s > now_s:
            return
        self._due_s = now_s + BROKER_IMPLICIT_ACK_TICK_S
        for _ in range(min(len(self._unacked), BROKER_IMPLICIT_ACK_PEERS)):
            peer_id = next(iter(self._unacked))
            unacked = self._unacked.pop(peer_id)
            try:
                self._check(unacked, now_s)
            except StorageError as error:
                _log.warning("cannot ack notifications for peers without acks yet: %s", error)
                self._unacked[peer_id] = unacked
                return
            if unacked.fresh or unacked.written or unacked.drained:
                self._unacked[peer_id] = unacked

    def leave(self, peer: Peer) -> None:
        """Ack what had drained before the peer last sent something. The rest is for its identity's next session."""
        unacked = self._unacked.pop(peer.id, None)
        if unacked is not None and peer.bytes_in > unacked.bytes_in:
            try:
                self._ack_drained(unacked, len(unacked.drained))
            except StorageError as error:
                _log.warning("cannot ack notifications for session %s, they will be sent again: %s", peer.id, error)

    def _check(self, unacked: _Unacked, now_s: float) -> None:
        peer, drained = unacked.peer, unacked.drained
        bytes_in = peer.bytes_in
        if bytes_in > unacked.bytes_in:
            count = len(drained)
        else:
            count = sum(run.at_s + self.implicit_ack_s <= now_s for run in drained)
        self._ack_drained(unacked, count)
        unacked.bytes_in = bytes_in
        if not unacked.written and unacked.fresh:
            unacked.written, unacked.fresh = unacked.fresh, {}
            unacked.written_bytes = peer.bytes_written
        if unacked.written and peer.bytes_drained >= unacked.written_bytes:
            self._add_drained(drained, unacked.written, now_s)
            unacked.written = {}

    def _add_drained(self, drained: list[_Drained], positions: Positions, now_s: float) -> None:
        """Join positions to the newest run if that is recent, so that the number of runs stays bounded."""
        if drained and now_s - drained[-1].since_s < self.implicit_ack_s / BROKER_RUNS_PER_PAUSE:
            drained[-1].positions |= positions
            drained[-1].at_s = now_s
        else:
            drained.append(_Drained(now_s, now_s, positions))

    def _ack_drained(self, unacked: _Unacked, count: int) -> None:
        """Ack the oldest runs. A run whose ack fails stays."""
        for _ in range(count):
            for consumer, position in unacked.drained[0].positions.items():
                self._ack(consumer, position)
            del unacked.drained[0]
