"""The base of all sessions: the protocol state of one connection, without sockets and clocks.

Frames and the time go in; a `Step` with frames to send and messages for the broker comes out. A server session turns
each request into a message with a `correlation` and gets the answer back through `send`; a client session works the
other way round. Time is always an argument, in seconds of any monotonic clock.
"""

from collections.abc import Hashable
from enum import Enum
from typing import Any, ClassVar

from msgspec import Struct, field

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Kind, Message, control_op
from wirelake.protocols.batches import PublishBatch
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.state_machine import StateMachine, Transition

SILENCE = "silence"
LOGIN = "login"
RESUME = "resume"  # name of a CONTROL message: may the session with this `sid` go on here? Answered by a RESPONSE
REKEY = "rekey"  # name of a CONTROL message: the session has a new `resumption`
RESUME_SECRET_BYTES = 32
ACCESS_DENIED = "access_denied"  # code of a Closing: the roles of the identity no longer allow what the session does


class Closing(Struct, frozen=True):
    """Close the connection once the frames of the step are written. `code` appears in the log and in the metrics."""

    code: str
    text: str = ""


class Step(Struct):
    """The result of one input: frames to send, messages for the broker, and whether to close."""

    frames: list[Frame] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    closing: Closing | None = None
    batch: PublishBatch | None = None  # a run of frames that `receive_many` handled together


class Resumption(Struct, frozen=True):
    """What it takes to resume a session on another connection."""

    sid: bytes  # identifies the session; not secret
    secret: bytes  # known to both ends only; the proof is made with it
    valid_s: float  # from the end of the connection

    def __repr__(self) -> str:
        return "Resumption(…)"


class Session:
    """Drives a `StateMachine`. Each transition names a method `(argument, now_s, step) -> None`.

    If a transition has one next state, it is set before the method is called; else the method sets `self.state`.
    """

    __slots__ = ("deadlines", "idle_s", "last_received_s", "state")
    state_machine: ClassVar[StateMachine]
    sends_acks: ClassVar[bool] = False  # whether the peer acks notifications; else the broker does so for it
    pulls_backlog: ClassVar[bool] = False  # whether the peer fetches its backlog; else that is sent when it subscribes
    logs_wire_bytes: ClassVar[bool] = True  # whether frames are logged as on the wire; else see `logged_frame`

    def __init__(self, now_s: float, idle_s: float | None = None) -> None:
        self.state: Enum = self.state_machine.start
        self.last_received_s = now_s  # when the peer last sent a frame
        self.idle_s = idle_s  # after this long without a frame, `clock silence`
        self.deadlines: dict[str, float] = {}  # clock event → when it is due
        if idle_s is not None:
            self.deadlines[SILENCE] = now_s + idle_s

    def receive(self, frame: Frame, now_s: float) -> Step:
        """Handle a frame from the peer."""
        self.last_received_s = now_s
        row = self.state_machine.find_frame(self.state, frame.name)
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more frames")
        return self._run(row, frame, now_s)

    def send(self, message: Message, now_s: float) -> Step:
        """Send the peer a message of our own side: an answer, a notification or a request."""
        event = self._event(message)
        row = self.state_machine.find(self.state, event)
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name}, where '{event}' has no place")
        return self._run(row, message, now_s)

    def fail(self, error: ProtocolError, now_s: float) -> Step:
        """Tell the peer, in its own protocol, that its bytes cannot be decoded, and close."""
        return self._signal("app fail", error, now_s)

    def close(self, closing: Closing, now_s: float) -> Step:
        """Tell the peer why we close the connection, and close."""
        return self._signal("app close", closing, now_s)

    def tick(self, now_s: float) -> Step:
        """Run every deadline that is due."""
        step = Step()
        for event, due_s in sorted(self.deadlines.items(), key=lambda item: item[1]):
            if due_s > now_s or self.deadlines.get(event) != due_s:
                continue
            del self.deadlines[event]
            if event == SILENCE and self.idle_s is not None and self.last_received_s + self.idle_s > now_s:
                self.deadlines[SILENCE] = self.last_received_s + self.idle_s
                continue
            row = self.state_machine.find(self.state, f"clock {event}")
            if row is not None:
                self._apply(row, event, now_s, step)
        return step

    @property
    def is_paused(self) -> bool:
        """Return whether reading should pause, because too many of the peer's requests are open."""
        return False

    @property
    def is_leaving(self) -> bool:
        """Return whether reading has ended, and the session closes once the last answers are sent."""
        return False

    @property
    def frame_bytes_max(self) -> int | None:
        """Return the limit on a frame's size in the present state; None if it does not depend on the state."""
        return None

    @property
    def is_deciding_login(self) -> bool:
        """Return whether a login is being checked; frames that arrive meanwhile are held."""
        return False

    @property
    def takes_commands(self) -> bool:
        """Return whether commands for a device can be sent: in the present state, requests can."""
        return self.state_machine.find(self.state, "app request") is not None

    @property
    def encoding_key(self) -> Hashable | None:
        """Return a key that is equal for sessions that get the same bytes for a notification; None if no other does."""
        return None

    @property
    def begins_anonymous(self) -> bool:
        """Return whether it serves a peer that has not logged in, because `auth.open` admits everybody."""
        return False

    @property
    def resumption(self) -> Resumption | None:
        """Return what it takes to resume this session; None if it cannot be resumed."""
        return None

    def may_resume(self, secret: bytes) -> bool:
        """Return whether the peer that asked to resume a session knows its secret."""
        raise StateError(f"{type(self).__name__} resumes nothing")

    def encode_notification(self, message: Message) -> bytes:
        """Encode a notification for all sessions with the same `encoding_key`. Do not change the session."""
        raise StateError(f"{type(self).__name__} has no encoding key")

    def receive_many(self, frames: list[bytes], start: int, now_s: float) -> Step | None:
        """Handle the run of like frames that begins at `start` as one batch, without decoding each of them.

        Return None if the frame at `start` has to be decoded and handed to `receive`, as this default does.
        """
        return None

    def logged_frame(self, raw: bytes, sender: Sender) -> bytes:
        """Return a frame as it is logged, before `Protocol.redact`. Called after the step that it was part of."""
        return raw

    @property
    def deadline_s(self) -> float | None:
        """Return when `tick` is next due."""
        return min(self.deadlines.values(), default=None)

    def _event(self, message: Message) -> str:
        """Return the `app …` event of a message of our own side."""
        op = control_op(message)
        if message.kind is Kind.CONTROL and op is not None:
            return f"app {op}"
        return f"app {message.kind}"

    def _signal(self, event: str, argument: Any, now_s: float) -> Step:
        row = self.state_machine.find(self.state, event)
        return Step() if row is None else self._run(row, argument, now_s)

    def _run(self, row: Transition, argument: Any, now_s: float) -> Step:
        step = Step()
        self._apply(row, argument, now_s, step)
        return step

    def _apply(self, row: Transition, argument: Any, now_s: float, step: Step) -> None:
        if len(row.next_states) == 1:
            self.state = row.next_states[0]
        getattr(self, row.action)(argument, now_s, step)
        if self.state not in row.next_states:
            raise AssertionError(f"transition {row.state.name}/{row.event} may not lead to {self.state.name}")
