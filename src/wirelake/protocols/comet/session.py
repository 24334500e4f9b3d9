"""The states of comet sessions, and what each frame does in them.

comet has no request numbers: answers are sent in the order of the requests. The server therefore keeps open requests in
a queue, and holds an answer back until all requests before it are answered. Pushes do not wait in that queue.
A client need not wait until its login is decided: frames that it sends meanwhile are held.
"""

from enum import Enum, auto
from typing import Literal

from wirelake.protocols.comet.constants import (
    COMET_HEARTBEAT_S,
    COMET_IDLE_S,
    COMET_LOGIN_FRAME_BYTES_MAX,
    COMET_LOGIN_S,
)
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import (
    ANY_FRAME,
    StateMachine,
    Transition,
    closing_transitions,
    login_transitions,
)


class ServerState(Enum):
    NEW = auto()  # connected, not logged in
    CHECKING = auto()  # a login is being checked
    KEYLESS = auto()  # logged in, but the settings require a key before any content
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    EXCHANGING = auto()  # logged in, our secret is sent
    READY = auto()
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    """The section [comet] of wirelake.toml."""

    require_key: bool = False  # content only for clients that exchanged a key
    second: Literal["replace", "refuse"] = "replace"  # when a client connects that is connected already
    idle_s: Seconds = COMET_IDLE_S  # a silent connection is closed
    login_s: Seconds = COMET_LOGIN_S  # from connecting to a decided login
    login_frame_bytes_max: Count = COMET_LOGIN_FRAME_BYTES_MAX  # a frame before the login


class SessionSettings(Settings, frozen=True):
    """The settings, and those that only our own client has."""

    heartbeat_s: float = COMET_HEARTBEAT_S  # how often the client sends one


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(S.NEW, "auth", "_login", (S.CHECKING,), "the login is passed up"),
        Transition(S.NEW, "heartbeat", "_ok", (S.NEW,), "ok"),
        Transition(S.NEW, ANY_FRAME, "_not_authenticated", (S.NEW,), "error 5"),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "error 5, close"),
        *login_transitions(
            S.CHECKING,
            (S.READY, S.KEYLESS, S.CLOSED),
            S.CLOSED,
            decide="auth_success and what was held, or an error and close",
            late="error 5, close",
        ),
        Transition(S.KEYLESS, "exchange_key", "_exchange", (S.READY, S.CLOSED), "ok; content is sealed from here on"),
        Transition(S.KEYLESS, "heartbeat", "_ok", (S.KEYLESS,), "ok"),
        Transition(S.KEYLESS, ANY_FRAME, "_not_authenticated", (S.KEYLESS,), "error 5"),
        Transition(S.READY, "exchange_key", "_exchange", (S.READY, S.CLOSED), "ok; content is sealed from here on"),
        Transition(S.READY, "get_topic_list", "_request", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, "subscribe", "_request_topics", (S.READY,), "error 4 for a bad name, else passed up"),
        Transition(S.READY, "unsubscribe", "_request_topics", (S.READY,), "error 4 for a bad name, else passed up"),
        Transition(S.READY, "get_message_list", "_request", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, "heartbeat", "_ok", (S.READY,), "ok"),
        Transition(S.READY, "message_ack", "_request", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, "report_environ", "_request", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, "auth", "_refuse_second_auth", (S.CLOSED,), "error 4, close"),
        Transition(S.READY, "app response", "_answer", (S.READY,), "sent after the answers before it"),
        Transition(S.READY, "app notification", "_push", (S.READY,), "message, sealed if there is a key"),
        *closing_transitions(
            (S.NEW, S.CHECKING, S.KEYLESS, S.READY),
            S.CLOSED,
            close="error 2 when replaced, 7 when access is denied, else 3; close",
            fail="error 4, close",
            flood="error 6, close: too many answers wait",
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
            Transition(C.READY, f"app {event}", "_request", (C.READY,), f"{frame}")
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
            Transition(C.READY, frame, "_answered", (C.READY, C.CLOSED), "answers the oldest open request")
            for frame in ("ok", "topic_list", "message_list")
        ),
        Transition(
            C.READY,
            "error",
            "_error",
            (C.READY, C.CLOSED),
            "answers the oldest open request; with none open, close",
        ),
        Transition(
            C.READY,
            "message",
            "_notified",
            (C.READY, C.CLOSED),
            "a notification, decrypted; close if it was tampered with",
        ),
        Transition(C.READY, ANY_FRAME, "_unexpected", (C.CLOSED,), "close"),
        Transition(C.READY, "clock heartbeat", "_send_heartbeat", (C.READY,), "heartbeat"),
        *closing_transitions((C.NEW, C.LOGGING_IN, C.EXCHANGING, C.READY), C.CLOSED),
    ]
)
