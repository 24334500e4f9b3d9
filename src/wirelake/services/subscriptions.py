"""Push new records to the subscribers of data sets, and send long responses in packets, each at the pace of its peer.

Each push has the correlation of the request that subscribed.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.errors import FullError, InputError
from wirelake.limits import RECORDS_SUBSCRIPTIONS_MAX
from wirelake.message import FailureCode, Kind, Message, Topic
from wirelake.roles import Action
from wirelake.services.record_access import Series, target_of
from wirelake.services.selection import Format, Selection
from wirelake.state.records import ALL


class SeriesSubscription(Struct, eq=False):
    """Describe which records a peer subscribed to, and in which format."""

    peer: Peer
    correlation: str
    dataset: str
    selection: Selection

    @property
    def has_wildcard(self) -> bool:
        return self.selection.names.has_wildcard

    def series(self) -> list[Series]:
        """Return the series that it names. Only valid without a wildcard."""
        return [(self.dataset, key, sdb) for key, sdb in self.selection.names.each()]

    def matches(self, series: Series) -> bool:
        dataset, key, sdb = series
        names = self.selection.names
        return dataset == self.dataset and _includes(names.keys, key) and _includes(names.sdbs, sdb)


class SeriesSubscriptions:
    """The subscriptions of peers. What a peer may not read is not pushed to it, whatever it subscribed to."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_peer: dict[str, dict[str, SeriesSubscription]] = {}  # peer id → correlation → subscription
        self._by_series: dict[Series, dict[SeriesSubscription, None]] = {}
        self._wildcards: dict[SeriesSubscription, None] = {}  # with a `*`
        self._newest: dict[
            str, dict[tuple[SeriesSubscription, Series], list[Any]]
        ] = {}  # peer id → (subscription, series) → newest rows

    def __bool__(self) -> bool:
        return bool(self._by_peer)

    def add(self, subscription: SeriesSubscription) -> None:
        own = self._by_peer.get(subscription.peer.id, {})
        if len(own) >= RECORDS_SUBSCRIPTIONS_MAX:
            raise FullError(f"a session has at most {RECORDS_SUBSCRIPTIONS_MAX} subscriptions")
        if subscription.correlation in own:
            self._discard(own[subscription.correlation])
        if subscription.has_wildcard:
            self._wildcards[subscription] = None
        else:
            for series in subscription.series():
                self._by_series.setdefault(series, {})[subscription] = None
        self._by_peer.setdefault(subscription.peer.id, {})[subscription.correlation] = subscription

    def remove(self, peer: Peer, dataset: str, selection: Selection) -> None:
        """Remove the peer's subscriptions to exactly these names."""
        for subscription in list(self._by_peer.get(peer.id, {}).values()):
            if subscription.dataset == dataset and subscription.selection.names == selection.names:
                self._discard(subscription)

    def matching(self, series: Series) -> list[SeriesSubscription]:
        """Return the subscriptions to a series whose peers may read it."""
        found = list(self._by_series.get(series, ()))
        found += [each for each in self._wildcards if each.matches(series)]
        return [each for each in found if self.may_read(each.peer, series)]

    def may_read(self, peer: Peer, series: Series) -> bool:
        rights = self._broker.access.rights_of(peer)
        return rights.allows_all(Action.READ) or rights.allows(Action.READ, target_of(series))

    def targets_of(self, peer: Peer) -> list[str]:
        """Return the series that a peer subscribed to by their names."""
        own = self._by_peer.get(peer.id, {}).values()
        return [target_of(series) for each in own if not each.has_wildcard for series in each.series()]

    def push(
        self, series: Series, subscriptions: list[SeriesSubscription], rows: Callable[[Selection], list[Any]]
    ) -> None:
        """Push new records of this series to each subscription, in its format."""
        for subscription in subscriptions:
            if subscription.correlation not in self._by_peer.get(subscription.peer.id, {}):
                continue  # its peer was closed a moment ago
            try:
                selected = rows(subscription.selection)
            except InputError as error:  # the table has no field of this name
                self._discard(subscription)
                subscription.peer.send(failed(subscription.correlation, str(error), FailureCode.GONE))
                continue
            if subscription.peer.is_congested:
                self._conflate_or_close(subscription, series, selected)
            else:
                self._send(subscription, series, selected)

    def on_close(self, peer: Peer) -> None:
        for subscription in list(self._by_peer.get(peer.id, {}).values()):
            self._discard(subscription)
        self._newest.pop(peer.id, None)

    def on_drain(self, peer: Peer) -> None:
        for (subscription, series), rows in self._newest.pop(peer.id, {}).items():
            if self.may_read(peer, series):
                self._send(subscription, series, rows)

    def _send(self, subscription: SeriesSubscription, series: Series, rows: list[Any]) -> None:
        name = f"{series[1]}.{series[2]}"
        push = Message(kind=Kind.NOTIFICATION, target=Topic(name), correlation=subscription.correlation)
        if subscription.selection.format is Format.BYTES:
            push = replace(push, payload=b"".join(rows))
        else:
            push = replace(push, fields={"msg": rows} if subscription.selection.names.is_single else {name: rows})
        self._broker.notifier.send(subscription.peer, push)

    def _conflate_or_close(self, subscription: SeriesSubscription, series: Series, rows: list[Any]) -> None:
        """Keep only the newest row for a slow peer, or close it, by the setting for live topics."""
        peer, slow_consumers = subscription.peer, self._broker.slow_consumers
        if not slow_consumers.conflate:
            self.on_close(peer)
            slow_consumers.close(peer)
            return
        slow_consumers.add_missed(self._newest.setdefault(peer.id, {}), (subscription, series), rows[-1:])

    def _discard(self, subscription: SeriesSubscription) -> None:
        own = self._by_peer[subscription.peer.id]
        del own[subscription.correlation]
        if not own:
            del self._by_peer[subscription.peer.id]
        if subscription.has_wildcard:
            del self._wildcards[subscription]
        else:
            for series in subscription.series():
                subscriptions = self._by_series[series]
                del subscriptions[subscription]
                if not subscriptions:
                    del self._by_series[series]
        newest = self._newest.get(subscription.peer.id, {})
        for entry in [entry for entry in newest if entry[0] is subscription]:
            del newest[entry]


def _includes(names: str, name: str) -> bool:
    return names == ALL or name in names.split(",")


Schedule = Callable[[Peer, float, Callable[[], object]], None]  # call this after so many seconds, in the peer's turn


class PacketQueue(Struct, eq=False):
    """Describe a response of several packets. `send` reads and sends the next one, given how many follow it."""

    peer: Peer
    remaining: int
    send: Callable[[int], None]


class PacketSender:
    """Send one packet per turn to each peer, and pause for a peer that reads slowly until it has caught up."""

    def __init__(self, schedule: Schedule, pause_s: Callable[[Peer], float]) -> None:
        self._schedule = schedule
        self._pause_s = pause_s  # to wait before the next packet, while the disk or the peer is behind
        self._open: dict[str, deque[PacketQueue]] = {}  # peer id → in the order of the requests
        self._scheduled: set[str] = set()

    def start(self, packets: PacketQueue) -> None:
        queues = self._open.get(packets.peer.id)
        if queues is not None:
            queues.append(packets)
            return
        self._open[packets.peer.id] = deque([packets])
        self._send_next(packets.peer)

    def on_close(self, peer: Peer) -> None:
        self._open.pop(peer.id, None)

    def on_drain(self, peer: Peer) -> None:
        self._schedule_next(peer, 0.0)

    def _schedule_next(self, peer: Peer, pause_s: float) -> None:
        if peer.id in self._open and peer.id not in self._scheduled:
            self._scheduled.add(peer.id)
            self._schedule(peer, pause_s, lambda: self._send_next(peer))

    def _send_next(self, peer: Peer) -> None:
        self._scheduled.discard(peer.id)
        queues = self._open.get(peer.id)
        if not queues or peer.is_congested:  # `on_drain` continues
            return
        pause_s = self._pause_s(peer)
        if not pause_s:
            packets = queues[0]
            packets.remaining -= 1
            if not packets.remaining:
                queues.popleft()
                if not queues:
                    del self._open[peer.id]
            packets.send(packets.remaining)
        self._schedule_next(peer, pause_s)
