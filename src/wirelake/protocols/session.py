"""One peer's life on one connection, without the connection.

Frames and time go in; frames to send and messages for the rest of the system come out, as a `Step`. A server session
hands each request up as a message with a `correlation` and is given the answer back through `send`; a client
session works the other way round. Time is always an argument, in seconds of any steady clock.
"""

from collections.abc import Hashable
from enum import Enum
from typing import Any, ClassVar

from msgspec import Struct, field

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Kind, Message, control_op
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.state_machine import StateMachine, Transition

SILENCE = "silence"
LOGIN = "login"
RESUME = "resume"  # name of a CONTROL message: may the session with this `sid` go on here? Answered by a RESPONSE
REKEY = "rekey"  # name of a CONTROL message: the session has a new `resumption`
RESUME_SECRET_BYTES = 32


class Closing(Struct, frozen=True):
    """Close the connection once the frames of the step are written. `code` is the log's and the metrics' word."""

    code: str
    text: str = ""


class Step(Struct):
    """What follows from one input."""

    frames: list[Frame] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    closing: Closing | None = None


class Resumption(Struct, frozen=True):
    """How a session is taken up again on another connection."""

    sid: bytes  # names the session, and may be overheard
    secret: bytes  # known to both ends only: what the proof is made of
    valid_s: float  # from the end of the connection

    def __repr__(self) -> str:
        return "Resumption(…)"


class Session:
    """Drives a `StateMachine`. Each transition names a method `(argument, now_s, step) -> None`.

    A method that may lead to one of several states sets `self.state`; with one state in the row it is set for it.
    """

    __slots__ = ("deadlines", "idle_s", "last_received_s", "state")
    state_machine: ClassVar[StateMachine]
    sends_acks: ClassVar[bool] = False  # whether the peer acks notifications; else the broker does it for the peer
    pulls_backlog: ClassVar[bool] = False  # whether it asks for what it missed; else that is sent when it subscribes
    logs_wire_bytes: ClassVar[bool] = True  # whether the log has frames as on the wire; else as `kept` gives them

    def __init__(self, now_s: float, idle_s: float | None = None) -> None:
        self.state: Enum = self.state_machine.start
        self.last_received_s = now_s  # when the peer was last heard
        self.idle_s = idle_s  # after this long without a frame, `clock silence`
        self.deadlines: dict[str, float] = {}  # clock event → when it is due
        if idle_s is not None:
            self.deadlines[SILENCE] = now_s + idle_s

    def receive(self, frame: Frame, now_s: float) -> Step:
        """The peer sent this."""
        self.last_received_s = now_s
        row = self.state_machine.find_frame(self.state, frame.name)
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more frames")
        return self._run(row, frame, now_s)

    def send(self, message: Message, now_s: float) -> Step:
        """Our own side wants the peer to have this: an answer, a notification, a request."""
        event = self._event(message)
        row = self.state_machine.find(self.state, event)
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name}, where '{event}' has no place")
        return self._run(row, message, now_s)

    def fail(self, error: ProtocolError, now_s: float) -> Step:
        """What the peer sent cannot be read: tell it in its own words, and close."""
        return self._signal("app fail", error, now_s)

    def close(self, closing: Closing, now_s: float) -> Step:
        """We end the connection: tell the peer why, and close."""
        return self._signal("app close", closing, now_s)

    def tick(self, now_s: float) -> Step:
        """Time passed. Runs every deadline that is due."""
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
        """Whether the peer should not be read for a moment: too many of its requests are open."""
        return False

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more is read, and the session closes by itself once the last answers are out."""
        return False

    @property
    def frame_bytes_max(self) -> int | None:
        """How long a frame may be from here on, where that depends on the state."""
        return None

    @property
    def is_deciding_login(self) -> bool:
        """Whether a login is being decided: frames that come meanwhile are held."""
        return False

    @property
    def encoding_key(self) -> Hashable | None:
        """Sessions of one audience are told of a notification in the same bytes. None: only this one can read it."""
        return None

    @property
    def begins_anonymous(self) -> bool:
        """Whether it serves a peer that has not logged in, because everybody is let in."""
        return False

    @property
    def resumption(self) -> Resumption | None:
        """How it can be resumed; None if it cannot."""
        return None

    def may_resume(self, secret: bytes) -> bool:
        """Return whether the peer that asked to resume a session knows its secret."""
        raise StateError(f"{type(self).__name__} resumes nothing")

    def encode_notification(self, message: Message) -> bytes:
        """A notification as its audience is told of it; changes nothing in the session."""
        raise StateError(f"{type(self).__name__} has no audience")

    def skim(self, frames: list[bytes], start: int) -> PublishBatch | None:
        """The run of frames from `start` on that can be passed on without being read one by one, if there is one."""
        return None

    def skimmed(self, bundle: PublishBatch, reached: int) -> bytes:
        """The answer to each frame of the bundle, which reached so many subscribers."""
        raise StateError(f"{type(self).__name__} skims nothing")

    def ask(self, bundle: PublishBatch) -> str:
        """All frames of the bundle together are a question for those above: its correlation. One answer is for each."""
        raise StateError(f"{type(self).__name__} skims nothing")

    def logged_frame(self, raw: bytes, sender: Sender) -> bytes:
        """A frame as the log keeps it; called after the step that it was part of."""
        return raw

    def redact_unreadable(self, raw: bytes) -> bytes:
        """Return bytes that are no good frame, or not a whole one, as the quarantine keeps them: of the same length."""
        return raw

    @property
    def deadline_s(self) -> float | None:
        """When `tick` next has something to do."""
        return min(self.deadlines.values(), default=None)

    def _event(self, message: Message) -> str:
        """Which `app …` row a message of ours belongs to."""
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
            raise AssertionError(f"row {row.state.name}/{row.event} may not lead to {self.state.name}")
