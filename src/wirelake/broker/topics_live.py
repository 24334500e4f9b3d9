"""Live names: what is published reaches those connected now, and is kept for nobody.

Everything published on a name during one turn of the event loop is gathered; `flush` encodes it once for each audience
(peers that get the same bytes), joins it, and gives every peer the same bytes object with one write. So the cost of a
publish hardly depends on the number of subscribers, and each subscriber costs one write a turn.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from wirelake.broker.notifier import Notifier
from wirelake.broker.peer import Peer
from wirelake.errors import FullError
from wirelake.limits import (
    BROKER_CHANNELS_MAX,
    BROKER_GATHERED_MAX,
    BROKER_MISSED_NAMES_MAX,
    BROKER_PATTERNS_MAX,
    BROKER_PATTERNS_PER_PEER_MAX,
)
from wirelake.message import Message
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.session import Closing
from wirelake.state.glob import compile_glob as compiled

PATTERN: Final = "pattern"  # header: the pattern that the name matched


class Channel:
    """A live name with subscribers, or a pattern of names."""

    __slots__ = ("count", "gathered", "name", "pattern", "peers")

    def __init__(self, name: str, pattern: re.Pattern[bytes] | None = None) -> None:
        self.name = name
        self.pattern = pattern
        self.peers: dict[str, Peer] = {}  # by id, in the order of joining
        self.gathered: list[Message | PublishBatch] = []
        self.count = 0  # of the notifications in it


class LiveTopics:
    def __init__(self, telling: Notifier | None = None, *, conflate: bool = False) -> None:
        self.conflate = conflate  # a slow reader gets the newest of each name later, instead of being cut off
        self.delivered = 0  # notifications times peers
        self.cut = 0  # slow readers cut off
        self.conflated = 0  # notifications a slow reader never gets
        self._telling = telling or Notifier()
        self._channels: dict[str, Channel] = {}
        self._patterns: dict[str, Channel] = {}
        self._joined: dict[str, dict[Channel, None]] = {}  # peer id → its channels
        self._patterns_of: Counter[str] = Counter()  # peer id → how many of those are patterns
        self._dirty: dict[Channel, None] = {}
        self._missed: dict[str, dict[tuple[Channel, str], Message]] = {}  # peer id → where → the newest

    @property
    def waiting(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._dirty)

    def names(self) -> dict[str, int]:
        """Every live name with its number of subscribers."""
        return {channel.name: len(channel.peers) for channel in self._channels.values()}

    def listeners(self, name: str) -> Counter[str]:
        """The identities that are subscribed to it, each with the number of its sessions. Patterns are not counted."""
        channel = self._channels.get(name)
        return Counter() if channel is None else Counter(peer.identity for peer in channel.peers.values())

    def names_of(self, peer: Peer) -> list[str]:
        """What this peer is subscribed to, without its patterns."""
        return [channel.name for channel in self._joined.get(peer.id, {}) if channel.pattern is None]

    def has_subscribers(self, name: str) -> bool:
        """Whether somebody may want to know what is published there."""
        return name in self._channels or bool(self._patterns)

    def subscribe(self, peer: Peer, name: str) -> None:
        self._join(peer, name, self._channels, None)

    def subscribe_pattern(self, peer: Peer, glob: str) -> None:
        """A name with `*`, `?` and `[…]`, as redis has them."""
        is_new = peer.id not in (self._patterns[glob].peers if glob in self._patterns else ())
        if is_new and self._patterns_of[peer.id] >= BROKER_PATTERNS_PER_PEER_MAX:
            raise FullError(f"a session subscribes to at most {BROKER_PATTERNS_PER_PEER_MAX} patterns")
        if glob not in self._patterns and len(self._patterns) >= BROKER_PATTERNS_MAX:
            raise FullError(f"there are {BROKER_PATTERNS_MAX} patterns already")
        self._join(peer, glob, self._patterns, compiled(glob.encode("utf-8", "surrogatepass")))
        self._patterns_of[peer.id] += is_new

    def unsubscribe(self, peer: Peer, name: str) -> None:
        self._leave(peer, self._channels.get(name), self._channels)

    def unsubscribe_pattern(self, peer: Peer, glob: str) -> None:
        self._leave(peer, self._patterns.get(glob), self._patterns)

    def leave(self, peer: Peer) -> None:
        """The peer is gone."""
        for channel in self._joined.pop(peer.id, {}):
            channel.peers.pop(peer.id, None)
            self._drop_empty(channel)
        self._patterns_of.pop(peer.id, None)
        self._missed.pop(peer.id, None)

    def publish(self, name: str, message: Message) -> int:
        """Gather it for the end of this turn; answers how many will get it."""
        channel = self._channels.get(name)
        reached = 0 if channel is None else self._gather(channel, [message], 1)
        return reached + self._match(name, [message]) if self._patterns else reached

    def publish_batch(self, bundle: PublishBatch) -> int:
        """The same for many at once; each of them will reach so many."""
        channel = self._channels.get(bundle.topic)
        reached = 0 if channel is None else self._gather(channel, [bundle], len(bundle.frames))
        return reached + self._match(bundle.topic, bundle.messages()) if self._patterns else reached

    def flush(self) -> None:
        """Write what was gathered. Called once a turn of the event loop, and by `publish` when too much gathers."""
        while self._dirty:
            self._deliver(next(iter(self._dirty)))

    def on_drain(self, peer: Peer) -> None:
        """A slow reader has caught up: it gets the newest of each name it missed."""
        for message in self._missed.pop(peer.id, {}).values():
            self.delivered += self._telling.send(peer, message)

    def _deliver(self, channel: Channel) -> None:
        """The audience is looked up now, not when a peer joined: it may have agreed on another form since."""
        del self._dirty[channel]
        gathered, count = channel.gathered, channel.count
        channel.gathered, channel.count = [], 0
        encoded: dict[Hashable, bytes] = {}
        for peer in list(channel.peers.values()):
            if peer.is_congested:
                self._spare(peer, channel, gathered)
                continue
            audience = peer.encoding_key
            if audience is None:
                for message in _messages(gathered):
                    self._telling.send(peer, message)
            else:
                data = encoded.get(audience)
                if data is None:
                    data = encoded[audience] = self._encoded(peer, audience, gathered)
                if data:
                    peer.write(data)
            self.delivered += count

    def _encoded(self, peer: Peer, audience: Hashable, gathered: Sequence[Message | PublishBatch]) -> bytes:
        parts: list[bytes] = []
        for each in gathered:
            ready = each.encoded(audience) if isinstance(each, PublishBatch) else None
            if ready is not None:
                parts.append(ready)
            else:
                parts += [self._telling.encode_notification(peer, message) for message in _messages([each])]
        return b"".join(parts)

    def _spare(self, peer: Peer, channel: Channel, gathered: list[Message | PublishBatch]) -> None:
        if not self.conflate:
            self.cut += 1
            self.leave(peer)
            peer.close(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))
            return
        missed = self._missed.setdefault(peer.id, {})
        for message in _messages(gathered):
            place = (channel, getattr(message.target, "name", ""))
            if missed.pop(place, None) is not None:
                self.conflated += 1
            elif len(missed) >= BROKER_MISSED_NAMES_MAX:  # a pattern matches any number of names
                self.conflated += 1
                del missed[next(iter(missed))]
            missed[place] = message

    def _match(self, name: str, messages: list[Message]) -> int:
        """A pattern's subscribers are told which of their patterns it was."""
        reached = 0
        encoded = name.encode("utf-8", "surrogatepass")
        for glob, channel in list(self._patterns.items()):
            if channel.pattern is not None and channel.pattern.fullmatch(encoded):
                told = [replace(message, headers={**message.headers, PATTERN: glob}) for message in messages]
                reached += self._gather(channel, told, len(told))
        return reached

    def _gather(self, channel: Channel, notifications: Sequence[Message | PublishBatch], count: int) -> int:
        channel.gathered += notifications
        channel.count += count
        self._dirty[channel] = None
        reached = len(channel.peers)
        if channel.count >= BROKER_GATHERED_MAX:
            self._deliver(channel)
        return reached

    def _join(self, peer: Peer, name: str, channels: dict[str, Channel], pattern: re.Pattern[bytes] | None) -> None:
        channel = channels.get(name)
        if channel is None:
            if len(channels) >= BROKER_CHANNELS_MAX:
                raise FullError(f"there are {BROKER_CHANNELS_MAX} live names already")
            channel = channels[name] = Channel(name, pattern)
        if peer.id not in channel.peers:
            if channel in self._dirty:  # published before: not for this one
                self._deliver(channel)
                channels[name] = channel  # those who had it may have been cut off
            channel.peers[peer.id] = peer
            self._joined.setdefault(peer.id, {})[channel] = None

    def _leave(self, peer: Peer, channel: Channel | None, channels: dict[str, Channel]) -> None:
        if channel is not None and channel in self._dirty:  # published before: also for this one
            self._deliver(channel)
        if channel is None or channel.peers.pop(peer.id, None) is None:
            return
        missed = self._missed.get(peer.id, {})
        for place in [place for place in missed if place[0] is channel]:
            del missed[place]
        joined = self._joined[peer.id]
        del joined[channel]
        if channel.pattern is not None:
            self._patterns_of[peer.id] -= 1
        if not joined:
            del self._joined[peer.id]
        if not channel.peers:
            del channels[channel.name]

    def _drop_empty(self, channel: Channel) -> None:
        if not channel.peers:
            channels = self._channels if channel.pattern is None else self._patterns
            channels.pop(channel.name, None)


def _messages(gathered: Sequence[Message | PublishBatch]) -> Iterator[Message]:
    for each in gathered:
        if isinstance(each, PublishBatch):
            yield from each.messages()
        else:
            yield each
