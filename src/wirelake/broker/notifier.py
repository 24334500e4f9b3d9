"""Telling peers of notifications. What a peer's protocol has no room for is left out and counted: one notification
that is too long for a frame must not keep the others, or the other peers, from theirs.
"""

import logging
from collections import Counter

from wirelake.broker.peer import Peer
from wirelake.errors import EncodeError, TranslationError
from wirelake.message import Message

_log = logging.getLogger(__name__)
Refusals = dict[str, str]  # a notification's id → why it cannot be said


class Notifier:
    def __init__(self) -> None:
        self.unsayable: Counter[str] = Counter()  # protocol → notifications it could not carry

    def encode_notification(self, peer: Peer, message: Message, refusals: Refusals | None = None) -> bytes:
        """As the peer's audience reads it; empty if it cannot be said."""
        try:
            return peer.encode_notification(message)
        except (EncodeError, TranslationError) as error:
            self._refused(peer, message, error, refusals)
            return b""

    def send(self, peer: Peer, message: Message, refusals: Refusals | None = None) -> bool:
        """Through the peer's own session; False if it cannot be said."""
        try:
            peer.send(message)
        except (EncodeError, TranslationError) as error:
            self._refused(peer, message, error, refusals)
            return False
        return True

    def _refused(self, peer: Peer, message: Message, error: Exception, refusals: Refusals | None) -> None:
        self.unsayable[peer.protocol] += 1
        _log.debug("notification %s cannot be said in %s: %s", message.id, peer.protocol, error)
        if refusals is not None:
            refusals[message.id] = str(error)
