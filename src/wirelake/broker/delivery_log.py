"""What becomes of notifications, for the log: written to whom, not sayable to whom, acked by whom."""

import logging
from collections.abc import Callable, Sequence

from msgspec import json

from wirelake.broker.consumer import Consumer
from wirelake.broker.peer import Peer
from wirelake.errors import StorageError
from wirelake.state.topics import TopicStore

_log = logging.getLogger(__name__)

Record = Callable[[str, str, bytes, dict[str, object]], None]  # event, topic, bytes, note


class DeliveryLog:
    """What has happened has happened, also when the log cannot be written; the log says itself that it cannot."""

    def __init__(self, topics: TopicStore, record: Record) -> None:
        self.unrecorded = 0  # what the log had no room for
        self._topics = topics
        self._record = record

    def record_delivery(self, peers: Sequence[Peer], topic: str, first: int, last: int, attempt: int) -> None:
        """Who got them, as JSON: a delivery is one of a session, and counts for an identity."""
        note = {"ids": self._topics.id_prefix(topic), "first": first, "last": last, "attempt": attempt}
        self._note("deliver", topic, note, _to(peers))

    def unencodable(self, feed: Consumer, position: int, why: str) -> None:
        """Once a session. It stays where it is: another session of the identity may speak a protocol with more room."""
        if position > feed.unsayable:
            feed.unsayable = position
            note = {"ids": self._topics.id_prefix(feed.topic), "first": position, "last": position, "reason": why}
            self._note("unsayable", feed.topic, note, _to([feed.peer]))

    def record_ack(self, identity: str, ids: Sequence[str]) -> None:
        """By its own word."""
        self._note("ack", "", {"identity": identity, "acked": ids})

    def record_acks_through(self, identity: str, topic: str, position: int) -> None:
        """By having been written."""
        self._note("ack", topic, {"ids": self._topics.id_prefix(topic), "identity": identity, "through": position})

    def _note(self, event: str, topic: str, note: dict[str, object], data: bytes = b"") -> None:
        try:
            self._record(event, topic, data, note)
        except StorageError as error:
            self.unrecorded += 1
            _log.debug("%s of %s is not in the log: %s", event, topic, error)


def _to(peers: Sequence[Peer]) -> bytes:
    return json.encode([(peer.id, peer.identity, peer.protocol) for peer in peers])
