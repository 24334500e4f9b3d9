"""Deliver durable topics to the subscribers that are connected now.

A topic is a log with cursors (in `state/`). A connected subscriber is a `Consumer`: the position up to which it was
written to. Consumers at the same position that share an encoding key get the same joined bytes with one write. The
consumer of a slow peer falls behind; once the peer has drained, it catches up from disk in slices, so that nothing is
held in memory for it.

Only what is durable is sent: a notification is released when its commit is.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from time import monotonic

from wirelake.broker.consumer import Consumer, InFlight, InFlightRun, as_messages, contiguous_runs
from wirelake.broker.delivery import DeliveryLog, Notifier, Record, Refusals
from wirelake.broker.implicit_acks import ImplicitAcks
from wirelake.broker.peer import Peer
from wirelake.commit import Commit, CommitQueue
from wirelake.errors import StorageError
from wirelake.limits import (
    BROKER_CATCH_UP_BYTES,
    BROKER_CATCH_UP_ROWS,
    BROKER_CATCH_UP_S,
    BROKER_IMPLICIT_ACK_S,
    BROKER_RESEND_S,
)
from wirelake.message import Message
from wirelake.protocols.session import Closing
from wirelake.state.notifications import Backlog, StoredNotification
from wirelake.state.topics import PublishRequest, TopicStore


class DurableTopics:
    def __init__(
        self,
        topics: TopicStore,
        record: Record,
        notifier: Notifier | None = None,
        *,
        resend_s: float = BROKER_RESEND_S,
        implicit_ack_s: float = BROKER_IMPLICIT_ACK_S,
        on_release: Callable[[], None] | None = None,
    ) -> None:
        """`on_release` is called when notifications became durable, and `flush` can send them."""
        self.topics = topics
        self.implicit_acks = ImplicitAcks(self._ack_through, implicit_ack_s)
        self.resend_s = resend_s
        self.delivered = 0  # notifications times peers
        self.resent = 0
        self.readers: dict[str, dict[Commit, None]] = {}  # topic → resolved when something on it was released
        self._on_release = on_release
        self._notifier = notifier or Notifier()
        self._log = DeliveryLog(topics, record)
        self._consumers: dict[str, dict[str, Consumer]] = {}  # topic → peer id →
        self._of_peer: dict[str, dict[str, Consumer]] = {}  # peer id → topic →
        self._sessions: Counter[str] = Counter()  # identity → its peers with a consumer
        self._uncommitted: CommitQueue[StoredNotification] = CommitQueue(self._on_commit)
        self._unreleased: dict[str, int] = {}  # topic → the first position that is not yet written to anybody
        self._released: list[StoredNotification] = []
        self._behind: dict[Consumer, None] = {}
        self._due: list[tuple[float, int, Consumer]] = []  # a heap: when something may have to be sent again
        self._timer_number = 0  # breaks ties in the heap

    def publish(
        self,
        name: str,
        content: bytes,
        now_ms: int,
        type: int,  # noqa: A002 the field's name
        publisher: str,
        *,
        retain: bool = False,
    ) -> tuple[StoredNotification, Commit]:
        notification, commit = self.topics.publish(name, content, now_ms, type=type, publisher=publisher, retain=retain)
        self._unreleased.setdefault(name, notification.position)
        self._uncommitted.add(commit, notification)
        return notification, commit

    def publish_many(self, requests: Sequence[PublishRequest], now_ms: int) -> tuple[list[StoredNotification], Commit]:
        """Publish on several topics with one commit."""
        notifications, commit = self.topics.publish_many(requests, now_ms)
        index = 0
        for name, contents, _ in requests:
            self._unreleased.setdefault(name, notifications[index].position)
            index += len(contents)
        self._uncommitted.extend(commit, notifications)
        return notifications, commit

    def attach(self, peer: Peer, name: str) -> None:
        """Send the topic to a peer that subscribed, or logged in with this subscription, from here on.

        A peer that does not pull its backlog gets what it missed now, including what was written to an earlier session
        of the identity and is not acked.
        """
        if name in self._of_peer.get(peer.id, {}) or self.topics.subscription(peer.identity, name) is None:
            return
        head = self._released_head(name)
        consumer = Consumer(peer, name, head, head)
        if not peer.pulls_backlog:
            missed = self.topics.backlog(peer.identity, [name], 1)
            if missed and missed[0].position <= head:
                consumer.position = missed[0].position - 1
                self._fall_behind(consumer)
        if peer.id not in self._of_peer:
            self._of_peer[peer.id] = {}
            self._sessions[peer.identity] += 1
        self._of_peer[peer.id][name] = consumer
        self._consumers.setdefault(name, {})[peer.id] = consumer

    def on_unsubscribe(self, identity: str, name: str) -> None:
        """Stop sending the topic to the sessions of an identity that unsubscribed."""
        if self._sessions[identity]:
            for consumer in list(self._consumers.get(name, {}).values()):
                if consumer.peer.identity == identity:
                    self._detach(consumer)

    def leave(self, peer: Peer) -> None:
        """Remove the consumers of a peer that is closed."""
        self.implicit_acks.leave(peer)
        for consumer in list(self._of_peer.get(peer.id, {}).values()):
            self._detach(consumer)

    def lag(self, peer: Peer) -> dict[str, int]:
        """Return how many notifications of each topic wait for this peer."""
        consumers = self._of_peer.get(peer.id, {})
        return {name: self.topics.head(name) - consumer.position for name, consumer in consumers.items()}

    def connected(self, name: str) -> int:
        """Return how many peers the topic is sent to."""
        return len(self._consumers.get(name, {}))

    def listeners(self, name: str) -> Counter[str]:
        """Return the identities that the topic is sent to, each with the number of its sessions."""
        return Counter(consumer.peer.identity for consumer in self._consumers.get(name, {}).values())

    def sessions(self, identity: str, name: str) -> int:
        """Return how many sessions of the identity the topic is sent to."""
        if not self._sessions[identity]:
            return 0
        return sum(consumer.peer.identity == identity for consumer in self._consumers.get(name, {}).values())

    def reconcile(self) -> None:
        """Follow the state after a failed commit: it is what is on disk, so some subscriptions may be gone."""
        for consumers in list(self._consumers.values()):
            for consumer in list(consumers.values()):
                if self.topics.subscription(consumer.peer.identity, consumer.topic) is None:
                    self._detach(consumer)
        self._unreleased = {}
        for notification in chain(self._uncommitted, self._released):
            first = self._unreleased.get(notification.topic, notification.position)
            self._unreleased[notification.topic] = min(first, notification.position)

    @property
    def unrecorded(self) -> int:
        """Return how many deliveries and acks the log refused to record."""
        return self._log.unrecorded

    @property
    def waiting(self) -> bool:
        """Tell whether `flush` has something to do."""
        return bool(self._released or self._behind)

    def flush(self, now_s: float) -> None:
        """Write what was released to consumers that are up to date, and one slice to those that are behind."""
        released, self._released = self._released, []
        by_topic: dict[str, list[StoredNotification]] = {}
        for name, together in groupby(released, attrgetter("topic")):
            by_topic.setdefault(name, []).extend(together)
        for name, run in by_topic.items():
            consumers = self._consumers.get(name)
            if consumers:
                self._deliver(list(consumers.values()), run, now_s)
            if name in self.readers:
                for waiting in self.readers.pop(name):
                    if not waiting.is_done:
                        waiting.resolve()
            if run[-1].position >= self.topics.head(name):
                self._unreleased.pop(name, None)
            else:
                self._unreleased[name] = run[-1].position + 1
        ends_s = monotonic() + BROKER_CATCH_UP_S
        for consumer in list(self._behind):
            if consumer in self._behind:  # else it was detached meanwhile
                del self._behind[consumer]
                self._behind[consumer] = None  # after those that still wait for a slice
                with _CloseOnStorageError(consumer.peer):
                    self._catch_up(consumer, now_s)
                if monotonic() >= ends_s:
                    break

    def on_drain(self, peer: Peer) -> None:
        """Go on with a peer that is no longer congested."""
        for consumer in self._of_peer.get(peer.id, {}).values():
            if consumer.is_behind:
                self._behind[consumer] = None

    @property
    def due_s(self) -> float | None:
        """Return when `tick` next has something to do."""
        dues = (self._resend_due_s, self.implicit_acks.due_s)
        return min((due_s for due_s in dues if due_s is not None), default=None)

    def tick(self, now_s: float) -> None:
        """Send again what was not acked in time, and ack for peers whose protocol has no acks."""
        handled: list[Consumer] = []
        while (due_s := self._resend_due_s) is not None and due_s <= now_s:
            consumer = heapq.heappop(self._due)[2]
            consumer.is_timed = False
            handled.append(consumer)
            with _CloseOnStorageError(consumer.peer):
                self._resend(consumer, now_s)
        for consumer in handled:
            self._start_timer(consumer)
        self.implicit_acks.tick(now_s)

    def _ack_through(self, consumer: Consumer, position: int) -> None:
        """Ack everything up to the position, for a peer whose protocol has no acks."""
        identity, name = consumer.peer.identity, consumer.topic
        if self._of_peer.get(consumer.peer.id, {}).get(name) is not consumer:
            return  # it unsubscribed meanwhile
        subscription = self.topics.subscription(identity, name)
        if subscription is not None and subscription.cursor < position:
            self.topics.ack_through(identity, name, position)
            self._log.record_acks_through(identity, name, position)

    def on_ack(self, identity: str, ids: Sequence[str]) -> Commit:
        """Ack notifications by their ids."""
        commit = self.topics.ack(identity, ids)
        self._log.record_ack(identity, ids)
        return commit

    def on_backlog(self, peer: Peer, backlog: Backlog) -> None:
        """Record what a peer that pulled its backlog got, and what was too large for it."""
        by_topic: dict[str, list[StoredNotification]] = {}
        for row in backlog.rows:
            by_topic.setdefault(row.topic, []).append(row)
        for name, rows in by_topic.items():
            for run in contiguous_runs(rows):
                self._log.record_delivery([peer], name, run[0].position, run[-1].position, 1)
        consumers = self._of_peer.get(peer.id, {})
        for oversized in backlog.oversized:
            consumer = consumers.get(oversized.topic)
            if consumer is not None:
                why = f"a content of {oversized.content_bytes} bytes is too long for {peer.protocol}"
                self._log.record_unencodable(consumer, oversized.position, why)

    def _detach(self, consumer: Consumer) -> None:
        peer, name = consumer.peer, consumer.topic
        of_peer, of_topic = self._of_peer[peer.id], self._consumers[name]
        del of_peer[name], of_topic[peer.id]
        if not of_peer:
            del self._of_peer[peer.id]
            self._sessions[peer.identity] -= 1
            if not self._sessions[peer.identity]:
                del self._sessions[peer.identity]
        if not of_topic:
            del self._consumers[name]
        self._behind.pop(consumer, None)
        consumer.in_flight = InFlight()  # so that the heap skips it

    def _released_head(self, name: str) -> int:
        """Return the last position that `flush` has handled."""
        first = self._unreleased.get(name)
        return self.topics.head(name) if first is None else first - 1

    def _on_commit(self, commit: Commit, notifications: list[StoredNotification]) -> None:
        if commit.error is not None:  # the publisher gets the error, and nobody gets the notifications
            self.reconcile()
            return
        self._released += notifications
        if self._on_release is not None:
            self._on_release()

    def _deliver(self, consumers: Iterable[Consumer], run: list[StoredNotification], now_s: float) -> None:
        """Write a run of consecutive positions from memory."""
        first, last = run[0].position, run[-1].position
        encoded: dict[object, tuple[bytes, Refusals]] = {}
        reached: list[Consumer] = []
        messages = as_messages(run)
        for consumer in consumers:
            peer = consumer.peer
            if consumer.is_behind or consumer.position >= last:
                continue
            if consumer.position != first - 1 or peer.is_congested:
                self._fall_behind(consumer)
                continue
            key = peer.encoding_key
            if key is None:
                refusals = self._send(peer, messages)
            else:
                if key not in encoded:
                    encoded[key] = self._encode(peer, messages)
                data, refusals = encoded[key]
                if data:
                    peer.write(data)
            if refusals:
                self._on_write_with_refusals(consumer, run, refusals, now_s)
            else:
                reached.append(consumer)
        self._on_write(reached, first, last, now_s)

    def _fall_behind(self, consumer: Consumer) -> None:
        consumer.is_behind = True
        self._behind[consumer] = None

    def _catch_up(self, consumer: Consumer, now_s: float) -> None:
        peer = consumer.peer
        if peer.is_congested:
            self._behind.pop(consumer, None)  # `on_drain` brings it back
            return
        head = self._released_head(consumer.topic)
        read = self.topics.read_after(consumer.topic, consumer.position, BROKER_CATCH_UP_ROWS, BROKER_CATCH_UP_BYTES)
        read = [row for row in read if row.position <= head]
        pending = self._pending(consumer, read)
        self._on_write_with_refusals(consumer, pending, self._write(peer, pending), now_s)
        consumer.position = read[-1].position if read else max(consumer.position, head)
        if consumer.position >= head:
            consumer.is_behind = False
            self._behind.pop(consumer, None)

    def _pending(self, consumer: Consumer, rows: list[StoredNotification]) -> list[StoredNotification]:
        """Leave out what the identity had acked before this peer attached."""
        subscription = self.topics.subscription(consumer.peer.identity, consumer.topic)
        if subscription is None or not rows or rows[0].position > consumer.attached_at:
            return rows
        return [row for row in rows if row.position > consumer.attached_at or subscription.is_pending(row.position)]

    def _write(self, peer: Peer, rows: Sequence[StoredNotification]) -> Refusals:
        """Send notifications to one peer, with one write if possible. Return those that are not encodable."""
        messages = as_messages(rows)
        if peer.encoding_key is None:
            return self._send(peer, messages)
        data, refusals = self._encode(peer, messages)
        if data:
            peer.write(data)
        return refusals

    def _send(self, peer: Peer, messages: list[Message]) -> Refusals:
        refusals: Refusals = {}
        for message in messages:
            self._notifier.send(peer, message, refusals)
        return refusals

    def _encode(self, peer: Peer, messages: list[Message]) -> tuple[bytes, Refusals]:
        refusals: Refusals = {}
        encode = self._notifier.encode_notification
        return b"".join([encode(peer, message, refusals) for message in messages]), refusals

    def _on_write_with_refusals(
        self, consumer: Consumer, rows: list[StoredNotification], refusals: Refusals, now_s: float
    ) -> None:
        """Remember and record the first write of these rows, except those that are not encodable."""
        for run in contiguous_runs([row for row in rows if row.id not in refusals]):
            self._on_write([consumer], run[0].position, run[-1].position, now_s)
        for row in rows:
            if row.id in refusals:
                self._log.record_unencodable(consumer, row.position, refusals[row.id])
        if rows:
            consumer.position = max(consumer.position, rows[-1].position)
            if not consumer.peer.sends_acks:  # what is not encodable is acked like the rest
                self.implicit_acks.on_write(consumer, now_s)

    def _resend(self, consumer: Consumer, now_s: float) -> None:
        """Send a slice of what is due again. The rest follows at the next tick."""
        in_flight = consumer.in_flight
        if consumer.peer.is_congested:
            in_flight.postpone(now_s, self.resend_s)
            return
        rows_left = BROKER_CATCH_UP_ROWS
        while rows_left > 0 and (run := in_flight.due(now_s, self.resend_s)) is not None:
            rows_left -= self._resend_run(consumer, run, rows_left, now_s)

    def _resend_run(self, consumer: Consumer, run: InFlightRun, rows_max: int, now_s: float) -> int:
        """Send the unacked part of a run again. Return how many rows were read."""
        subscription = self.topics.subscription(consumer.peer.identity, consumer.topic)
        if subscription is None or subscription.cursor >= run.last:
            consumer.in_flight.on_resend(run, run.last, None, now_s)
            return 0
        first = max(run.first, subscription.cursor + 1)
        read = self.topics.read_after(consumer.topic, first - 1, rows_max, BROKER_CATCH_UP_BYTES)
        rows = [row for row in read if row.position <= run.last and subscription.is_pending(row.position)]
        refusals = self._write(consumer.peer, rows)
        rows = [row for row in rows if row.id not in refusals]
        for resent in contiguous_runs(rows):
            self.resent += len(resent)
            first, last = resent[0].position, resent[-1].position
            self._log.record_delivery([consumer.peer], consumer.topic, first, last, run.attempts + 1)
        bounds = (rows[0].position, rows[-1].position) if rows else None
        consumer.in_flight.on_resend(run, read[-1].position if read else run.last, bounds, now_s)
        return len(read)

    @property
    def _resend_due_s(self) -> float | None:
        while self._due and self._due[0][2].in_flight.oldest_s is None:
            heapq.heappop(self._due)[2].is_timed = False
        return self._due[0][0] if self._due else None

    def _start_timer(self, consumer: Consumer) -> None:
        oldest_s = consumer.in_flight.oldest_s
        if oldest_s is not None and not consumer.is_timed:
            consumer.is_timed = True
            self._timer_number += 1
            heapq.heappush(self._due, (oldest_s + self.resend_s, self._timer_number, consumer))

    def _on_write(self, consumers: list[Consumer], first: int, last: int, now_s: float) -> None:
        """Remember and record the first write of these positions."""
        if not consumers:
            return
        self.delivered += (last - first + 1) * len(consumers)
        for consumer in consumers:
            consumer.position = max(consumer.position, last)
            if consumer.peer.sends_acks:
                consumer.in_flight.on_write(first, last, now_s, self.resend_s)
                if not consumer.is_timed:
                    self._start_timer(consumer)
            else:
                self.implicit_acks.on_write(consumer, now_s)
        self._log.record_delivery([consumer.peer for consumer in consumers], consumers[0].topic, first, last, 1)


class _CloseOnStorageError:
    """Close a peer whose notifications cannot be read from disk, and go on with the others."""

    __slots__ = ("_peer",)

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, StorageError):
            return False
        self._peer.close(Closing("storage", str(error)))
        return True
