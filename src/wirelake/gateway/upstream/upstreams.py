"""All upstreams that the settings name."""

from typing import TYPE_CHECKING

from wirelake.broker.peer import Peer
from wirelake.config import Settings
from wirelake.gateway.upstream.upstream import Upstream
from wirelake.protocols import registry
from wirelake.protocols.interest import Interest
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.upstream import UpstreamSettings

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class Upstreams:
    def __init__(self, gateway: "Gateway") -> None:
        self.all: dict[str, Upstream] = {}
        self._gateway = gateway
        gateway.broker.observers.append(self)

    def check(self, settings: Settings) -> None:
        """Raise InputError where one of the upstreams in the settings cannot be used."""
        for protocol, wanted in _wanted(settings):
            Upstream(self._gateway, protocol, wanted, data_sets=_data_sets(settings))

    def apply(self, settings: Settings) -> None:
        """Connect to the upstreams that the settings name. Those that are there as they are wanted stay as they are."""
        wanted = _wanted(settings)
        made = [
            Upstream(self._gateway, protocol, each, data_sets=_data_sets(settings))
            for protocol, each in wanted
            if self._now(each.name) != each
        ]
        for upstream in [each for each in self.all.values() if (each.wire, each.settings) not in wanted]:
            del self.all[upstream.settings.name]
            upstream.stop()
        for upstream in made:
            self.all[upstream.settings.name] = upstream
            upstream.open()
        for upstream in self.all.values():
            upstream.coalescer.keep_s = upstream.wire.upstream_keep_s(settings.section(upstream.wire))

    def unsubscribe(self, asker: Peer, interest: Interest) -> None:
        """A service may have several upstreams: which of them the subscription went to does not matter."""
        for upstream in self.all.values():
            upstream.coalescer.unsubscribe(asker, interest)

    def _now(self, name: str) -> UpstreamSettings | None:
        found = self.all.get(name)
        return None if found is None else found.settings

    # The broker's view

    def on_close(self, peer: Peer) -> None:
        for upstream in self.all.values():
            upstream.coalescer.on_close(peer)

    def on_drain(self, peer: Peer) -> None:
        """Slow subscribers were cut off, and nothing waits for them; but an upstream may be slow itself."""
        for upstream in self.all.values():
            upstream.on_drain(peer)


def _wanted(settings: Settings) -> list[tuple[Protocol, UpstreamSettings]]:
    return [
        (protocol, upstream)
        for protocol in registry.all_protocols()
        for upstream in protocol.upstreams(settings.section(protocol))
    ]


def _data_sets(settings: Settings) -> set[str]:
    return {name for protocol in registry.all_protocols() for name in protocol.data_sets(settings.section(protocol))}
