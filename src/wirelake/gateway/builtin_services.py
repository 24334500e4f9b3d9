"""Register the gateway's own services at the broker: device commands, redis values, data sets of records."""

import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final

from wirelake.broker.broker import Broker, Builtin
from wirelake.broker.peer import Peer
from wirelake.config import Settings
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.gateway.scheduling import Later
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.limits import GATEWAY_BUSY_PAUSE_S
from wirelake.log.audit import OK, REFUSED
from wirelake.message import DEVICES_SERVICE
from wirelake.protocols import registry
from wirelake.services.records import RecordService
from wirelake.services.redis.service import SERVICE, RedisService
from wirelake.services.subscriptions import PacketSender
from wirelake.state.store import StateStore

# The service follows the commands and errors of this version. Clients choose by it which commands they use.
_REDIS_VERSION: Final = "7.4.0"
FLUSH: Final = "redis.flush"  # the action in the audit


class BuiltinServices:
    """Own the built-in services, and apply the settings to them."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        state: StateStore,
        device_commands: Builtin,
        jobs: SlicedJobRunner,
        queue: FairQueue,
        connections: Mapping[str, Connection],
        flush_soon: Callable[[], None],
        is_log_behind: Callable[[], bool],
        audit: AuditLog,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        later: Later,
    ) -> None:
        """`connections` are the open ones by id. While `is_log_behind` returns True, long answers pause."""
        self._jobs = jobs
        self._queue = queue
        self._connections = connections
        self._is_log_behind = is_log_behind
        self._now_ms = now_ms
        self._later = later
        self._started_ms = now_ms()
        broker.register_builtin(DEVICES_SERVICE, device_commands)

        def may_flush(peer: Peer) -> bool:
            is_admin = broker.access.rights_of(peer).is_admin
            audit.record(peer, FLUSH, "", OK if is_admin else REFUSED)
            return is_admin

        redis = RedisService(broker, state, jobs, now_ms, now_s, later, may_flush, self._describe)
        broker.register_builtin(SERVICE, redis)
        self.records = RecordService(broker, state.records, PacketSender(self._send_later, self._pause_s), flush_soon)
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Use these settings. A data set that an upstream serves is not served here."""
        self._pending_bytes_max = settings.limits.pending_bytes
        sections = [(protocol, settings.section(protocol)) for protocol in registry.all_protocols()]
        relayed = {
            service
            for protocol, section in sections
            for upstream in protocol.upstreams(section)
            for service in upstream.services
        }
        data_sets = [name for protocol, section in sections for name in protocol.data_sets(section)]
        self.records.serve(tuple(name for name in data_sets if name not in relayed))

    def _send_later(self, peer: Peer, pause_s: float, call: Callable[[], object]) -> None:
        queue, share = self._queue, self._jobs.share_of(peer)
        if pause_s:
            self._later(pause_s, lambda: queue.add_read(share, call))
        else:
            queue.add_read(share, call)

    def _pause_s(self, peer: Peer) -> float:
        """Return how long to wait before the next packet for this peer."""
        connection = self._connections.get(peer.id)
        is_full = connection is not None and connection.pending_bytes > self._pending_bytes_max
        return GATEWAY_BUSY_PAUSE_S if is_full or self._is_log_behind() else 0.0

    def _describe(self) -> str:
        """Return the first lines of the answer to the command INFO of redis."""
        uptime_s = (self._now_ms() - self._started_ms) // 1000
        lines = [
            "# Server",
            f"redis_version:{_REDIS_VERSION}",
            f"wirelake_version:{version('wirelake')}",
            "redis_mode:standalone",
            f"process_id:{os.getpid()}",
            f"uptime_in_seconds:{uptime_s}",
            "",
            "# Clients",
            f"connected_clients:{len(self._connections)}",
            "",
            "# Replication",
            "role:master",
            "",
        ]
        return "\r\n".join(lines) + "\r\n"
