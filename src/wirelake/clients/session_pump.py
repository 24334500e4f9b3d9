"""A pure session and its clock, for one client: bytes in, messages up; messages down, bytes out."""

import asyncio
from collections.abc import Callable

from wirelake.errors import ProtocolError
from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Session, Step


class SessionPump:
    """`write` takes frames as bytes, `heard` each message that the session hands up, `ended` the session's closing.

    `unreadable` is told of bytes that are none of this protocol: what that means is the owner's to decide.
    """

    def __init__(
        self,
        protocol: Protocol,
        carrier: Carrier,
        session: Session,
        clock: Callable[[], float],
        *,
        write: Callable[[list[bytes]], None],
        heard: Callable[[Message], None],
        ended: Callable[[Closing], None],
        unreadable: Callable[[ProtocolError], None],
    ) -> None:
        self.session = session
        self.closing: Closing | None = None
        self.is_reading_paused = False  # the owner does not read at present, so silence says nothing about the peer
        self._protocol = protocol
        self._carrier = carrier
        self._clock = clock
        self._write = write
        self._heard = heard
        self._ended = ended
        self._unreadable = unreadable
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = float("inf")
        self.restart()

    def restart(self) -> None:
        """Bytes of another connection follow, for the same session."""
        self._splitter = self._protocol.splitter(Sender.SERVER, self._carrier)

    def receive(self, data: bytes) -> None:
        """One read of a stream, or one datagram: that begins and ends with a frame."""
        if self._carrier is Carrier.UDP:
            self.restart()
        splitter = self._splitter
        for raw in splitter.receive(data):
            try:
                frame = self._protocol.decode(splitter.bare(raw), Sender.SERVER)
            except ProtocolError as error:
                self._unreadable(error)
                break
            self._take(self.session.receive(frame, self._clock()))
            if self.closing is not None:
                return
        else:
            if self._carrier is Carrier.UDP:
                splitter.finish()
            if splitter.failure is not None:
                self._unreadable(splitter.failure)
        self._watch()

    def say(self, message: Message) -> None:
        """Raises StateError, TranslationError or EncodeError for what cannot be said, or not now."""
        self._take(self.session.send(message, self._clock()))
        self._watch()

    def fail(self, error: ProtocolError) -> None:
        """The session is over because of bytes that cannot be read."""
        self._take(self.session.fail(error, self._clock()))

    def end(self, closing: Closing) -> None:
        """The session is over because we want that."""
        if self.closing is None:
            self._take(self.session.close(closing, self._clock()))
        self.stop()

    def stop(self) -> None:
        """No more time passes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_s = float("inf")

    def _take(self, step: Step) -> None:
        if step.frames:
            self._write([self._splitter.wrap(frame.encode()) for frame in step.frames])
        for message in step.messages:
            self._heard(message)
        if step.closing is not None and self.closing is None:
            self.closing = step.closing
            self.stop()
            self._ended(step.closing)

    def _watch(self) -> None:
        """One timer, moved only when something falls due earlier."""
        due_s = self.session.deadline_s
        if due_s is None or self.closing is not None or due_s >= self._timer_due_s:
            return
        self.stop()
        self._timer_due_s = due_s
        self._timer = self._loop.call_later(max(0.0, due_s - self._clock()), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_due_s = None, float("inf")
        now_s = self._clock()
        if self.is_reading_paused:
            self.session.last_received_s = now_s
        self._take(self.session.tick(now_s))
        self._watch()
