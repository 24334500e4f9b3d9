"""Both ends of a sisnet connection, ready to talk."""

from typing import Any

from protocols.conversation import Conversation
from wirelake.message import Credentials, Kind, Message, Op, Operation, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Step
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.constants import Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.server import ServerSession

LOGIN = control(Op.LOGIN, credentials=Credentials("terminal-1", "t0ken"), correlation="in")
OK = Message(kind=Kind.RESPONSE)


def talk(*, carrier: Carrier = Carrier.TCP, **client: Any) -> Conversation:
    return Conversation(PROTOCOL, ClientSession(0.0, **client), ServerSession(0.0), carrier)


def logged_in(*, carrier: Carrier = Carrier.TCP, **client: Any) -> Conversation:
    talking = talk(carrier=carrier, **client)
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("terminal-1", "t0ken")
    talking.server_says(answer_to(login))
    return talking


def ready_server(dialect: Dialect = Dialect.NEW) -> ServerSession:
    """A server whose client logged in by hand."""
    server = ServerSession(0.0)
    text = b'0:{"command":"login"}' if dialect is Dialect.NEW else b'0:{"cmd":"login"}'
    server.receive(decode(text, Sender.CLIENT), 0.0)
    server.send(OK, 0.0)
    return server


def answer_to(question: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)


def hear(server: ServerSession, wire: bytes) -> Step:
    """What follows from these bytes of a client."""
    return server.receive(decode(wire, Sender.CLIENT), 0.0)


def said(step: Step) -> list[bytes]:
    return [frame.encode() for frame in step.frames]


def said_by(talking: Conversation, sender: Sender) -> list[SisnetFrame]:
    splitter = talking.splitters[sender]
    return [decode(splitter.bare(raw), who) for who, raw in talking.wire if who is sender]


def ask(service: str, op: str, **rest: Any) -> Message:
    return Message(kind=Kind.REQUEST, target=Operation(service, op), **rest)
