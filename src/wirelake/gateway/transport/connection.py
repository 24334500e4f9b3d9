"""Drive a session over an asyncio transport. The read limiter decides when the connection is read."""

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, cast

from wirelake.cleanup import clean_up
from wirelake.errors import AccessDeniedError, ProtocolError, StorageError
from wirelake.gateway.auth.admission import Slot, account_for, address_of, charge, host_of
from wirelake.gateway.auth.logins import ANONYMOUS
from wirelake.gateway.transport.context import Endpoint
from wirelake.gateway.transport.driver import TELEMETRY, GatewayDriver
from wirelake.gateway.transport.outbox import Outbox, undelivered_bytes
from wirelake.gateway.transport.read_limiter import ReadLimiter, cut_frames
from wirelake.limits import GATEWAY_LINGER_S, GATEWAY_TLS_BUFFERS, GATEWAY_TURN_S, QUARANTINE_BYTES_MAX
from wirelake.message import Failure, FailureCode, Message
from wirelake.protocols.batches import PublishBatch
from wirelake.protocols.session import ACCESS_DENIED, Closing, Step
from wirelake.roles import Action


class Connection(GatewayDriver, asyncio.Protocol):
    """Drive the session of one TCP connection. Subclasses implement WebSocket and UDP."""

    __slots__ = (
        "_drains_on_close",
        "_endpoint",
        "_frames",
        "_frames_done",
        "_host",
        "_is_write_closed",
        "_jobs",
        "_messages",
        "_read_limiter",
        "_transport",
        "slot",
        "token_id",
    )

    def __init__(self, endpoint: Endpoint, slot: Slot | None = None) -> None:
        super().__init__(endpoint.context, endpoint.protocol, endpoint.remote)
        self._endpoint = endpoint
        self._is_write_closed = False  # EOF was sent, so nothing more is written
        self._drains_on_close = False  # the peer may still send while it is sent an error
        self._transport: asyncio.Transport | None = None
        self._frames: list[bytes] = []  # split from the stream; handled up to `_frames_done`
        self._frames_done = 0
        self._messages: deque[Message] = deque()  # of the current frame; handled before the next frame
        self._jobs = 0  # long requests in progress
        self.token_id = ""  # of the token that the peer logged in with; empty if it needed none
        self.slot = slot  # of accepted peers; with TLS, assigned before the handshake

    # Interface for the broker

    @property
    def pending_bytes(self) -> int:
        """Return how many bytes wait in the transport's buffer or for their commit."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return buffered + self._outbox.bytes

    @property
    def bytes_drained(self) -> int:
        transport = self._transport
        if transport is None or transport.is_closing():
            return 0
        tls_buffer_bytes_max = GATEWAY_TLS_BUFFERS * self._context.settings().limits.pending_bytes
        return self.bytes_out - undelivered_bytes(transport, tls_buffer_bytes_max)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """Return the certificate that the peer proved to have, as `ssl.SSLSocket.getpeercert` does."""
        return None if self._transport is None else self._transport.get_extra_info("peercert")

    def send(self, message: Message) -> None:
        super().send(message)
        if self._closing is None and self._read_limiter.is_paused:
            self._read_limiter.wake()  # the reader may have waited for this message

    def begin_job(self) -> None:
        """Handle nothing more from this peer until its long request is answered."""
        self._jobs += 1

    def end_job(self) -> None:
        self._jobs -= 1
        self._read_limiter.wake()

    # Interface for the read limiter

    @property
    def share(self) -> str:
        identity = self.identity
        return identity if identity and identity != ANONYMOUS else self._host

    @property
    def has_more(self) -> bool:
        return bool(self._messages) or self._frames_done < len(self._frames)

    @property
    def is_blocked(self) -> bool:
        return self._jobs > 0 or self._session.is_paused

    def disconnect(self, code: str, text: str) -> None:
        """Abort the connection. Send no reason, because the peer may not read."""
        if self._closing is None:
            self._closing = Closing(code, text)
            self._context.counters.errors[self.protocol, code] += 1
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Interface for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)
        endpoint, context = self._endpoint, self._context
        now_s = context.now_s()
        self.address = address_of(transport.get_extra_info("peername"))
        self._outbox = Outbox(context.commit_barrier, self._send, self.on_storage_error)
        self._session = endpoint.new_session(now_s)
        self._splitter = endpoint.new_splitter()
        self._update_frame_limit()
        self._host = "@" + host_of(self.address)  # never the name of an identity
        self._read_limiter = ReadLimiter(context.reads, transport, self, now_s)
        self._closing = context.sessions.admit(self, endpoint)
        if self._closing is not None:
            self.abort()
            return
        self.opened_at_ms = context.now_ms()
        self._on_connected()
        self._watch()

    def _on_connected(self) -> None:
        self._endpoint.on_open(self)  # TCP has no handshake of its own: messages can follow at once

    def data_received(self, data: bytes) -> None:
        if self._closing is None:
            self._read_limiter.on_data(data)
            if self.slot is not None and not self.slot.authenticated:
                account_for(self, len(data))

    @property
    def held_bytes(self) -> int:
        """Return how many bytes of this connection are in memory: unread, incomplete or not yet sent."""
        return self.pending_bytes + self._splitter.held_bytes + self._read_limiter.unread_bytes

    def read(self, data: bytes) -> None:
        """Handle bytes of the stream, in a turn of this connection."""
        if self._closing is not None or self._splitter.failure is not None:
            return
        frames, rest = cut_frames(self._splitter, data)
        if rest:
            self._read_limiter.put_back(rest)
        size = len(data) - len(rest)
        self.bytes_in += size
        self._consume(frames, size, len(frames))

    def _consume(self, frames: list[bytes], size: int, count: int) -> None:
        """Handle frames that were split from `size` bytes, which the transport received as `count` frames."""
        now_s = self._context.now_s()
        self._read_limiter.count_read(size, count, now_s)
        self._handle(frames, now_s)
        if self.slot is not None and not self.slot.authenticated:
            self._read_limiter.pause(charge(self, count, size))

    def continue_reading(self) -> None:
        self._handle([], self._context.now_s())

    def _handle(self, new: list[bytes], now_s: float) -> None:
        """Handle queued and new frames until the turn is over."""
        try:
            self._enqueue(new)
            self._receive(now_s)
            if self._splitter.retry and not self.has_more:  # the login raised the frame limit
                self._enqueue(self._splitter.receive_again())
                self._receive(now_s)
            if self._splitter.failure is not None and self._closing is None and not self.has_more:
                self._on_unreadable(self._splitter.failure, self._splitter.discard(QUARANTINE_BYTES_MAX), now_s)
        except StorageError as error:
            self.on_storage_error(error)
            return
        self._watch()

    def pause_writing(self) -> None:
        self.is_congested = True
        self._read_limiter.check_output()

    def resume_writing(self) -> None:
        self.is_congested = False
        self._context.dispatcher.on_drain(self)
        self._read_limiter.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened_at_ms:
            self._discard()
            return  # it was never admitted
        unfinished = 0
        if self._closing is None:
            self._closing = Closing("lost", str(exc)) if exc else Closing("peer_closed")
            unfinished = self._splitter.held_bytes
        self._due_s = float("inf")
        clean_up(
            f"session {self.id}",
            partial(self._quarantine_incomplete, unfinished),
            self._discard,
            partial(self._context.sessions.on_close, self, self._closing),
            partial(self._endpoint.on_close, self),
        )

    def _quarantine_incomplete(self, size: int) -> None:
        """Quarantine the received part of an incomplete frame."""
        if size:
            error = ProtocolError("incomplete", f"connection closed inside a frame, after {size} bytes of it", 0)
            self._quarantine(self._splitter.discard(QUARANTINE_BYTES_MAX), error)

    def _discard(self) -> None:
        """Free buffers now: references to a closed connection may live for a while."""
        self._splitter.discard()
        self._outbox.discard()
        self._read_limiter.discard()
        self._frames, self._frames_done = [], 0
        self._messages.clear()

    # Frames

    @property
    def _is_reading_paused(self) -> bool:
        return self._read_limiter.is_paused

    def _enqueue(self, frames: list[bytes]) -> None:
        """Log frames and queue them for handling."""
        if not frames:
            return
        context = self._context
        if self._session.logs_wire_bytes:
            bare = frames if self._splitter.plain else list(map(self._splitter.bare, frames))
            context.recorder.frames(self, "in", self._protocol.redact_all(bare, self._remote))
        self.frames_in += len(frames)
        context.counters.frames_in[self.protocol] += len(frames)
        if self.has_more:
            frames = self._frames[self._frames_done :] + frames
        self._frames, self._frames_done = frames, 0

    def _receive(self, now_s: float) -> None:
        """Handle frames until none is left, the session waits for a response, or the turn is over."""
        session = self._session
        frames, place, first = self._frames, self._frames_done, self._frames_done
        ends_s, outbox_max = 0.0, self._read_limiter.pending_max
        if self._messages or len(frames) - place > 1:
            ends_s = monotonic() + GATEWAY_TURN_S
            outbox_max -= 0 if self._transport is None else self._transport.get_write_buffer_size()
        if self._messages:
            self._dispatch_waiting(ends_s)
            if self._messages or self._jobs:
                return
        while place < len(frames):
            if self._closing is not None or session.is_leaving:
                break
            if place > first and (self._jobs or self._messages or session.is_paused or monotonic() >= ends_s):
                return
            if self._outbox.bytes > outbox_max:
                return
            place += self._receive_next(frames, place, now_s)
            self._frames_done = place
        self._frames, self._frames_done = [], 0

    def _dispatch_waiting(self, ends_s: float) -> None:
        """Pass queued messages to the endpoint in order. A long request delays the messages behind it."""
        messages = self._messages
        while messages and not self._jobs and monotonic() < ends_s:
            if self._closing is not None:
                messages.clear()
                return
            self._endpoint.on_message(self, messages.popleft())
        if messages:
            self._read_limiter.schedule_turn()

    def _apply(self, step: Step) -> None:
        messages, published = step.messages, None
        try:
            if messages and (messages[0].kind is TELEMETRY or len(messages) > 1):
                messages, published = self._publish_telemetry(messages)
            if step.frames:
                self._write_frames(step.frames, published)
            if len(messages) == 1 and not self._messages:
                self._endpoint.on_message(self, messages[0])
            elif messages:
                self._messages += messages
                self._dispatch_waiting(monotonic() + GATEWAY_TURN_S)
        except StorageError as error:
            self.on_storage_error(error)
            return
        except AccessDeniedError as error:  # of a report for another device: it must not be confirmed
            self.close(Closing(ACCESS_DENIED, str(error)))
            return
        if step.closing is not None:
            self._finish(step.closing)
        self._update_frame_limit()

    def _apply_batch(self, step: Step) -> None:
        """Publish a batch of frames. The frames of a live topic all get the same reply."""
        batch, context = step.batch, self._context
        if batch is None:
            self._apply(step)
        elif batch.is_durable:
            context.dispatcher.on_publish_batch(self, batch.correlation, batch)
        else:
            reply, count = self._publish_live(batch), len(batch.frames)
            self.frames_out += count
            self._outbox.hold(reply * count, context.recorder.frames(self, "out", [reply] * count))
            context.dispatcher.flush_soon()

    def _publish_live(self, batch: PublishBatch) -> bytes:
        """Publish a batch on a live topic. Return the reply to each of its frames."""
        broker = self._context.broker
        try:
            broker.access.authorize(self, Action.PUBLISH, batch.topic, len(batch.frames))
        except AccessDeniedError as error:
            return batch.refusal(Failure(str(error), FailureCode.ACCESS_DENIED))
        return batch.reply(broker.live.publish_batch(batch))

    def _update_frame_limit(self) -> None:
        """Apply the session's frame limit to the splitter: it is lower before the login."""
        frame_bytes_max = self._session.frame_bytes_max
        if frame_bytes_max is not None and frame_bytes_max != self._splitter.frame_bytes_max:
            self._splitter.set_limit(frame_bytes_max)

    def _on_undecodable(self, error: ProtocolError, raw: bytes, now_s: float) -> None:
        self._on_unreadable(error, raw, now_s, recorded=self._session.logs_wire_bytes)

    def _on_unreadable(self, error: ProtocolError, raw: bytes, now_s: float, *, recorded: bool = False) -> None:
        """Quarantine bytes and close the connection with an error.

        `recorded`: the bytes are a complete frame that is in the log already.
        """
        self._quarantine(raw, error, recorded=recorded)
        self._drains_on_close = True
        self._apply(self._session.fail(error, now_s))
        if not self._session.is_leaving:
            self._finish(Closing(error.code, str(error)))

    def _quarantine(self, raw: bytes, error: ProtocolError, *, recorded: bool = False) -> None:
        """Record the first of these bytes, without the secrets of what may be a login.

        A frame that is `recorded` already is redacted as it was then.
        """
        protocol, unread = self._protocol, raw[:QUARANTINE_BYTES_MAX]
        unread = protocol.redact_all([unread], self._remote)[0] if recorded else protocol.redact(unread, self._remote)
        self._context.sessions.quarantine(self, unread, error, recorded=recorded)

    def on_storage_error(self, error: StorageError) -> None:
        """Abort the connection: what it sent is not durable, so nothing can be confirmed."""
        if self._closing is None:
            self._closing = Closing("storage", str(error))
        self.abort()

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
        if self._outbox.is_empty:
            self._close_transport()

    def _close_transport(self) -> None:
        """Close the transport after everything was sent.

        Closing a socket with unread input resets the connection, and the peer may lose the error. So write the end of
        file, and drain input for `GATEWAY_LINGER_S` before closing.
        """
        transport = self._transport
        if transport is None:
            return
        if not self._drains_on_close or transport.is_closing() or not transport.can_write_eof():
            transport.close()
        elif not self._is_write_closed:
            self._is_write_closed = True
            self._context.broker.on_close(self)
            transport.write_eof()
            self._context.later(GATEWAY_LINGER_S, transport.close)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_write_closed:
            return
        self.bytes_out += len(data)
        transport.write(data)
        if self._read_limiter.is_paused:
            self._read_limiter.wake()  # the reader may have waited for this commit
        if self._closing is not None and self._outbox.is_empty:
            self._close_transport()
