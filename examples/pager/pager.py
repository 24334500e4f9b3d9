"""A protocol that can be served, in one file: pagers that publish, subscribe, ask services and provide them.

    50 | u8 type | u32 number | u16 size | body[size]

The body holds the frame's fields in order: a text as u8 size and UTF-8, a code as u16, a content to the end. The number
ties a `reply` or a `refused` to what it answers; either end counts its own.
"""

import struct
from collections.abc import Iterator
from enum import Enum, IntEnum, auto
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, StateError, TranslationError
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
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Refusal, Transport
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition
from wirelake.protocols.tree import Dissector, Tree

MAGIC, HEAD = 0x50, struct.Struct(">BBIH")
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


class PagerFrame(Frame, frozen=True, kw_only=True):
    type: ClassVar[int]
    number: int = 0

    def encode(self) -> bytes:
        body = b"".join(_encoded(name, getattr(self, name)) for name in self.__struct_fields__[1:])
        try:
            return HEAD.pack(MAGIC, self.type, self.number, len(body)) + body
        except struct.error as error:
            raise EncodeError(f"{self.name}: {error}") from error


def _encoded(name: str, value: Any) -> bytes:
    if name == "content":
        return bytes(value)
    if name == "code":
        return struct.pack(">H", value)
    text = str(value).encode()
    if len(text) > 255:
        raise EncodeError(f"{name} of {len(text)} bytes: at most 255")
    return bytes([len(text)]) + text


class Login(PagerFrame, frozen=True, kw_only=True):
    name, type = "login", 1
    identity: str
    token: str


class Ping(PagerFrame, frozen=True, kw_only=True):
    name, type = "ping", 2


class Publish(PagerFrame, frozen=True, kw_only=True):
    name, type = "publish", 3
    topic: str
    content: bytes = b""


class Subscribe(PagerFrame, frozen=True, kw_only=True):
    name, type = "subscribe", 4
    topic: str


class Unsubscribe(PagerFrame, frozen=True, kw_only=True):
    name, type = "unsubscribe", 5
    topic: str


class Ack(PagerFrame, frozen=True, kw_only=True):
    name, type = "ack", 6
    id: str


class Provide(PagerFrame, frozen=True, kw_only=True):
    name, type = "provide", 7
    service: str


class Ask(PagerFrame, frozen=True, kw_only=True):  # from here on, either end may send it
    name, type = "ask", 8
    service: str
    op: str
    content: bytes = b""


class Reply(PagerFrame, frozen=True, kw_only=True):
    name, type = "reply", 9
    content: bytes = b""


class Refused(PagerFrame, frozen=True, kw_only=True):
    name, type = "refused", 10
    code: int
    content: bytes = b""


class Page(PagerFrame, frozen=True, kw_only=True):  # only from the server
    name, type = "page", 11
    topic: str
    id: str
    content: bytes = b""


_FRAMES: dict[int, type[PagerFrame]] = {frame.type: frame for frame in PagerFrame.__subclasses__()}
_FROM = {Sender.CLIENT: range(1, 11), Sender.SERVER: range(8, 12)}


class PagerSplitter(Splitter):
    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        start = 0
        while len(buffer) >= start + HEAD.size:
            magic, _, _, size = HEAD.unpack_from(buffer, start)
            if magic != MAGIC:
                raise ProtocolError("magic", f"a frame starts with {MAGIC:02x}", start)
            self._check_size(HEAD.size + size, start + HEAD.size - 2, "frame_bytes_max")
            if start + HEAD.size + size > len(buffer):
                return HEAD.size + int(size)
            start += HEAD.size + size
            ends.append(start)
        return HEAD.size


def dissect(frame: bytes, sender: Sender) -> Tree:
    d = Dissector(frame, "pager frame")
    try:
        if d.u8("magic") != MAGIC:
            raise ProtocolError("magic", f"a frame starts with {MAGIC:02x}", 0)
        if (number := d.u8("type")) not in _FROM[sender]:
            raise ProtocolError("type", f"a {sender} sends no frame of type {number}", 1)
        d.note(_FRAMES[number].name)
        d.u32("number")
        if d.u16("size") != d.left:
            raise ProtocolError("size", f"{d.left} bytes follow the size", HEAD.size - 2)
        for name in _FRAMES[number].__struct_fields__[1:]:
            if name == "content":
                d.raw(name, d.left)
            elif name == "code":
                d.u16(name)
            else:
                d.text(name, d.u8(f"{name} size"))
        d.finish()
    except ProtocolError as error:
        return Tree(d.root, error)
    return Tree(d.root)


def decode(frame: bytes, sender: Sender) -> PagerFrame:
    tree = dissect(frame, sender)
    if tree.error is not None:
        raise tree.error
    found = _FRAMES[frame[1]]
    return found(**{name: tree.root.find(name).value for name in found.__struct_fields__})


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a frame as it is logged: without the token of a login; of a malformed login, only the head is left."""
    if frame[1:2] != bytes([Login.type]):
        return frame
    tree = dissect(frame, sender)
    token = tree.root.find("token") if tree.error is None else None
    start = HEAD.size if token is None else token.offset
    return frame[:start] + b"*" * (len(frame) - start)


def clues(_frame: bytes, _sender: Sender) -> Iterator[Clue]:
    yield Clue(8, f"starts with {MAGIC:02x}")
    yield Clue(6, "a known type")
    yield Clue(14, "the size fits")


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


# Sessions


class Settings(ProtocolSettings, frozen=True):
    """The section [pager] of wirelake.toml."""

    frame_bytes_max: Count = HEAD.size + 65_535  # a longer frame closes the connection
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
    splitter=lambda _sender, _carrier: PagerSplitter(Settings().frame_bytes_max),
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    redact=redact,
    settings=Settings,
    server_session=ServerSession,
    server_splitter=lambda settings, _carrier: PagerSplitter(settings.frame_bytes_max),
    state_machines={Sender.SERVER: ServerSession.state_machine},
    refusal_codes={
        Refusal.INVALID: Code.BAD_TOKEN,
        Refusal.BUSY: Code.BUSY,
        Refusal.CONNECTED: Code.CONNECTED,
    },
    second_session=lambda settings: settings.second,
)
