"""A sisnet server behind us: called, called again when it is lost, and offered to everybody as a provider.

The broker sees a peer that registered the upstream's services. What it is asked goes through `Sharing`, so that the
upstream is asked once for what many want.
"""

import asyncio
import logging
import ssl
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.broker.peer import Peer
from wirelake.broker.request_coalescer import RequestCoalescer
from wirelake.broker.services import Call
from wirelake.errors import InputError, StateError
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.websocket import ClientWebSocket, MaskedMessageSplitter
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    UPSTREAM_BACKOFF_FIRST_S,
    UPSTREAM_BACKOFF_MAX_S,
    UPSTREAM_CLOSE_S,
    UPSTREAM_CONNECT_S,
    UPSTREAM_LOGIN_S,
    UPSTREAM_STEADY_S,
)
from wirelake.message import Credentials, Failure, Kind, Message, Op, control, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.interest import unsubscribed_by
from wirelake.protocols.protocol import Carrier, WebSocketOptions
from wirelake.protocols.protocol import Protocol as WireProtocol
from wirelake.protocols.session import Closing, Session
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.upstream import UpstreamSettings

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)
_LOGIN: Final = "login"
_NOT_SERVED: Final = Failure("not served here")
_ONE_HOP: Final = frozenset({"lnk", "timeout_ms"})  # headers that are between the asker and us


class Upstream:
    """Also the broker's `Peer`: the provider of the upstream's services, under the id of the connection it has."""

    sends_acks: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = None
    is_congested: Final = False
    bytes_in: Final = 0
    bytes_written: Final = 0
    bytes_drained: Final = 0

    def __init__(
        self, gateway: "Gateway", wire: WireProtocol, settings: UpstreamSettings, *, data_sets: AbstractSet[str]
    ) -> None:
        """`wire` is the protocol it speaks. `data_sets` are services of ours that an upstream may take over."""
        self.wire = wire
        self.protocol = wire.name
        self.settings = settings
        self.identity = settings.name
        self.id = ""
        keep_s = wire.upstream_keep_s(gateway.settings.section(wire))
        self.coalescer = RequestCoalescer(self._ask, self._answer, self._takes_no_more, gateway.broker.notifier, keep_s)
        self.trouble = "not connected yet"
        self.calls = 0  # tries to connect
        self._gateway = gateway
        self._scheme, self._address = settings.parse_url(_stream_port(wire))
        self._tls = self._tls_context()
        self._check_services(gateway, data_sets)
        self._entrance = UpstreamEndpoint(gateway, self, self._scheme)
        self._connection: Connection | None = None
        self._closed = self._looking = False
        self._refusal = ""
        self._over: asyncio.Future[None] | None = None
        self._accepted: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return bool(self.id)

    def open(self) -> None:
        self._tell_absent()
        self._task = self._gateway.spawn(self._run())

    def stop(self) -> None:
        """For good: its services are no longer offered here, and subscriptions to them end."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close(Closing("shutdown", "the gateway no longer needs this upstream"))
        for service in self.settings.services:
            self._gateway.broker.services.absent.pop(service, None)
        self.coalescer.close()
        self._gateway.broker.services.leave(self)

    def on_drain(self, peer: Peer) -> None:
        if peer is self._connection:
            self.coalescer.on_drain()

    # The broker's view

    def send(self, message: Message) -> None:
        """A request of somebody's, or an event that nobody waits for an answer to."""
        if message.kind is Kind.EVENT:
            self._ask(message)
            return
        call = self._gateway.broker.services.find(message.correlation)
        if call is None:
            raise StateError("no such request")
        interest = unsubscribed_by(message)
        if interest is not None:
            self._gateway.upstreams.unsubscribe(call.asker, interest)
            self._answer(call, Message(kind=Kind.RESPONSE))
            return
        self.coalescer.ask(call, _without_hop_headers(message), self._gateway.now_s())

    def close(self, closing: Closing) -> None:
        if self._connection is not None:
            self._connection.close(closing)

    def encode_notification(self, message: Message) -> bytes:
        raise StateError(f"an upstream subscribes to nothing here, and gets no {message.kind}")

    def write(self, data: bytes) -> None:
        raise StateError(f"an upstream subscribes to nothing here, and gets no {len(data)} bytes")

    # Its sharing's view

    def _ask(self, request: Message) -> None:
        if self._connection is None:
            raise StateError("the upstream is unavailable")
        self._connection.send(request)

    def _takes_no_more(self) -> bool:
        """What waits for the disk counts too; nobody tells when that has gone, so it is looked at again."""
        connection, gateway = self._connection, self._gateway
        if connection is None or connection.pending_bytes <= gateway.settings.limits.pending_bytes:
            return False
        if not connection.is_congested and not self._looking:
            self._looking = True
            gateway.later(GATEWAY_BUSY_PAUSE_S, self._look)
        return True

    def _look(self) -> None:
        self._looking = False
        self.coalescer.on_drain()

    def _answer(self, call: Call, answer: Message) -> bool:
        services = self._gateway.broker.services
        return services.on_answer(self, replace(answer, correlation=str(call.number)), self._gateway.now_s())

    # The connection's view

    def on_open(self, connection: Connection) -> None:
        self._connection = connection
        credentials = Credentials(self.settings.user, self.settings.password)
        connection.send(control(Op.LOGIN, credentials=credentials, correlation=_LOGIN))

    def on_message(self, connection: Connection, message: Message) -> None:
        if not self.id:
            self._login_answered(connection, message)
        elif message.kind in {Kind.RESPONSE, Kind.NOTIFICATION}:
            self.coalescer.on_answer(_without_hop_headers(message), self._gateway.now_s())
        elif control_op(message) is None and message.correlation:
            connection.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, failure=_NOT_SERVED))

    def on_close(self, connection: Connection) -> None:
        """Those who waited were told by the broker, which saw the provider go."""
        self._connection = None
        self.id = ""
        closing = connection.closing or Closing("lost")
        self.trouble = self._refusal or closing.text or f"the connection ended: {closing.code}"
        self._tell_absent()
        self.coalescer.on_connection_lost()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _login_answered(self, connection: Connection, message: Message) -> None:
        if message.correlation != _LOGIN or message.kind is not Kind.RESPONSE:
            return
        if message.failure is not None:
            self._refusal = f"login refused: {message.failure.text}"
            return  # the session closes by itself
        self.id = connection.id
        for service in self.settings.services:
            self._gateway.broker.services.register(self, service)
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)
        _log.info("upstream %s connected", self.settings.name, extra={"session": connection.id})
        self.coalescer.on_connected()

    def _tell_absent(self) -> None:
        if self._closed:
            return
        absent = self._gateway.broker.services.absent
        absent |= dict.fromkeys(self.settings.services, f"upstream {self.settings.name} is unavailable: {self.trouble}")

    # Calling

    async def _run(self) -> None:
        backoff = Backoff(first_s=UPSTREAM_BACKOFF_FIRST_S, max_s=UPSTREAM_BACKOFF_MAX_S)
        while not self._gateway.stopping:
            begun_s = self._gateway.now_s()
            try:
                await self._call()
            except TimeoutError:
                self.trouble = "no response"
            except (OSError, ssl.SSLError, UnicodeError) as error:  # the last of a name that cannot be looked up
                self.trouble = str(error) or type(error).__name__
            if self._gateway.now_s() - begun_s >= UPSTREAM_STEADY_S:
                backoff.reset()
            self._tell_absent()
            pause_s = backoff.next_s()
            _log.info("upstream %s: %s; reconnecting in %.1f s", self.settings.name, self.trouble, pause_s)
            await asyncio.sleep(pause_s)

    async def _call(self) -> None:
        """One connection, from the call to its end."""
        loop = asyncio.get_running_loop()
        self.calls += 1
        self._refusal = ""
        self._over, self._accepted = loop.create_future(), loop.create_future()
        async with asyncio.timeout(UPSTREAM_CONNECT_S):
            transport, connection = await loop.create_connection(
                self._new_connection, self._address.host, self._address.port, ssl=self._tls
            )
        try:
            async with asyncio.timeout(UPSTREAM_LOGIN_S):
                await asyncio.wait([self._over, self._accepted], return_when=asyncio.FIRST_COMPLETED)
            while not self._over.done() and connection.closing is None:
                await asyncio.wait([self._over], timeout=UPSTREAM_CLOSE_S)
            await asyncio.wait([self._over], timeout=UPSTREAM_CLOSE_S)  # it may never take the last bytes
        finally:
            transport.abort()
            await asyncio.wait([self._over])

    def _new_connection(self) -> Connection:
        if self._scheme in {"ws", "wss"}:
            return ClientWebSocket(self._entrance, self.settings.url, self._entrance.options.message_bytes_max)
        return Connection(self._entrance)

    def _check_services(self, gateway: "Gateway", data_sets: AbstractSet[str]) -> None:
        own = gateway.broker.builtin.keys() - data_sets
        for service in self.settings.services:
            if service in own:
                raise InputError(
                    f"settings: upstream {self.settings.name}: {service} is a service of the gateway itself"
                )

    def _tls_context(self) -> ssl.SSLContext | None:
        if self._scheme not in {"wss", "tls"}:
            return None
        try:
            return ssl.create_default_context(cafile=self.settings.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"settings: upstream {self.settings.name}: cannot use ca: {error}") from error


class UpstreamEndpoint:
    """What an upstream's connection knows of it."""

    other = Sender.SERVER

    def __init__(self, gateway: "Gateway", upstream: Upstream, scheme: str) -> None:
        self.gateway = gateway
        self.protocol = upstream.wire
        self._upstream = upstream
        self._websocket = scheme in {"ws", "wss"}

    @property
    def options(self) -> WebSocketOptions:
        if self.protocol.websocket is None:
            raise InputError(f"{self.protocol.name} does not speak WebSocket: use tcp:// or tls://")
        return self.protocol.websocket(self.protocol.settings())

    def new_session(self, now_s: float) -> Session:
        if self.protocol.upstream_session is None:
            raise InputError(f"{self.protocol.name} has no client session for upstreams")
        return self.protocol.upstream_session(now_s)

    def new_splitter(self) -> Splitter:
        if self._websocket:
            return MaskedMessageSplitter(self.options.message_bytes_max, self.options.is_text)
        return self.protocol.splitter(Sender.SERVER, Carrier.TCP)

    def admit(self, connection: Connection) -> str:
        connection.identity = self._upstream.identity
        return ""

    def on_open(self, connection: Connection) -> None:
        self._upstream.on_open(connection)

    def on_message(self, connection: Connection, message: Message) -> None:
        self._upstream.on_message(connection, message)

    def on_close(self, connection: Connection) -> None:
        self._upstream.on_close(connection)


def _stream_port(protocol: WireProtocol) -> int:
    """Return the port of an upstream whose URL names none."""
    return next((transport.port for transport in protocol.transports if transport.carrier is Carrier.TCP), 0)


def _without_hop_headers(message: Message) -> Message:
    """Leave out what holds between two neighbours only: askers that share an answer differ in it."""
    if _ONE_HOP.isdisjoint(message.headers):
        return message
    headers = {name: value for name, value in message.headers.items() if name not in _ONE_HOP}
    return replace(message, headers=headers)
