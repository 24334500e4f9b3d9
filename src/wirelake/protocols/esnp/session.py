"""Both ends of an esnp connection: the states, and what each message does in them.

All messages have one name on the wire; what they are for is in their flags and addresses, and that is what the rows
react to: `login` and `ping` (requests to the gateway), `request` (every other one), `one-way`, `notification`,
`response`, `trace`, `elsewhere` (at the gateway: to another node, or to the gateway itself in a group), and
`unreadable` for a message with a malformed line or, at the gateway, a head line behind a body line. An unreadable
message is answered with an ERROR line, even where it is one-way, and the connection goes on.

Either end may ask and answer: a client that registered a service is asked by the gateway. Requests with a MESSAGE_ID
are answered in any order, those without in the order in which they came; our own always have one. A client may send on
without waiting for its login to be decided; those messages are held until it is.
"""

from enum import Enum, auto
from typing import Annotated

from msgspec import Meta

from wirelake.protocols.esnp.limits import ESNP_FRAME_BYTES_MAX, ESNP_LOGIN_FRAME_BYTES_MAX, ESNP_LOGIN_S, ESNP_REPLY_S
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds, SecondsOrNever
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition


class ServerState(Enum):
    NEW = auto()  # connected, nobody yet
    CHECKING = auto()  # a login is being decided
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    READY = auto()
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    hosts: tuple[str, ...] = ()  # names of this node in addresses, beside `local`, the machine's name and loopback's
    login_s: Seconds = ESNP_LOGIN_S  # from connecting to a decided login
    idle_s: SecondsOrNever = 0.0  # a silent connection is closed; 0: never
    frame_bytes_max: Annotated[int, Meta(ge=1, le=ESNP_FRAME_BYTES_MAX)] = ESNP_FRAME_BYTES_MAX  # after the login
    login_frame_bytes_max: Count = ESNP_LOGIN_FRAME_BYTES_MAX  # a message before the login


class SessionSettings(Settings, frozen=True):
    """The settings, and what a session learns from its listener or client."""

    open: bool = False  # everybody is let in: who does not log in is nobody in particular
    reply_s: float = ESNP_REPLY_S  # for the peer's answer, where the request has no `timeout_ms`
    node_names: frozenset[str] = frozenset()  # in lower case; a request to any other host is refused


_NOT_HERE = "ERROR that names the address; nothing for a one-way message"

S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(S.NEW, "login", "_login", (S.CHECKING,), "the login goes up to be decided"),
        Transition(S.NEW, "ping", "_pong", (S.NEW,), "an empty answer"),
        Transition(S.NEW, "unreadable", "_refuse", (S.NEW,), "ERROR"),
        Transition(S.NEW, "elsewhere", "_not_here", (S.NEW,), _NOT_HERE),
        Transition(S.NEW, "response", "_ignore", (S.NEW,), "nothing was asked"),
        Transition(S.NEW, "trace", "_ignore", (S.NEW,), "nothing was asked"),
        Transition(
            S.NEW,
            ANY_FRAME,
            "_not_logged_in",
            (S.NEW, S.CHECKING),
            "ERROR `not logged in`; where everybody is let in, held behind a login without a name",
        ),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "ERROR, close"),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CLOSED),
            "the login is answered, then what was held; or ERROR and close",
        ),
        Transition(S.CHECKING, ANY_FRAME, "_hold", (S.CHECKING, S.CLOSED), "held until the login is decided"),
        Transition(S.CHECKING, "clock login", "_too_late", (S.CLOSED,), "ERROR, close"),
        Transition(S.READY, "login", "_second_login", (S.READY,), "ERROR `already logged in`"),
        Transition(S.READY, "ping", "_pong", (S.READY,), "an empty answer"),
        Transition(S.READY, "request", "_question", (S.READY,), "asked above; ERROR for one that lacks what it needs"),
        Transition(S.READY, "one-way", "_inform", (S.READY,), "handed up, not answered"),
        Transition(
            S.READY, "response", "_answered", (S.READY,), "handed up as the answer to what was asked of this client"
        ),
        Transition(S.READY, "trace", "_traced", (S.READY,), "handed up if it tells of an open request"),
        Transition(S.READY, "unreadable", "_refuse", (S.READY,), "ERROR"),
        Transition(S.READY, "elsewhere", "_not_here", (S.READY,), _NOT_HERE),
        Transition(
            S.READY,
            "app response",
            "_answer",
            (S.READY, S.CLOSED),
            "sent, in turn where the request has no number; close if too many wait",
        ),
        Transition(S.READY, "app trace", "_trace", (S.READY, S.CLOSED), "a hop, if the request asked for a trace"),
        Transition(S.READY, "app request", "_ask", (S.READY,), "a request to a service that this client registered"),
        Transition(S.READY, "app event", "_tell", (S.READY,), "a one-way message"),
        Transition(S.READY, "app notification", "_tell", (S.READY,), "a notification"),
        Transition(
            S.READY, "app flood", "_flood", (S.CLOSED,), "an answer with ERROR, close: too many answers wait their turn"
        ),
        Transition(S.READY, "clock reply", "_expire", (S.READY,), "requests without an answer in time get `timeout`"),
        *(
            Transition(state, event, do, (S.CLOSED,), says)
            for state in (S.NEW, S.CHECKING, S.READY)
            for event, do, says in (
                ("app fail", "_fail", "an answer with ERROR, close"),
                ("app close", "_goodbye", "an event with ERROR, close"),
                ("clock silence", "_silent", "close"),
            )
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_login", (C.LOGGING_IN,), "a request `login`"),
        Transition(C.NEW, "app ping", "_ask", (C.NEW,), "a request `ping`"),
        Transition(
            C.LOGGING_IN,
            "response",
            "_login_answered",
            (C.LOGGING_IN, C.READY, C.CLOSED),
            "the login is answered; close if it was refused",
        ),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        Transition(C.READY, "response", "_answered", (C.READY, C.CLOSED), "answers the request with its number"),
        Transition(C.READY, "request", "_question", (C.READY,), "asked above: it is for a service of ours"),
        Transition(C.READY, "unreadable", "_refuse", (C.READY,), "ERROR"),
        Transition(C.READY, "notification", "_inform", (C.READY,), "handed up"),
        Transition(C.READY, "app flood", "_flood", (C.CLOSED,), "close: too many answers wait their turn"),
        *(
            Transition(C.READY, f"app {event}", "_ask", (C.READY,), says)
            for event, says in (
                ("request", "a request"),
                ("notification", "a request `publish`"),
                ("subscribe", "a request `subscribe`"),
                ("unsubscribe", "a request `unsubscribe`"),
                ("register", "a request `register`"),
                ("unregister", "a request `unregister`"),
                ("ping", "a request `ping`"),
            )
        ),
        Transition(C.READY, "app event", "_tell", (C.READY,), "a one-way message"),
        Transition(C.READY, "app trace", "_trace", (C.READY, C.CLOSED), "a hop, if the request asked for a trace"),
        Transition(
            C.READY,
            "app response",
            "_answer",
            (C.READY, C.CLOSED),
            "sent, in turn where the request has no number; close if too many wait",
        ),
        Transition(C.NEW, "response", "_answered", (C.NEW, C.CLOSED), "answers the ping with its number"),
        *(
            row
            for state in (C.NEW, C.LOGGING_IN, C.READY)
            for row in (
                Transition(state, "one-way", "_told", (state, C.CLOSED), "handed up; a goodbye closes"),
                Transition(state, "trace", "_traced", (state,), "handed up if it tells of an open request"),
                Transition(
                    state, "clock reply", "_expire", (state,), "requests without an answer in time get `timeout`"
                ),
            )
        ),
        Transition(C.NEW, ANY_FRAME, "_ignore", (C.NEW,), "ignored: nothing of ours is there to be asked"),
        Transition(
            C.LOGGING_IN, ANY_FRAME, "_ignore", (C.LOGGING_IN,), "ignored: nothing of ours is there to be asked"
        ),
        *(
            Transition(state, event, do, (C.CLOSED,), says)
            for state in (C.NEW, C.LOGGING_IN, C.READY)
            for event, do, says in (
                ("app fail", "_fail", "close"),
                ("app close", "_goodbye", "close"),
                ("clock silence", "_silent", "close"),
            )
        ),
    ]
)
