"""Words that the tests of the sessions have in common."""

from typing import Any

from wirelake.message import Credentials, Kind, Message, Op, Topic, control
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import SessionSettings
from wirelake.protocols.session import Session, Step

LOGIN = control(Op.LOGIN, credentials=Credentials("anna", "t0ken"), correlation="in")
OPEN = SessionSettings(open=True)


def cmd(line: str) -> Command:
    return Command(tuple(line.encode().split()))


def state(session: Session) -> str:
    return session.state.name


def wire(step: Step) -> bytes:
    return b"".join(frame.encode() for frame in step.frames)


def say(server: ServerSession, line: str) -> bytes:
    """What the server answers at once."""
    return wire(server.receive(cmd(line), 0.0))


def ask(server: ServerSession, line: str) -> Message:
    """What goes up for this command."""
    step = server.receive(cmd(line), 0.0)
    assert step.frames == []
    (message,) = step.messages
    return message


def answer_to(question: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)


def answered(server: ServerSession, question: Message, **rest: Any) -> bytes:
    return wire(server.send(answer_to(question, **rest), 0.0))


def news(topic: str, content: bytes, **rest: Any) -> Message:
    return Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=content, **rest)


def ready(version: int = 2, **settings: Any) -> ServerSession:
    server = ServerSession(0.0, 7, SessionSettings(open=True, **settings))
    if version == 3:
        say(server, "HELLO 3")
    return server


def closing_code(step: Step) -> str:
    assert step.closing is not None
    return step.closing.code
