"""Drive a client's session: bytes of the gateway go in, messages come out, and the other way round."""

import asyncio
from collections.abc import Callable

from wirelake.errors import ProtocolError
from wirelake.message import Message
from wirelake.protocols.driver import NEVER_S, SessionDriver
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Session, Step


class ClientDriver(SessionDriver):
    """A session over one connection after the other, or over one UDP socket.

    `write` gets frames as bytes, `on_message` each message of the session, `on_close` the reason why it is over, and
    `on_unreadable` the error in bytes that are none of this protocol: its owner decides what that means.
    """

    __slots__ = (
        "_carrier",
        "_clock",
        "_loop",
        "_on_close",
        "_on_message",
        "_on_unreadable",
        "_timer",
        "_undecodable",
        "_write",
        "is_reading_paused",
    )

    def __init__(
        self,
        protocol: Protocol,
        carrier: Carrier,
        session: Session,
        clock: Callable[[], float],
        *,
        write: Callable[[list[bytes]], None],
        on_message: Callable[[Message], None],
        on_close: Callable[[Closing], None],
        on_unreadable: Callable[[ProtocolError], None],
    ) -> None:
        super().__init__(protocol, Sender.SERVER)
        self.is_reading_paused = False  # set by the owner: while it does not read, silence says nothing of the gateway
        self._session = session
        self._carrier = carrier
        self._clock = clock
        self._write = write
        self._on_message = on_message
        self._on_close = on_close
        self._on_unreadable = on_unreadable
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._undecodable: ProtocolError | None = None
        self.restart()

    def restart(self) -> None:
        """Expect the bytes of another connection, for the same session."""
        self._splitter = self._protocol.splitter(Sender.SERVER, self._carrier)

    def receive(self, data: bytes) -> None:
        """Handle one read of a stream, or one datagram: that begins and ends with a frame."""
        if self._carrier is Carrier.UDP:
            self.restart()
        splitter, place = self._splitter, 0
        frames = splitter.receive(data)
        if self._carrier is Carrier.UDP:
            splitter.finish()
        self._undecodable = None
        while place < len(frames) and self._closing is None and self._undecodable is None:
            place += self._receive_next(frames, place, self._clock())
        error = self._undecodable or splitter.failure
        if error is not None and self._closing is None:
            self._on_unreadable(error)
        self._watch()

    def send(self, message: Message) -> None:
        """Send a message. StateError, TranslationError or EncodeError if that cannot be done, or not now."""
        self._apply(self._session.send(message, self._clock()))
        self._watch()

    def fail(self, error: ProtocolError) -> None:
        """End the session because of bytes that cannot be decoded."""
        self._apply(self._session.fail(error, self._clock()))

    def close(self, closing: Closing) -> None:
        """End the session because its owner wants that."""
        if self._closing is None:
            self._apply(self._session.close(closing, self._clock()))
        self.stop()

    def stop(self) -> None:
        """Run no more deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = NEVER_S

    @property
    def _is_reading_paused(self) -> bool:
        return self.is_reading_paused

    def _apply(self, step: Step) -> None:
        if step.frames:
            self._write([self._splitter.wrap(frame.encode()) for frame in step.frames])
        for message in step.messages:
            self._on_message(message)
        if step.closing is not None and self._closing is None:
            self._closing = step.closing
            self.stop()
            self._on_close(step.closing)

    def _on_undecodable(self, error: ProtocolError, raw: bytes, now_s: float) -> None:
        self._undecodable = error  # nothing behind it is read

    def _schedule(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, due_s - self._clock()), self._run_deadlines)

    def _run_deadlines(self) -> None:
        self._timer, self._due_s = None, NEVER_S
        due_s = self.tick(self._clock())
        if due_s is not None:
            self._schedule(due_s)
