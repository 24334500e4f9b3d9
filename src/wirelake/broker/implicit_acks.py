"""Ack notifications for peers whose protocol has no acks.

What was written to a connection may still be lost: in our own buffers, in the kernel's, on the way. So a notification
counts as acked once the bytes up to its end have drained, and then the peer has sent anything, or has stayed connected
for `implicit_ack_s`. What is not acked when the peer leaves is sent again when its identity subscribes again.

Nothing is done for a single notification: a timer looks at the byte counters of the peers that have something open, a
bounded number of them at a time.
"""

import logging
from collections.abc import Callable

from msgspec import Struct, field

from wirelake.broker.consumer import Consumer
from wirelake.broker.peer import Peer
from wirelake.errors import StorageError
from wirelake.limits import BROKER_IMPLICIT_ACK_S, BROKER_SENT_RUNS, BROKER_SETTLE_PEERS, BROKER_SETTLE_S

_log = logging.getLogger(__name__)

Positions = dict[Consumer, int]
Ack = Callable[[Consumer, int], None]


class _Drained(Struct):
    """Notifications that reached the peer's host at about the same time."""

    since_s: float
    at_s: float  # the last of them
    positions: Positions


class _Open(Struct):
    """What was written to one peer and is not acked."""

    peer: Peer
    fresh: Positions = field(default_factory=dict)  # written since the last look
    written: Positions = field(default_factory=dict)  # on its way
    written_bytes: int = 0  # drained when so many of the peer's bytes are
    drained: list[_Drained] = field(default_factory=list)  # oldest first
    bytes_in: int = 0  # received at the last look


class ImplicitAcks:
    def __init__(self, ack: Ack, implicit_ack_s: float = BROKER_IMPLICIT_ACK_S) -> None:
        """`ack` acks a feed's notifications up to a position; it may raise StorageError."""
        self.implicit_ack_s = implicit_ack_s
        self._ack = ack
        self._open: dict[str, _Open] = {}  # peer id →; the one looked at last is the last
        self._due_s = 0.0

    @property
    def due_s(self) -> float | None:
        """Return when `tick` next has something to do."""
        return self._due_s if self._open else None

    def on_write(self, feed: Consumer, now_s: float) -> None:
        """Note that the feed's peer was written to, up to the feed's position."""
        of_peer = self._open.get(feed.peer.id)
        if of_peer is None:
            if not self._open:
                self._due_s = now_s + BROKER_SETTLE_S
            of_peer = self._open[feed.peer.id] = _Open(feed.peer)
        of_peer.fresh[feed] = feed.position

    def tick(self, now_s: float) -> None:
        """Look at the peers that were not looked at for the longest time."""
        if not self._open or self._due_s > now_s:
            return
        self._due_s = now_s + BROKER_SETTLE_S
        for _ in range(min(len(self._open), BROKER_SETTLE_PEERS)):
            peer_id = next(iter(self._open))
            of_peer = self._open.pop(peer_id)
            try:
                self._look(of_peer, now_s)
            except StorageError as error:
                _log.warning("notifications cannot be counted as acked yet: %s", error)
                self._open[peer_id] = of_peer
                return
            if of_peer.fresh or of_peer.written or of_peer.drained:
                self._open[peer_id] = of_peer

    def leave(self, peer: Peer) -> None:
        """Ack what the peer has answered for; the rest is open for its identity's next session."""
        of_peer = self._open.pop(peer.id, None)
        if of_peer is not None and peer.bytes_in > of_peer.bytes_in:
            try:
                self._ack_drained(of_peer, len(of_peer.drained))
            except StorageError as error:
                _log.warning("notifications of session %s will be sent again: %s", peer.id, error)

    def _look(self, of_peer: _Open, now_s: float) -> None:
        peer, drained = of_peer.peer, of_peer.drained
        bytes_in = peer.bytes_in
        if bytes_in > of_peer.bytes_in:
            count = len(drained)
        else:
            count = sum(run.at_s + self.implicit_ack_s <= now_s for run in drained)
        self._ack_drained(of_peer, count)
        of_peer.bytes_in = bytes_in
        if not of_peer.written and of_peer.fresh:
            of_peer.written, of_peer.fresh = of_peer.fresh, {}
            of_peer.written_bytes = peer.bytes_written
        if of_peer.written and peer.bytes_drained >= of_peer.written_bytes:
            self._add_drained(drained, of_peer.written, now_s)
            of_peer.written = {}

    def _add_drained(self, drained: list[_Drained], positions: Positions, now_s: float) -> None:
        """Join it to the youngest run where that is young enough: all of them wait for the same word of the peer."""
        if drained and now_s - drained[-1].since_s < self.implicit_ack_s / BROKER_SENT_RUNS:
            drained[-1].positions |= positions
            drained[-1].at_s = now_s
        else:
            drained.append(_Drained(now_s, now_s, positions))

    def _ack_drained(self, of_peer: _Open, count: int) -> None:
        """Ack the oldest runs. What fails stays open."""
        for _ in range(count):
            for feed, position in of_peer.drained[0].positions.items():
                self._ack(feed, position)
            del of_peer.drained[0]
