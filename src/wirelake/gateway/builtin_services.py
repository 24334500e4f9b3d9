"""The gateway's own services, given to the broker."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from wirelake.broker.peer import Peer
from wirelake.gateway.devices.broadcast import Broadcasts
from wirelake.gateway.devices.commands import DeviceCommands
from wirelake.gateway.http.peer import HttpPeer
from wirelake.limits import GATEWAY_BUSY_PAUSE_S
from wirelake.message import DEVICES_SERVICE
from wirelake.protocols import registry
from wirelake.services.packets import Sending
from wirelake.services.records import RecordService
from wirelake.services.redis.service import SERVICE, RedisService

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


_REDIS_VERSION: Final = "7.4.0"  # whose commands and errors ours are like; clients choose by it what they ask


class BuiltinServices:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        broker, state = gateway.broker, gateway.state
        broker.builtin[DEVICES_SERVICE] = DeviceCommands(gateway, Broadcasts(gateway))
        broker.builtin[SERVICE] = RedisService(
            broker, state, gateway.jobs, gateway.now_ms, gateway.now_s, gateway.later, _is_admin, self._about
        )
        sending = Sending(self._later, self._pause_s)
        self.records = RecordService(broker, state.records, sending, gateway.flush_soon)
        self.apply()

    def _later(self, peer: Peer, pause_s: float, call: Callable[[], object]) -> None:
        queue, share = self._gateway.queue, self._gateway.share_of(peer)
        if pause_s:
            self._gateway.later(pause_s, lambda: queue.add_read(share, call))
        else:
            queue.add_read(share, call)

    def _pause_s(self, peer: Peer) -> float:
        gateway = self._gateway
        connection = gateway.connections.get(peer.id)
        is_behind = connection is not None and connection.pending_bytes > gateway.settings.limits.pending_bytes
        return GATEWAY_BUSY_PAUSE_S if gateway.log_behind or is_behind else 0.0

    def apply(self) -> None:
        """The settings in force. A data set that an upstream serves is not kept here."""
        settings = self._gateway.settings
        sections = [(protocol, settings.section(protocol)) for protocol in registry.all_protocols()]
        relayed = {
            service
            for protocol, section in sections
            for upstream in protocol.upstreams(section)
            for service in upstream.services
        }
        data_sets = [name for protocol, section in sections for name in protocol.data_sets(section)]
        self.records.serve(tuple(name for name in data_sets if name not in relayed))

    def _about(self) -> str:
        """The first lines of what a redis client gets from INFO."""
        gateway = self._gateway
        uptime_s = (gateway.now_ms() - gateway.started_ms) // 1000
        lines = [
            "# Server",
            f"redis_version:{_REDIS_VERSION}",
            f"wirelake_version:{version('wirelake')}",
            "redis_mode:standalone",
            f"process_id:{os.getpid()}",
            f"uptime_in_seconds:{uptime_s}",
            "",
            "# Clients",
            f"connected_clients:{len(gateway.connections)}",
            "",
            "# Replication",
            "role:master",
            "",
        ]
        return "\r\n".join(lines) + "\r\n"


def _is_admin(peer: Peer) -> bool:
    """Whether it gave the admin token: where everybody is let in, a name proves nothing."""
    return isinstance(peer, HttpPeer) and peer.is_admin
