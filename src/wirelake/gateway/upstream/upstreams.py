"""Connect to the upstream servers that the settings name, and offer their services to the gateway's clients.

The broker sees an upstream as a peer that provides the upstream's services. Requests go through a `RequestCoalescer`,
so that the upstream gets identical requests of many clients only once.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.broker.peer import Peer
from wirelake.broker.request_coalescer import RequestCoalescer
from wirelake.broker.services import Call
from wirelake.config import Settings
from wirelake.errors import InputError, StateError
from wirelake.gateway.scheduling import Spawn
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.websocket import ClientWebSocket, MaskedMessageSplitter
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_PENDING_BYTES,
    UPSTREAM_BACKOFF_FIRST_S,
    UPSTREAM_BACKOFF_MAX_S,
    UPSTREAM_CLOSE_S,
    UPSTREAM_CONNECT_S,
    UPSTREAM_LOGIN_S,
    UPSTREAM_STEADY_S,
)
from wirelake.message import Credentials, Failure, Kind, Message, Op, control, control_op
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, WebSocketOptions
from wirelake.protocols.protocol import Protocol as WireProtocol
from wirelake.protocols.session import Closing, Session
from wirelake.protocols.settings import UpstreamSettings
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.translation import Interest, unsubscribed_by

_log = logging.getLogger(__name__)
_LOGIN: Final = "login"
_NOT_SERVED: Final = Failure("not served here")
_ONE_HOP: Final = frozenset({"lnk", "timeout_ms"})  # headers that concern the client and the gateway only


class UpstreamContext(Struct, frozen=True):
    """The parts of the gateway that every upstream uses."""

    transport: TransportContext
    spawn: Spawn
    is_stopping: Callable[[], bool]


class Upstream:
    """Keep one connection to an upstream, and reconnect when it is lost.

    It is also a `Peer` of the broker: the provider of the upstream's services, with the id of the connection.
    """

    sends_acks: Final = False
    takes_commands: Final = False
    takes_broadcasts: Final = False
    is_admin: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = None
    is_congested: Final = False
    bytes_in: Final = 0
    bytes_written: Final = 0
    bytes_drained: Final = 0

    def __init__(
        self,
        context: UpstreamContext,
        wire: WireProtocol,
        settings: UpstreamSettings,
        unsubscribe: Callable[[Peer, Interest], None],
        *,
        data_sets: AbstractSet[str],
    ) -> None:
        """Raise InputError if the settings cannot be used.

        `wire` is the protocol that the upstream speaks, `unsubscribe` ends a subscription at every upstream, and
        `data_sets` are services of the gateway that an upstream may replace.
        """
        self.wire = wire
        self.protocol = wire.name
        self.settings = settings
        self.identity = settings.name
        self.id = ""
        broker = context.transport.broker
        self.coalescer = RequestCoalescer(self._request, self._answer, self._is_full, broker.notifier)
        self.trouble = "not connected yet"
        self.calls = 0  # attempts to connect
        self._context = context
        self._now_s = context.transport.now_s
        self._services = broker.services
        self._unsubscribe = unsubscribe
        self._pending_bytes_max = GATEWAY_PENDING_BYTES
        self._scheme, self._address = settings.parse_url(_stream_port(wire))
        self.address = str(self._address)
        self._tls = self._tls_context()
        self._check_services(data_sets)
        self._endpoint = UpstreamEndpoint(context.transport, self, self._scheme)
        self._connection: Connection | None = None
        self._is_stopped = self._has_retry_timer = False
        self._refusal = ""
        self._over: asyncio.Future[None] | None = None
        self._accepted: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return bool(self.id)

    def apply(self, settings: Settings) -> None:
        """Use the settings of the gateway that may change while the upstream is connected."""
        self.coalescer.keep_s = self.wire.upstream_keep_s(settings.section(self.wire))
        self._pending_bytes_max = settings.limits.pending_bytes

    def open(self) -> None:
        self._explain_absence()
        self._task = self._context.spawn(self._run())

    def stop(self) -> None:
        """Disconnect for good: the gateway no longer offers its services, and subscriptions to them end."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close(Closing("shutdown", "the gateway no longer needs this upstream"))
        for service in self.settings.services:
            self._services.absent.pop(service, None)
        self.coalescer.close()
        self._services.leave(self)

    def on_drain(self, peer: Peer) -> None:
        if peer is self._connection:
            self.coalescer.on_drain()

    # As a peer of the broker

    def send(self, message: Message) -> None:
        """Forward a client's request, or an event that has no answer."""
        if message.kind is Kind.EVENT:
            self._request(message)
            return
        call = self._services.find(message.correlation)
        if call is None:
            raise StateError("no such request")
        interest = unsubscribed_by(message)
        if interest is not None:
            self._unsubscribe(call.requester, interest)
            self._answer(call, Message(kind=Kind.RESPONSE))
            return
        self.coalescer.request(call, _without_hop_headers(message), self._now_s())

    def close(self, closing: Closing) -> None:
        if self._connection is not None:
            self._connection.close(closing)

    def encode_notification(self, message: Message) -> bytes:
        raise StateError(f"an upstream subscribes to nothing here, and gets no {message.kind}")

    def write(self, data: bytes) -> None:
        raise StateError(f"an upstream subscribes to nothing here, and gets no {len(data)} bytes")

    # Callbacks of the coalescer

    def _request(self, request: Message) -> None:
        if self._connection is None:
            raise StateError("the upstream is unavailable")
        self._connection.send(request)

    def _is_full(self) -> bool:
        """Return whether the connection has too many pending bytes.

        Bytes that wait for the disk count too. No event reports that they were written, so a timer retries.
        """
        connection = self._connection
        if connection is None or connection.pending_bytes <= self._pending_bytes_max:
            return False
        if not connection.is_congested and not self._has_retry_timer:
            self._has_retry_timer = True
            self._context.transport.later(GATEWAY_BUSY_PAUSE_S, self._retry)
        return True

    def _retry(self) -> None:
        self._has_retry_timer = False
        self.coalescer.on_drain()

    def _answer(self, call: Call, answer: Message) -> bool:
        answer = replace(answer, correlation=str(call.number))
        return self._services.on_answer(self, answer, self._now_s())

    # Callbacks of the endpoint

    def on_open(self, connection: Connection) -> None:
        self._connection = connection
        credentials = Credentials(self.settings.user, self.settings.password)
        connection.send(control(Op.LOGIN, credentials=credentials, correlation=_LOGIN))

    def on_message(self, connection: Connection, message: Message) -> None:
        if not self.id:
            self._on_login_answer(connection, message)
        elif message.kind in {Kind.RESPONSE, Kind.NOTIFICATION}:
            self.coalescer.on_answer(_without_hop_headers(message), self._now_s())
        elif control_op(message) is None and message.correlation:
            connection.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, failure=_NOT_SERVED))

    def on_close(self, connection: Connection) -> None:
        """Wait for the next connection. The broker has answered the open requests, because it lost their provider."""
        self._connection = None
        self.id = ""
        closing = connection.closing or Closing("lost")
        self.trouble = self._refusal or closing.text or f"the connection ended: {closing.code}"
        self._explain_absence()
        self.coalescer.on_connection_lost()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _on_login_answer(self, connection: Connection, message: Message) -> None:
        if message.correlation != _LOGIN or message.kind is not Kind.RESPONSE:
            return
        if message.failure is not None:
            self._refusal = f"login refused: {message.failure.text}"
            return  # the session closes by itself
        self.id = connection.id
        for service in self.settings.services:
            self._services.register(self, service)
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)
        _log.info("upstream %s connected", self.settings.name, extra={"session": connection.id})
        self.coalescer.on_connected()

    def _explain_absence(self) -> None:
        """Set the text with which the broker answers requests to the services while there is no connection."""
        if not self._is_stopped:
            text = f"upstream {self.settings.name} is unavailable: {self.trouble}"
            self._services.absent |= dict.fromkeys(self.settings.services, text)

    # Connecting

    async def _run(self) -> None:
        backoff = Backoff(first_s=UPSTREAM_BACKOFF_FIRST_S, max_s=UPSTREAM_BACKOFF_MAX_S)
        while not self._context.is_stopping():
            started_s = self._now_s()
            try:
                await self._connect()
            except TimeoutError:
                self.trouble = "no response"
            except (OSError, ssl.SSLError, UnicodeError) as error:  # UnicodeError: the host name is invalid
                self.trouble = str(error) or type(error).__name__
            if self._now_s() - started_s >= UPSTREAM_STEADY_S:
                backoff.reset()
            self._explain_absence()
            pause_s = backoff.next_s()
            _log.info("upstream %s: %s; reconnecting in %.1f s", self.settings.name, self.trouble, pause_s)
            await asyncio.sleep(pause_s)

    async def _connect(self) -> None:
        """Open one connection and serve it until it ends."""
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
            await asyncio.wait([self._over], timeout=UPSTREAM_CLOSE_S)  # the upstream may never read the last bytes
        finally:
            transport.abort()
            await asyncio.wait([self._over])

    def _new_connection(self) -> Connection:
        if self._scheme in {"ws", "wss"}:
            return ClientWebSocket(self._endpoint, self.settings.url, self._endpoint.options.message_bytes_max)
        return Connection(self._endpoint)

    def _check_services(self, data_sets: AbstractSet[str]) -> None:
        own = self._context.transport.broker.builtin.keys() - data_sets
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
    """The `Endpoint` of an upstream's connection."""

    remote = Sender.SERVER

    def __init__(self, context: TransportContext, upstream: Upstream, scheme: str) -> None:
        self.context = context
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


class Upstreams:
    """Keep the upstreams that the settings name. Observe the broker's peers on behalf of all of them."""

    def __init__(self, context: UpstreamContext) -> None:
        self.all: dict[str, Upstream] = {}  # by name
        self._context = context

    def check(self, settings: Settings) -> None:
        """Raise InputError if one of the upstreams in the settings cannot be used."""
        for protocol, wanted in _configured(settings):
            self._new_upstream(protocol, wanted, settings)

    def apply(self, settings: Settings) -> None:
        """Connect to the upstreams that the settings name. Those whose settings did not change stay connected."""
        wanted = _configured(settings)
        new = [
            self._new_upstream(protocol, each, settings)
            for protocol, each in wanted
            if self._settings_of(each.name) != each
        ]
        for upstream in [each for each in self.all.values() if (each.wire, each.settings) not in wanted]:
            del self.all[upstream.settings.name]
            upstream.stop()
        for upstream in new:
            self.all[upstream.settings.name] = upstream
            upstream.open()
        for upstream in self.all.values():
            upstream.apply(settings)

    def calls_of(self, subscriber: Peer) -> list[str]:
        """Return the calls that a peer is subscribed to services of upstreams by, as SERVICE/OPERATION."""
        return [call for upstream in self.all.values() for call in upstream.coalescer.calls_of(subscriber)]

    def unsubscribe(self, subscriber: Peer, interest: Interest) -> None:
        """End a subscription. A service may have several upstreams, so ask all of them."""
        for upstream in self.all.values():
            upstream.coalescer.unsubscribe(subscriber, interest)

    def on_close(self, peer: Peer) -> None:
        for upstream in self.all.values():
            upstream.coalescer.on_close(peer)

    def on_drain(self, peer: Peer) -> None:
        """Continue at an upstream whose own connection was slow."""
        for upstream in self.all.values():
            upstream.on_drain(peer)

    def _new_upstream(self, protocol: WireProtocol, upstream: UpstreamSettings, settings: Settings) -> Upstream:
        return Upstream(self._context, protocol, upstream, self.unsubscribe, data_sets=_data_sets(settings))

    def _settings_of(self, name: str) -> UpstreamSettings | None:
        found = self.all.get(name)
        return None if found is None else found.settings


def _stream_port(protocol: WireProtocol) -> int:
    """Return the port of an upstream whose URL names none."""
    return next((transport.port for transport in protocol.transports if transport.carrier is Carrier.TCP), 0)


def _without_hop_headers(message: Message) -> Message:
    """Remove the headers that concern one hop only: clients that share an answer differ in them."""
    if _ONE_HOP.isdisjoint(message.headers):
        return message
    headers = {name: value for name, value in message.headers.items() if name not in _ONE_HOP}
    return replace(message, headers=headers)


def _configured(settings: Settings) -> list[tuple[WireProtocol, UpstreamSettings]]:
    return [
        (protocol, upstream)
        for protocol in registry.all_protocols()
        for upstream in protocol.upstreams(settings.section(protocol))
    ]


def _data_sets(settings: Settings) -> set[str]:
    return {name for protocol in registry.all_protocols() for name in protocol.data_sets(settings.section(protocol))}
