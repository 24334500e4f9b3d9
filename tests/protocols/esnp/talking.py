"""Words that the tests of the sessions have in common."""

from protocols.conversation import Conversation
from wirelake.message import Credentials, Kind, Message, Op, Operation, control
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.frames import EsnpMessage, decode
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.protocol import PROTOCOL
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import ClientState, SessionSettings
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Frame, Sender

LOGIN = control(Op.LOGIN, credentials=Credentials("ann", "t0ken"), correlation="in")
OK = Message(kind=Kind.RESPONSE)
ADD = Operation("calc", "add")
ASK = Message(kind=Kind.REQUEST, target=ADD, fields={"a": 1}, correlation="q")


def talk(**settings: float) -> Conversation:
    server = ServerSession(0.0, SessionSettings(**settings))  # type: ignore[arg-type]
    return Conversation(PROTOCOL, ClientSession(0.0), server)


def logged_in(**settings: float) -> Conversation:
    talking = talk(**settings)
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("ann", "t0ken")
    talking.server_says(answer_to(login))
    assert talking.client_messages.pop().failure is None
    return talking


def answer_to(question: Message, **rest: object) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)  # type: ignore[arg-type]


def gateway(op: str, *rest: Line, flag: int = 4) -> EsnpMessage:
    head = (lines.flag_line(flag), lines.address_line(20, op), lines.address_line(30, "wirelake"))
    return EsnpMessage((*head, *rest))


def request(*rest: Line, flag: int = 4) -> EsnpMessage:
    return EsnpMessage((lines.flag_line(flag), lines.address_line(20, "add"), lines.address_line(30, "calc"), *rest))


def data(name: str, value: object) -> Line:
    return lines.data_line(name, var_of(value))


def ready_server() -> ServerSession:
    server = ServerSession(0.0)
    server.receive(gateway("login", data("user", "ann"), data("token", "t")), 0.0)
    server.send(OK, 0.0)
    return server


def ready_client() -> ClientSession:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    client.receive(EsnpMessage((lines.flag_line(3), lines.source_message_id_line(1))), 0.0)
    assert client.state is ClientState.READY
    return client


def errors(frames: list[Frame]) -> list[str | None]:
    found = []
    for frame in frames:
        assert isinstance(frame, EsnpMessage)
        assert frame.flags[0] == 3
        found.append(frame.error)
    return found


def last_from(talking: Conversation, sender: Sender) -> EsnpMessage:
    return [decode(raw, who) for who, raw in talking.wire if who is sender][-1]
