"""Both ends of a sisnet connection: the states, and what each message does in them.

Either end may ask, once the client is logged in, and an answer carries its question's name; so nothing waits for its
turn. What a message does depends on what it asks for, not on its form: the rows speak of `login`, `ping`, `logout`,
`dict`, of any other `request`, and of an `answer`. A client may send on without waiting for its login to be decided;
those frames are held until it is.
"""

from enum import Enum, auto

from wirelake.protocols.sisnet.limits import SISNET_ANSWER_S, SISNET_PING_S
from wirelake.protocols.sisnet.settings import Settings
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


class SessionSettings(Settings, frozen=True):
    """The settings, and what a session learns from its listener or client."""

    open: bool = False  # everybody is let in: who does not log in is nobody in particular
    answer_s: float = SISNET_ANSWER_S
    ping_s: float = SISNET_PING_S  # how often our own client sends one


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(
            S.NEW,
            "login",
            "_login",
            (S.CHECKING, S.CLOSED),
            "goes up to be decided; with a format or compression that we do not have: refused, close",
        ),
        Transition(S.NEW, "ping", "_pong", (S.NEW,), "ok"),
        Transition(S.NEW, "logout", "_logged_out", (S.CLOSED,), "ok, close"),
        Transition(S.NEW, "answer", "_ignore", (S.NEW,), "ignored: nothing was asked"),
        Transition(
            S.NEW,
            ANY_FRAME,
            "_not_logged_in",
            (S.NEW, S.CHECKING),
            "ans -1: log in first; where everybody is let in, held behind a login without a name",
        ),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "logout, close"),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CLOSED),
            "ok and what was held, or refused and close",
        ),
        Transition(S.CHECKING, ANY_FRAME, "_hold", (S.CHECKING, S.CLOSED), "held until the login is decided"),
        Transition(S.CHECKING, "clock login", "_too_late", (S.CLOSED,), "logout, close"),
        Transition(S.READY, "login", "_second_login", (S.READY,), "ans -1: already logged in"),
        Transition(S.READY, "ping", "_pong", (S.READY,), "ok"),
        Transition(S.READY, "logout", "_logged_out", (S.CLOSED,), "ok, close"),
        Transition(S.READY, "dict", "_learn", (S.READY,), "ok; data lines of its tables are understood from here on"),
        Transition(S.READY, "request", "_ask_above", (S.READY,), "asked above, answered under its name"),
        Transition(S.READY, "answer", "_hear_answer", (S.READY,), "goes up if we asked under that name, else ignored"),
        Transition(
            S.READY, "app response", "_answer", (S.READY,), "under the question's name, in its dialect and form"
        ),
        Transition(S.READY, "app notification", "_push", (S.READY,), "under the name of the request that subscribed"),
        Transition(S.READY, "app request", "_ask_peer", (S.READY,), "asked under a name of ours"),
        Transition(S.READY, "app event", "_ask_peer", (S.READY,), "asked under an empty name"),
        Transition(
            S.READY,
            "app unsubscribe",
            "_stop_pushes",
            (S.READY,),
            "pushes of what this client provides are ignored; unsub under an empty name, if nobody wants the same",
        ),
        Transition(S.READY, "app dict", "_teach", (S.READY,), "our tables, under a name of ours"),
        Transition(S.READY, "clock answer", "_overdue", (S.READY,), "what the client did not answer failed: timeout"),
        *(
            Transition(state, event, do, (S.CLOSED,), says)
            for state in (S.NEW, S.CHECKING, S.READY)
            for event, do, says in (
                ("app fail", "_fail", "ans -1 under an empty name, close"),
                ("app close", "_goodbye", "logout with the reason, close"),
                ("clock silence", "_silent", "close"),
            )
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_login", (C.LOGGING_IN,), "login"),
        Transition(
            C.LOGGING_IN,
            "answer",
            "_login_answered",
            (C.LOGGING_IN, C.READY, C.CLOSED),
            "under the login's name it is answered, and with a failure closed; else ignored",
        ),
        Transition(C.LOGGING_IN, "logout", "_refused", (C.CLOSED,), "the login is answered with the failure, close"),
        Transition(C.LOGGING_IN, ANY_FRAME, "_ignore", (C.LOGGING_IN,), "ignored"),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        *(
            Transition(C.READY, f"app {event}", "_ask_peer", (C.READY,), says)
            for event, says in (
                ("request", "asked under a name of ours"),
                ("event", "asked under an empty name"),
                ("notification", "publish"),
                ("subscribe", "subscribe; pushes come under its name"),
                ("unsubscribe", "unsubscribe"),
                ("register", "register"),
                ("unregister", "unregister"),
                ("ping", "ping"),
                ("logout", "logout"),
            )
        ),
        Transition(C.READY, "app dict", "_teach", (C.READY,), "our tables, under a name of ours"),
        Transition(
            C.READY, "answer", "_hear_answer", (C.READY,), "answers what was asked under that name, or is a push"
        ),
        Transition(C.READY, "logout", "_logged_out", (C.CLOSED,), "close"),
        Transition(C.READY, "ping", "_pong", (C.READY,), "ok"),
        Transition(C.READY, "dict", "_learn", (C.READY,), "ok; data lines of its tables are understood from here on"),
        Transition(
            C.READY, "request", "_serve", (C.READY,), "asked above, answered under its name; a data line may be a push"
        ),
        Transition(C.READY, ANY_FRAME, "_not_served", (C.READY,), "ans -1"),
        Transition(
            C.READY, "app response", "_answer", (C.READY,), "under the question's name, in its dialect and form"
        ),
        Transition(C.READY, "clock answer", "_overdue", (C.READY,), "what the server did not answer failed: timeout"),
        Transition(C.READY, "clock ping", "_beat", (C.READY,), "ping"),
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
