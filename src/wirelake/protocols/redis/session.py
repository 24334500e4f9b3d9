"""Both ends of a RESP connection: the states, and what each command does in them.

RESP has no request numbers: answers come in the order of the commands, however many were sent without waiting. The
server keeps the open questions in a queue and holds an answer back until those before it are answered. In RESP 3 pushes
are independent of that queue. In RESP 2 they look like answers, so there they wait their turn in it, and a client that
is subscribed to anything may send little else (state SUBSCRIBED); it leaves that state with its last subscription.
What comes between MULTI and EXEC is kept (state QUEUEING) and handed up as one request.

A server's row is found by the command's name. The four words in parentheses are commands without any words, with the
wrong number of arguments, unknown ones, and lines that give away a browser's HTTP request. A listener that is open to
all starts in READY.

Nothing can be told to a client that has asked nothing: an error would look like the answer to its next command.
When the gateway ends a connection, it answers the open questions with the reason and closes.
"""

from enum import Enum, auto
from typing import Annotated

from msgspec import Meta

from wirelake.protocols.redis.commands import EMPTY, HTTP, MISUSED, UNKNOWN
from wirelake.protocols.redis.constants import (
    REDIS_FRAME_BYTES_MAX,
    REDIS_LEAVE_S,
    REDIS_LOGIN_FRAME_BYTES_MAX,
    REDIS_LOGIN_S,
    REDIS_PING_S,
)
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds, SecondsOrNever
from wirelake.protocols.state_machine import (
    ANY_FRAME,
    StateMachine,
    Transition,
    closing_transitions,
    login_transitions,
)


class ServerState(Enum):
    NEW = auto()  # connected, nobody yet
    CHECKING = auto()  # a login is being decided
    READY = auto()
    SUBSCRIBED = auto()  # RESP 2, with at least one subscription
    QUEUEING = auto()  # between MULTI and EXEC
    LEAVING = auto()  # nothing more is read; the last answers are awaited
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    READY = auto()
    LEAVING = auto()  # QUIT was sent
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    login_s: Seconds = REDIS_LOGIN_S  # from connecting to a decided login
    idle_s: SecondsOrNever = 0.0  # a silent connection is closed; 0: never
    frame_bytes_max: Annotated[int, Meta(ge=1, le=REDIS_FRAME_BYTES_MAX)] = REDIS_FRAME_BYTES_MAX  # a command
    login_frame_bytes_max: Count = REDIS_LOGIN_FRAME_BYTES_MAX  # a command before the login


class SessionSettings(Settings, frozen=True):
    """The settings, and what a session learns from its listener or client."""

    open: bool = False  # everybody is let in
    leave_s: float = REDIS_LEAVE_S  # for the last answers
    ping_s: float = REDIS_PING_S  # how often our own client sends one
    version: int = 3  # that our own client asks for
    redis_version: str = "7.4.0"  # named in the answer to HELLO: whose wording and rules ours follow


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(S.NEW, "auth", "_log_in", (S.CHECKING,), "the login is passed up"),
        Transition(S.NEW, "hello", "_hello", (S.NEW, S.CHECKING), "with AUTH, the login goes up; else NOAUTH"),
        Transition(S.NEW, ANY_FRAME, "_not_authenticated", (S.NEW,), "NOAUTH"),
        Transition(S.NEW, "app response", "_answer", (S.NEW,), "an answer to what was asked before RESET"),
        Transition(S.NEW, "app notification", "_ignore", (S.NEW,), "nothing: there are no subscriptions"),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "ERR, close"),
        *login_transitions(
            S.CHECKING,
            (S.CHECKING, S.NEW, S.READY, S.SUBSCRIBED, S.LEAVING, S.CLOSED),
            S.CLOSED,
            decide="OK (for HELLO: what we are) or WRONGPASS; then what was held is served",
            late="ERR, close",
        ),
        Transition(
            S.CHECKING, "app notification", "_push", (S.CHECKING, S.CLOSED), "message or pmessage, if subscribed"
        ),
        Transition(S.READY, "auth", "_log_in", (S.CHECKING,), "the login goes up; refused, the former one stays"),
        Transition(
            S.READY,
            "hello",
            "_hello",
            (S.READY, S.CHECKING),
            "the version is switched; with AUTH, once the login is decided",
        ),
        Transition(S.READY, "ping", "_answer_itself", (S.READY,), "PONG, or the argument"),
        Transition(S.READY, "echo", "_answer_itself", (S.READY,), "the argument"),
        Transition(S.READY, "select", "_answer_itself", (S.READY,), "OK for 0, the only database"),
        Transition(
            S.READY, "client", "_answer_itself", (S.READY,), "ID, INFO, LIST, GETNAME, SETNAME and SETINFO are answered"
        ),
        Transition(S.READY, "command", "_answer_itself", (S.READY,), "an empty list; COUNT, LIST, INFO, DOCS"),
        *(
            Transition(
                S.READY,
                f"{kind}subscribe",
                "_subscribe",
                (S.READY, S.SUBSCRIBED),
                "passed up; then one confirmation for each name",
            )
            for kind in ("", "p")
        ),
        *(
            Transition(state, f"{kind}unsubscribe", "_unsubscribe", (S.READY, S.SUBSCRIBED), says)
            for state in (S.READY, S.SUBSCRIBED)
            for kind, says in (("", "the names, or all: passed up, then confirmed one by one"), ("p", "likewise"))
        ),
        Transition(S.READY, "multi", "_multi", (S.QUEUEING,), "OK; what follows is queued"),
        Transition(S.READY, "watch", "_watch", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, "exec", "_no_transaction", (S.READY,), "ERR: without MULTI"),
        Transition(S.READY, "discard", "_no_transaction", (S.READY,), "ERR: without MULTI"),
        Transition(S.QUEUEING, "exec", "_exec", (S.READY,), "passed up as one; EXECABORT if a command was refused"),
        Transition(S.QUEUEING, "discard", "_discard", (S.READY,), "OK; what was queued is forgotten"),
        Transition(S.QUEUEING, "multi", "_nested", (S.QUEUEING,), "ERR: MULTI calls can not be nested"),
        Transition(S.QUEUEING, "watch", "_nested", (S.QUEUEING,), "ERR: WATCH inside MULTI is not allowed"),
        *(
            Transition(
                S.QUEUEING, event, "_not_queued", (S.QUEUEING,), "ERR: not inside a transaction, which is aborted"
            )
            for event in ("auth", "hello", "subscribe", "psubscribe", "unsubscribe", "punsubscribe")
        ),
        Transition(S.QUEUEING, ANY_FRAME, "_queue", (S.QUEUEING,), "QUEUED"),
        Transition(S.QUEUEING, "app response", "_answer", (S.QUEUEING,), "sent after the answers before it"),
        Transition(
            S.QUEUEING, "app notification", "_push", (S.QUEUEING, S.CLOSED), "message or pmessage, if subscribed"
        ),
        Transition(S.READY, "publish", "_publish", (S.READY,), "passed up, answered in order"),
        Transition(S.READY, ANY_FRAME, "_ask", (S.READY,), "passed up, answered in order"),
        *(
            Transition(
                S.SUBSCRIBED,
                f"{kind}subscribe",
                "_subscribe",
                (S.SUBSCRIBED,),
                "passed up; then one confirmation for each name",
            )
            for kind in ("", "p")
        ),
        Transition(S.SUBSCRIBED, "ping", "_ping_subscribed", (S.SUBSCRIBED,), "an array of pong and the argument"),
        Transition(S.SUBSCRIBED, ANY_FRAME, "_not_here", (S.SUBSCRIBED,), "ERR: not in this context"),
        Transition(
            S.READY,
            "app response",
            "_answer",
            (S.READY, S.SUBSCRIBED, S.QUEUEING, S.NEW, S.CHECKING, S.LEAVING, S.CLOSED),
            "sent after the answers before it; what was held behind an XREAD with BLOCK is served",
        ),
        Transition(
            S.SUBSCRIBED, "app response", "_answer", (S.READY, S.SUBSCRIBED), "sent after the answers before it"
        ),
        *(
            Transition(state, "app notification", "_push", (state, S.CLOSED), "message or pmessage, if subscribed")
            for state in (S.READY, S.SUBSCRIBED)
        ),
        Transition(
            S.READY, "xread", "_read_streams", (S.READY,), "passed up; with BLOCK, what follows is held until then"
        ),
        *(
            Transition(state, event, do, then, says)
            for state in (S.NEW, S.READY, S.SUBSCRIBED, S.QUEUEING)
            for event, do, then, says in (
                (EMPTY, "_ignore", (state,), "nothing"),
                (MISUSED, "_misused", (state,), "ERR: wrong number of arguments"),
                (UNKNOWN, "_unknown", (state,), "ERR: unknown command"),
                (HTTP, "_http", (S.CLOSED,), "close, without a word"),
                ("quit", "_quit", (S.LEAVING, S.CLOSED), "the open answers, OK, close"),
                ("reset", "_reset", (S.NEW, S.READY), "RESP 2, no name, no subscriptions, not logged in: RESET"),
            )
        ),
        *(
            Transition(state, "app fail", "_fail", (S.LEAVING, S.CLOSED), "the open answers, ERR Protocol error, close")
            for state in (S.NEW, S.CHECKING, S.READY, S.SUBSCRIBED, S.QUEUEING)
        ),
        Transition(S.LEAVING, ANY_FRAME, "_ignore", (S.LEAVING,), "nothing"),
        Transition(
            S.LEAVING, "app response", "_answer", (S.LEAVING, S.CLOSED), "sent in its turn; close after the last"
        ),
        Transition(S.LEAVING, "app notification", "_ignore", (S.LEAVING,), "nothing"),
        Transition(S.LEAVING, "clock leave", "_give_up", (S.CLOSED,), "ERR to the open questions, close"),
        *closing_transitions(
            (S.NEW, S.CHECKING, S.READY, S.SUBSCRIBED, S.QUEUEING, S.LEAVING),
            S.CLOSED,
            close="ERR to the open requests, close",
            fail=None,
            silence=None,
            flood="close: too many answers wait",
        ),
        *(
            Transition(state, "clock silence", "_silent", (state, S.CLOSED), "close, unless there are subscriptions")
            for state in (S.NEW, S.CHECKING, S.READY, S.SUBSCRIBED, S.QUEUEING, S.LEAVING)
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_login", (C.LOGGING_IN,), "HELLO 3 AUTH, or AUTH in RESP 2"),
        Transition(C.NEW, ANY_FRAME, "_answered", (C.CLOSED,), "close: nothing was asked"),
        *(
            Transition(C.LOGGING_IN, frame, "_refused", (C.CLOSED,), "the login is answered with the failure, close")
            for frame in ("simple_error", "bulk_error")
        ),
        Transition(C.LOGGING_IN, "push", "_pushed", (C.LOGGING_IN,), "an event"),
        Transition(C.LOGGING_IN, ANY_FRAME, "_logged_in", (C.READY,), "the login is answered"),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        *(
            Transition(C.READY, f"app {event}", "_ask", (C.READY,), says)
            for event, says in (
                ("request", "the command"),
                ("notification", "PUBLISH"),
                ("subscribe", "SUBSCRIBE or PSUBSCRIBE"),
                ("unsubscribe", "UNSUBSCRIBE or PUNSUBSCRIBE"),
                ("ping", "PING"),
            )
        ),
        Transition(C.READY, "app logout", "_leave", (C.LEAVING,), "QUIT"),
        Transition(C.READY, "clock ping", "_beat", (C.READY,), "PING"),
        *(
            Transition(state, frame, do, (state, C.CLOSED), says)
            for state in (C.READY, C.LEAVING)
            for frame, do, says in (
                ("push", "_pushed", "a notification, a confirmation, or an event"),
                ("array", "_array", "in RESP 2 and subscribed: as a push; else an answer"),
                (ANY_FRAME, "_answered", "answers the oldest open question; with none open, close"),
            )
        ),
        Transition(C.LEAVING, "clock leave", "_gone", (C.CLOSED,), "close"),
        *closing_transitions((C.NEW, C.LOGGING_IN, C.READY, C.LEAVING), C.CLOSED),
    ]
)
