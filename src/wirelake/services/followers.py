"""Who is pushed new records, and of which series. Each push goes out under the request that asked for it."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.errors import FullError, InputError
from wirelake.limits import BROKER_MISSED_NAMES_MAX, RECORDS_SUBSCRIPTIONS_MAX
from wirelake.message import FailureCode, Kind, Message, Topic
from wirelake.protocols.session import Closing
from wirelake.services.selection import Format, Selection
from wirelake.state.records import ALL

Series = tuple[str, str, str]  # data set, key, sdb


class Follower(Struct, eq=False):
    peer: Peer
    correlation: str
    dataset: str
    selection: Selection

    @property
    def of_all(self) -> bool:
        return ALL in (self.selection.names.keys, self.selection.names.sdbs)

    def series(self) -> list[Series]:
        """Those that it names, where it names them."""
        return [(self.dataset, key, sdb) for key, sdb in self.selection.names.each()]

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
        own = self._by_peer.get(follower.peer.id, {})
        if len(own) >= RECORDS_SUBSCRIPTIONS_MAX:
            raise FullError(f"a session has at most {RECORDS_SUBSCRIPTIONS_MAX} subscriptions")
        if follower.correlation in own:
            self._forget(own[follower.correlation])
        if follower.of_all:
            self._of_all[follower] = None
        else:
            for series in follower.series():
                self._by_series.setdefault(series, {})[follower] = None
        self._by_peer.setdefault(follower.peer.id, {})[follower.correlation] = follower

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
            if follower.correlation not in self._by_peer.get(follower.peer.id, {}):
                continue  # its peer was cut off a moment ago
            try:
                chosen = rows(follower.selection)
            except InputError as error:  # it asked for a field that the table turned out not to have
                self._forget(follower)
                follower.peer.send(failed(follower.correlation, str(error), FailureCode.GONE))
                continue
            if follower.peer.is_congested:
                self._spare(follower, name, chosen)
            else:
                self._tell(follower, name, chosen)

    def on_close(self, peer: Peer) -> None:
        for follower in list(self._by_peer.get(peer.id, {}).values()):
            self._forget(follower)
        self._missed.pop(peer.id, None)

    def on_drain(self, peer: Peer) -> None:
        for (follower, name), rows in self._missed.pop(peer.id, {}).items():
            self._tell(follower, name, rows)

    def _tell(self, follower: Follower, name: str, rows: list[Any]) -> None:
        push = Message(kind=Kind.NOTIFICATION, target=Topic(name), correlation=follower.correlation)
        if follower.selection.format is Format.BYTES:
            push = replace(push, payload=b"".join(rows))
        else:
            push = replace(push, fields={"msg": rows} if follower.selection.names.single else {name: rows})
        self._broker.notifier.send(follower.peer, push)

    def _spare(self, follower: Follower, name: str, rows: list[Any]) -> None:
        """As with live names, by the same setting."""
        peer, live = follower.peer, self._broker.live
        if not live.conflate:
            live.cut += 1
            self.on_close(peer)
            peer.close(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))
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
        if follower.of_all:
            del self._of_all[follower]
        else:
            for series in follower.series():
                followers = self._by_series[series]
                del followers[follower]
                if not followers:
                    del self._by_series[series]
        missed = self._missed.get(follower.peer.id, {})
        for place in [place for place in missed if place[0] is follower]:
            del missed[place]


def _holds(names: str, name: str) -> bool:
    return names == ALL or name in names.split(",")
