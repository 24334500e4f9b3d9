"""Connect a terminal, a desk or a service over sisnet, by WebSocket or TCP."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self, Unpack
from urllib.parse import urlsplit

from msgspec.structs import replace
from websockets.client import ClientProtocol
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, resolve_options
from wirelake.clients.notification import Inbox
from wirelake.clients.serving import ServiceClient, contents_of, join_packets, value_of
from wirelake.clients.transport import OnData, OnLost, StreamTransport
from wirelake.errors import AnswerError, InputError, LostError, StateError
from wirelake.limits import CLIENT_CLOSE_S, CLIENT_FEEDS_MAX
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.session import Session
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.constants import SISNET_MESSAGE_BYTES_MAX
from wirelake.protocols.sisnet.envelope import size_width, sized
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.session import SessionSettings

_log = logging.getLogger(__name__)
_websocket_log: Final = logging.getLogger("websockets.client")
_WEBSOCKET: Final = {"ws": 7329, "wss": 7329}
_STREAM: Final = {"tcp": 7330, "tls": 7330}
_SECURE: Final = frozenset({"wss", "tls"})
_JSON: Final = (b"{", b"[")
SISDB: Final = "sisdb"


class RecordSubscription:
    """Iterate with `async for` over the records that a service pushes; end with `close` or use `async with`.

    It outlives a lost connection, because the client subscribes again. Records that are pushed meanwhile are missed.
    """

    def __init__(
        self,
        service: str,
        key: str,
        sdb: str,
        pushes_max: int,
        on_take: Callable[[], None],
        unsubscribe: Callable[["RecordSubscription"], Awaitable[None]],
    ) -> None:
        self.service = service
        self.key = key
        self.sdb = sdb
        self.correlation = ""  # of the request that subscribed, on the present connection
        self._inbox: Inbox[tuple[Any]] = Inbox(pushes_max)
        self._count = 0
        self._on_take = on_take
        self._unsubscribe = unsubscribe

    def __len__(self) -> int:
        return len(self._inbox)

    def put(self, value: Any) -> None:
        self._count += 1
        self._inbox.put(str(self._count), (value,))

    def finish(self, error: Exception | None = None) -> None:
        self._inbox.finish(error)

    async def close(self) -> None:
        await self._unsubscribe(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next push. AnswerError if the service ended the subscription."""
        push = await self._inbox.take()
        self._on_take()
        if push is None:
            raise StopAsyncIteration
        return push[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SisnetClient(ServiceClient):
    """Call and provide services, publish and subscribe.

    `url` is ws://HOST:PORT, wss://…, tcp://… or tls://…; the default port is sisnet's own. With wss and tls, the TLS
    context of the options replaces the default one. `binary` uses the binary form, `compress` compresses it with
    snappy. A full `RecordSubscription` counts like a full inbox: the client stops reading.
    """

    protocol = PROTOCOL

    def __init__(
        self,
        url: str,
        user: str,
        token: str,
        *,
        binary: bool = False,
        compress: bool = False,
        settings: SessionSettings = SessionSettings(),
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        parts = urlsplit(url)
        known = _WEBSOCKET | _STREAM
        if parts.scheme not in known or not parts.hostname:
            raise InputError(f"{url!r} is not one of {', '.join(f'{scheme}://HOST:PORT' for scheme in known)}")
        tls = (options.tls or ssl.create_default_context()) if parts.scheme in _SECURE else None
        self._url = url if parts.scheme in _WEBSOCKET else ""
        super().__init__(
            parts.hostname, parts.port or known[parts.scheme], user, token, options=replace(options, tls=tls)
        )
        # The client's own timeout must be the first, because its error says more.
        self._settings = replace(settings, answer_s=options.answer_s + CLIENT_CLOSE_S)
        self._binary = binary
        self._compress = compress
        self._subscriptions: dict[str, RecordSubscription] = {}  # by correlation

    # For users

    async def ask(self, service: str, command: str, ask: Any = None) -> Any:
        """Return the value of the response: None, a number, a string, a list, a dict or bytes. Packets are joined.

        `ask` is any value that JSON can hold, or bytes, or a dict with bytes under "payload".
        """
        return join_packets(await self.ask_packets(service, command, ask))

    async def ask_packets(self, service: str, command: str, ask: Any = None) -> list[Any]:
        """Return the value of each packet of the response."""
        message = Message(kind=Kind.REQUEST, target=Operation(service, command), **contents_of(ask))
        return await self._ask_packets(message)

    async def sub(self, key: str, sdb: str, *, service: str = SISDB) -> RecordSubscription:
        """Subscribe to new records of these keys and tables: `async for records in await client.sub(…)`."""
        if len(self._subscriptions) >= CLIENT_FEEDS_MAX:
            raise StateError(f"{CLIENT_FEEDS_MAX} subscriptions are open already (CLIENT_FEEDS_MAX)")
        if any((each.service, each.key, each.sdb) == (service, key, sdb) for each in self._subscriptions.values()):
            raise StateError(f"a subscription to {key}.{sdb} is open already")
        subscription = RecordSubscription(
            service, key, sdb, self._pushes_max, self._process_input, self._unsubscribe_records
        )
        try:
            await self.request(self._subscribe_request(subscription))
        except BaseException:
            self._subscriptions.pop(subscription.correlation, None)
            raise
        return subscription

    # For StreamClient

    def _new_transport(self) -> StreamTransport:
        if self._url:
            return WebSocketTransport(self._url, self._on_data, self._on_connection_lost)
        return super()._new_transport()

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._settings, binary=self._binary, compress=self._compress)

    async def _restore(self) -> None:
        await super()._restore()
        for subscription in list(self._subscriptions.values()):
            try:
                await self._ask(self._subscribe_request(subscription))
            except AnswerError as error:
                self._end_subscription(subscription, error)

    def _on_message(self, message: Message) -> None:
        correlation = message.correlation
        subscription = self._subscriptions.get(correlation)
        if subscription is not None and message.kind is Kind.NOTIFICATION:
            subscription.put(value_of(message))
        elif subscription is not None and message.failure is not None and correlation not in self._answers:
            self._end_subscription(subscription, AnswerError(message.failure.text, message.failure.code))
        else:
            super()._on_message(message)

    @property
    def _pushes_waiting(self) -> int:
        inbox_size = len(self._inbox)
        return max(inbox_size, *map(len, self._subscriptions.values())) if self._subscriptions else inbox_size

    def _finish(self, error: Exception | None) -> None:
        super()._finish(error)
        for subscription in list(self._subscriptions.values()):
            self._end_subscription(subscription, error)

    # Internal

    def _subscribe_request(self, subscription: RecordSubscription) -> Message:
        """Register the subscription before its request is sent: pushes may arrive in the same read as the response."""
        self._subscriptions.pop(subscription.correlation, None)
        subscription.correlation = self._new_correlation()
        self._subscriptions[subscription.correlation] = subscription
        target = Operation(subscription.service, "sub")
        fields = {"key": subscription.key, "sdb": subscription.sdb}
        return Message(kind=Kind.REQUEST, target=target, correlation=subscription.correlation, fields=fields)

    async def _unsubscribe_records(self, subscription: RecordSubscription) -> None:
        if self._subscriptions.get(subscription.correlation) is not subscription:
            return
        self._end_subscription(subscription, None)
        if self._is_ready:
            target = Operation(subscription.service, "unsub")
            fields = {"key": subscription.key, "sdb": subscription.sdb}
            try:
                await self.request(Message(kind=Kind.REQUEST, target=target, fields=fields))
            except (LostError, StateError) as gone:
                _log.debug("the subscription ended with its connection: %s", gone)

    def _end_subscription(self, subscription: RecordSubscription, error: Exception | None) -> None:
        self._subscriptions.pop(subscription.correlation, None)
        subscription.finish(error)


class WebSocketTransport(StreamTransport):
    """Present a WebSocket connection as sisnet's own TCP stream, in which each message has its size before it.

    Everything above reads and writes a stream. The sans-I/O part of the `websockets` library speaks the protocol.
    """

    def __init__(self, url: str, on_data: OnData, on_lost: OnLost) -> None:
        super().__init__(on_data, on_lost)
        self._websocket = ClientProtocol(parse_uri(url), max_size=SISNET_MESSAGE_BYTES_MAX, logger=_websocket_log)
        self._early: list[bytes] = []  # written before the handshake is done
        self._fragments: list[bytes] = []  # of one message; the library limits their size

    def write(self, packets: list[bytes]) -> None:
        if self._websocket.state is not OPEN:
            self._early += packets
            return
        for packet in packets:
            message = packet[size_width(packet[0]) :]
            if message[message.find(b":") + 1 :][:1] in _JSON:
                self._websocket.send_text(message)
            else:
                self._websocket.send_binary(message)
        self._flush()

    def close(self, reason: str = "") -> None:
        if self._websocket.state is OPEN and not self._transport.is_closing():
            self._websocket.send_close()
            self._flush()
        super().close(reason)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._websocket.send_request(self._websocket.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._on_handshake()
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._on_frame(event)
        self._flush()
        error = self._websocket.handshake_exc or self._websocket.parser_exc
        if error is not None:
            super().close(f"no WebSocket: {error}")
        elif self._websocket.close_expected():
            super().close(self._close_reason())

    def _on_handshake(self) -> None:
        early, self._early = self._early, []
        if early and self._websocket.state is OPEN:
            self.write(early)

    def _on_frame(self, frame: Frame) -> None:
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            message, self._fragments = b"".join(self._fragments), []
            self._on_data(sized(message))

    def _flush(self) -> None:
        if not self._transport.is_closing():
            for data in self._websocket.data_to_send():
                if data:
                    self._transport.write(data)

    def _close_reason(self) -> str:
        received = self._websocket.close_rcvd
        return "" if received is None else received.reason or f"closed with code {received.code}"
