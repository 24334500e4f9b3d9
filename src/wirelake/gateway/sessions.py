"""Open and close sessions: give them ids, count them, record them, and inform the parts that remember them."""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from wirelake.broker.broker import Broker
from wirelake.cleanup import clean_up
from wirelake.commit import Commit
from wirelake.errors import ProtocolError, StorageError
from wirelake.gateway.auth.login_flow import LoginFlow
from wirelake.gateway.auth.resumption import SessionResumption
from wirelake.gateway.devices.driver import DeviceDriver
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorded, Recorder
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import Endpoint
from wirelake.protocols.session import Closing

_log = logging.getLogger(__name__)

_EXPECTED_CLOSINGS: Final = frozenset({"peer_closed", "lost", "logout", "fin_normal", "shutdown", "idle"})


class SessionIds:
    """Give out ids of sessions that no other run of the gateway uses."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self._prefix = os.urandom(3).hex()

    def next(self) -> str:
        return f"{self._prefix}-{next(self.numbers):x}"


class SessionRegistry:
    """Keep the open sessions. Their opening, their end and what could not be read of them go to the log."""

    def __init__(
        self,
        connections: dict[str, Connection],
        ids: SessionIds,
        recorder: Recorder,
        counters: Counters,
        broker: Broker,
        login_flow: LoginFlow,
        resumption: SessionResumption,
        flush_soon: Callable[[], None],
    ) -> None:
        """`connections` are the open ones by id: this class is the only one that changes them."""
        self.connections = connections
        self._ids = ids
        self.new_id = ids.next
        self._recorder = recorder
        self._counters = counters
        self._broker = broker
        self._login_flow = login_flow
        self._resumption = resumption
        self._flush_soon = flush_soon

    # Sessions of connections

    def admit(self, connection: Connection, endpoint: Endpoint) -> Closing | None:
        """Open a session if the endpoint admits the connection. Otherwise return why not, and change nothing."""
        closing = Closing(endpoint.admit(connection))
        if closing.code:
            connection.id = self._ids.next()
        else:
            try:
                self.on_open(connection)
            except StorageError as error:
                closing = Closing("storage", str(error))
                endpoint.on_close(connection)
        if not closing.code:
            return None
        self._counters.refused[connection.protocol, closing.code] += 1
        return closing

    def on_open(self, connection: Connection) -> None:
        """Open a session. Raise StorageError if that cannot be recorded; there is no session then."""
        connection.id = self._ids.next()
        self._recorder.event(connection, "open", {})
        self.connections[connection.id] = connection
        self._count_open(connection.protocol)

    def on_close(self, connection: Connection, closing: Closing) -> None:
        """Close a session. Every step runs, even if the log or the state refuses another one."""
        self.connections.pop(connection.id, None)
        self._login_flow.on_close(connection)
        self._count_close(connection, closing)
        level = logging.DEBUG if closing.code in _EXPECTED_CLOSINGS else logging.INFO
        extra = {"session": connection.id, "protocol": connection.protocol, "reason": closing.code}
        _log.log(level, "session closed", extra=extra)
        clean_up(
            f"session {connection.id}",
            partial(self._resumption.on_close, connection, closing),
            partial(self._broker.on_close, connection),
            partial(self._record_close, connection, closing),
            self._flush_soon,
        )

    def quarantine(self, of: Recorded, data: bytes, error: ProtocolError, *, recorded: bool = False) -> Commit:
        """Record bytes that cannot be decoded.

        If they are already `recorded` as a frame, the record is a fault: a quarantine would count them twice.
        """
        self._counters.errors[of.protocol, error.code] += 1
        self._counters.quarantined[of.protocol] += 1
        note = {"code": error.code, "offset": error.offset, "text": error.text}
        return self._recorder.event(of, "fault" if recorded else "quarantine", note, "in", data)

    # Sessions of devices

    def on_device_open(self, peer: DeviceDriver) -> None:
        """Open a device's session. Raise StorageError if that cannot be recorded; there is no session then."""
        self._recorder.event(peer, "open", {})
        self._broker.devices.attach(peer)
        self._count_open(peer.protocol)

    def on_device_close(self, peer: DeviceDriver, closing: Closing) -> None:
        self._count_close(peer, closing)
        clean_up(
            f"device {peer.identity}",
            partial(self._broker.on_close, peer),
            partial(self._record_close, peer, closing),
        )

    # Bookkeeping

    def _count_open(self, protocol: str) -> None:
        self._counters.accepted[protocol] += 1
        self._counters.connections[protocol] += 1

    def _count_close(self, of: Connection | DeviceDriver, closing: Closing) -> None:
        counters, protocol = self._counters, of.protocol
        counters.connections[protocol] -= 1
        counters.closed[protocol, closing.code] += 1
        counters.frames_out[protocol] += of.frames_out
        counters.bytes_in[protocol] += of.bytes_in
        counters.bytes_out[protocol] += of.bytes_out

    def _record_close(self, of: Connection | DeviceDriver, closing: Closing) -> None:
        note = {
            "reason": closing.code,
            "text": closing.text,
            "frames_in": of.frames_in,
            "frames_out": of.frames_out,
            "bytes_in": of.bytes_in,
            "bytes_out": of.bytes_out,
        }
        with contextlib.suppress(StorageError):  # the recorder counts it
            self._recorder.event(of, "close", note)
