"""Publish on live topics: to the subscribers connected now, without storing anything.

What is published on a topic during one turn of the event loop is buffered; `flush` encodes it once for each encoding
key (peers that get the same bytes), joins it, and gives every peer the same bytes object with one write. So the cost of
a publish hardly depends on the number of subscribers, and each subscriber costs one write a turn.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from wirelake.broker.delivery import Notifier, SlowConsumers
from wirelake.broker.peer import Peer
from wirelake.errors import FullError
from wirelake.limits import (
    BROKER_CHANNELS_MAX,
    BROKER_PATTERNS_MAX,
    BROKER_PATTERNS_PER_PEER_MAX,
    BROKER_TURN_NOTIFICATIONS_MAX,
)
from wirelake.message import Message
from wirelake.protocols.batches import PublishBatch
from wirelake.state.glob import compile_glob

PATTERN: Final = "pattern"  # header: the pattern that the topic matched


class Channel:
    """A live topic with subscribers, or a pattern of topics."""

    __slots__ = ("buffer", "count", "name", "pattern", "peers")

    def __init__(self, name: str, pattern: re.Pattern[bytes] | None = None) -> None:
        self.name = name
        self.pattern = pattern
        self.peers: dict[str, Peer] = {}  # by id, in the order of subscribing
        self.buffer: list[Message | PublishBatch] = []
        self.count = 0  # of the notifications in the buffer


class LiveTopics:
    def __init__(self, notifier: Notifier | None = None, slow_consumers: SlowConsumers | None = None) -> None:
        self.delivered = 0  # notifications times peers
        self._notifier = notifier or Notifier()
        self._slow_consumers = slow_consumers or SlowConsumers()
        self._channels: dict[str, Channel] = {}
        self._patterns: dict[str, Channel] = {}
        self._of_peer: dict[str, dict[Channel, None]] = {}  # peer id → its channels
        self._patterns_of: Counter[str] = Counter()  # peer id → how many of those are patterns
        self._dirty: dict[Channel, None] = {}
        self._missed: dict[str, dict[tuple[Channel, str], Message]] = {}  # peer id → by topic, the newest

    @property
    def waiting(self) -> bool:
        """Tell whether `flush` has something to do."""
        return bool(self._dirty)

    @property
    def cut(self) -> int:
        """Return how many slow subscribers were closed."""
        return self._slow_consumers.closed

    @property
    def conflated(self) -> int:
        """Return how many notifications slow subscribers never get."""
        return self._slow_consumers.conflated

    def names(self) -> dict[str, int]:
        """Return every live topic with its number of subscribers."""
        return {channel.name: len(channel.peers) for channel in self._channels.values()}

    def listeners(self, name: str) -> Counter[str]:
        """Return the identities subscribed to the topic, each with the number of its sessions, without patterns."""
        channel = self._channels.get(name)
        return Counter() if channel is None else Counter(peer.identity for peer in channel.peers.values())

    def names_of(self, peer: Peer) -> list[str]:
        """Return the topics that this peer is subscribed to, without its patterns."""
        return [channel.name for channel in self._of_peer.get(peer.id, {}) if channel.pattern is None]

    def patterns_of(self, peer: Peer) -> list[str]:
        """Return the patterns that this peer is subscribed to."""
        return [channel.name for channel in self._of_peer.get(peer.id, {}) if channel.pattern is not None]

    def has_subscribers(self, name: str) -> bool:
        """Tell whether a publish on the topic may reach anybody."""
        return name in self._channels or bool(self._patterns)

    def subscribe(self, peer: Peer, name: str) -> None:
        self._subscribe(peer, name, self._channels, None)

    def subscribe_pattern(self, peer: Peer, glob: str) -> None:
        """Subscribe to all topics that match a pattern with `*`, `?` and `[…]`, as in redis."""
        is_new = peer.id not in (self._patterns[glob].peers if glob in self._patterns else ())
        if is_new and self._patterns_of[peer.id] >= BROKER_PATTERNS_PER_PEER_MAX:
            raise FullError(f"a session subscribes to at most {BROKER_PATTERNS_PER_PEER_MAX} patterns")
        if glob not in self._patterns and len(self._patterns) >= BROKER_PATTERNS_MAX:
            raise FullError(f"there are {BROKER_PATTERNS_MAX} patterns already")
        self._subscribe(peer, glob, self._patterns, compile_glob(glob.encode("utf-8", "surrogatepass")))
        self._patterns_of[peer.id] += is_new

    def unsubscribe(self, peer: Peer, name: str) -> None:
        self._unsubscribe(peer, self._channels.get(name), self._channels)

    def unsubscribe_pattern(self, peer: Peer, glob: str) -> None:
        self._unsubscribe(peer, self._patterns.get(glob), self._patterns)

    def leave(self, peer: Peer) -> None:
        """Remove all subscriptions of a peer that is closed."""
        for channel in self._of_peer.pop(peer.id, {}):
            channel.peers.pop(peer.id, None)
            self._drop_empty(channel)
        self._patterns_of.pop(peer.id, None)
        self._missed.pop(peer.id, None)

    def publish(self, name: str, message: Message) -> int:
        """Buffer a notification until the end of this turn. Return how many subscribers will get it."""
        channel = self._channels.get(name)
        reached = 0 if channel is None else self._buffer(channel, [message], 1)
        return reached + self._match(name, [message]) if self._patterns else reached

    def publish_for(self, name: str, message: Message, may_receive: Callable[[Peer], bool]) -> None:
        """Publish a notification to those subscribers only that may receive it."""
        channel = self._channels.get(name)
        channels = [] if channel is None else [(channel, message)]
        channels += [(each, _matched(message, each)) for each in self._patterns_of_topic(name)]
        for each, notification in channels:
            if all(map(may_receive, each.peers.values())):
                self._buffer(each, [notification], 1)
                continue
            if each in self._dirty:  # what was published before comes first
                self._deliver(each)
            self._write(each, [peer for peer in each.peers.values() if may_receive(peer)], [notification], 1)

    def publish_batch(self, batch: PublishBatch) -> int:
        """Buffer many notifications of one topic. Return how many subscribers will get each of them."""
        channel = self._channels.get(batch.topic)
        reached = 0 if channel is None else self._buffer(channel, [batch], len(batch.frames))
        return reached + self._match(batch.topic, batch.messages()) if self._patterns else reached

    def flush(self) -> None:
        """Write everything that is buffered. Call this once a turn of the event loop."""
        while self._dirty:
            self._deliver(next(iter(self._dirty)))

    def on_drain(self, peer: Peer) -> None:
        """Send a peer that is no longer congested the newest notification of each topic that it missed."""
        for message in self._missed.pop(peer.id, {}).values():
            self.delivered += self._notifier.send(peer, message)

    def _deliver(self, channel: Channel) -> None:
        """Write what is buffered for a channel. Encoding keys are read now: they may change after a subscribe."""
        del self._dirty[channel]
        buffered, count = channel.buffer, channel.count
        channel.buffer, channel.count = [], 0
        self._write(channel, list(channel.peers.values()), buffered, count)

    def _write(self, channel: Channel, peers: list[Peer], buffered: list[Message | PublishBatch], count: int) -> None:
        encoded: dict[Hashable, bytes] = {}
        for peer in peers:
            if peer.is_congested:
                self._on_congested(peer, channel, buffered)
                continue
            key = peer.encoding_key
            if key is None:
                for message in _messages(buffered):
                    self._notifier.send(peer, message)
            else:
                data = encoded.get(key)
                if data is None:
                    data = encoded[key] = self._encode(peer, key, buffered)
                if data:
                    peer.write(data)
            self.delivered += count

    def _encode(self, peer: Peer, key: Hashable, buffered: Sequence[Message | PublishBatch]) -> bytes:
        parts: list[bytes] = []
        for each in buffered:
            ready = each.encoded(key) if isinstance(each, PublishBatch) else None
            if ready is not None:
                parts.append(ready)
            else:
                parts += [self._notifier.encode_notification(peer, message) for message in _messages([each])]
        return b"".join(parts)

    def _on_congested(self, peer: Peer, channel: Channel, buffered: list[Message | PublishBatch]) -> None:
        slow_consumers = self._slow_consumers
        if not slow_consumers.conflate:
            self.leave(peer)
            slow_consumers.close(peer)
            return
        missed = self._missed.setdefault(peer.id, {})
        for message in _messages(buffered):
            slow_consumers.add_missed(missed, (channel, getattr(message.target, "name", "")), message)

    def _match(self, name: str, messages: list[Message]) -> int:
        """Buffer for each pattern that the topic matches, with the pattern as a header. Return the subscribers."""
        reached = 0
        for channel in self._patterns_of_topic(name):
            matched = [_matched(message, channel) for message in messages]
            reached += self._buffer(channel, matched, len(matched))
        return reached

    def _patterns_of_topic(self, name: str) -> list[Channel]:
        encoded = name.encode("utf-8", "surrogatepass")
        return [
            each for each in self._patterns.values() if each.pattern is not None and each.pattern.fullmatch(encoded)
        ]

    def _buffer(self, channel: Channel, notifications: Sequence[Message | PublishBatch], count: int) -> int:
        channel.buffer += notifications
        channel.count += count
        self._dirty[channel] = None
        reached = len(channel.peers)
        if channel.count >= BROKER_TURN_NOTIFICATIONS_MAX:
            self._deliver(channel)
        return reached

    def _subscribe(
        self, peer: Peer, name: str, channels: dict[str, Channel], pattern: re.Pattern[bytes] | None
    ) -> None:
        channel = channels.get(name)
        if channel is None:
            if len(channels) >= BROKER_CHANNELS_MAX:
                raise FullError(f"there are {BROKER_CHANNELS_MAX} live topics already")
            channel = channels[name] = Channel(name, pattern)
        if peer.id not in channel.peers:
            if channel in self._dirty:  # what was published before is not for this peer
                self._deliver(channel)
                channels[name] = channel  # it was removed if all of its peers were slow and are closed
            channel.peers[peer.id] = peer
            self._of_peer.setdefault(peer.id, {})[channel] = None

    def _unsubscribe(self, peer: Peer, channel: Channel | None, channels: dict[str, Channel]) -> None:
        if channel is not None and channel in self._dirty:  # what was published before is still for this peer
            self._deliver(channel)
        if channel is None or channel.peers.pop(peer.id, None) is None:
            return
        missed = self._missed.get(peer.id, {})
        for key in [key for key in missed if key[0] is channel]:
            del missed[key]
        of_peer = self._of_peer[peer.id]
        del of_peer[channel]
        if channel.pattern is not None:
            self._patterns_of[peer.id] -= 1
        if not of_peer:
            del self._of_peer[peer.id]
        if not channel.peers:
            del channels[channel.name]

    def _drop_empty(self, channel: Channel) -> None:
        if not channel.peers:
            channels = self._channels if channel.pattern is None else self._patterns
            channels.pop(channel.name, None)


def _matched(message: Message, pattern: Channel) -> Message:
    return replace(message, headers={**message.headers, PATTERN: pattern.name})


def _messages(buffered: Sequence[Message | PublishBatch]) -> Iterator[Message]:
    for each in buffered:
        if isinstance(each, PublishBatch):
            yield from each.messages()
        else:
            yield each
