"""A terminal, a browser's server or a service: asks, publishes, subscribes and provides, by WebSocket or TCP."""

import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.feed import NotificationQueue
from wirelake.clients.service import ServiceClient
from wirelake.clients.transport import StreamTransport
from wirelake.clients.values import contents_of, joined, value_of
from wirelake.clients.websocket import WebSocketTransport
from wirelake.errors import AnswerError, InputError, LostError, StateError
from wirelake.limits import (
    CLIENT_ANSWER_S,
    CLIENT_CLOSE_S,
    CLIENT_CONNECT_S,
    CLIENT_FEEDS_MAX,
    CLIENT_INBOX_MAX,
)
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.session import Session
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.session import SessionSettings

_log = logging.getLogger(__name__)
_WEBSOCKET: Final = {"ws": 7329, "wss": 7329}
_STREAM: Final = {"tcp": 7330, "tls": 7330}
_SECURE: Final = frozenset({"wss", "tls"})
SISDB: Final = "sisdb"


class SisnetClient(ServiceClient):
    """`url` is ws://HOST:PORT, wss://…, tcp://… or tls://…; without a port, sisnet's own. `tls` instead of the default.

    A full feed counts like a full inbox: nothing more is read.
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
            user,
            token,
            tls=(tls or ssl.create_default_context()) if secure else None,
            answer_s=answer_s,
            connect_s=connect_s,
            inbox_max=inbox_max,
            backoff=backoff,
            clock=clock,
        )
        self._settings = replace(settings, answer_s=answer_s + CLIENT_CLOSE_S)  # ours is over first, and says more
        self._binary = binary
        self._compress = compress
        self._feeds: dict[str, NotificationQueue] = {}  # by correlation

    # For users

    async def ask(self, service: str, command: str, ask: Any = None) -> Any:
        """The answer's value: None, a number, a text, a list, a dict or bytes. Several packets are joined.

        `ask` is any value that JSON can hold, or bytes, or a dict with bytes under "payload".
        """
        return joined(await self.ask_packets(service, command, ask))

    async def ask_packets(self, service: str, command: str, ask: Any = None) -> list[Any]:
        """The value of each packet of the answer."""
        message = Message(kind=Kind.REQUEST, target=Operation(service, command), **contents_of(ask))
        return await self._ask_packets(message)

    async def sub(self, key: str, sdb: str, *, service: str = SISDB) -> NotificationQueue:
        """New records of these keys and tables, as the service pushes them: `async for records in await …`."""
        if len(self._feeds) >= CLIENT_FEEDS_MAX:
            raise StateError(f"{CLIENT_FEEDS_MAX} feeds are open already")
        if any((feed.service, feed.key, feed.sdb) == (service, key, sdb) for feed in self._feeds.values()):
            raise StateError(f"a feed of {key}.{sdb} is open already")
        feed = NotificationQueue(service, key, sdb, self._pushes_max, self._fit_reading, self._leave)
        try:
            await self.request(self._sub_request(feed))
        except BaseException:
            self._feeds.pop(feed.correlation, None)
            raise
        return feed

    # For StreamClient

    def _new_line(self) -> StreamTransport:
        return WebSocketTransport(self._url) if self._url else StreamTransport()

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._settings, binary=self._binary, compress=self._compress)

    async def _restore(self) -> None:
        await super()._restore()
        for feed in list(self._feeds.values()):
            try:
                await self._ask(self._sub_request(feed))
            except AnswerError as error:
                self._end_feed(feed, error)

    def _heard(self, message: Message) -> None:
        correlation = message.correlation
        feed = self._feeds.get(correlation)
        if feed is not None and message.kind is Kind.NOTIFICATION:
            feed.put(value_of(message))
        elif feed is not None and message.failure is not None and correlation not in self._answers:
            self._end_feed(feed, AnswerError(message.failure.text, message.failure.code))
        else:
            super()._heard(message)

    @property
    def _waiting(self) -> int:
        return max(super()._waiting, *map(len, self._feeds.values())) if self._feeds else super()._waiting

    def _end(self, error: Exception | None) -> None:
        super()._end(error)
        for feed in list(self._feeds.values()):
            self._end_feed(feed, error)

    # Inside

    def _sub_request(self, feed: NotificationQueue) -> Message:
        """Its pushes may come in the same read as its answer, so the feed is known before it is asked for."""
        self._feeds.pop(feed.correlation, None)
        feed.correlation = self._new_correlation()
        self._feeds[feed.correlation] = feed
        target = Operation(feed.service, "sub")
        fields = {"key": feed.key, "sdb": feed.sdb}
        return Message(kind=Kind.REQUEST, target=target, correlation=feed.correlation, fields=fields)

    async def _leave(self, feed: NotificationQueue) -> None:
        if self._feeds.get(feed.correlation) is not feed:
            return
        self._end_feed(feed, None)
        if self._ready:
            fields = {"key": feed.key, "sdb": feed.sdb}
            try:
                await self.request(Message(kind=Kind.REQUEST, target=Operation(feed.service, "unsub"), fields=fields))
            except (LostError, StateError) as gone:
                _log.debug("the feed ended with its connection: %s", gone)

    def _end_feed(self, feed: NotificationQueue, error: Exception | None) -> None:
        self._feeds.pop(feed.correlation, None)
        feed.finish(error)
