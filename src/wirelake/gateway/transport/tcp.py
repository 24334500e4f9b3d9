"""Where one protocol comes in. Makes a session for each connection."""

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from wirelake.address import Address
from wirelake.errors import InputError
from wirelake.gateway.auth.admission import Slot
from wirelake.gateway.auth.logins import ANONYMOUS
from wirelake.gateway.transport.acceptor import Acceptor
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.listen_error import listen_error
from wirelake.gateway.transport.websocket import MessageSplitter, ServerWebSocket
from wirelake.message import Message
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol, WebSocketOptions
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import Splitter

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class ProtocolListener:
    """One transport of a protocol on one address; its subclasses open the sockets."""

    other = Sender.CLIENT

    def __init__(
        self, gateway: "Gateway", protocol: Protocol, setting: str, address: Address, carrier: Carrier = Carrier.TCP
    ) -> None:
        self.carrier = carrier
        self.gateway = gateway
        self.protocol = protocol
        self.setting = setting
        self.address = address

    @property
    def settings(self) -> Any:
        """The protocol's section, as it is in force now: a reload holds for new connections."""
        return self.gateway.settings.section(self.protocol)

    @property
    def websocket(self) -> WebSocketOptions:
        if self.protocol.websocket is None:
            raise AssertionError(f"{self.protocol.name} has a WebSocket transport and no options for it")
        return self.protocol.websocket(self.settings)

    def new_session(self, now_s: float) -> Session:
        is_secure = self.gateway.tls is not None and self.carrier is not Carrier.UDP
        return new_session(self.gateway, self.protocol, self.address, now_s, is_secure=is_secure)

    def load_keys(self) -> None:
        """Make a session once: one that needs a key generates or reads it. InputError if the key cannot be used.

        The first connection is too late for that: it would block the event loop, and could fail.
        """
        try:
            self.new_session(self.gateway.now_s())
        except OSError as error:
            raise InputError(
                f"listen.{self.setting}: cannot read or write a key of {self.protocol.name}: {error}"
            ) from error

    def new_splitter(self) -> Splitter:
        if self.carrier is Carrier.WEBSOCKET:
            options = self.websocket
            return MessageSplitter(options.message_bytes_max, options.is_text)
        if self.protocol.server_splitter is not None:
            return self.protocol.server_splitter(self.settings, self.carrier)
        return self.protocol.splitter(Sender.CLIENT, self.carrier)

    def admit(self, connection: Connection) -> str:
        if connection.slot is None:
            slot = self.gateway.admission.enter(connection.address, authenticated=self.gateway.settings.auth.open)
            if isinstance(slot, str):
                return slot
            connection.slot = slot
        return ""

    def on_open(self, connection: Connection) -> None:
        """Where everybody is let in, a session may begin without a login: nobody in particular, then."""
        if connection.session.begins_anonymous:
            connection.identity = ANONYMOUS

    def on_message(self, connection: Connection, message: Message) -> None:
        self.gateway.on_message(connection, message)

    def on_close(self, connection: Connection) -> None:
        if connection.slot is not None:
            connection.slot.release()

    @property
    def is_open(self) -> bool:
        raise NotImplementedError

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Listen. InputError if the address cannot be opened."""
        raise NotImplementedError

    def close(self) -> None:
        """No new connections; those there stay."""
        raise NotImplementedError


class TcpListener(ProtocolListener):
    """TCP or WebSocket."""

    def __init__(
        self, gateway: "Gateway", protocol: Protocol, setting: str, address: Address, carrier: Carrier = Carrier.TCP
    ) -> None:
        super().__init__(gateway, protocol, setting, address, carrier)
        self._listener = Acceptor(gateway, protocol.name, self._new_connection)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        self.load_keys()
        try:
            self.address = await self._listener.open(self.address, tls)
        except OSError as error:
            raise listen_error(self.setting, self.address, error) from error

    def _new_connection(self, slot: Slot | None) -> Connection:
        if self.carrier is Carrier.WEBSOCKET:
            return ServerWebSocket(self, self.websocket, slot)
        return Connection(self, slot)

    @property
    def is_open(self) -> bool:
        return self._listener.is_serving

    def close(self) -> None:
        self._listener.close()


def new_session(gateway: "Gateway", protocol: Protocol, address: Address, now_s: float, *, is_secure: bool) -> Session:
    """Begin a session of this protocol, with the gateway's keys and the settings in force."""
    if protocol.server_session is None:
        raise InputError(f"{protocol.name} can be decoded, but has no session to serve it with")
    context = SessionContext(
        settings=gateway.settings.section(protocol),
        now_s=now_s,
        number=next(gateway.numbers),
        random=os.urandom,
        keys=gateway.keys,
        address=address,
        node_names=(gateway.log_settings.node, socket.gethostname(), *_LOOPBACK_NAMES),
        is_open=gateway.settings.auth.open,
        is_secure=is_secure,
    )
    return protocol.server_session(context)
