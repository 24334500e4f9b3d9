"""Stream notifications to HTTP clients as server-sent events, one JSON object each."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from wirelake.cleanup import clean_up
from wirelake.errors import StorageError
from wirelake.gateway.http.errors import service_error
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.transport.outbox import undelivered_bytes
from wirelake.limits import GATEWAY_TLS_BUFFERS, HTTP_STREAM_PING_S
from wirelake.message import Kind, Message, Op, Topic, control
from wirelake.protocols.session import Closing
from wirelake.protocols.text import as_text, write_json

_OVER: Final = Closing("over", "the requested duration is over")
_PING: Final = b": still here\n\n"


class StreamEvent(Struct):
    """The `data:` of a notification. Content that is not UTF-8 is base64, and `encoding` says so."""

    topic: str
    id: str
    type: int
    ts: int
    content: str
    encoding: str | UnsetType = UNSET


class EventStreams:
    """Open streams, and keep track of the open ones."""

    def __init__(
        self,
        client: BrokerClient,
        recorder: Recorder,
        counters: Counters,
        pending_bytes_max: Callable[[], int],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._counters = counters
        self._pending_bytes_max = pending_bytes_max
        self._by_id: dict[str, Subscriber] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> "Iterator[Subscriber]":
        return iter(self._by_id.values())

    def open(self, context: RequestContext) -> "Subscriber":
        """Return a new stream of the request's identity, without subscriptions yet."""
        stream = Subscriber(
            context, self, self._client, self._recorder, self._counters, pending_bytes_max=self._pending_bytes_max()
        )
        self._by_id[stream.id] = stream
        return stream

    def of(self, identity: str) -> "list[Subscriber]":
        return [stream for stream in self if stream.identity == identity]

    def remove(self, stream: "Subscriber") -> None:
        del self._by_id[stream.id]

    def close(self, closing: Closing) -> None:
        """Close all streams."""
        for stream in list(self):
            stream.close(closing)


class Subscriber:
    """The broker's `Peer` while the stream is open. It sends neither acks nor anything else after it has subscribed."""

    sends_acks: Final = False
    takes_commands: Final = False
    takes_broadcasts: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = "http"

    def __init__(
        self,
        context: RequestContext,
        streams: EventStreams,
        client: BrokerClient,
        recorder: Recorder,
        counters: Counters,
        *,
        pending_bytes_max: int,
    ) -> None:
        self._streams = streams
        self._client = client
        self._recorder = recorder
        self._counters = counters
        self._connection = context.connection
        self.protocol = context.protocol
        self.id = context.id
        self.identity = context.identity
        self.token_id = context.token_id
        self.is_admin = context.is_admin
        self.address = context.address
        self.opened_at_ms = client.now_ms()
        self.frames_in, self.frames_out, self.bytes_in, self.bytes_out = 1, 0, 0, 0
        self.pending_bytes = 0
        self.is_congested = False
        self.temporary_topics: set[str] = set()  # durable topics whose subscription ends with the stream
        self._pending_bytes_max = pending_bytes_max
        self._pending: deque[bytes] = deque()  # bounded: the broker does not write to a congested peer
        self._wake = asyncio.Event()
        self._closing: Closing | None = None
        self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._subscribed: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def subscribe(self, topics: list[str]) -> None:
        """Subscribe, and return once the subscription is durable."""
        request = write_json({"topics": topics})
        self._recorder.event(self, "open", {})
        commit = self._recorder.event(self, "frame", {"method": "GET", "path": "/api/subscribe"}, "in", request)
        self._counters.frames_in["http"] += 1
        self._counters.bytes_in["http"] += len(request)
        self.bytes_in = len(request)
        self._client.handle(self, control(Op.SUBSCRIBE, correlation=self.id, fields={"topics": topics}))
        response = await self._subscribed
        if response.failure is not None:
            raise service_error(response.failure)
        await commit

    # Called by the broker

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
        self._pending.append(data)
        self._wake.set()

    def send(self, message: Message) -> None:
        if message.kind is Kind.NOTIFICATION:
            self.write(self.encode_notification(message))
        elif not self._subscribed.done():
            self._subscribed.set_result(message)

    def close(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._wake.set()
            if self.is_congested:  # the client would not read the reason
                self._connection.transport.abort()

    def close_after(self, duration_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(duration_s, self.close, _OVER)

    # The stream

    async def events(self) -> AsyncIterator[bytes]:
        while True:
            if not self._pending and self._closing is None:
                self._wake.clear()
                try:
                    async with asyncio.timeout(HTTP_STREAM_PING_S):
                        await self._wake.wait()
                except TimeoutError:
                    yield _PING
                    continue
            if self._pending:
                data = b"".join(self._pending)
                self._pending.clear()
                yield data
                self._on_written(len(data))
            elif self._closing is not None:
                reason = write_json({"code": self._closing.code, "message": self._closing.text})
                yield b"event: end\ndata: %b\n\n" % reason
                return

    def _on_written(self, size: int) -> None:
        self.bytes_out += size
        self.pending_bytes -= size
        if self.is_congested and self.pending_bytes <= self._pending_bytes_max:
            self.is_congested = False
            self._client.on_drain(self)

    def on_end(self) -> None:
        """End the session and the temporary subscriptions. Call this once the stream is closed, on either side."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        closing = self._closing = self._closing or Closing("peer_closed")
        self._streams.remove(self)
        # Of several streams with a temporary subscription, the last one removes it, unless another session uses it.
        for other in self._streams.of(self.identity):
            self.temporary_topics -= other.temporary_topics
        durable = self._client.broker.durable
        unused = [name for name in self.temporary_topics if durable.sessions(self.identity, name) <= 1]
        message = control(Op.UNSUBSCRIBE, correlation=self.id, fields={"topics": unused})
        clean_up(
            f"subscriber {self.id}",
            *([partial(self._client.handle, self, message)] if unused else []),
            partial(self._client.broker.on_close, self),
            self._client.flush_soon,
        )
        self._pending.clear()
        self._counters.frames_out["http"] += self.frames_out
        self._counters.bytes_out["http"] += self.bytes_out
        note = {
            "reason": closing.code,
            "text": closing.text,
            "frames_in": self.frames_in,
            "frames_out": self.frames_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }
        with contextlib.suppress(StorageError):  # the recorder counts what the log refuses
            self._recorder.event(self, "close", note)


class EventStream(StreamingResponse):
    """The response of a stream."""

    def __init__(self, subscriber: Subscriber) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(subscriber.events(), headers=headers, media_type="text/event-stream")
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscriber.on_end()
