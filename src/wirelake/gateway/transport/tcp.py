"""Accept connections of one protocol over TCP or WebSocket, and create a session for each."""

import ssl
from typing import Any

from wirelake.address import Address
from wirelake.errors import InputError
from wirelake.gateway.auth.admission import Slot
from wirelake.gateway.auth.logins import ANONYMOUS
from wirelake.gateway.transport.acceptor import Acceptor, listen_error
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.websocket import MessageSplitter, ServerWebSocket
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol, WebSocketOptions
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import Splitter


class ProtocolListener:
    """Listen on one address for one transport of a protocol. Subclasses open the sockets."""

    remote = Sender.CLIENT

    def __init__(
        self,
        context: TransportContext,
        protocol: Protocol,
        setting: str,
        address: Address,
        carrier: Carrier = Carrier.TCP,
    ) -> None:
        self.carrier = carrier
        self.context = context
        self.on_message = context.dispatcher.on_message
        self.protocol = protocol
        self.setting = setting
        self.address = address

    @property
    def settings(self) -> Any:
        """Return the current settings of the protocol: a reload applies to new connections."""
        return self.context.settings().section(self.protocol)

    @property
    def websocket(self) -> WebSocketOptions:
        if self.protocol.websocket is None:
            raise AssertionError(f"{self.protocol.name} has a WebSocket transport, but no WebSocket options")
        return self.protocol.websocket(self.settings)

    def new_session(self, now_s: float) -> Session:
        is_stream = self.carrier is not Carrier.UDP
        return self.context.factory.new_session(self.protocol, self.address, now_s, is_stream=is_stream)

    def load_keys(self) -> None:
        """Create a session, so that a protocol that needs a key reads or generates it. Raise InputError on failure.

        Do this before the first connection, because it blocks the event loop and can fail.
        """
        try:
            self.new_session(self.context.now_s())
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
            slot = self.context.admission.enter(connection.address, authenticated=self.context.settings().auth.open)
            if isinstance(slot, str):
                return slot
            connection.slot = slot
        return ""

    def on_open(self, connection: Connection) -> None:
        """Set the anonymous identity if the session begins without a login (`auth.open`)."""
        if connection.session.begins_anonymous:
            connection.identity = ANONYMOUS

    def on_close(self, connection: Connection) -> None:
        if connection.slot is not None:
            connection.slot.release()

    @property
    def is_open(self) -> bool:
        raise NotImplementedError

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Start listening. Raise InputError if the address cannot be opened."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop accepting connections. Keep established ones."""
        raise NotImplementedError


class TcpListener(ProtocolListener):
    """Listen for TCP or WebSocket connections."""

    def __init__(
        self,
        context: TransportContext,
        protocol: Protocol,
        setting: str,
        address: Address,
        carrier: Carrier = Carrier.TCP,
    ) -> None:
        super().__init__(context, protocol, setting, address, carrier)
        self._acceptor = Acceptor(
            protocol.name, context.admission, context.counters, context.settings, self._new_connection
        )

    async def open(self, tls: ssl.SSLContext | None) -> None:
        self.load_keys()
        try:
            self.address = await self._acceptor.open(self.address, tls)
        except OSError as error:
            raise listen_error(self.setting, self.address, error) from error

    def _new_connection(self, slot: Slot | None) -> Connection:
        if self.carrier is Carrier.WEBSOCKET:
            return ServerWebSocket(self, self.websocket, slot)
        return Connection(self, slot)

    @property
    def is_open(self) -> bool:
        return self._acceptor.is_serving

    def close(self) -> None:
        self._acceptor.close()
