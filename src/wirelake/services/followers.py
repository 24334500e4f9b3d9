"""Who is pushed new records, and of which series. Each push goes out under the request that asked for it."""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.errors import FullError
from wirelake.limits import BROKER_MISSED_NAMES_MAX, SISDB_SERIES_PER_REQUEST_MAX, SISNET_SUBSCRIPTIONS_MAX
from wirelake.message import Kind, Message, Topic
from wirelake.protocols.session import Closing
from wirelake.services.selection import Selection
from wirelake.state.records import ALL

Series = tuple[str, str, str]  # data set, key, sdb


class Follower(Struct, eq=False):
    peer: Peer
    correlation: str
    dataset: str
    selection: Selection

    def wants(self, series: Series) -> bool:
        dataset, key, sdb = series
        names = self.selection.names
        return dataset == self.dataset and _holds(names.keys, key) and _holds(names.sdbs, sdb)


class Followers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_peer: dict[str, dict[str, Follower]] = {}  # peer id → correlation →
        self._by_series: dict[Series, dict[Follower, None]] = {}
        self._of_all: dict[Follower, None] = {}  # those with a `*`
        self._missed: dict[str, dict[tuple[Follower, str], list[Any]]] = {}  # peer id → where → the newest

    def __bool__(self) -> bool:
        return bool(self._by_peer)

    def add(self, follower: Follower) -> None:
        own = self._by_peer.setdefault(follower.peer.id, {})
        if len(own) >= SISNET_SUBSCRIPTIONS_MAX:
            raise FullError(f"a session has at most {SISNET_SUBSCRIPTIONS_MAX} subscriptions")
        names = follower.selection.names
        if ALL in (names.keys, names.sdbs):
            self._of_all[follower] = None
        else:
            named = names.each()
            if len(named) > SISDB_SERIES_PER_REQUEST_MAX:
                raise FullError(f"one request names at most {SISDB_SERIES_PER_REQUEST_MAX} series")
            for key, sdb in named:
                self._by_series.setdefault((follower.dataset, key, sdb), {})[follower] = None
        own[follower.correlation] = follower

    def remove(self, peer: Peer, dataset: str, selection: Selection) -> None:
        """Those that were asked for in the same words."""
        for follower in list(self._by_peer.get(peer.id, {}).values()):
            if follower.dataset == dataset and follower.selection.names == selection.names:
                self._forget(follower)

    def of(self, series: Series) -> list[Follower]:
        found = list(self._by_series.get(series, ()))
        return found + [each for each in self._of_all if each.wants(series)]

    def push(self, series: Series, followers: list[Follower], rows: Callable[[Selection], list[Any]]) -> None:
        """New records of this series, in the form that each of them asked for."""
        name = f"{series[1]}.{series[2]}"
        for follower in followers:
            if follower.peer.congested:
                self._spare(follower, name, rows(follower.selection))
            else:
                self._tell(follower, name, rows(follower.selection))

    def left(self, peer: Peer) -> None:
        for follower in list(self._by_peer.get(peer.id, {}).values()):
            self._forget(follower)
        self._missed.pop(peer.id, None)

    def drained(self, peer: Peer) -> None:
        for (follower, name), rows in self._missed.pop(peer.id, {}).items():
            self._tell(follower, name, rows)

    def _tell(self, follower: Follower, name: str, rows: list[Any]) -> None:
        fields: dict[str, Any] = {"msg": rows} if follower.selection.names.single else {name: rows}
        push = Message(kind=Kind.NOTIFICATION, target=Topic(name), correlation=follower.correlation, fields=fields)
        self._broker.telling.say(follower.peer, push)

    def _spare(self, follower: Follower, name: str, rows: list[Any]) -> None:
        """As with live names, by the same setting."""
        peer, live = follower.peer, self._broker.live
        if not live.conflate:
            live.cut += 1
            self.left(peer)
            peer.end(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))
            return
        missed = self._missed.setdefault(peer.id, {})
        if missed.pop((follower, name), None) is not None:
            live.conflated += 1
        elif len(missed) >= BROKER_MISSED_NAMES_MAX:
            live.conflated += 1
            del missed[next(iter(missed))]
        missed[follower, name] = rows[-1:]

    def _forget(self, follower: Follower) -> None:
        own = self._by_peer[follower.peer.id]
        del own[follower.correlation]
        if not own:
            del self._by_peer[follower.peer.id]
        if self._of_all.pop(follower, self) is self:
            for series in self._series(follower):
                followers = self._by_series[series]
                del followers[follower]
                if not followers:
                    del self._by_series[series]
        missed = self._missed.get(follower.peer.id, {})
        for place in [place for place in missed if place[0] is follower]:
            del missed[place]

    def _series(self, follower: Follower) -> Iterator[Series]:
        for key, sdb in dict.fromkeys(follower.selection.names.each()):
            yield follower.dataset, key, sdb


def _holds(names: str, name: str) -> bool:
    return names == ALL or name in names.split(",")
