"""Drive a session: pass frames to it, apply its steps, run its deadlines.

There is one driver for all sessions: those of the gateway's connections, of its devices, and of the clients. They
differ in how a step is applied. The gateway writes frames once they are in the log and hands messages to the
broker; a client writes at once and hands messages to their receivers. So this part is pure: the subclass knows the
transport, the clock and the log.
"""

from typing import Final

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.splitter import Splitter

NEVER_S: Final = float("inf")


class SessionDriver:
    """One session, from its first frame to its last. A subclass sets `_session` and `_splitter` before frames come."""

    __slots__ = ("_closing", "_due_s", "_protocol", "_remote", "_session", "_splitter")
    _session: Session
    _splitter: Splitter

    def __init__(self, protocol: Protocol, remote: Sender) -> None:
        """`remote` is the other end."""
        self._protocol = protocol
        self._remote = remote
        self._closing: Closing | None = None
        self._due_s = NEVER_S  # when `tick` is scheduled

    @property
    def session(self) -> Session:
        return self._session

    @property
    def closing(self) -> Closing | None:
        """Return why the session is over; None while it is not."""
        return self._closing

    def tick(self, now_s: float) -> float | None:
        """Run the deadlines that are due. Return when to call again; None if there is nothing to wait for."""
        if self._closing is not None:
            return None
        session = self._session
        if self._is_reading_paused:
            session.last_received_s = now_s  # the peer may have sent something that was not read
        self._apply(session.tick(now_s))
        due_s = session.deadline_s
        self._due_s = NEVER_S if due_s is None else due_s
        return due_s

    def _receive_next(self, frames: list[bytes], place: int, now_s: float) -> int:
        """Handle the frame at `place`, or the run of like frames that begins there. Return how many were handled."""
        session = self._session
        step = session.receive_many(frames, place, now_s)
        if step is not None:
            self._apply_batch(step)
            return 1 if step.batch is None else len(step.batch.frames)
        raw = frames[place]
        try:
            frame = self._protocol.decode(self._splitter.bare(raw), self._remote)
        except ProtocolError as error:
            self._on_undecodable(error, raw, now_s)
            return 1
        step = session.receive(frame, now_s)
        if not session.logs_wire_bytes:
            self._log_received(raw)
        self._apply(step)
        return 1

    def _watch(self) -> None:
        """Schedule `tick`, if something is due earlier than what is scheduled."""
        due_s = self._session.deadline_s
        if due_s is not None and due_s < self._due_s and self._closing is None:
            self._due_s = due_s
            self._schedule(due_s)

    # What a subclass knows

    @property
    def _is_reading_paused(self) -> bool:
        """Return whether nothing is read at present, so that silence says nothing about the peer."""
        return False

    def _apply(self, step: Step) -> None:
        """Write the frames of a step, hand up its messages, and close if it says so."""
        raise NotImplementedError

    def _apply_batch(self, step: Step) -> None:
        """Apply a step of `receive_many`."""
        self._apply(step)

    def _on_undecodable(self, error: ProtocolError, raw: bytes, now_s: float) -> None:
        """Handle a frame that cannot be decoded, and decide whether to close the connection."""
        raise NotImplementedError

    def _log_received(self, raw: bytes) -> None:
        """Log a frame that is not logged as it was on the wire; after the step, which may decide how."""

    def _schedule(self, due_s: float) -> None:
        """Have `tick` called at this time."""
        raise NotImplementedError
