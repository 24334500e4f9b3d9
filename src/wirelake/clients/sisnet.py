"""A terminal, a browser's server or a service: asks, publishes, subscribes and provides, by WebSocket or TCP."""

import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.feed import Feed
from wirelake.clients.inbox import Inbox
from wirelake.clients.line import StreamLine
from wirelake.clients.notification import Notification
from wirelake.clients.serving import Handler, Services
from wirelake.clients.stream import StreamClient
from wirelake.clients.values import contents_of, joined, value_of
from wirelake.clients.websocket import WebSocketLine
from wirelake.errors import AnswerError, ClientError, InputError, LostError, StateError
from wirelake.limits import (
    CLIENT_ANSWER_PACKETS_MAX,
    CLIENT_ANSWER_S,
    CLIENT_CLOSE_S,
    CLIENT_CONNECT_S,
    CLIENT_FEEDS_MAX,
    CLIENT_INBOX_MAX,
    CLIENT_INBOX_OVERDRAFT,
    CLIENT_READ_BYTES,
)
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Session
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.session import Settings

_log = logging.getLogger(__name__)
_WEBSOCKET: Final = {"ws": 7329, "wss": 7329}
_STREAM: Final = {"tcp": 7330, "tls": 7330}
_SECURE: Final = frozenset({"wss", "tls"})
_WILL_PASS: Final = ("try again", "shutting down", "in time")  # in the reason of a refused login
_PUSHES_PER_READ_MAX: Final = CLIENT_READ_BYTES // 8  # no message of use is shorter
SISDB: Final = "sisdb"


class SisnetClient(StreamClient):
    """`url` is ws://HOST:PORT, wss://…, tcp://… or tls://…; without a port, sisnet's own. `tls` instead of the default.

    What is pushed counts as delivered once it was written to us, so nothing is left out here: with a full inbox, or a
    full feed, nothing more is read, and after `CLIENT_INBOX_OVERDRAFT` times that much not even for an answer.
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
        settings: Settings = Settings(),
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`binary` asks and answers in the binary form, `compress` with snappy."""
        parts = urlsplit(url)
        known = _WEBSOCKET | _STREAM
        if parts.scheme not in known or not parts.hostname:
            raise InputError(f"{url!r} is not one of {', '.join(f'{scheme}://HOST:PORT' for scheme in known)}")
        secure = parts.scheme in _SECURE
        self._url = url if parts.scheme in _WEBSOCKET else ""
        super().__init__(
            parts.hostname,
            parts.port or known[parts.scheme],
            tls=(tls or ssl.create_default_context()) if secure else None,
            answer_s=answer_s,
            connect_s=connect_s,
            inbox_max=inbox_max,
            backoff=backoff,
            clock=clock,
        )
        self._pushes_max = inbox_max * CLIENT_INBOX_OVERDRAFT + _PUSHES_PER_READ_MAX
        self._inbox: Inbox[Notification] = Inbox(self._pushes_max)
        self._credentials = Credentials(user, token)
        self._settings = replace(settings, answer_s=answer_s + CLIENT_CLOSE_S)  # ours is over first, and says more
        self._binary = binary
        self._compress = compress
        self._logging_in = False
        self._topics: dict[str, None] = {}
        self._feeds: dict[str, Feed] = {}  # by correlation
        self._services = Services(self._reply)
        self._packets: dict[str, list[Message]] = {}

    # For users

    async def ask(self, service: str, command: str, ask: Any = None) -> Any:
        """The answer's value: None, a number, a text, a list, a dict or bytes. Several packets are joined.

        `ask` is any value that JSON can hold, or bytes, or a dict with bytes under "payload".
        """
        return joined(await self.ask_packets(service, command, ask))

    async def ask_packets(self, service: str, command: str, ask: Any = None) -> list[Any]:
        """The value of each packet of the answer."""
        correlation = self._new_correlation()
        message = Message(
            kind=Kind.REQUEST, target=Operation(service, command), correlation=correlation, **contents_of(ask)
        )
        self._packets[correlation] = []
        try:
            last = await self.request(message)
            return [value_of(packet) for packet in (*self._packets[correlation], last)]
        finally:
            del self._packets[correlation]

    async def publish(self, topic: str, content: bytes | str, *, type: int = 0) -> str:  # noqa: A002 (its name)
        """A durable topic: on disk when this returns; answers its id. A live name: answers nothing."""
        payload = content.encode() if isinstance(content, str) else content
        message = Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=payload, type=type)
        answer = await self.request(message)
        return str(answer.fields.get("id", ""))

    async def subscribe(self, *topics: str) -> None:
        """Durable topics (`@…`) bring what was missed; live names bring what is published from now on."""
        if topics:
            await self.request(control(Op.SUBSCRIBE, fields={"topics": list(topics)}))
            self._topics.update(dict.fromkeys(topics))

    async def unsubscribe(self, *topics: str) -> None:
        if topics:
            for name in topics:
                self._topics.pop(name, None)
            await self.request(control(Op.UNSUBSCRIBE, fields={"topics": list(topics)}))

    async def sub(self, key: str, sdb: str, *, service: str = SISDB) -> Feed:
        """New records of these keys and tables, as the service pushes them: `async for records in await …`."""
        if len(self._feeds) >= CLIENT_FEEDS_MAX:
            raise StateError(f"{CLIENT_FEEDS_MAX} feeds are open already")
        if any((feed.service, feed.key, feed.sdb) == (service, key, sdb) for feed in self._feeds.values()):
            raise StateError(f"there is a feed of {key}.{sdb} already")
        feed = Feed(service, key, sdb, self._pushes_max, self._fit_reading, self._leave)
        try:
            await self.request(self._sub_request(feed))
        except BaseException:
            self._feeds.pop(feed.correlation, None)
            raise
        return feed

    async def register(self, service: str, handler: Handler) -> None:
        """Provide a service. The handler gets a `ServiceRequest` and returns a value, or `Packets` of several.

        ServiceError answers with its reason; any other exception is a failure of the service.
        """
        self._services.add(service, handler)
        try:
            await self.request(control(Op.REGISTER, fields={"service": service}))
        except BaseException:
            self._services.remove(service)
            raise

    async def unregister(self, service: str) -> None:
        self._services.remove(service)
        await self.request(control(Op.UNREGISTER, fields={"service": service}))

    async def ping(self) -> None:
        """Pings go out by themselves; this one is answered."""
        await self.request(control(Op.PING))

    async def close(self) -> None:
        await super().close()
        await self._services.close()

    # For StreamClient

    def _new_line(self) -> StreamLine:
        return WebSocketLine(self._url) if self._url else StreamLine()

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._settings, binary=self._binary, compress=self._compress)

    def _login(self) -> Message:
        self._logging_in = True
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        self._logging_in = False
        for service in self._services.names:
            await self._ask(control(Op.REGISTER, fields={"service": service}))
        if self._topics:
            await self._ask(control(Op.SUBSCRIBE, fields={"topics": list(self._topics)}))
        for feed in list(self._feeds.values()):
            try:
                await self._ask(self._sub_request(feed))
            except AnswerError as error:
                self._end_feed(feed, error)

    def _final(self, failure: Failure) -> bool:
        return self._logging_in and not any(words in failure.text for words in _WILL_PASS)

    def _check(self, message: Message) -> None:
        self.protocol.from_message(message, Sender.CLIENT).encode()

    def _heard(self, message: Message) -> None:
        correlation = message.correlation
        feed = self._feeds.get(correlation)
        if message.kind is Kind.RESPONSE and message.more:
            self._gather(message)
        elif feed is not None and message.kind is Kind.NOTIFICATION:
            feed.put(value_of(message))
        elif feed is not None and message.failure is not None and correlation not in self._answers:
            self._end_feed(feed, AnswerError(message.failure.text, message.failure.code))
        elif message.kind is not Kind.NOTIFICATION or isinstance(message.target, Topic):
            super()._heard(message)

    def _told(self, message: Message) -> None:
        if message.kind in {Kind.REQUEST, Kind.EVENT}:
            self._services.asked(message)
        else:
            super()._told(message)

    @property
    def _room(self) -> bool:
        fullest = max(len(self._inbox), *map(len, self._feeds.values())) if self._feeds else len(self._inbox)
        return fullest < self._inbox_max * (CLIENT_INBOX_OVERDRAFT if self._answers else 1)

    def _end(self, error: Exception | None) -> None:
        super()._end(error)
        for feed in list(self._feeds.values()):
            self._end_feed(feed, error)

    # Inside

    def _gather(self, message: Message) -> None:
        packets = self._packets.get(message.correlation)
        answer = self._answers.get(message.correlation)
        if packets is None or answer is None or answer.done():
            return
        packets.append(message)
        if len(packets) >= CLIENT_ANSWER_PACKETS_MAX:
            answer.set_exception(ClientError(f"the answer has more than {CLIENT_ANSWER_PACKETS_MAX} packets"))

    def _sub_request(self, feed: Feed) -> Message:
        """Its pushes may come in the same read as its answer, so the feed is known before it is asked for."""
        self._feeds.pop(feed.correlation, None)
        feed.correlation = self._new_correlation()
        self._feeds[feed.correlation] = feed
        target = Operation(feed.service, "sub")
        fields = {"key": feed.key, "sdb": feed.sdb}
        return Message(kind=Kind.REQUEST, target=target, correlation=feed.correlation, fields=fields)

    async def _leave(self, feed: Feed) -> None:
        if self._feeds.get(feed.correlation) is not feed:
            return
        self._end_feed(feed, None)
        if self._ready:
            fields = {"key": feed.key, "sdb": feed.sdb}
            try:
                await self.request(Message(kind=Kind.REQUEST, target=Operation(feed.service, "unsub"), fields=fields))
            except (LostError, StateError) as gone:
                _log.debug("the feed ended with its connection: %s", gone)

    def _end_feed(self, feed: Feed, error: Exception | None) -> None:
        self._feeds.pop(feed.correlation, None)
        feed.finish(error)

    def _reply(self, answer: Message) -> None:
        if self._pump is None or self._pump.closing is not None:
            raise StateError("the connection is gone")
        self._pump.say(answer)
