"""A TCP connection: a thin pump around the pure session. Bytes in, frames, session, messages up; frames, bytes out."""

import asyncio
import logging
from collections import deque
from collections.abc import Hashable
from functools import partial
from time import monotonic
from typing import cast

from wirelake.broker.services import failed
from wirelake.cleanup import clean_up
from wirelake.errors import EncodeError, ProtocolError, StateError, StorageError, TranslationError
from wirelake.gateway.auth.admission import Slot, address_of, host_of
from wirelake.gateway.auth.before_login import account_for, charge, open_session
from wirelake.gateway.auth.logins import ANONYMOUS
from wirelake.gateway.transport.endpoint import Endpoint
from wirelake.gateway.transport.outbox import Outbox
from wirelake.gateway.transport.read_limiter import ReadLimiter, cut_frames
from wirelake.gateway.transport.send_queue import undelivered_bytes
from wirelake.limits import GATEWAY_LINGER_S, GATEWAY_TLS_BUFFERS, GATEWAY_TURN_S, QUARANTINE_BYTES_MAX
from wirelake.message import Kind, Message
from wirelake.protocols.frame import Frame, encode_all
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.session import Closing, Session, Step

_log = logging.getLogger(__name__)
_NOTIFICATION = Kind.NOTIFICATION


class Connection(asyncio.Protocol):
    """Also the broker's `Peer`."""

    __slots__ = (
        "_closing",
        "_due_s",
        "_endpoint",
        "_frames",
        "_frames_done",
        "_gone",
        "_host",
        "_jobs",
        "_lingers",
        "_messages",
        "_outbox",
        "_read_limiter",
        "_session",
        "_splitter",
        "_transport",
        "address",
        "bytes_in",
        "bytes_out",
        "frames_in",
        "frames_out",
        "id",
        "identity",
        "is_congested",
        "opened_at_ms",
        "protocol",
        "slot",
    )

    def __init__(self, endpoint: Endpoint, slot: Slot | None = None) -> None:
        self._endpoint = endpoint
        self.protocol = endpoint.protocol.name
        self.id = ""
        self.identity = ""
        self.address = ""
        self.is_congested = False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.opened_at_ms = 0
        self._closing: Closing | None = None
        self._due_s = float("inf")
        self._gone = False  # nothing more is written
        self._lingers = False  # it is told why it cannot be read, and may not have stopped sending
        self._transport: asyncio.Transport | None = None
        self._frames: list[bytes] = []  # cut out of the stream, and handled up to `_frames_done`
        self._frames_done = 0
        self._messages: deque[Message] = deque()  # of a frame that held many; they come before the next frame
        self._jobs = 0  # long requests under way
        self.slot = slot  # of those that came in by a listener; with TLS, from before the handshake

    # The broker's view

    @property
    def session(self) -> Session:
        return self._session

    @property
    def closing(self) -> Closing | None:
        """Why it is over, once it is."""
        return self._closing

    @property
    def sends_acks(self) -> bool:
        return self._session.sends_acks

    @property
    def pulls_backlog(self) -> bool:
        return self._session.pulls_backlog

    @property
    def encoding_key(self) -> Hashable | None:
        return self._session.encoding_key

    @property
    def pending_bytes(self) -> int:
        """Written, but not yet taken by the network; and held back until durable."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return buffered + self._outbox.bytes

    @property
    def bytes_written(self) -> int:
        return self.bytes_out + self._outbox.bytes

    @property
    def bytes_drained(self) -> int:
        transport = self._transport
        if transport is None or transport.is_closing():
            return 0
        tls_buffer_bytes_max = GATEWAY_TLS_BUFFERS * self._endpoint.gateway.settings.limits.pending_bytes
        return self.bytes_out - undelivered_bytes(transport, tls_buffer_bytes_max)

    def encode_notification(self, message: Message) -> bytes:
        return self._splitter.wrap(self._session.encode_notification(message))

    def write(self, data: bytes) -> None:
        self.frames_out += 1
        self._outbox.write(data)

    def send(self, message: Message) -> None:
        """Raises TranslationError or EncodeError for what its protocol cannot carry, and StateError for a request that
        it cannot be asked now: whoever wanted it said has to know. An answer becomes one that says so.
        """
        if self._closing is not None:
            return
        try:
            step = self._session.send(message, self._endpoint.gateway.now_s())
        except StateError as error:
            if message.kind is Kind.REQUEST:
                raise
            _log.debug("session %s: %s", self.id, error)  # it is too late for that
            return
        except TranslationError as error:
            if message.kind is not Kind.RESPONSE or message.failure is not None:
                raise
            self._endpoint.gateway.counters.errors[self.protocol, "unsayable"] += 1
            self.send(failed(message.correlation, str(error)))
            return
        self._take(step, told=message.kind is _NOTIFICATION)
        self._watch()
        if self._read_limiter.stopped:
            self._read_limiter.wake()  # it may have waited for this

    def begin_job(self) -> None:
        """Handle nothing more of this connection until a long request of its own is answered."""
        self._jobs += 1

    def end_job(self) -> None:
        self._jobs -= 1
        self._read_limiter.wake()

    # The turns' view

    @property
    def share(self) -> str:
        identity = self.identity
        return identity if identity and identity != ANONYMOUS else self._host

    @property
    def has_more(self) -> bool:
        return bool(self._messages) or self._frames_done < len(self._frames)

    @property
    def is_held(self) -> bool:
        return self._jobs > 0 or self._session.is_paused

    def give_up(self, code: str, text: str) -> None:
        """There is no way to tell it why: it does not read."""
        if self._closing is None:
            self._closing = Closing(code, text)
            self._endpoint.gateway.counters.errors[self.protocol, code] += 1
        self.abort()

    def close(self, closing: Closing) -> None:
        if self._closing is None:
            self._take(self._session.close(closing, self._endpoint.gateway.now_s()))
            self._finish(closing)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio's view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)
        endpoint, gateway = self._endpoint, self._endpoint.gateway
        now_s = gateway.now_s()
        self.address = address_of(transport.get_extra_info("peername"))
        self._outbox = Outbox(gateway.commit_barrier, self._send, self.storage_failed)
        self._session = endpoint.new_session(now_s)
        self._splitter = endpoint.new_splitter()
        self._fit_splitter()
        self._host = "@" + host_of(self.address)  # no identity's name
        self._read_limiter = ReadLimiter(gateway, transport, self)
        self._closing = open_session(self, endpoint)
        if self._closing is not None:
            self.abort()
            return
        self.opened_at_ms = gateway.now_ms()
        self._on_connected()
        self._watch()

    def _on_connected(self) -> None:
        self._endpoint.on_open(self)  # the bytes of messages can follow at once

    def data_received(self, data: bytes) -> None:
        if self._closing is None:
            self._read_limiter.on_data(data)
            if self.slot is not None and not self.slot.authenticated:
                account_for(self, len(data))

    @property
    def held_bytes(self) -> int:
        """In memory because of this connection: what was not read, is not whole, or waits to be sent."""
        return self.pending_bytes + self._splitter.held_bytes + self._read_limiter.unread_bytes

    def read(self, data: bytes) -> None:
        """Bytes of the stream, in their turn."""
        if self._closing is not None or self._splitter.failure is not None:
            return
        frames, rest = cut_frames(self._splitter, data)
        if rest:
            self._read_limiter.put_back(rest)
        size = len(data) - len(rest)
        self.bytes_in += size
        self._consume(frames, size, len(frames))

    def _consume(self, frames: list[bytes], size: int, count: int) -> None:
        """Take frames that were cut out of so many bytes, and as `count` of the transport's own."""
        now_s = self._endpoint.gateway.now_s()
        self._read_limiter.count_read(size, count, now_s)
        self._handle(frames, now_s)
        if self.slot is not None and not self.slot.authenticated:
            self._read_limiter.pause(charge(self, count, size))

    def read_on(self) -> None:
        self._handle([], self._endpoint.gateway.now_s())

    def _handle(self, new: list[bytes], now_s: float) -> None:
        """What was taken and is not handled yet, until the turn is over."""
        try:
            self._enter(new)
            self._receive(now_s)
            if self._splitter.retry and not self.has_more:  # a login came: what was too long is not any more
                self._enter(self._splitter.receive_again())
                self._receive(now_s)
            if self._splitter.failure is not None and self._closing is None and not self.has_more:
                self._unreadable(self._splitter.failure, self._splitter.discard(QUARANTINE_BYTES_MAX), now_s)
        except StorageError as error:
            self.storage_failed(error)
            return
        self._watch()

    def pause_writing(self) -> None:
        self.is_congested = True
        self._read_limiter.output_grew()

    def resume_writing(self) -> None:
        self.is_congested = False
        self._endpoint.gateway.on_drain(self)
        self._read_limiter.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened_at_ms:
            self._discard()
            return  # was never let in
        unfinished = 0
        if self._closing is None:
            self._closing = Closing("lost", str(exc)) if exc else Closing("peer_closed")
            unfinished = self._splitter.held_bytes
        self._due_s = float("inf")
        clean_up(
            f"session {self.id}",
            partial(self._keep_unfinished, unfinished),
            self._discard,
            partial(self._endpoint.gateway.on_close, self, self._closing),
            partial(self._endpoint.on_close, self),
        )

    def _keep_unfinished(self, size: int) -> None:
        """Quarantine the beginning of a frame whose end never came."""
        if size:
            error = ProtocolError("incomplete", f"ends inside a frame, of which {size} bytes came", 0)
            unread = self._session.redact_unreadable(self._splitter.discard(QUARANTINE_BYTES_MAX))
            self._endpoint.gateway.quarantine(self, unread, error)

    def _discard(self) -> None:
        """Let go of everything that takes memory: a closed connection may be referred to for a while."""
        self._splitter.discard()
        self._outbox.discard()
        self._read_limiter.discard()
        self._frames, self._frames_done = [], 0
        self._messages.clear()

    # Time

    def tick(self, now_s: float) -> float | None:
        """Its session's deadlines; called by the gateway's timers."""
        if self._closing is not None:
            return None
        if self._read_limiter.stopped:
            self._session.last_received_s = now_s  # it may well have spoken: it is not being listened to
        self._take(self._session.tick(now_s))
        due_s = self._session.deadline_s
        self._due_s = float("inf") if due_s is None else due_s
        return due_s

    def _watch(self) -> None:
        due_s = self._session.deadline_s
        if due_s is not None and due_s < self._due_s:
            self._due_s = due_s
            self._endpoint.gateway.timers.add(due_s, self)

    # Frames

    def _enter(self, frames: list[bytes]) -> None:
        """These are in the log, and wait to be handled."""
        if not frames:
            return
        gateway = self._endpoint.gateway
        if self._session.logs_wire_bytes:
            kept = frames if self._splitter.plain else list(map(self._splitter.bare, frames))
            gateway.recorder.frames(self, "in", kept)
        self.frames_in += len(frames)
        gateway.counters.frames_in[self.protocol] += len(frames)
        if self.has_more:
            frames = self._frames[self._frames_done :] + frames
        self._frames, self._frames_done = frames, 0

    def _receive(self, now_s: float) -> None:
        """Handle frames until there are no more, their answers have to be waited for, or the turn is over."""
        gateway, session = self._endpoint.gateway, self._session
        frames, place, first = self._frames, self._frames_done, self._frames_done
        ends_s, outbox_max = 0.0, self._read_limiter.pending_max
        if self._messages or len(frames) - place > 1:
            ends_s = monotonic() + GATEWAY_TURN_S
            outbox_max -= 0 if self._transport is None else self._transport.get_write_buffer_size()
        if self._messages:
            self._hand_up(ends_s)
            if self._messages or self._jobs:
                return
        bare, decode, other = self._splitter.bare, self._endpoint.protocol.decode, self._endpoint.other
        while place < len(frames):
            if self._closing is not None or session.is_leaving:
                break
            if place > first and (self._jobs or self._messages or session.is_paused or monotonic() >= ends_s):
                return
            if self._outbox.bytes > outbox_max:
                return
            bundle = session.skim(frames, place)
            if bundle is not None:
                place += len(bundle.frames)
                self._frames_done = place
                session.last_received_s = now_s
                if bundle.durable:
                    gateway.on_publish_batch(self, session.ask(bundle), bundle)
                else:
                    self._pass_on(bundle)
                continue
            raw = frames[place]
            place += 1
            self._frames_done = place
            try:
                frame = decode(bare(raw), other)
            except ProtocolError as error:
                self._unreadable(error, raw, now_s, recorded=session.logs_wire_bytes)
                continue
            step = session.receive(frame, now_s)
            if not session.logs_wire_bytes:
                gateway.recorder.frames(self, "in", [session.logged_frame(raw, other)])
            self._take(step)
        self._frames, self._frames_done = [], 0

    def _hand_up(self, ends_s: float) -> None:
        """Messages in their order. One that takes long keeps those behind it waiting."""
        messages = self._messages
        while messages and not self._jobs and monotonic() < ends_s:
            if self._closing is not None:
                messages.clear()
                return
            self._endpoint.on_message(self, messages.popleft())
        if messages:
            self._read_limiter.go_on_later()

    def _pass_on(self, bundle: PublishBatch) -> None:
        """What needs no reading: to the subscribers, and the same answer to each frame."""
        gateway, count = self._endpoint.gateway, len(bundle.frames)
        answer = self._session.skimmed(bundle, gateway.broker.live.publish_batch(bundle))
        self.frames_out += count
        self._outbox.hold(answer * count, gateway.recorder.frames(self, "out", [answer] * count))
        gateway.flush_soon()

    def _take(self, step: Step, *, told: bool = False) -> None:
        """What a step asks for. `told`: its frames are a notification, which is durable and recorded already."""
        if step.frames:
            self._write_frames(step.frames, told=told)
        if step.messages:
            try:
                if len(step.messages) == 1 and not self._messages:
                    self._endpoint.on_message(self, step.messages[0])
                else:
                    self._messages += step.messages
                    self._hand_up(monotonic() + GATEWAY_TURN_S)
            except StorageError as error:
                self.storage_failed(error)
                return
        if step.closing is not None:
            self._finish(step.closing)
        self._fit_splitter()

    def _fit_splitter(self) -> None:
        """Before the login, a session may take short frames only."""
        frame_bytes_max = self._session.frame_bytes_max
        if frame_bytes_max is not None and frame_bytes_max != self._splitter.frame_bytes_max:
            self._splitter.set_limit(frame_bytes_max)

    def _write_frames(self, frames: list[Frame], *, told: bool) -> None:
        wrap, session, gateway = self._splitter.wrap, self._session, self._endpoint.gateway
        try:
            encoded = encode_all(frames)
        except EncodeError as error:
            if told:
                raise  # the broker leaves this one out; the connection lives on
            _log.error("session %s: cannot encode a frame: %s", self.id, error)
            gateway.counters.errors[self.protocol, "encode"] += 1
            self._finish(Closing("encode", str(error)))
            return
        self.frames_out += len(encoded)
        wires = encoded if self._splitter.plain else list(map(wrap, encoded))
        data = wires[0] if len(wires) == 1 else b"".join(wires)
        if told:
            self._outbox.write(data)
            return
        sender = self._endpoint.other.other
        logged = encoded if session.logs_wire_bytes else [session.logged_frame(each, sender) for each in encoded]
        try:
            commit = gateway.recorder.frames(self, "out", logged)
        except StorageError as error:
            self.storage_failed(error)
            return
        self._outbox.hold(data, commit)

    def _unreadable(self, error: ProtocolError, raw: bytes, now_s: float, *, recorded: bool = False) -> None:
        """`recorded`: they were a whole frame, which is in the log as it came."""
        unread = self._session.redact_unreadable(raw[:QUARANTINE_BYTES_MAX])
        self._endpoint.gateway.quarantine(self, unread, error, recorded=recorded)
        self._lingers = True
        self._take(self._session.fail(error, now_s))
        if not self._session.is_leaving:
            self._finish(Closing(error.code, str(error)))

    def storage_failed(self, error: StorageError) -> None:
        """Close the connection: what was promised to be durable is not, and nothing more can be promised on it."""
        if self._closing is None:
            self._closing = Closing("storage", str(error))
        self.abort()

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
        if self._outbox.empty:
            self._hang_up()

    def _hang_up(self) -> None:
        """Everything was said. To close a connection with bytes on it that nobody read would take our last word from
        the peer: so what it still sends is thrown away for a moment.
        """
        transport = self._transport
        if transport is None:
            return
        if not self._lingers or transport.is_closing() or not transport.can_write_eof():
            transport.close()
        elif not self._gone:
            self._gone = True
            self._endpoint.gateway.broker.on_close(self)
            transport.write_eof()
            self._endpoint.gateway.later(GATEWAY_LINGER_S, transport.close)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._gone:
            return
        self.bytes_out += len(data)
        transport.write(data)
        if self._read_limiter.stopped:
            self._read_limiter.wake()  # it may have waited for the disk only
        if self._closing is not None and self._outbox.empty:
            self._hang_up()
