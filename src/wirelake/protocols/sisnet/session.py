"""The settings of sisnet, the states of its sessions, and what each message does in them.

Both ends may send requests once the client is logged in. An answer has the name of its request, so answers come in any
order. What a message does depends on what it requests, not on its form: the events are `login`, `ping`, `logout`,
`dict`, any other `request`, and `answer`. A client need not wait until its login is decided: frames that it sends
meanwhile are held.
"""

from enum import Enum, auto
from typing import Annotated, Final

from msgspec import Meta

from wirelake.errors import InputError
from wirelake.limits import UPSTREAM_KEEP_S
from wirelake.message import DEVICES_SERVICE, GATEWAY_SERVICE
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds, UpstreamSettings, check_upstreams
from wirelake.protocols.sisnet.constants import (
    SISNET_ANSWER_S,
    SISNET_IDLE_S,
    SISNET_INFLATED_BYTES_MAX,
    SISNET_LOGIN_FRAME_BYTES_MAX,
    SISNET_LOGIN_S,
    SISNET_MESSAGE_BYTES_MAX,
    SISNET_PING_S,
)
from wirelake.protocols.state_machine import (
    ANY_FRAME,
    StateMachine,
    Transition,
    closing_transitions,
    login_transitions,
)

TCP_PORT: Final = 7330
_RESERVED: Final = frozenset({GATEWAY_SERVICE, "redis", DEVICES_SERVICE})  # services of the gateway itself
_NOT_IN_NAMES: Final = frozenset("{}():,* ")


class Settings(ProtocolSettings, frozen=True):
    """The section [sisnet] of wirelake.toml."""

    login_s: Seconds = SISNET_LOGIN_S  # from connecting to a decided login
    idle_s: Seconds = SISNET_IDLE_S  # a silent connection is closed
    message_bytes_max: Annotated[int, Meta(ge=1, le=SISNET_MESSAGE_BYTES_MAX)] = SISNET_MESSAGE_BYTES_MAX  # a message
    login_frame_bytes_max: Count = (
        SISNET_LOGIN_FRAME_BYTES_MAX  # a message before the login; of a WebSocket, its handshake too
    )
    inflated_bytes_max: Count = SISNET_INFLATED_BYTES_MAX  # the same, with snappy, unpacked
    lenient: bool = False  # True admits WebSocket clients as the authors wrote theirs: no Host, any key, no masks
    data_sets: tuple[str, ...] = ("sisdb",)  # each is a service that stores records
    origins: tuple[str, ...] = ()  # pages of other sites that may connect, as https://HOST:PORT, or "*" for all
    keep_s: Seconds = UPSTREAM_KEEP_S  # how long answers of an upstream are stored for later subscribers
    upstreams: tuple[UpstreamSettings, ...] = ()  # sisnet servers that serve some of our services

    def __post_init__(self) -> None:
        for name in self.data_sets:
            if name in _RESERVED or not name or not _NOT_IN_NAMES.isdisjoint(name):
                raise InputError(f'settings: sisnet.data_sets: "{name}" cannot be the name of a data set')
        check_upstreams(self.upstreams, "sisnet.upstreams", TCP_PORT)


class ServerState(Enum):
    NEW = auto()  # connected, not logged in
    CHECKING = auto()  # a login is being checked
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    READY = auto()
    CLOSED = auto()


class SessionSettings(Settings, frozen=True):
    """The settings, and what the listener or our own client adds to them."""

    open: bool = False  # admit everybody; without a login, as an anonymous peer
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
            "passed up; refused, close if the format or compression is not supported",
        ),
        Transition(S.NEW, "ping", "_pong", (S.NEW,), "ok"),
        Transition(S.NEW, "logout", "_logged_out", (S.CLOSED,), "ok, close"),
        Transition(S.NEW, "answer", "_ignore", (S.NEW,), "ignored: there is no open request"),
        Transition(
            S.NEW,
            ANY_FRAME,
            "_not_logged_in",
            (S.NEW, S.CHECKING),
            "ans -1: log in first; if everybody is admitted, held behind an anonymous login",
        ),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "logout, close"),
        *login_transitions(
            S.CHECKING,
            (S.READY, S.CLOSED),
            S.CLOSED,
            decide="ok and what was held, or refused and close",
            late="logout, close",
        ),
        Transition(S.READY, "login", "_second_login", (S.READY,), "ans -1: already logged in"),
        Transition(S.READY, "ping", "_pong", (S.READY,), "ok"),
        Transition(S.READY, "logout", "_logged_out", (S.CLOSED,), "ok, close"),
        Transition(S.READY, "dict", "_receive_tables", (S.READY,), "ok; records of its tables are decoded from now on"),
        Transition(S.READY, "request", "_pass_up", (S.READY,), "passed up, answered under its name"),
        Transition(
            S.READY,
            "answer",
            "_receive_answer",
            (S.READY,),
            "passed up if a request of ours has that name, else ignored",
        ),
        Transition(
            S.READY, "app response", "_answer", (S.READY,), "under the name of the request, in its dialect and form"
        ),
        Transition(S.READY, "app notification", "_push", (S.READY,), "under the name of the request that subscribed"),
        Transition(S.READY, "app request", "_send_request", (S.READY,), "sent under a name of ours"),
        Transition(S.READY, "app event", "_send_request", (S.READY,), "sent under an empty name"),
        Transition(
            S.READY,
            "app unsubscribe",
            "_stop_pushes",
            (S.READY,),
            "pushes of the subscription are ignored; unsub under an empty name, if no other one is to the same",
        ),
        Transition(S.READY, "app dict", "_send_tables", (S.READY,), "our tables, under a name of ours"),
        Transition(
            S.READY,
            "clock answer",
            "_expire",
            (S.READY,),
            "requests that the client did not answer in time fail: timeout",
        ),
        *closing_transitions(
            (S.NEW, S.CHECKING, S.READY),
            S.CLOSED,
            close="logout with the reason, close",
            fail="ans -1 under an empty name, close",
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
            "answers the login if it has its name, close if it failed; else ignored",
        ),
        Transition(C.LOGGING_IN, "logout", "_refused", (C.CLOSED,), "the login is answered with the failure, close"),
        Transition(C.LOGGING_IN, ANY_FRAME, "_ignore", (C.LOGGING_IN,), "ignored"),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        *(
            Transition(C.READY, f"app {event}", "_send_request", (C.READY,), summary)
            for event, summary in (
                ("request", "sent under a name of ours"),
                ("event", "sent under an empty name"),
                ("notification", "publish"),
                ("subscribe", "subscribe; pushes come under its name"),
                ("unsubscribe", "unsubscribe"),
                ("register", "register"),
                ("unregister", "unregister"),
                ("ping", "ping"),
                ("logout", "logout"),
            )
        ),
        Transition(C.READY, "app dict", "_send_tables", (C.READY,), "our tables, under a name of ours"),
        Transition(C.READY, "answer", "_receive_answer", (C.READY,), "answers the request of that name, or is a push"),
        Transition(C.READY, "logout", "_logged_out", (C.CLOSED,), "close"),
        Transition(C.READY, "ping", "_pong", (C.READY,), "ok"),
        Transition(C.READY, "dict", "_receive_tables", (C.READY,), "ok; records of its tables are decoded from now on"),
        Transition(
            C.READY, "request", "_serve", (C.READY,), "passed up, answered under its name; a data line may be a push"
        ),
        Transition(C.READY, ANY_FRAME, "_not_served", (C.READY,), "ans -1"),
        Transition(
            C.READY, "app response", "_answer", (C.READY,), "under the name of the request, in its dialect and form"
        ),
        Transition(
            C.READY,
            "clock answer",
            "_expire",
            (C.READY,),
            "requests that the server did not answer in time fail: timeout",
        ),
        Transition(C.READY, "clock ping", "_send_ping", (C.READY,), "ping"),
        *closing_transitions((C.NEW, C.LOGGING_IN, C.READY), C.CLOSED),
    ]
)
