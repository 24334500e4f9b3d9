"""Durable topics, for those connected now: who is fed from which position on.

A topic is a log with cursors (in `state/`). A connected subscriber is a `Feed`: the position up to which it was written
to. Feeds that stand at the same position and belong to one audience get the same joined bytes with one write. A slow
reader's feed simply stays behind; when it has drained, it catches up from disk in slices: memory keeps nothing for it.

Only what is durable is sent: a notification is released when its commit is.
"""

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from time import monotonic

from wirelake.broker.consumer import Consumer, as_messages, in_a_row
from wirelake.broker.delivery_log import DeliveryLog, Record
from wirelake.broker.implicit_acks import ImplicitAcks
from wirelake.broker.in_flight import InFlight, InFlightRun
from wirelake.broker.notifier import Notifier, Refusals
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
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
from wirelake.state.topics import PublishRequest as Published
from wirelake.state.topics import TopicStore

_log = logging.getLogger(__name__)


class DurableTopics:
    def __init__(
        self,
        topics: TopicStore,
        record: Record,
        telling: Notifier | None = None,
        resend_s: float = BROKER_RESEND_S,
        implicit_ack_s: float = BROKER_IMPLICIT_ACK_S,
    ) -> None:
        self.topics = topics
        self.implicit_acks = ImplicitAcks(self._ack_through, implicit_ack_s)
        self.resend_s = resend_s
        self.delivered = 0
        self.resent = 0
        self.wake: Callable[[], None] = _nobody  # called when something was released
        self.readers: dict[str, dict[Commit, None]] = {}  # topic → resolved when something on it was released
        self._telling = telling or Notifier()
        self._notes = DeliveryLog(topics, record)
        self._feeds: dict[str, dict[str, Consumer]] = {}  # topic → peer id → feed
        self._of_peer: dict[str, dict[str, Consumer]] = {}  # peer id → topic → feed
        self._sessions: Counter[str] = Counter()  # identity → its peers that are fed
        self._waiting: dict[Commit, list[StoredNotification]] = {}
        self._unreleased: dict[str, int] = {}  # topic → the first position that is not yet written to anybody
        self._released: list[StoredNotification] = []
        self._behind: dict[Consumer, None] = {}
        self._due: list[tuple[float, int, Consumer]] = []  # a heap: when a feed has to be looked at for sending again
        self._pushed = 0

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
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting.append(notification)
        else:
            self._waiting[commit] = [notification]
            commit.add_done_callback(self._decided)
        return notification, commit

    def publish_many(self, runs: Sequence[Published], now_ms: int) -> tuple[list[StoredNotification], Commit]:
        """Durable together."""
        notifications, commit = self.topics.publish_many(runs, now_ms)
        place = 0
        for name, contents, _ in runs:
            self._unreleased.setdefault(name, notifications[place].position)
            place += len(contents)
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting += notifications
        else:
            self._waiting[commit] = list(notifications)
            commit.add_done_callback(self._decided)
        return notifications, commit

    def attach(self, peer: Peer, name: str) -> None:
        """The peer's session subscribed, or logged in with this subscription: feed it from here on.

        A peer that fetches (comet) asks for what it missed itself; others get it now, and with it what was written to
        an earlier session of the identity and is not acked.
        """
        if name in self._of_peer.get(peer.id, {}) or self.topics.subscription(peer.identity, name) is None:
            return
        head = self._released_head(name)
        feed = Consumer(peer, name, head, head)
        if not peer.pulls_backlog:
            missed = self.topics.backlog(peer.identity, [name], 1)
            if missed and missed[0].position <= head:
                feed.position = missed[0].position - 1
                self._lag(feed)
        if peer.id not in self._of_peer:
            self._of_peer[peer.id] = {}
            self._sessions[peer.identity] += 1
        self._of_peer[peer.id][name] = feed
        self._feeds.setdefault(name, {})[peer.id] = feed

    def on_unsubscribe(self, identity: str, name: str) -> None:
        """None of its sessions is fed any longer."""
        if self._sessions[identity]:
            for feed in list(self._feeds.get(name, {}).values()):
                if feed.peer.identity == identity:
                    self._detach(feed)

    def leave(self, peer: Peer) -> None:
        self.implicit_acks.leave(peer)
        for feed in list(self._of_peer.get(peer.id, {}).values()):
            self._detach(feed)

    def lag(self, peer: Peer) -> dict[str, int]:
        """How many notifications of each topic wait for this peer."""
        return {name: self.topics.head(name) - feed.position for name, feed in self._of_peer.get(peer.id, {}).items()}

    def connected(self, name: str) -> int:
        return len(self._feeds.get(name, {}))

    def listeners(self, name: str) -> Counter[str]:
        """The identities that are fed with this topic, each with the number of its sessions."""
        return Counter(feed.peer.identity for feed in self._feeds.get(name, {}).values())

    def sessions(self, identity: str, name: str) -> int:
        """How many of the identity's sessions are fed with this topic."""
        if not self._sessions[identity]:
            return 0
        return sum(feed.peer.identity == identity for feed in self._feeds.get(name, {}).values())

    def reconcile(self) -> None:
        """A commit failed, and memory is what is on disk again: feed nobody who is not subscribed after all."""
        for feeds in list(self._feeds.values()):
            for feed in list(feeds.values()):
                if self.topics.subscription(feed.peer.identity, feed.topic) is None:
                    self._detach(feed)
        self._unreleased = {}
        for notification in [each for run in (*self._waiting.values(), self._released) for each in run]:
            first = self._unreleased.get(notification.topic, notification.position)
            self._unreleased[notification.topic] = min(first, notification.position)

    @property
    def unrecorded(self) -> int:
        """Deliveries and acks that the log had no room for."""
        return self._notes.unrecorded

    @property
    def waiting(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._released or self._behind)

    def flush(self, now_s: float) -> None:
        """Write what was released to those who stand right before it, and one slice to those who lag."""
        released, self._released = self._released, []
        by_topic: dict[str, list[StoredNotification]] = {}
        for name, together in groupby(released, attrgetter("topic")):
            by_topic.setdefault(name, []).extend(together)
        for name, run in by_topic.items():
            feeds = self._feeds.get(name)
            if feeds:
                self._feed(list(feeds.values()), run, now_s)
            if name in self.readers:
                for waiting in self.readers.pop(name):
                    if not waiting.is_done:
                        waiting.resolve()
            if run[-1].position >= self.topics.head(name):
                self._unreleased.pop(name, None)
            else:
                self._unreleased[name] = run[-1].position + 1
        ends_s = monotonic() + BROKER_CATCH_UP_S
        for feed in list(self._behind):
            if feed in self._behind:  # or it went away meanwhile
                del self._behind[feed]
                self._behind[feed] = None  # behind those who still wait for a slice
                with _Reading(feed.peer):
                    self._catch_up(feed, now_s)
                if monotonic() >= ends_s:
                    break

    def on_drain(self, peer: Peer) -> None:
        """A slow reader can be written to again."""
        for feed in self._of_peer.get(peer.id, {}).values():
            if feed.behind:
                self._behind[feed] = None

    @property
    def due_s(self) -> float | None:
        """When `tick` next has something to do."""
        dues = (self._resend_due_s, self.implicit_acks.due_s)
        return min((due_s for due_s in dues if due_s is not None), default=None)

    def tick(self, now_s: float) -> None:
        """Send again what was not acked in time; ack what peers without acks have got."""
        seen: list[Consumer] = []
        while (due_s := self._resend_due_s) is not None and due_s <= now_s:
            feed = heapq.heappop(self._due)[2]
            feed.timed = False
            seen.append(feed)
            with _Reading(feed.peer):
                self._resend(feed, now_s)
        for feed in seen:
            self._watch(feed)
        self.implicit_acks.tick(now_s)

    def _ack_through(self, feed: Consumer, position: int) -> None:
        """Ack all of a topic up to the position, for a peer without acks."""
        identity, name = feed.peer.identity, feed.topic
        if self._of_peer.get(feed.peer.id, {}).get(name) is not feed:
            return  # unsubscribed meanwhile
        subscription = self.topics.subscription(identity, name)
        if subscription is not None and subscription.cursor < position:
            self.topics.ack_through(identity, name, position)
            self._notes.record_acks_through(identity, name, position)

    def on_ack(self, identity: str, ids: Sequence[str]) -> Commit:
        """By its own word."""
        commit = self.topics.ack(identity, ids)
        self._notes.record_ack(identity, ids)
        return commit

    def backlog(self, peer: Peer, backlog: Backlog) -> None:
        """The peer asked what waits for it, and this is the answer."""
        of_topic: dict[str, list[StoredNotification]] = {}
        for row in backlog.rows:
            of_topic.setdefault(row.topic, []).append(row)
        for name, waiting in of_topic.items():
            for run in in_a_row(waiting):
                self._notes.record_delivery([peer], name, run[0].position, run[-1].position, 1)
        feeds = self._of_peer.get(peer.id, {})
        for passed in backlog.oversized:
            feed = feeds.get(passed.topic)
            if feed is not None:
                why = f"a content of {passed.content_bytes} bytes is too long for {peer.protocol}"
                self._notes.unencodable(feed, passed.position, why)

    def _detach(self, feed: Consumer) -> None:
        peer, name = feed.peer, feed.topic
        of_peer, feeds = self._of_peer[peer.id], self._feeds[name]
        del of_peer[name], feeds[peer.id]
        if not of_peer:
            del self._of_peer[peer.id]
            self._sessions[peer.identity] -= 1
            if not self._sessions[peer.identity]:
                del self._sessions[peer.identity]
        if not feeds:
            del self._feeds[name]
        self._behind.pop(feed, None)
        feed.unacked = InFlight()  # its place among the due is skipped when it comes up

    def _released_head(self, name: str) -> int:
        """The last position that went through `flush`: those after it still come."""
        first = self._unreleased.get(name)
        return self.topics.head(name) if first is None else first - 1

    def _decided(self, commit: Commit) -> None:
        notifications = self._waiting.pop(commit)
        if commit.error is None:
            self._released += notifications
            self.wake()
        else:  # whoever published them is told, and nobody else ever hears of them
            self.reconcile()

    def _feed(self, feeds: Iterable[Consumer], run: list[StoredNotification], now_s: float) -> None:
        """A run of consecutive positions, from memory."""
        first, last = run[0].position, run[-1].position
        encoded: dict[object, tuple[bytes, Refusals]] = {}
        reached: list[Consumer] = []
        messages = as_messages(run)
        for feed in feeds:
            peer = feed.peer
            if feed.behind or feed.position >= last:
                continue
            if feed.position != first - 1 or peer.is_congested:
                self._lag(feed)
                continue
            audience = peer.encoding_key
            if audience is None:
                refusals = self._say(peer, messages)
            else:
                if audience not in encoded:
                    encoded[audience] = self._joined(peer, messages)
                data, refusals = encoded[audience]
                if data:
                    peer.write(data)
            if refusals:
                self._told(feed, run, refusals, now_s)
            else:
                reached.append(feed)
        self._delivered(reached, first, last, now_s)

    def _lag(self, feed: Consumer) -> None:
        feed.behind = True
        self._behind[feed] = None

    def _catch_up(self, feed: Consumer, now_s: float) -> None:
        peer = feed.peer
        if peer.is_congested:
            self._behind.pop(feed, None)  # `drained` brings it back
            return
        head = self._released_head(feed.topic)
        read = self.topics.read_after(feed.topic, feed.position, BROKER_CATCH_UP_ROWS, BROKER_CATCH_UP_BYTES)
        read = [row for row in read if row.position <= head]
        wanted = self._wanted(feed, read)
        self._told(feed, wanted, self._tell(peer, wanted), now_s)
        feed.position = read[-1].position if read else max(feed.position, head)
        if feed.position >= head:
            feed.behind = False
            self._behind.pop(feed, None)

    def _wanted(self, feed: Consumer, rows: list[StoredNotification]) -> list[StoredNotification]:
        """Without what was acked before this connection came."""
        subscription = self.topics.subscription(feed.peer.identity, feed.topic)
        if subscription is None or not rows or rows[0].position > feed.begun:
            return rows
        return [row for row in rows if row.position > feed.begun or subscription.is_pending(row.position)]

    def _tell(self, peer: Peer, rows: Sequence[StoredNotification]) -> Refusals:
        """With one write, if there is anything to say. Answers what cannot be said."""
        messages = as_messages(rows)
        if peer.encoding_key is None:
            return self._say(peer, messages)
        data, refusals = self._joined(peer, messages)
        if data:
            peer.write(data)
        return refusals

    def _say(self, peer: Peer, messages: list[Message]) -> Refusals:
        refusals: Refusals = {}
        for message in messages:
            self._telling.send(peer, message, refusals)
        return refusals

    def _joined(self, peer: Peer, messages: list[Message]) -> tuple[bytes, Refusals]:
        refusals: Refusals = {}
        return b"".join([self._telling.encode_notification(peer, message, refusals) for message in messages]), refusals

    def _told(self, feed: Consumer, rows: list[StoredNotification], refusals: Refusals, now_s: float) -> None:
        """These were written for the first time, but for those that cannot be said."""
        for told in in_a_row([row for row in rows if row.id not in refusals]):
            self._delivered([feed], told[0].position, told[-1].position, now_s)
        for row in rows:
            if row.id in refusals:
                self._notes.unencodable(feed, row.position, refusals[row.id])
        if rows:
            feed.position = max(feed.position, rows[-1].position)
            if not feed.peer.sends_acks:  # what its protocol cannot carry is over for it like the rest
                self.implicit_acks.on_write(feed, now_s)

    def _resend(self, feed: Consumer, now_s: float) -> None:
        """A slice of what is due; the rest of it at the next tick."""
        unacked = feed.unacked
        if feed.peer.is_congested:
            unacked.postpone(now_s, self.resend_s)
            return
        room = BROKER_CATCH_UP_ROWS
        while room > 0 and (run := unacked.due(now_s, self.resend_s)) is not None:
            room -= self._resend_run(feed, run, room, now_s)

    def _resend_run(self, feed: Consumer, run: InFlightRun, rows_max: int, now_s: float) -> int:
        """Answers how many were read."""
        subscription = self.topics.subscription(feed.peer.identity, feed.topic)
        if subscription is None or subscription.cursor >= run.last:
            feed.unacked.on_resend(run, run.last, None, now_s)
            return 0
        first = max(run.first, subscription.cursor + 1)
        read = self.topics.read_after(feed.topic, first - 1, rows_max, BROKER_CATCH_UP_BYTES)
        rows = [row for row in read if row.position <= run.last and subscription.is_pending(row.position)]
        refusals = self._tell(feed.peer, rows)
        rows = [row for row in rows if row.id not in refusals]
        for told in in_a_row(rows):
            self.resent += len(told)
            first, last = told[0].position, told[-1].position
            self._notes.record_delivery([feed.peer], feed.topic, first, last, run.attempts + 1)
        bounds = (rows[0].position, rows[-1].position) if rows else None
        feed.unacked.on_resend(run, read[-1].position if read else run.last, bounds, now_s)
        return len(read)

    @property
    def _resend_due_s(self) -> float | None:
        while self._due and self._due[0][2].unacked.oldest_s is None:
            heapq.heappop(self._due)[2].timed = False
        return self._due[0][0] if self._due else None

    def _watch(self, feed: Consumer) -> None:
        oldest_s = feed.unacked.oldest_s
        if oldest_s is not None and not feed.timed:
            feed.timed = True
            self._pushed += 1
            heapq.heappush(self._due, (oldest_s + self.resend_s, self._pushed, feed))

    def _delivered(self, feeds: list[Consumer], first: int, last: int, now_s: float) -> None:
        """Remember and record that these were written for the first time."""
        if not feeds:
            return
        self.delivered += (last - first + 1) * len(feeds)
        for feed in feeds:
            feed.position = max(feed.position, last)
            if feed.peer.sends_acks:
                feed.unacked.on_write(first, last, now_s, self.resend_s)
                if not feed.timed:
                    self._watch(feed)
            else:
                self.implicit_acks.on_write(feed, now_s)
        self._notes.record_delivery([feed.peer for feed in feeds], feeds[0].topic, first, last, 1)


class _Reading:
    """A peer whose notifications cannot be read back from disk is told so and let go; the others go on."""

    __slots__ = ("_peer",)

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, StorageError):
            return False
        self._peer.close(Closing("storage", str(error)))
        return True


def _nobody() -> None:
    """Nobody waits."""
