"""All upstreams that the settings name."""

from typing import TYPE_CHECKING

from wirelake.broker.peer import Peer
from wirelake.config import Upstream as Settings
from wirelake.gateway.upstream import Upstream
from wirelake.protocols.sisnet.subscriptions import Interest

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class Upstreams:
    def __init__(self, gateway: "Gateway") -> None:
        self.all: dict[str, Upstream] = {}
        self._gateway = gateway
        gateway.broker.watchers.append(self)

    def check(self, wanted: tuple[Settings, ...]) -> None:
        """InputError where one of them cannot be used."""
        for settings in wanted:
            Upstream(self._gateway, settings)

    def set(self, wanted: tuple[Settings, ...]) -> None:
        """Those that are there as they are wanted stay as they are."""
        made = [Upstream(self._gateway, settings) for settings in wanted if self._now(settings.name) != settings]
        for upstream in [each for each in self.all.values() if each.settings not in wanted]:
            del self.all[upstream.settings.name]
            upstream.close()
        for upstream in made:
            self.all[upstream.settings.name] = upstream
            upstream.open()
        for upstream in self.all.values():
            upstream.sharing.keep_s = self._gateway.settings.sisnet.keep_s

    def unsubscribe(self, asker: Peer, interest: Interest) -> None:
        """A service may have several upstreams: which of them the subscription went to does not matter."""
        for upstream in self.all.values():
            upstream.sharing.unsubscribe(asker, interest)

    def _now(self, name: str) -> Settings | None:
        found = self.all.get(name)
        return None if found is None else found.settings

    # The broker's view

    def left(self, peer: Peer) -> None:
        for upstream in self.all.values():
            upstream.sharing.left(peer)

    def drained(self, peer: Peer) -> None:
        """Slow subscribers were cut off, and nothing waits for them; but an upstream may be slow itself."""
        for upstream in self.all.values():
            upstream.drained(peer)
