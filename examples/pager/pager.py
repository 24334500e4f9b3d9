"""A protocol that can be served, in one file: pagers that publish, subscribe, ask services and provide them.

    50 | u8 type | u32 number | u16 size | body[size]

The body holds the frame's fields in order: a text as u8 size and UTF-8, a code as u16, a content to the end. The number
ties a `reply` or a `refused` to what it answers; either end counts its own.
"""

from enum import Enum, IntEnum, auto
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    const,
    length_of_body,
    opcode,
    rest_bytes,
    secret,
    text8,
    u8,
    u16,
    u32,
)
from wirelake.message import (
    Credentials,
    Failure,
    FailureCode,
    Kind,
    Message,
    Op,
    Operation,
    Topic,
    content_of,
    control,
    control_op,
)
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol, Refusal, Transport
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition
from wirelake.protocols.translation import Loss

CONTENT_BYTES_MAX = 60_000

# Frames


class Code(IntEnum):
    """Why something is refused."""

    BAD_FRAME = 1
    LOG_IN_FIRST = 2
    BAD_TOKEN = 3
    BUSY = 4
    CONNECTED = 5
    NOT_FOUND = 6
    FAILED = 7


class Packet(Envelope, frame_bytes_max=65_543):
    magic: Annotated[u8, const(0x50)]
    type: Annotated[u8, opcode(code="type")]
    number: u32
    size: Annotated[u16, length_of_body()]
    body: Body


class PagerFrame(LayoutFrame, frozen=True, kw_only=True, envelope=Packet):
    number: u32 = 0


class Login(PagerFrame, frozen=True, kw_only=True, opcode=1, sender=Sender.CLIENT):
    identity: text8
    token: Annotated[text8, secret]


class Ping(PagerFrame, frozen=True, kw_only=True, opcode=2, sender=Sender.CLIENT):
    pass


class Publish(PagerFrame, frozen=True, kw_only=True, opcode=3, sender=Sender.CLIENT):
    topic: text8
    content: rest_bytes = b""


class Subscribe(PagerFrame, frozen=True, kw_only=True, opcode=4, sender=Sender.CLIENT):
    topic: text8


class Unsubscribe(PagerFrame, frozen=True, kw_only=True, opcode=5, sender=Sender.CLIENT):
    topic: text8


class Ack(PagerFrame, frozen=True, kw_only=True, opcode=6, sender=Sender.CLIENT):
    id: text8


class Provide(PagerFrame, frozen=True, kw_only=True, opcode=7, sender=Sender.CLIENT):
    service: text8


class Ask(PagerFrame, frozen=True, kw_only=True, opcode=8):  # from here on, either end may send it
    service: text8
    op: text8
    content: rest_bytes = b""


class Reply(PagerFrame, frozen=True, kw_only=True, opcode=9):
    content: rest_bytes = b""


class Refused(PagerFrame, frozen=True, kw_only=True, opcode=10):
    code: u16
    content: rest_bytes = b""


class Page(PagerFrame, frozen=True, kw_only=True, opcode=11, sender=Sender.SERVER):
    topic: text8
    id: text8
    content: rest_bytes = b""


FRAMES = FrameSet(
    "pager",
    Packet,
    [Login, Ping, Publish, Subscribe, Unsubscribe, Ack, Provide, Ask, Reply, Refused, Page],
)


_LOGIN_TYPE = b"\x01"


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a frame as it is logged. Only a login has a secret, so other bytes stay readable in the quarantine."""
    return FRAMES.redact(frame, sender) if frame[1:2] == _LOGIN_TYPE else frame


# Translation


def to_message(frame: Frame, _sender: Sender) -> Message:  # noqa: PLR0911 (one return a frame)
    about: dict[str, Any] = {"name": frame.name, "protocol": "pager", "correlation": str(getattr(frame, "number", 0))}
    match frame:
        case Login():
            return control(Op.LOGIN, credentials=Credentials(frame.identity, frame.token), **about)
        case Ping():
            return control(Op.PING, **about)
        case Publish():
            return Message(kind=Kind.NOTIFICATION, target=Topic(frame.topic), payload=frame.content, **about)
        case Subscribe() | Unsubscribe():
            return control(Op(frame.name), fields={"topics": [frame.topic]}, **about)
        case Ack():
            return control(Op.ACK, fields={"ids": [frame.id]}, **about)
        case Provide():
            return control(Op.REGISTER, fields={"service": frame.service}, **about)
        case Ask():
            target = Operation(frame.service, frame.op)
            return Message(kind=Kind.REQUEST, target=target, payload=frame.content, **about)
        case Reply():
            return Message(kind=Kind.RESPONSE, payload=frame.content, **about)
        case Refused():
            failure = Failure(frame.content.decode(errors="replace"), frame.code)
            return Message(kind=Kind.RESPONSE, failure=failure, **about)
        case Page():
            target_ = Topic(frame.topic)
            return Message(kind=Kind.NOTIFICATION, target=target_, id=frame.id, payload=frame.content, **about)
    raise TranslationError(f"{frame.name} is no frame of a pager")


# the gateway's numbers in ours
_CODES: dict[int, int] = {FailureCode.NOT_FOUND: Code.NOT_FOUND, FailureCode.BUSY: Code.BUSY}


def from_message(message: Message, sender: Sender) -> PagerFrame:
    """Return the frame that says this. Its number is the session's to give."""
    content, target = content_of(message), message.target
    if len(content) > CONTENT_BYTES_MAX:
        raise TranslationError(f"a content of {len(content)} bytes: a pager takes {CONTENT_BYTES_MAX}")
    if message.failure is not None:
        code = message.failure.code
        own = _CODES.get(code, code) if code in _CODES or code in set(Code) else Code.FAILED
        return Refused(code=own, content=message.failure.text.encode()[:CONTENT_BYTES_MAX])
    if message.kind is Kind.RESPONSE:
        return Reply(content=content)
    if message.kind is Kind.REQUEST and isinstance(target, Operation):
        return Ask(service=target.service, op=target.op, content=content)
    if message.kind is Kind.NOTIFICATION and isinstance(target, Topic):
        if sender is Sender.SERVER:
            return Page(topic=target.name, id=message.id, content=content)
        return Publish(topic=target.name, content=content)
    raise TranslationError(f"a pager has no frame for {control_op(message) or message.kind}")


def _refused(code: int) -> Message:
    about: dict[str, Any] = {"name": "refused", "protocol": "pager", "correlation": "0"}
    return Message(kind=Kind.RESPONSE, failure=Failure("no", code), **about)


LOSSES = (
    Loss("a failure's number that is none of a pager's", "becomes 7, failed", _refused(99), _refused(Code.FAILED)),
)

# Sessions


class Settings(ProtocolSettings, frozen=True):
    """The section [pager] of wirelake.toml."""

    frame_bytes_max: Count = Packet.spec.frame_bytes_max  # a longer frame closes the connection
    login_s: Seconds = 10.0  # from connecting to a login
    idle_s: Seconds = 300.0  # a silent connection is closed
    requests_max: Count = 64  # open at once; beyond that the pager is read no more
    second: Literal["allow", "replace", "refuse"] = "replace"  # when a pager connects that is connected already

    def __post_init__(self) -> None:
        if self.frame_bytes_max < 1024:
            raise ValueError("frame_bytes_max is at least 1024, or a login would not fit")


class State(Enum):
    NEW = auto()
    CHECKING = auto()  # a login is being decided
    READY = auto()
    CLOSED = auto()


S = State
_REQUESTS = ("ping", "publish", "subscribe", "unsubscribe", "ack", "provide", "ask")


class ServerSession(Session):
    state_machine = StateMachine(
        [
            Transition(S.NEW, "login", "_login", (S.CHECKING,), "the gateway decides"),
            Transition(S.NEW, ANY_FRAME, "_stranger", (S.CLOSED,), "refused 2, close"),
            Transition(S.CHECKING, "app response", "_decide", (S.READY, S.CLOSED), "reply; or refused, close"),
            *(Transition(S.READY, name, "_request", (S.READY,), "asked above") for name in _REQUESTS),
            Transition(S.READY, "reply", "_answer", (S.READY,), "answers what the pager was asked"),
            Transition(S.READY, "refused", "_answer", (S.READY,), "answers what the pager was asked"),
            Transition(S.READY, ANY_FRAME, "_unexpected", (S.CLOSED,), "refused 1, close"),
            Transition(S.READY, "app response", "_respond", (S.READY,), "reply or refused"),
            Transition(S.READY, "app notification", "_page", (S.READY,), "page"),
            Transition(S.READY, "app request", "_ask", (S.READY,), "ask"),
            *(
                Transition(state, event, do, (S.CLOSED,), says)
                for state in (S.NEW, S.CHECKING, S.READY)
                for event, do, says in (
                    ("app fail", "_fail", "refused 1, close"),
                    ("app close", "_goodbye", "refused, close"),
                    ("clock login", "_late", "refused 2, close"),
                    ("clock silence", "_silent", "close"),
                )
            ),
        ]
    )
    sends_acks = True

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context.now_s, context.settings.idle_s)
        self.settings: Settings = context.settings
        self.deadlines["login"] = context.now_s + self.settings.login_s
        self._requests: set[str] = set()  # numbers of what the pager asked and was not answered yet
        self._asked: dict[str, str] = {}  # number of what the pager was asked → the gateway's correlation
        self._number = 0

    @property
    def is_paused(self) -> bool:
        return self.state is S.CHECKING or len(self._requests) >= self.settings.requests_max

    @property
    def frame_bytes_max(self) -> int:
        return self.settings.frame_bytes_max if self.state is S.READY else 1024

    def _login(self, frame: Login, _now_s: float, step: Step) -> None:
        step.messages.append(to_message(frame, Sender.CLIENT))

    def _decide(self, message: Message, now_s: float, step: Step) -> None:
        del self.deadlines["login"]
        self.state = S.READY if message.failure is None else S.CLOSED
        self._respond(message, now_s, step)
        if message.failure is not None:
            step.closing = Closing("login_refused", message.failure.text)

    def _request(self, frame: PagerFrame, _now_s: float, step: Step) -> None:
        self._requests.add(str(frame.number))
        step.messages.append(to_message(frame, Sender.CLIENT))

    def _respond(self, message: Message, _now_s: float, step: Step) -> None:
        self._requests.discard(message.correlation)
        step.frames.append(replace(from_message(message, Sender.SERVER), number=int(message.correlation)))

    def _page(self, message: Message, _now_s: float, step: Step) -> None:
        step.frames.append(from_message(message, Sender.SERVER))

    def _ask(self, message: Message, _now_s: float, step: Step) -> None:
        if len(self._asked) >= self.settings.requests_max:
            raise StateError("this pager has too many requests to answer")
        self._number += 1
        step.frames.append(replace(from_message(message, Sender.SERVER), number=self._number))
        self._asked[str(self._number)] = message.correlation

    def _answer(self, frame: PagerFrame, _now_s: float, step: Step) -> None:
        correlation = self._asked.pop(str(frame.number), None)
        if correlation is not None:
            step.messages.append(replace(to_message(frame, Sender.CLIENT), correlation=correlation))

    # Endings

    def _stranger(self, frame: PagerFrame, _now_s: float, step: Step) -> None:
        self._refuse(step, Code.LOG_IN_FIRST, "log in first", "no_login", frame.number)

    def _unexpected(self, frame: PagerFrame, _now_s: float, step: Step) -> None:
        self._refuse(step, Code.BAD_FRAME, f"{frame.name} has no place here", "unexpected", frame.number)

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        self._refuse(step, Code.BAD_FRAME, error.text, error.code)

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        code = Code.CONNECTED if closing.code == "replaced" else Code.FAILED
        self._refuse(step, code, closing.text, closing.code)

    def _late(self, _event: str, _now_s: float, step: Step) -> None:
        self._refuse(step, Code.LOG_IN_FIRST, "no login in time", "login_timeout")

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"nothing came for {self.settings.idle_s:g} s")

    def _refuse(self, step: Step, code: Code, text: str, reason: str, number: int = 0) -> None:
        step.frames.append(Refused(number=number, code=code, content=text.encode()[:CONTENT_BYTES_MAX]))
        step.closing = Closing(reason, text)


PROTOCOL = Protocol(
    name="pager",
    title="pager: pages, services and acks for pagers",
    transports=(Transport(Carrier.TCP, 7998, "pager"), Transport(Carrier.UDP, 7998, "pager")),
    decoder_version=1,
    splitter=lambda _sender, _carrier: FRAMES.splitter(),
    decode=FRAMES.decode,
    dissect=FRAMES.dissect,
    clues=FRAMES.clues,
    layout=FRAMES,
    redact=redact,
    losses=LOSSES,
    to_message=to_message,
    from_message=from_message,
    settings=Settings,
    server_session=ServerSession,
    server_splitter=lambda settings, _carrier: FRAMES.splitter(settings.frame_bytes_max),
    state_machines={Sender.SERVER: ServerSession.state_machine},
    refusal_codes={
        Refusal.INVALID: Code.BAD_TOKEN,
        Refusal.BUSY: Code.BUSY,
        Refusal.CONNECTED: Code.CONNECTED,
    },
    second_session=lambda settings: settings.second,
)
