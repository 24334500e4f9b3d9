"""Deliver notifications to peers: encode them, record what becomes of them, and handle peers that read too slowly."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from msgspec import json

from wirelake.broker.consumer import Consumer
from wirelake.broker.peer import Peer
from wirelake.errors import EncodeError, StorageError, TranslationError
from wirelake.limits import BROKER_MISSED_TOPICS_MAX
from wirelake.message import Message
from wirelake.protocols.session import Closing
from wirelake.state.topics import TopicStore

_log = logging.getLogger(__name__)

Refusals = dict[str, str]  # id of a notification → why the peer's protocol cannot encode it
Record = Callable[[str, str, bytes, dict[str, object]], None]  # event, topic, data, note
UNENCODABLE: Final = "unsayable"  # the event's name in the log


class Notifier:
    """Encode and send notifications. Those that a peer's protocol cannot encode are left out and counted.

    One notification that is too long for a frame must not keep the others, or the other peers, from theirs.
    """

    def __init__(self) -> None:
        self.unencodable: Counter[str] = Counter()  # protocol → notifications that it cannot encode

    def encode_notification(self, peer: Peer, message: Message, refusals: Refusals | None = None) -> bytes:
        """Return the bytes for all peers with the encoding key of this one, or b"" if it is not encodable."""
        try:
            return peer.encode_notification(message)
        except (EncodeError, TranslationError) as error:
            self._on_refusal(peer, message, error, refusals)
            return b""

    def send(self, peer: Peer, message: Message, refusals: Refusals | None = None) -> bool:
        """Send through the peer's own session. Return False if it is not encodable."""
        try:
            peer.send(message)
        except (EncodeError, TranslationError) as error:
            self._on_refusal(peer, message, error, refusals)
            return False
        return True

    def _on_refusal(self, peer: Peer, message: Message, error: Exception, refusals: Refusals | None) -> None:
        self.unencodable[peer.protocol] += 1
        _log.debug("notification %s is not encodable in %s: %s", message.id, peer.protocol, error)
        if refusals is not None:
            refusals[message.id] = str(error)


class SlowConsumers:
    """Decide what happens to a subscriber that is congested when something is pushed to it.

    This concerns what is stored nowhere: live topics and subscriptions to services. A consumer of a durable topic falls
    behind instead, and catches up from disk. A peer that stays congested for too long is closed by the gateway,
    whatever it subscribes to.
    """

    def __init__(self, *, conflate: bool = False) -> None:
        self.conflate = conflate  # send it the newest notification of each topic once it has caught up; else close it
        self.closed = 0  # peers
        self.conflated = 0  # notifications that a slow peer never gets

    def close(self, peer: Peer) -> None:
        self.closed += 1
        peer.close(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))

    def add_missed(self, missed: dict[Any, Any], key: Hashable, newest: object) -> None:
        """Replace what the peer missed of this key. Beyond the limit, the key that waits longest is dropped."""
        if missed.pop(key, None) is not None:
            self.conflated += 1
        elif len(missed) >= BROKER_MISSED_TOPICS_MAX:  # a pattern matches any number of topics
            self.conflated += 1
            del missed[next(iter(missed))]
        missed[key] = newest


class DeliveryLog:
    """Record in the event log what becomes of notifications: delivered, not encodable, acked.

    A record that the log refuses is counted and not retried: the delivery has happened all the same.
    """

    def __init__(self, topics: TopicStore, record: Record) -> None:
        self.unrecorded = 0  # records that the log refused
        self._topics = topics
        self._record = record

    def record_delivery(self, peers: Sequence[Peer], topic: str, first: int, last: int, attempt: int) -> None:
        """Record the sessions that these positions were written to, each with its identity."""
        note = {"ids": self._topics.id_prefix(topic), "first": first, "last": last, "attempt": attempt}
        self._append("deliver", topic, note, _recipients(peers))

    def record_unencodable(self, consumer: Consumer, position: int, why: str) -> None:
        """Record this once for a session. Another session of the identity may use a protocol that can encode it."""
        if position > consumer.unencodable_position:
            consumer.unencodable_position = position
            note = {"ids": self._topics.id_prefix(consumer.topic), "first": position, "last": position, "reason": why}
            self._append(UNENCODABLE, consumer.topic, note, _recipients([consumer.peer]))

    def record_ack(self, identity: str, ids: Sequence[str]) -> None:
        """Record acks that the identity sent."""
        self._append("ack", "", {"identity": identity, "acked": ids})

    def record_acks_through(self, identity: str, topic: str, position: int) -> None:
        """Record implicit acks of everything up to the position."""
        self._append("ack", topic, {"ids": self._topics.id_prefix(topic), "identity": identity, "through": position})

    def _append(self, event: str, topic: str, note: dict[str, object], data: bytes = b"") -> None:
        try:
            self._record(event, topic, data, note)
        except StorageError as error:
            self.unrecorded += 1
            _log.debug("the log refused to record %s of %s: %s", event, topic, error)


def _recipients(peers: Sequence[Peer]) -> bytes:
    return json.encode([(peer.id, peer.identity, peer.protocol) for peer in peers])
