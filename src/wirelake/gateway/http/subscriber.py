"""Somebody who listens by HTTP: notifications as server-sent events, one JSON object each."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from wirelake.cleanup import clean_up
from wirelake.errors import StorageError
from wirelake.gateway.http.connection import HttpConnection
from wirelake.gateway.http.errors import failed
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.transport.send_queue import undelivered_bytes
from wirelake.limits import GATEWAY_TLS_BUFFERS, HTTP_STREAM_PING_S
from wirelake.message import Kind, Message, Op, Topic, control
from wirelake.protocols.jsontext import as_text, write_json
from wirelake.protocols.session import Closing

_OVER: Final = Closing("over", "the requested duration is over")
_PING: Final = b": still here\n\n"


class StreamEvent(Struct):
    """A notification as it stands behind `data:`. Content that is not UTF-8 is base64, and `encoding` says so."""

    topic: str
    id: str
    type: int
    ts: int
    content: str
    encoding: str | UnsetType = UNSET


class Subscriber:
    """The broker's `Peer` for as long as the stream is read. It has no acks, and says nothing once it listens."""

    sends_acks: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = "http"

    def __init__(self, exchange: RequestContext, connection: HttpConnection) -> None:
        gateway = self._gateway = exchange.gateway
        self._api = exchange.api
        self._connection = connection
        self.protocol = exchange.protocol
        self.id = exchange.id
        self.identity = exchange.identity
        self.address = exchange.address
        self.opened_at_ms = gateway.now_ms()
        self.frames_in, self.frames_out, self.bytes_in, self.bytes_out = 1, 0, 0, 0
        self.pending_bytes = 0
        self.is_congested = False
        self.passing: set[str] = set()  # durable topics that it is subscribed to only while it listens
        self._pending_bytes_max = gateway.settings.limits.pending_bytes
        self._pieces: deque[bytes] = deque()  # bounded: a congested peer is not written to
        self._something = asyncio.Event()
        self._closing: Closing | None = None
        self._left = False
        self._timer: asyncio.TimerHandle | None = None
        self._answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._api.subscribers[self.id] = self

    async def subscribe(self, topics: list[str]) -> None:
        """Returns once the subscription is durable."""
        gateway = self._gateway
        request = write_json({"topics": topics})
        gateway.recorder.event(self, "open", {})
        commit = gateway.recorder.event(self, "frame", {"method": "GET", "path": "/api/subscribe"}, "in", request)
        gateway.counters.frames_in["http"] += 1
        gateway.counters.bytes_in["http"] += len(request)
        self.bytes_in = len(request)
        message = control(Op.SUBSCRIBE, correlation=self.id, fields={"topics": topics})
        gateway.broker.handle(self, message, gateway.now_s(), gateway.now_ms())
        gateway.flush_soon()
        answer = await self._answered
        if answer.failure is not None:
            raise failed(answer.failure)
        await commit

    # The broker's view

    @property
    def bytes_written(self) -> int:
        return self.bytes_out + self.pending_bytes

    @property
    def bytes_drained(self) -> int:
        transport = self._connection.transport
        if transport.is_closing():
            return 0
        return self.bytes_out - undelivered_bytes(transport, GATEWAY_TLS_BUFFERS * self._pending_bytes_max)

    def encode_notification(self, message: Message) -> bytes:
        name = message.target.name if isinstance(message.target, Topic) else ""
        content, encoding = as_text(message.payload)
        event = StreamEvent(name, message.id, message.type, message.at_ms, content, encoding)
        head = f"id: {message.id}\n".encode() if message.id else b""
        return b"%bdata: %b\n\n" % (head, write_json(event))

    def write(self, data: bytes) -> None:
        if self._closing is not None:
            return
        self.frames_out += 1
        self.pending_bytes += len(data)
        self.is_congested = self.pending_bytes > self._pending_bytes_max
        self._pieces.append(data)
        self._something.set()

    def send(self, message: Message) -> None:
        if message.kind is Kind.NOTIFICATION:
            self.write(self.encode_notification(message))
        elif not self._answered.done():
            self._answered.set_result(message)

    def close(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._something.set()
            if self.is_congested:  # it would not read why
                self._connection.transport.abort()

    def end_after(self, duration_s: float) -> None:
        self._timer = self._gateway.later(duration_s, partial(self.close, _OVER))

    # The stream

    async def events(self) -> AsyncIterator[bytes]:
        while True:
            if not self._pieces and self._closing is None:
                self._something.clear()
                try:
                    async with asyncio.timeout(HTTP_STREAM_PING_S):
                        await self._something.wait()
                except TimeoutError:
                    yield _PING
                    continue
            if self._pieces:
                data = b"".join(self._pieces)
                self._pieces.clear()
                yield data
                self._taken(len(data))
            elif self._closing is not None:
                reason = write_json({"code": self._closing.code, "message": self._closing.text})
                yield b"event: end\ndata: %b\n\n" % reason
                return

    def _taken(self, size: int) -> None:
        self.bytes_out += size
        self.pending_bytes -= size
        if self.is_congested and self.pending_bytes <= self._pending_bytes_max:
            self.is_congested = False
            self._gateway.on_drain(self)

    def leave(self) -> None:
        """The stream is over, and so are the subscriptions that were made for it."""
        if self._left:
            return
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
        gateway = self._gateway
        closing = self._closing = self._closing or Closing("peer_closed")
        del self._api.subscribers[self.id]
        # Of two streams that listen in passing, the last one takes the subscription with it; a session of another
        # kind keeps it.
        for other in self._api.streams_of(self.identity):
            self.passing -= other.passing
        forget = [name for name in self.passing if gateway.broker.durable.sessions(self.identity, name) <= 1]
        message = control(Op.UNSUBSCRIBE, correlation=self.id, fields={"topics": forget})
        clean_up(
            f"subscriber {self.id}",
            *([partial(gateway.broker.handle, self, message, gateway.now_s(), gateway.now_ms())] if forget else []),
            partial(gateway.broker.on_close, self),
            gateway.flush_soon,
        )
        self._pieces.clear()
        gateway.counters.frames_out["http"] += self.frames_out
        gateway.counters.bytes_out["http"] += self.bytes_out
        note = {
            "reason": closing.code,
            "text": closing.text,
            "frames_in": self.frames_in,
            "frames_out": self.frames_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }
        with contextlib.suppress(StorageError):  # the log says itself that it cannot be written
            gateway.recorder.event(self, "close", note)


class EventStream(StreamingResponse):
    def __init__(self, subscriber: Subscriber) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(subscriber.events(), headers=headers, media_type="text/event-stream")
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscriber.leave()
