"""The states of magline sessions, what each frame does in them, and what both ends share.

A SYN and its ACK agree on keys. After that, the seq of requests only grows, and each answer has the seq of its request,
once. The stream cipher depends on this, so a seq that repeats or decreases ends the connection. A second SYN does not
reset the counters: otherwise a late answer could meet a new request with the same seq under the new keys.

An ERR answers one frame. The connection ends with a FIN, so the receiver of an ERR waits for the FIN after it.
A client need not wait until its login is decided: requests that it sends meanwhile are held.

The gateway decides what needs knowledge beyond one connection: logins, and whether an old session may be resumed. A
session can be resumed only if it was logged in, because the resumed one needs no login, and only by a SYN that proves
knowledge of the old session's keys, because the sid travels in clear text. Each sid can be used once.
"""

from enum import Enum, auto
from typing import ClassVar, Literal, TypeVar

from msgspec.structs import replace

from wirelake.errors import LimitError, ProtocolError, SealError, TranslationError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.constants import (
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_IDLE_S,
    MAGLINE_LOGIN_FRAME_BYTES_MAX,
    MAGLINE_LOGIN_S,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_PING_S,
    MAGLINE_RESUME_S,
    MAGLINE_SEQ_MAX,
    REASON_NAMES,
    REASONS,
    ErrorNumber,
    Reason,
)
from wirelake.protocols.magline.frames import HEAD_BYTES
from wirelake.protocols.session import ACCESS_DENIED, Closing, Session, Step
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import (
    ANY_FRAME,
    StateMachine,
    Transition,
    closing_transitions,
    login_transitions,
)


class ServerState(Enum):
    NEW = auto()  # connected, without keys
    RESUMING = auto()  # the gateway decides whether the old session may be resumed
    CONNECTED = auto()  # has keys, not logged in
    CHECKING = auto()  # a login is being checked
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    CONNECTING = auto()  # our SYN is sent
    LOGGING_IN = auto()
    READY = auto()
    REKEYING = auto()  # our second SYN is sent; the old keys are used until its ACK
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    """The section [magline] of wirelake.toml."""

    idle_s: Seconds = MAGLINE_IDLE_S  # a silent connection is closed
    login_s: Seconds = MAGLINE_LOGIN_S  # from connecting to a decided login
    resume_s: Seconds = MAGLINE_RESUME_S  # how long a lost session can be resumed
    resume_without_proof: Literal["never", "tls", "always"] = "never"  # when its sid alone is enough
    login_frame_bytes_max: Count = MAGLINE_LOGIN_FRAME_BYTES_MAX  # a whole frame before the login
    message_bytes_max: Count = MAGLINE_MESSAGE_BYTES_MAX  # a frame's body
    header_bytes_max: Count = MAGLINE_HEADER_BYTES_MAX  # a frame's message header

    @property
    def frame_bytes_max(self) -> int:
        """Return the limit on a frame after the login."""
        return HEAD_BYTES + self.header_bytes_max + self.message_bytes_max


class SessionSettings(Settings, frozen=True):
    """The settings, and what the listener or our own client adds to them."""

    open: bool = False  # admit everybody; without a login, as an anonymous peer
    is_secure: bool = False  # the connection is encrypted by TLS
    require_login: bool = True
    ping_s: float = MAGLINE_PING_S  # how often our own client sends a PIN

    @property
    def needs_proof(self) -> bool:
        """Return whether a sid alone is not enough to resume a session."""
        without = self.resume_without_proof
        return not (without == "always" or (without == "tls" and self.is_secure))


# Both ends close in the same way.
_CLOSING = {
    "close": "FIN with the reason, close",
    "fail": "ERR 1, 2, 3 or 9, FIN 1, close",
    "silence": "FIN 2, close",
}

S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(
            S.NEW,
            "SYN",
            "_syn",
            (S.CONNECTED, S.READY, S.RESUMING, S.CLOSED),
            "ACK with a new sid; with an old sid, the resume is passed up; a bad key: ERR 2, FIN 1, close",
        ),
        Transition(S.NEW, "REQ", "_no_session", (S.CLOSED,), "ERR 5, FIN 1, close"),
        Transition(
            S.RESUMING,
            "app response",
            "_resumed",
            (S.READY, S.CLOSED),
            "ACK with new keys and a new sid; for a failure ERR 5, FIN 1, close",
        ),
        Transition(
            S.CONNECTED,
            "REQ",
            "_login",
            (S.CONNECTED, S.CHECKING, S.CLOSED),
            "LOGIN is passed up; any other gets ERR 6, or, if everybody is admitted, is held behind an anonymous login",
        ),
        Transition(
            S.CONNECTED, "app response", "_answer", (S.CONNECTED,), "dropped: it answers the session before a new SYN"
        ),
        *login_transitions(
            S.CHECKING,
            (S.READY, S.CHECKING, S.CLOSED),
            S.CLOSED,
            decide="REP and what was held; for a failure ERR 6, FIN 1, close",
            late="ERR 8, FIN 1, close",
            hold="held until the login is decided; ERR 10 if too many",
            held_frames="REQ",
        ),
        Transition(
            S.READY,
            "REQ",
            "_request",
            (S.READY, S.CLOSED),
            "passed up; ERR 2 for bad data, 7 for an unknown command, 10 if too many are open",
        ),
        Transition(
            S.READY, "app response", "_answer", (S.READY, S.CLOSED), "REP or ERR, once, with the seq of the REQ"
        ),
        Transition(
            S.READY, "app notification", "_push", (S.READY, S.CLOSED), "PSH; at the end of the seqs FIN 3, close"
        ),
        *(
            Transition(
                state,
                "SYN",
                "_syn_again",
                then,
                "ACK with new keys and a new sid: with its own sid and a proof it goes on, without a sid it is a new "
                "session (while a login is being decided: ERR 2, FIN 1, close); with another sid, or without a proof "
                "that holds, ERR 5, FIN 1, close",
            )
            for state, then in (
                (S.CONNECTED, (S.CONNECTED, S.CLOSED)),
                (S.CHECKING, (S.CHECKING, S.CLOSED)),
                (S.READY, (S.READY, S.CONNECTED, S.CLOSED)),
            )
        ),
        *(
            Transition(state, "clock login", "_too_late", (S.CLOSED,), "ERR 8, FIN 1, close")
            for state in (S.NEW, S.RESUMING, S.CONNECTED)
        ),
        *(
            Transition(state, "ERR", "_ignore", (state,), "nothing: a FIN follows")
            for state in (S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING, S.READY)
        ),
        *(
            row
            for state in (S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING, S.READY)
            for row in (
                Transition(state, "PIN", "_pong", (state,), "PON with the same number and seq"),
                Transition(state, "FIN", "_ended", (S.CLOSED,), "close"),
                Transition(state, ANY_FRAME, "_unexpected", (S.CLOSED,), "ERR 2, FIN 1, close"),
            )
        ),
        *closing_transitions((S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING, S.READY), S.CLOSED, **_CLOSING),
    ]
)

C = ClientState
_REQUESTS = (
    ("request", "REQ to a service"),
    ("notification", "REQ PUBLISH"),
    ("subscribe", "REQ SUBSCRIBE"),
    ("unsubscribe", "REQ UNSUBSCRIBE"),
    ("ack", "REQ ACK"),
    ("login", "REQ LOGIN"),
    ("ping", "PIN"),
)
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_connect", (C.CONNECTING,), "SYN; the login waits for its ACK"),
        Transition(C.NEW, "app connect", "_connect", (C.CONNECTING,), "SYN, for servers that require no login"),
        Transition(C.NEW, "app resume", "_connect", (C.CONNECTING,), "SYN with the old sid and a proof"),
        Transition(C.NEW, "ERR", "_ignore", (C.NEW,), "nothing: a FIN follows"),
        Transition(
            C.CONNECTING,
            "ACK",
            "_connected",
            (C.LOGGING_IN, C.READY, C.CLOSED),
            "REQ LOGIN, or ready; ERR, FIN 1 and close if the key or the sid is wrong",
        ),
        Transition(C.CONNECTING, "ERR", "_refused", (C.CONNECTING,), "the failure is passed up; a FIN follows"),
        Transition(C.LOGGING_IN, "REP", "_logged_in", (C.READY, C.CLOSED), "the login is answered"),
        Transition(
            C.LOGGING_IN, "ERR", "_error", (C.LOGGING_IN,), "the login is answered with the failure; a FIN follows"
        ),
        *(
            Transition(C.READY, f"app {event}", "_request", (C.READY, C.CLOSED), summary)
            for event, summary in _REQUESTS
        ),
        Transition(C.READY, "app rekey", "_rekey", (C.REKEYING, C.CLOSED), "SYN with our own sid and a proof"),
        Transition(C.READY, "clock ping", "_ping", (C.READY, C.CLOSED), "PIN"),
        *(
            Transition(C.REKEYING, f"app {event}", "_hold", (C.REKEYING,), "held until there are new keys")
            for event, _ in _REQUESTS
        ),
        Transition(C.REKEYING, "ACK", "_rekeyed", (C.READY, C.CLOSED), "new keys; what was held is sent"),
        *(
            row
            for state in (C.READY, C.REKEYING)
            for row in (
                Transition(
                    state, "REP", "_answered", (state, C.CLOSED), "answers its REQ; if none is open: ERR 4, FIN 1"
                ),
                Transition(state, "ERR", "_error", (state,), "answers its REQ with a failure"),
                Transition(state, "PON", "_ponged", (state, C.CLOSED), "answers its PIN"),
                Transition(
                    state,
                    "PSH",
                    "_notified",
                    (state, C.CLOSED),
                    "a notification; if its seq does not grow: ERR 4, FIN 1, close",
                ),
            )
        ),
        *(
            Transition(state, "clock login", "_too_late", (C.CLOSED,), "FIN 1, close")
            for state in (C.CONNECTING, C.LOGGING_IN, C.REKEYING)
        ),
        *(
            row
            for state in (C.NEW, C.CONNECTING, C.LOGGING_IN, C.READY, C.REKEYING)
            for row in (
                Transition(state, "FIN", "_ended", (C.CLOSED,), "close"),
                Transition(state, ANY_FRAME, "_unexpected", (C.CLOSED,), "ERR 2, FIN 1, close"),
                Transition(state, "app logout", "_logout", (C.CLOSED,), "FIN 0, close"),
            )
        ),
        *closing_transitions((C.NEW, C.CONNECTING, C.LOGGING_IN, C.READY, C.REKEYING), C.CLOSED, **_CLOSING),
    ]
)


# ── what both ends share

_Sealed = TypeVar("_Sealed", bound=frames.SealedFrame)


class SealedSession(Session):
    """Count, seal and open frames. `sid` identifies the session; `resume_secret` makes the proof that resumes it."""

    sender: ClassVar[Sender]
    closed: ClassVar[Enum]
    __slots__ = ("_keys", "_little", "received_seq", "sent_seq", "settings", "sid")

    def __init__(self, now_s: float, settings: SessionSettings, little: bool) -> None:
        super().__init__(now_s, settings.idle_s)
        self.settings = settings
        self.sid = b""
        self._keys: crypto.Keys | None = None
        self._little = little
        self.sent_seq = 0  # of the last frame that we sent
        self.received_seq = 0  # of the last frame from the peer whose seq must grow

    def logged_frame(self, raw_frame: bytes, sender: Sender) -> bytes:
        """Return a frame as it is logged: decrypted, if its seal is valid with the keys in use.

        Call this after the step in which the frame was received or sent.
        """
        frame = frames.decode(raw_frame, sender)
        if self._keys is None or not isinstance(frame, frames.SealedFrame):
            return raw_frame
        try:
            return crypto.opened(raw_frame, crypto.open_data(frame, self._keys.of(sender)))
        except SealError:
            return raw_frame

    @property
    def resume_secret(self) -> bytes:
        """Return the secret that later proves knowledge of the keys of this session."""
        return b"" if self._keys is None else self._keys.resume

    def _next_seq(self) -> int:
        self.sent_seq += 1
        return self.sent_seq

    @property
    def _is_seq_used_up(self) -> bool:
        """Return whether the next seq would exceed the limit."""
        return self.sent_seq + 1 >= MAGLINE_SEQ_MAX

    def _seal(self, frame: _Sealed, seq: int) -> _Sealed:
        """Seal a frame whose data is in clear text."""
        keys = self._require_keys().of(self.sender)
        return crypto.seal(replace(frame, seq=seq, little=self._little), keys)

    def _decrypt(self, frame: _Sealed) -> _Sealed:
        """Decrypt the data of a frame from the peer. Raise SealError."""
        keys = self._require_keys().of(self.sender.other)
        return replace(frame, hmac=frames.OPENED, data=crypto.open_data(frame, keys))

    def _require_keys(self) -> crypto.Keys:
        if self._keys is None:
            raise AssertionError("a state without keys has no row for sealed frames")
        return self._keys

    def _check_size(self, frame: frames.SealedFrame) -> None:
        size = frames.SEALED_HEAD_BYTES + len(frame.data)
        if size > self.settings.message_bytes_max:
            text = f"a {frame.name} of {size} bytes is over the limit of {self.settings.message_bytes_max}"
            raise TranslationError(text)

    def _error_to(self, frame: frames.MaglineFrame, number: ErrorNumber) -> frames.Err:
        """Return the ERR that answers this frame."""
        business = frame.business_cmd if isinstance(frame, frames.SealedFrame) else 0
        return frames.Err(business, number.value, seq=frame.seq, little=self._little)

    def _end(self, reason: Reason, closing: Closing, step: Step) -> None:
        self.state = self.closed
        step.frames.append(frames.Fin(reason.value, seq=self._next_seq(), little=self._little))
        step.closing = closing

    def _refuse(self, frame: frames.MaglineFrame, number: ErrorNumber, closing: Closing, step: Step) -> None:
        """Send ERR for this frame, then FIN, and close."""
        step.frames.append(self._error_to(frame, number))
        self._end(Reason.ERROR, closing, step)

    def _refuse_error(self, frame: frames.MaglineFrame, error: ProtocolError, step: Step) -> None:
        self._refuse(frame, number_of(error), Closing(error.code, str(error)), step)

    def _replayed(self, frame: frames.MaglineFrame, step: Step) -> None:
        text = f"{frame.name} of seq {frame.seq} after {self.received_seq}"
        self._refuse(frame, ErrorNumber.REPLAY, Closing("replay", text), step)

    def _unexpected(self, frame: frames.MaglineFrame, _now_s: float, step: Step) -> None:
        closing = Closing("unexpected_frame", f"{frame.name} has no place here")
        self._refuse(frame, ErrorNumber.MALFORMED, closing, step)

    def _ended(self, frame: frames.Fin, _now_s: float, step: Step) -> None:
        self.state = self.closed
        name = REASON_NAMES.get(frame.reason, "unknown")
        step.closing = Closing(f"fin_{name}", f"the peer sent FIN {frame.reason}")

    def _ignore(self, _frame: Frame, _now_s: float, _step: Step) -> None:
        """Do nothing: the FIN that follows closes the connection."""

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Err(0, number_of(error).value, little=self._little))
        self._end(Reason.ERROR, Closing(error.code, str(error)), step)

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        if closing.code == ACCESS_DENIED:
            step.frames.append(frames.Err(0, ErrorNumber.ACCESS_DENIED.value, little=self._little))
            self._end(Reason.ERROR, closing, step)
            return
        self._end(REASONS.get(closing.code, Reason.NORMAL), closing, step)

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        self._end(Reason.IDLE, Closing("idle", f"no data received for {self.settings.idle_s:g} s"), step)


def number_of(error: ProtocolError) -> ErrorNumber:
    """Return the ERR number of an error."""
    if isinstance(error, SealError):
        return ErrorNumber.BAD_HMAC
    if isinstance(error, LimitError):
        return ErrorNumber.TOO_LARGE
    return ErrorNumber.VERSION if error.code == "version" else ErrorNumber.MALFORMED
