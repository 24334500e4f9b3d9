"""The states of esnp sessions, what each message does in them, and what both ends share.

All messages have the same name on the wire. Their flags and addresses say what they are for, which selects the
transition: `login` and `ping` (requests to the gateway), `request` (any other request), `one-way`, `notification`,
`response`, `trace`, `elsewhere` (at the gateway: to another node, or to the gateway itself in a group), and
`unreadable` for a message with a malformed line or, at the gateway, a head line after a body line. An unreadable
message is answered with an ERROR line, even if it is one-way, and the connection continues.

Both ends send and answer requests: the gateway sends those to a service that the client registered. Requests with a
MESSAGE_ID are answered in any order, those without in the order of arrival; our own always have one. A client need not
wait until its login is decided: messages that it sends meanwhile are held.
"""

from enum import Enum, auto
from typing import Annotated, ClassVar, cast

from msgspec import Meta
from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError
from wirelake.message import TRACE, Failure, FailureCode, Kind
from wirelake.message import Message as Common
from wirelake.protocols.esnp.constants import (
    ESNP_ANSWERS_WAITING_MAX,
    ESNP_FRAME_BYTES_MAX,
    ESNP_LOGIN_FRAME_BYTES_MAX,
    ESNP_LOGIN_S,
    ESNP_REPLY_S,
    ESNP_REPLY_S_MAX,
    ESNP_REQUESTS_OPEN_MAX,
    Flag,
)
from wirelake.protocols.esnp.contents import TIMEOUT_MS, Contents, read_contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.requests import OwnRequests, PeerRequests
from wirelake.protocols.esnp.translation import Role, is_one_way, message_of, role_of
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds, SecondsOrNever
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
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    NEW = auto()
    LOGGING_IN = auto()
    READY = auto()
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    """The section [esnp] of wirelake.toml."""

    hosts: tuple[str, ...] = ()  # names of this node in addresses, beside `local`, the machine's name and loopback's
    login_s: Seconds = ESNP_LOGIN_S  # from connecting to a decided login
    idle_s: SecondsOrNever = 0.0  # a silent connection is closed; 0: never
    frame_bytes_max: Annotated[int, Meta(ge=1, le=ESNP_FRAME_BYTES_MAX)] = ESNP_FRAME_BYTES_MAX  # after the login
    login_frame_bytes_max: Count = ESNP_LOGIN_FRAME_BYTES_MAX  # a message before the login


class SessionSettings(Settings, frozen=True):
    """The settings, and what the listener or our own client adds to them."""

    open: bool = False  # admit everybody; without a login, as an anonymous peer
    reply_s: float = ESNP_REPLY_S  # for the peer's answer, if the request has no `timeout_ms`
    node_names: frozenset[str] = frozenset()  # in lower case; a request to any other host is refused


_NOT_HERE = "ERROR that names the address; nothing for a one-way message"

S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(S.NEW, "login", "_login", (S.CHECKING,), "the login is passed up"),
        Transition(S.NEW, "ping", "_pong", (S.NEW,), "an empty answer"),
        Transition(S.NEW, "unreadable", "_refuse", (S.NEW,), "ERROR"),
        Transition(S.NEW, "elsewhere", "_not_here", (S.NEW,), _NOT_HERE),
        Transition(S.NEW, "response", "_ignore", (S.NEW,), "ignored: there is no open request"),
        Transition(S.NEW, "trace", "_ignore", (S.NEW,), "ignored: there is no open request"),
        Transition(
            S.NEW,
            ANY_FRAME,
            "_not_logged_in",
            (S.NEW, S.CHECKING),
            "ERROR `not logged in`; if everybody is admitted, held behind an anonymous login",
        ),
        Transition(S.NEW, "clock login", "_too_late", (S.CLOSED,), "ERROR, close"),
        *login_transitions(
            S.CHECKING,
            (S.READY, S.CLOSED),
            S.CLOSED,
            decide="the login is answered, then what was held; or ERROR and close",
            late="ERROR, close",
        ),
        Transition(S.READY, "login", "_second_login", (S.READY,), "ERROR `already logged in`"),
        Transition(S.READY, "ping", "_pong", (S.READY,), "an empty answer"),
        Transition(S.READY, "request", "_receive_request", (S.READY,), "passed up; ERROR if something is missing"),
        Transition(S.READY, "one-way", "_pass_up", (S.READY,), "passed up, not answered"),
        Transition(
            S.READY, "response", "_receive_response", (S.READY,), "passed up as the answer to a request to this client"
        ),
        Transition(S.READY, "trace", "_receive_trace", (S.READY,), "passed up if its request is open"),
        Transition(S.READY, "unreadable", "_refuse", (S.READY,), "ERROR"),
        Transition(S.READY, "elsewhere", "_not_here", (S.READY,), _NOT_HERE),
        Transition(
            S.READY,
            "app response",
            "_answer",
            (S.READY, S.CLOSED),
            "sent, in order if the request has no number; close if too many wait",
        ),
        Transition(S.READY, "app trace", "_trace", (S.READY, S.CLOSED), "a hop, if the request is traced"),
        Transition(
            S.READY, "app request", "_request", (S.READY,), "a request to a service that this client registered"
        ),
        Transition(S.READY, "app event", "_send", (S.READY,), "a one-way message"),
        Transition(S.READY, "app notification", "_send", (S.READY,), "a notification"),
        Transition(S.READY, "app flood", "_flood", (S.CLOSED,), "an answer with ERROR, close: too many answers wait"),
        Transition(
            S.READY, "clock reply", "_expire", (S.READY,), "requests that were not answered in time fail with `timeout`"
        ),
        *closing_transitions(
            (S.NEW, S.CHECKING, S.READY),
            S.CLOSED,
            close="an event with ERROR, close",
            fail="an answer with ERROR, close",
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.NEW, "app login", "_login", (C.LOGGING_IN,), "a request `login`"),
        Transition(C.NEW, "app ping", "_request", (C.NEW,), "a request `ping`"),
        Transition(
            C.LOGGING_IN,
            "response",
            "_login_answered",
            (C.LOGGING_IN, C.READY, C.CLOSED),
            "the login is answered; close if it was refused",
        ),
        Transition(C.LOGGING_IN, "clock login", "_too_late", (C.CLOSED,), "close"),
        Transition(
            C.READY, "response", "_receive_response", (C.READY, C.CLOSED), "answers the request with its number"
        ),
        Transition(C.READY, "request", "_receive_request", (C.READY,), "passed up: it is for a service of ours"),
        Transition(C.READY, "unreadable", "_refuse", (C.READY,), "ERROR"),
        Transition(C.READY, "notification", "_pass_up", (C.READY,), "passed up"),
        Transition(C.READY, "app flood", "_flood", (C.CLOSED,), "close: too many answers wait"),
        *(
            Transition(C.READY, f"app {event}", "_request", (C.READY,), summary)
            for event, summary in (
                ("request", "a request"),
                ("notification", "a request `publish`"),
                ("subscribe", "a request `subscribe`"),
                ("unsubscribe", "a request `unsubscribe`"),
                ("register", "a request `register`"),
                ("unregister", "a request `unregister`"),
                ("ping", "a request `ping`"),
            )
        ),
        Transition(C.READY, "app event", "_send", (C.READY,), "a one-way message"),
        Transition(C.READY, "app trace", "_trace", (C.READY, C.CLOSED), "a hop, if the request is traced"),
        Transition(
            C.READY,
            "app response",
            "_answer",
            (C.READY, C.CLOSED),
            "sent, in order if the request has no number; close if too many wait",
        ),
        Transition(C.NEW, "response", "_receive_response", (C.NEW, C.CLOSED), "answers the ping with its number"),
        *(
            row
            for state in (C.NEW, C.LOGGING_IN, C.READY)
            for row in (
                Transition(
                    state,
                    "one-way",
                    "_receive_one_way",
                    (state, C.CLOSED),
                    "passed up; an error without an address closes",
                ),
                Transition(state, "trace", "_receive_trace", (state,), "passed up if its request is open"),
                Transition(
                    state,
                    "clock reply",
                    "_expire",
                    (state,),
                    "requests that were not answered in time fail with `timeout`",
                ),
            )
        ),
        Transition(C.NEW, ANY_FRAME, "_ignore", (C.NEW,), "ignored: no service of ours is registered"),
        Transition(C.LOGGING_IN, ANY_FRAME, "_ignore", (C.LOGGING_IN,), "ignored: no service of ours is registered"),
        *closing_transitions((C.NEW, C.LOGGING_IN, C.READY), C.CLOSED),
    ]
)


# ── what both ends share

_REPLY = "reply"  # the deadline of our oldest request
_EVENTS = {Role.RESPONSE: "response", Role.TRACE: "trace", Role.NOTIFICATION: "notification"}


class EsnpSession(Session):
    """Send and answer requests: what both ends share."""

    other: ClassVar[Sender]  # the peer
    closed: ClassVar[Enum]
    __slots__ = ("_own_requests", "_peer_requests", "settings")

    def __init__(self, now_s: float, settings: SessionSettings) -> None:
        super().__init__(now_s, settings.idle_s or None)
        self.settings = settings
        self._peer_requests = PeerRequests()
        self._own_requests = OwnRequests()

    @property
    def frame_bytes_max(self) -> int:
        """Return the limit on a message in the present state."""
        return self.settings.frame_bytes_max

    def receive(self, frame: Frame, now_s: float) -> Step:
        if self._peer_requests.waiting >= ESNP_ANSWERS_WAITING_MAX:
            return self._signal("app flood", frame, now_s)
        self.last_received_s = now_s
        step = Step()
        contents = read_contents(cast(EsnpMessage, frame))
        self._peer_requests.plain_counts |= contents.plain_counts
        self._read(contents, now_s, step)
        return step

    def _read(self, contents: Contents, now_s: float, step: Step) -> None:
        row = self.state_machine.find_frame(self.state, self._event_of(contents))
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more messages")
        self._apply(row, contents, now_s, step)

    def _event_of(self, contents: Contents) -> str:
        """Return the event that a message from the peer is."""
        role = role_of(contents, self.other)
        if role in _EVENTS:
            return _EVENTS[role]
        if self._problem(contents):
            return "unreadable"
        return "one-way" if is_one_way(contents) else "request"

    def _event(self, message: Common) -> str:
        if message.kind is Kind.EVENT and message.name == TRACE:
            return "app trace"
        return super()._event(message)

    def _problem(self, contents: Contents) -> str:
        """Return why a message cannot be served, or ""."""
        return "" if contents.malformed is None else f"malformed: {contents.malformed}"

    def _message(self, contents: Contents) -> Common:
        """Return the common message to pass up."""
        return message_of(contents, self.other)

    def _missing(self, _message: Common) -> str:
        """Return what is missing in a request, or ""."""
        return ""

    def _refuse(self, contents: Contents, _now_s: float, step: Step) -> None:
        self._answer_error(contents, self._problem(contents), step)

    def _answer_error(self, contents: Contents, text: str, step: Step) -> None:
        step.frames += self._peer_requests.answer_now(contents, Failure(text))

    def _receive_request(self, contents: Contents, _now_s: float, step: Step) -> None:
        message = self._message(contents)
        missing = self._missing(message)
        if missing:
            self._answer_error(contents, missing, step)
        elif len(self._peer_requests) >= ESNP_REQUESTS_OPEN_MAX:
            self._answer_error(contents, f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", step)
        elif Flag.ASYNC in contents.flags:
            step.frames += self._peer_requests.answer_now(contents)
            step.messages.append(replace(message, correlation=self._peer_requests.correlate()))
        else:
            traced = Flag.TRACE in contents.flags
            step.messages.append(replace(message, correlation=self._peer_requests.add(contents), traced=traced))

    def _pass_up(self, contents: Contents, _now_s: float, step: Step) -> None:
        message = self._message(contents)
        missing = self._missing(message)
        if missing:
            self._answer_error(contents, missing, step)
        else:
            step.messages.append(replace(message, correlation=""))

    def _answer(self, message: Common, now_s: float, step: Step) -> None:
        step.frames += self._peer_requests.answer(message)
        self._check_waiting(message, now_s, step)

    def _trace(self, message: Common, now_s: float, step: Step) -> None:
        step.frames += self._peer_requests.trace(message)
        self._check_waiting(message, now_s, step)

    def _check_waiting(self, message: Common, now_s: float, step: Step) -> None:
        if self._peer_requests.waiting > ESNP_ANSWERS_WAITING_MAX:
            self.state = self.closed
            self._flood(message, now_s, step)

    def _request(self, message: Common, now_s: float, step: Step) -> None:
        if self._own_requests.is_full:
            failure = Failure(f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", FailureCode.BUSY)
            step.messages.append(_answer_to(message.correlation, failure))
            return
        number = self._own_requests.number()
        request = replace(message, correlation=str(number))
        step.frames.append(from_message(request, self.other.other, plain_counts=self._peer_requests.plain_counts))
        due_s = now_s + self._reply_s(message)
        self._own_requests.add(number, message.correlation, due_s)
        self.deadlines[_REPLY] = min(due_s, self.deadlines.get(_REPLY, due_s))

    def _reply_s(self, message: Common) -> float:
        timeout_ms = message.headers.get(TIMEOUT_MS)
        if not isinstance(timeout_ms, int):
            return self.settings.reply_s
        return min(timeout_ms, ESNP_REPLY_S_MAX * 1000) / 1000

    def _receive_response(self, contents: Contents, now_s: float, step: Step) -> None:
        number = contents.source_message_id
        correlation = self._own_requests.find(number)
        if number is None or correlation is None:
            self._unmatched_response(contents, now_s, step)
            return
        message = self._message(contents)
        if not message.more:
            self._own_requests.close(number)
        step.messages.append(replace(message, correlation=correlation))

    def _unmatched_response(self, contents: Contents, now_s: float, step: Step) -> None:
        """Drop a response to no open request: it came too late, or twice."""

    def _receive_trace(self, contents: Contents, _now_s: float, step: Step) -> None:
        correlation = self._own_requests.find(contents.source_message_id)
        if correlation is not None:
            step.messages.append(replace(message_of(contents, self.other), correlation=correlation))

    def _send(self, message: Common, _now_s: float, step: Step) -> None:
        step.frames.append(from_message(message, self.other.other, plain_counts=self._peer_requests.plain_counts))

    def _expire(self, _event: str, now_s: float, step: Step) -> None:
        for correlation in self._own_requests.expire(now_s):
            step.messages.append(_answer_to(correlation, Failure("timeout", FailureCode.TIMEOUT)))
        due_s = self._own_requests.due_s
        if due_s is not None:
            self.deadlines[_REPLY] = due_s

    def _ignore(self, _contents: Contents, _now_s: float, _step: Step) -> None:
        pass

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _flood(self, _argument: object, _now_s: float, step: Step) -> None:
        step.closing = Closing("too_many_requests", "too many answers wait their turn")

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"no data received for {self.idle_s:g} s")


def _answer_to(correlation: str, failure: Failure) -> Common:
    return Common(kind=Kind.RESPONSE, name="response", protocol="esnp", correlation=correlation, failure=failure)
