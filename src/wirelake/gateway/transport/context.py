"""Define what listeners, connections and device sessions need from the gateway."""

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from wirelake.address import Address
from wirelake.broker.broker import Broker
from wirelake.config import Settings
from wirelake.errors import InputError
from wirelake.gateway.auth.admission import Admission
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.scheduling import Later, Timers
from wirelake.gateway.transport.commit_barrier import CommitBarrier
from wirelake.gateway.transport.origins import OriginPolicy
from wirelake.gateway.transport.read_limiter import ReadScheduler
from wirelake.message import Message
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol as WireProtocol
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import Splitter

if TYPE_CHECKING:
    from wirelake.gateway.dispatch import MessageDispatcher
    from wirelake.gateway.sessions import SessionRegistry
    from wirelake.gateway.transport.connection import Connection

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class SessionFactory:
    """Create server sessions with the gateway's keys and the current settings."""

    def __init__(
        self, settings: Callable[[], Settings], keys: KeyFiles, numbers: Iterator[int], node: str, *, has_tls: bool
    ) -> None:
        """Take session numbers from `numbers`. `node` is the name of this gateway."""
        self._settings = settings
        self._keys = keys
        self._numbers = numbers
        self._node_names = (node, socket.gethostname(), *_LOOPBACK_NAMES)
        self._has_tls = has_tls

    def new_session(
        self, protocol: WireProtocol, listener: Address, now_s: float, *, is_stream: bool = True
    ) -> Session:
        if protocol.server_session is None:
            raise InputError(f"{protocol.name} has no server session: its frames can only be decoded")
        settings = self._settings()
        context = SessionContext(
            settings=settings.section(protocol),
            now_s=now_s,
            number=next(self._numbers),
            random=os.urandom,
            wall_s=time.time,
            keys=self._keys,
            address=listener,
            node_names=self._node_names,
            is_open=settings.auth.open,
            is_secure=self._has_tls and is_stream,
        )
        return protocol.server_session(context)


class TransportContext(Struct, kw_only=True, eq=False):
    """Bundle the parts of the gateway that listeners, connections and device sessions use. A gateway has one."""

    now_s: Callable[[], float]
    now_ms: Callable[[], int]
    later: Later
    settings: Callable[[], Settings]  # returns the current settings
    tls: ssl.SSLContext | None
    recorder: Recorder
    counters: Counters
    timers: Timers
    commit_barrier: CommitBarrier
    reads: ReadScheduler
    admission: Admission
    origins: OriginPolicy
    factory: SessionFactory
    broker: Broker
    sessions: "SessionRegistry"
    dispatcher: "MessageDispatcher"


class Endpoint(Protocol):
    """Own connections: a listener that accepts peers, or an upstream to connect to."""

    context: TransportContext
    protocol: WireProtocol
    remote: Sender  # the role of the other end

    @property
    def on_message(self) -> "Callable[[Connection, Message], None]":
        """Handle a message of a connection's session."""
        ...

    def new_session(self, now_s: float) -> Session: ...

    def new_splitter(self) -> Splitter: ...

    def admit(self, connection: "Connection") -> str:
        """Assign a slot to the connection. Return the reason for refusal, or "" if it is admitted."""
        ...

    def on_open(self, connection: "Connection") -> None:
        """Handle the opening of a connection: messages can be exchanged now."""
        ...

    def on_close(self, connection: "Connection") -> None:
        """Release the resources of an admitted connection."""
        ...
