"""Both ends of a magline connection: the states, and what each frame does in them.

A SYN and its ACK agree on keys; from then on requests carry a seq that only grows, and an answer carries the seq of its
request, once. That is what keeps the stream cipher safe, so any repeat or step back ends the connection. Counters run
on through a second SYN: answers that are still owed then cannot meet a new request of the same seq under the new keys.

An ERR answers one frame. The connection ends with a FIN, so whoever gets an ERR waits for the FIN behind it.
A client may send on without waiting for its login to be decided; those requests are held until it is.

The gateway decides what takes knowledge beyond one connection: logins, and whether an old session may be resumed. It
allows a session to be resumed only where that session had been served, for a resumed one needs no login, and only to a
SYN that proves to know the old session's keys: a sid goes over the line in clear. Each sid serves once.
"""

from enum import Enum, auto
from typing import Literal

from wirelake.protocols.magline.frames import HEAD_BYTES
from wirelake.protocols.magline.limits import (
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_IDLE_S,
    MAGLINE_LOGIN_FRAME_BYTES_MAX,
    MAGLINE_LOGIN_S,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_PING_S,
    MAGLINE_RESUME_S,
)
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition


class ServerState(Enum):
    NEW = auto()  # connected, no keys yet
    RESUMING = auto()  # asked above whether the old session may be taken up
    CONNECTED = auto()  # keys, and no login yet
    CHECKING = auto()  # a login is being decided
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    CONNECTING = auto()  # our SYN is on its way
    LOGGING_IN = auto()
    READY = auto()
    REKEYING = auto()  # our second SYN is on its way; the old keys hold until its ACK
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    idle_s: Seconds = MAGLINE_IDLE_S  # a silent connection is closed
    login_s: Seconds = MAGLINE_LOGIN_S  # from connecting to a decided login
    resume_s: Seconds = MAGLINE_RESUME_S  # how long a lost session can be resumed
    resume_without_proof: Literal["never", "tls", "always"] = "never"  # when its sid alone is enough
    login_frame_bytes_max: Count = MAGLINE_LOGIN_FRAME_BYTES_MAX  # a whole frame before the login
    message_bytes_max: Count = MAGLINE_MESSAGE_BYTES_MAX  # a frame's body
    header_bytes_max: Count = MAGLINE_HEADER_BYTES_MAX  # a frame's message header

    @property
    def frame_bytes_max(self) -> int:
        """A whole frame, after the login."""
        return HEAD_BYTES + self.header_bytes_max + self.message_bytes_max


class SessionSettings(Settings, frozen=True):
    """The settings, and what a session learns from its listener or client."""

    open: bool = False  # everybody is let in: who does not log in is nobody in particular
    is_secure: bool = False  # the connection is encrypted by TLS
    require_login: bool = True
    ping_s: float = MAGLINE_PING_S  # how often our own client sends a PIN

    @property
    def needs_proof(self) -> bool:
        """Whether a sid alone is not enough to resume a session."""
        without = self.resume_without_proof
        return not (without == "always" or (without == "tls" and self.is_secure))


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(
            S.NEW,
            "SYN",
            "_syn",
            (S.CONNECTED, S.READY, S.RESUMING, S.CLOSED),
            "ACK with a new sid; with an old sid it is asked above whether to resume; a bad key: ERR 2, FIN 1, close",
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
            "LOGIN goes up to be decided; any other gets ERR 6, or where everybody is let in is held behind a login "
            "without a name",
        ),
        Transition(
            S.CONNECTED, "app response", "_answer", (S.CONNECTED,), "dropped: it answers the session before a new SYN"
        ),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CHECKING, S.CLOSED),
            "REP and what was held; for a failure ERR 6, FIN 1, close",
        ),
        Transition(
            S.CHECKING, "REQ", "_hold", (S.CHECKING, S.CLOSED), "held until the login is decided; ERR 10 if too many"
        ),
        Transition(
            S.READY,
            "REQ",
            "_ask",
            (S.READY, S.CLOSED),
            "asked above; ERR 2 for bad data, 7 for an unknown command, 10 if too many are open",
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
            for state in (S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING)
        ),
        *(
            Transition(state, "ERR", "_told", (state,), "nothing: a FIN follows")
            for state in (S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING, S.READY)
        ),
        *(
            row
            for state in (S.NEW, S.RESUMING, S.CONNECTED, S.CHECKING, S.READY)
            for row in (
                Transition(state, "PIN", "_pong", (state,), "PON with the same number and seq"),
                Transition(state, "FIN", "_ended", (S.CLOSED,), "close"),
                Transition(state, ANY_FRAME, "_unexpected", (S.CLOSED,), "ERR 2, FIN 1, close"),
                Transition(state, "app fail", "_fail", (S.CLOSED,), "ERR 1, 2, 3 or 9, FIN 1, close"),
                Transition(state, "app close", "_goodbye", (S.CLOSED,), "FIN with the reason, close"),
                Transition(state, "clock silence", "_silent", (S.CLOSED,), "FIN 2, close"),
            )
        ),
    ]
)

C = ClientState
_QUESTIONS = (
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
        Transition(C.NEW, "app connect", "_connect", (C.CONNECTING,), "SYN, for servers that want no login"),
        Transition(C.NEW, "app resume", "_connect", (C.CONNECTING,), "SYN with the old sid and a proof"),
        Transition(C.NEW, "ERR", "_told", (C.NEW,), "nothing: a FIN follows"),
        Transition(
            C.CONNECTING,
            "ACK",
            "_connected",
            (C.LOGGING_IN, C.READY, C.CLOSED),
            "REQ LOGIN, or ready; ERR, FIN 1 and close where the key or the sid is not what it should be",
        ),
        Transition(C.CONNECTING, "ERR", "_refused", (C.CONNECTING,), "answered above with the failure; a FIN follows"),
        Transition(C.LOGGING_IN, "REP", "_logged_in", (C.READY, C.CLOSED), "the login is answered"),
        Transition(
            C.LOGGING_IN, "ERR", "_error", (C.LOGGING_IN,), "the login is answered with the failure; a FIN follows"
        ),
        *(Transition(C.READY, f"app {event}", "_ask", (C.READY, C.CLOSED), says) for event, says in _QUESTIONS),
        Transition(C.READY, "app rekey", "_rekey", (C.REKEYING, C.CLOSED), "SYN with our own sid and a proof"),
        Transition(C.READY, "clock ping", "_ping", (C.READY, C.CLOSED), "PIN"),
        *(
            Transition(C.REKEYING, f"app {event}", "_hold", (C.REKEYING,), "held until there are new keys")
            for event, _ in _QUESTIONS
        ),
        Transition(C.REKEYING, "ACK", "_rekeyed", (C.READY, C.CLOSED), "new keys; what was held is sent"),
        *(
            row
            for state in (C.READY, C.REKEYING)
            for row in (
                Transition(
                    state, "REP", "_answered", (state, C.CLOSED), "answers its REQ; to none that is open: ERR 4, FIN 1"
                ),
                Transition(state, "ERR", "_error", (state,), "answers its REQ with a failure"),
                Transition(state, "PON", "_ponged", (state, C.CLOSED), "answers its PIN"),
                Transition(
                    state, "PSH", "_notified", (state, C.CLOSED), "a notification; not a later one: ERR 4, FIN 1, close"
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
                Transition(state, "app fail", "_fail", (C.CLOSED,), "ERR 1, 2, 3 or 9, FIN 1, close"),
                Transition(state, "app close", "_goodbye", (C.CLOSED,), "FIN with the reason, close"),
                Transition(state, "clock silence", "_silent", (C.CLOSED,), "FIN 2, close"),
            )
        ),
    ]
)
