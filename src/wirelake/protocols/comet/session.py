"""Both ends of a comet connection: the states, and what each frame does in them.

comet has no request numbers: answers come in the order of the questions. The server therefore keeps the open questions
in a queue and holds an answer back until those before it are answered. Pushes are independent of that queue.
A client may send on without waiting for its login to be decided; those frames are held until it is.
"""

from enum import Enum, auto
from typing import Literal

from wirelake.protocols.comet.limits import COMET_HEARTBEAT_S, COMET_IDLE_S, COMET_LOGIN_FRAME_BYTES_MAX, COMET_LOGIN_S
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition


class ServerState(Enum):
    NEW = auto()  # connected, nobody yet
    CHECKING = auto()  # a login is being decided
    KEYLESS = auto()  # logged in, but this listener wants a key before any content
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    EXCHANGING = auto()  # logged in, our secret is on its way
    READY = auto()
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    require_key: bool = False  # content only for clients that exchanged a key
    second: Literal["replace", "refuse"] = "replace"  # when a client connects that is connected already
    idle_s: Seconds = COMET_IDLE_S  # a silent connection is closed
    login_s: Seconds = COMET_LOGIN_S  # from connecting to a decided login
    login_frame_bytes_max: Count = COMET_LOGIN_FRAME_BYTES_MAX  # a frame before the login


class SessionSettings(Settings, frozen=True):
    """The settings, and what only our own client has."""

    heartbeat_s: float = COMET_HEARTBEAT_S  # how often the client sends one


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(S.NEW, "auth", "_login", (S.CHECKING,), "the login goes up to be decided"),
        Transition(S.NEW, "heartbeat", "_ok", (S.NEW,), "ok"),
        Transition(S.NEW, ANY_FRAME, "_not_authenticated", (S.NEW,), "error 5"),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "error 5, close"),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.KEYLESS, S.CLOSED),
            "auth_success and what was held, or an error and close",
        ),
        Transition(S.CHECKING, ANY_FRAME, "_hold", (S.CHECKING, S.CLOSED), "held until the login is decided"),
        Transition(S.CHECKING, "clock login", "_too_late", (S.CLOSED,), "error 5, close"),
        Transition(S.KEYLESS, "exchange_key", "_exchange", (S.READY, S.CLOSED), "ok; content is sealed from here on"),
        Transition(S.KEYLESS, "heartbeat", "_ok", (S.KEYLESS,), "ok"),
        Transition(S.KEYLESS, ANY_FRAME, "_not_authenticated", (S.KEYLESS,), "error 5"),
        Transition(S.READY, "exchange_key", "_exchange", (S.READY, S.CLOSED), "ok; content is sealed from here on"),
        Transition(S.READY, "get_topic_list", "_ask", (S.READY,), "asked above, answered in turn"),
        Transition(S.READY, "subscribe", "_ask_topics", (S.READY,), "error 4 for a bad name, else asked above"),
        Transition(S.READY, "unsubscribe", "_ask_topics", (S.READY,), "error 4 for a bad name, else asked above"),
        Transition(S.READY, "get_message_list", "_ask", (S.READY,), "asked above, answered in turn"),
        Transition(S.READY, "heartbeat", "_ok", (S.READY,), "ok"),
        Transition(S.READY, "message_ack", "_ask", (S.READY,), "asked above, answered in turn"),
        Transition(S.READY, "report_environ", "_ask", (S.READY,), "asked above, answered in turn"),
        Transition(S.READY, "auth", "_second_auth", (S.CLOSED,), "error 4, close"),
        Transition(S.READY, "app response", "_answer", (S.READY,), "sent once those before it are"),
        Transition(S.READY, "app notification", "_push", (S.READY,), "message, sealed if there is a key"),
        *(
            Transition(state, event, do, (S.CLOSED,), says)
            for state in (S.NEW, S.CHECKING, S.KEYLESS, S.READY)
            for event, do, says in (
                ("app fail", "_fail", "error 4, close"),
                ("app close", "_goodbye", "error 2 when replaced, else 3; close"),
                ("app flood", "_flood", "error 6, close: too many answers wait their turn"),
                ("clock silence", "_silent", "close"),
            )
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_login", (C.LOGGING_IN,), "auth"),
        Transition(
            C.LOGGING_IN,
            "auth_success",
            "_logged_in",
            (C.READY, C.EXCHANGING, C.CLOSED),
            "with a secret of ours: exchange_key; else the login is answered",
        ),
        Transition(C.LOGGING_IN, "error", "_refused", (C.CLOSED,), "the login is answered with the failure, close"),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        Transition(C.LOGGING_IN, ANY_FRAME, "_unexpected", (C.CLOSED,), "close"),
        Transition(
            C.EXCHANGING,
            "ok",
            "_exchanged",
            (C.READY,),
            "the login is answered; content is sealed from here on",
        ),
        Transition(C.EXCHANGING, "message", "_notified", (C.EXCHANGING, C.CLOSED), "a notification, not yet sealed"),
        Transition(C.EXCHANGING, "error", "_refused", (C.CLOSED,), "the login is answered with the failure, close"),
        Transition(C.EXCHANGING, "clock login", "_too_late", (C.CLOSED,), "close"),
        Transition(C.EXCHANGING, ANY_FRAME, "_unexpected", (C.CLOSED,), "close"),
        *(
            Transition(C.READY, f"app {event}", "_ask", (C.READY,), f"{frame}")
            for event, frame in (
                ("topics", "get_topic_list"),
                ("subscribe", "subscribe"),
                ("unsubscribe", "unsubscribe"),
                ("backlog", "get_message_list"),
                ("ack", "message_ack"),
                ("ping", "heartbeat"),
                ("event", "report_environ"),
            )
        ),
        *(
            Transition(C.READY, frame, "_answered", (C.READY, C.CLOSED), "answers the oldest open question")
            for frame in ("ok", "topic_list", "message_list")
        ),
        Transition(
            C.READY,
            "error",
            "_error",
            (C.READY, C.CLOSED),
            "answers the oldest open question; with none open, close",
        ),
        Transition(
            C.READY,
            "message",
            "_notified",
            (C.READY, C.CLOSED),
            "a notification, opened; close if it was changed",
        ),
        Transition(C.READY, ANY_FRAME, "_unexpected", (C.CLOSED,), "close"),
        Transition(C.READY, "clock heartbeat", "_beat", (C.READY,), "heartbeat"),
        *(
            Transition(state, event, do, (C.CLOSED,), says)
            for state in (C.NEW, C.LOGGING_IN, C.EXCHANGING, C.READY)
            for event, do, says in (
                ("app fail", "_fail", "close"),
                ("app close", "_goodbye", "close"),
                ("clock silence", "_silent", "close"),
            )
        ),
    ]
)
