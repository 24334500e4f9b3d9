"""Drive a session of the gateway: log its frames, send replies once they are durable, pass messages to the broker."""

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

from wirelake.broker.services import failed
from wirelake.commit import Commit
from wirelake.errors import EncodeError, StateError, StorageError, TranslationError
from wirelake.gateway.transport.outbox import Outbox
from wirelake.message import Kind, Message
from wirelake.protocols.driver import SessionDriver
from wirelake.protocols.frame import Frame, Sender, encode_all
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Closing, Step

if TYPE_CHECKING:
    from wirelake.gateway.transport.context import TransportContext

_log = logging.getLogger(__name__)
TELEMETRY = Kind.TELEMETRY


class GatewayDriver(SessionDriver):
    """Drive the session of a connection or of a device. Implements the broker's `Peer`."""

    __slots__ = (
        "_context",
        "_outbox",
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
    )
    _outbox: Outbox

    def __init__(self, context: "TransportContext", protocol: Protocol, remote: Sender = Sender.CLIENT) -> None:
        super().__init__(protocol, remote)
        self._context = context
        self.protocol = protocol.name
        self.id = ""
        self.identity = ""
        self.address = ""
        self.is_congested = False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.opened_at_ms = 0

    # Interface for the broker

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
    def takes_commands(self) -> bool:
        return self._session.takes_commands

    @property
    def takes_broadcasts(self) -> bool:
        return False

    @property
    def is_admin(self) -> bool:
        return False

    @property
    def bytes_drained(self) -> int:
        raise NotImplementedError

    @property
    def last_received_s(self) -> float:
        """Return when the peer last sent a frame."""
        return self._session.last_received_s

    @property
    def bytes_written(self) -> int:
        return self.bytes_out + self._outbox.bytes

    def encode_notification(self, message: Message) -> bytes:
        return self._splitter.wrap(self._session.encode_notification(message))

    def write(self, data: bytes) -> None:
        self.frames_out += 1
        self._outbox.write(data)

    def send(self, message: Message) -> None:
        """Send a message through the session.

        Raise TranslationError or EncodeError if the message is not encodable in the peer's protocol, and StateError if
        a request cannot be sent now. A response that is not encodable is replaced by an error response.
        """
        if self._closing is not None:
            return
        try:
            step = self._session.send(message, self._context.now_s())
        except StateError as error:
            if message.kind is Kind.REQUEST:
                raise
            _log.debug("session %s: %s", self.id, error)  # the session has ended, or no longer expects it
            return
        except TranslationError as error:
            if message.kind is not Kind.RESPONSE or message.failure is not None:
                raise
            self._context.counters.errors[self.protocol, "unsayable"] += 1
            self.send(failed(message.correlation, str(error)))
            return
        if message.kind is Kind.NOTIFICATION:
            self._apply_notification(step)
        else:
            self._apply(step)
        self._watch()

    def close(self, closing: Closing) -> None:
        """Send the reason to the peer, then close."""
        if self._closing is None:
            self._apply(self._session.close(closing, self._context.now_s()))
            self._finish(closing)

    def on_storage_error(self, error: StorageError) -> None:
        """Handle a commit that failed: what waited for it is not durable."""
        raise NotImplementedError

    # Steps

    def _publish_telemetry(self, messages: list[Message]) -> tuple[list[Message], Commit | None]:
        """Publish telemetry. Return the other messages, and the commit that an acknowledgement has to wait for."""
        published: Commit | None = None
        others: list[Message] = []
        for message in messages:
            if message.kind is not TELEMETRY:
                others.append(message)
            elif (commit := self._publish(message)) is not None:
                published = commit if published is None else Commit.combine(published, commit)
        return others, published

    def _publish(self, report: Message) -> Commit | None:
        """Publish one report. Return its commit if the topic is durable; raise StorageError if it cannot be stored."""
        return self._context.dispatcher.on_telemetry(self, report)

    def _apply_notification(self, step: Step) -> None:
        """Write a notification without waiting: it is durable and logged already."""
        if step.frames:
            encoded = encode_all(step.frames)  # the broker skips what cannot be encoded
            self.frames_out += len(encoded)
            self._outbox.write(self._join(encoded))
        if step.messages or step.closing is not None:
            self._apply(Step(messages=step.messages, closing=step.closing))

    def _finish(self, closing: Closing) -> None:
        """Close the session once everything is sent."""
        raise NotImplementedError

    def _write_frames(self, frames: list[Frame], published: Commit | None) -> None:
        """Log frames, and write them once they and what their step published are durable."""
        try:
            encoded = encode_all(frames)
        except EncodeError as error:
            _log.error("session %s: cannot encode a frame: %s", self.id, error)
            self._context.counters.errors[self.protocol, "encode"] += 1
            self._finish(Closing("encode", str(error)))
            return
        self.frames_out += len(encoded)
        try:
            commit = self._log_sent(encoded)
        except StorageError as error:
            self.on_storage_error(error)
            return
        self._outbox.hold(self._join(encoded), commit if published is None else Commit.combine(commit, published))

    def _log_sent(self, encoded: list[bytes]) -> Commit:
        session, sender = self._session, self._remote.other
        if not session.logs_wire_bytes:
            encoded = [session.logged_frame(each, sender) for each in encoded]
        return self._context.recorder.frames(self, "out", self._protocol.redact_all(encoded, sender))

    def _log_received(self, raw: bytes) -> None:
        logged = self._session.logged_frame(raw, self._remote)
        self._context.recorder.frames(self, "in", self._protocol.redact_all([logged], self._remote))

    def _join(self, encoded: list[bytes]) -> bytes:
        """Join encoded frames as they appear on the wire."""
        splitter = self._splitter
        wires = encoded if splitter.plain else list(map(splitter.wrap, encoded))
        return wires[0] if len(wires) == 1 else b"".join(wires)

    def _schedule(self, due_s: float) -> None:
        self._context.timers.add(due_s, self)
