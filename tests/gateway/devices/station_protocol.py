"""A protocol of an installed package over TCP: stations that log in with a token, report, and take commands.

It has no `device_of`: a session belongs to a connection, as in most protocols. A report may name another device, for
which the station speaks.
"""

from enum import Enum, auto
from typing import Annotated, Any

from wirelake.errors import StateError, TranslationError
from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    bool8,
    i16,
    length_of_rest,
    measured,
    opcode,
    rest_bytes,
    scaled,
    secret,
    text8,
    u8,
    u16,
)
from wirelake.message import Credentials, Device, Failure, Kind, Message, Op, control
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.state_machine import StateMachine, Transition

MUTE = "mute"  # the session of a station that is called so takes no commands


class Packet(Envelope, frame_bytes_max=1024):
    length: Annotated[u16, length_of_rest()]
    kind: Annotated[u8, opcode()]
    body: Body


class StationFrame(LayoutFrame, frozen=True, envelope=Packet):
    """A frame of this protocol."""


class Login(StationFrame, frozen=True, opcode=1, sender=Sender.CLIENT):
    station: text8
    token: Annotated[text8, secret]


class Report(StationFrame, frozen=True, opcode=2, sender=Sender.CLIENT):
    device: text8  # empty for the station itself
    temperature: Annotated[i16, scaled(0.1, "°C")]
    humidity: u8
    door: bool8


class Answer(StationFrame, frozen=True, opcode=3, sender=Sender.CLIENT):
    number: u8
    error: u8
    content: rest_bytes


class Ok(StationFrame, frozen=True, opcode=4, sender=Sender.SERVER):
    """The login or the report was accepted, and is on disk."""


class Command(StationFrame, frozen=True, opcode=5, sender=Sender.SERVER):
    number: u8
    device: text8
    word: text8
    content: rest_bytes


FRAMES = FrameSet("station", Packet, [Login, Report, Answer, Ok, Command])


def to_message(frame: Frame, _sender: Sender) -> Message:
    match frame:
        case Login():
            return control(Op.LOGIN, credentials=Credentials(frame.station, frame.token))
        case Report():
            units = {"humidity": "%"}
            return Message(
                kind=Kind.TELEMETRY,
                source=frame.device,
                fields={**measured(frame), "note": "no number"},
                headers={"units": units},
            )
        case Answer(error=0):
            return Message(kind=Kind.RESPONSE, correlation=str(frame.number), payload=frame.content)
        case Answer():
            failure = Failure(frame.content.decode(errors="replace"), frame.error)
            return Message(kind=Kind.RESPONSE, correlation=str(frame.number), failure=failure)
        case Command():
            target = Device(frame.device)
            return Message(kind=Kind.REQUEST, name=frame.word, target=target, payload=frame.content)
    return Message(kind=Kind.RESPONSE)


def from_message(message: Message, _sender: Sender) -> StationFrame:
    if message.kind is Kind.REQUEST and isinstance(message.target, Device) and message.name:
        return Command(0, message.target.serial, message.name, message.payload)
    if message.kind is Kind.RESPONSE:
        return Ok()
    raise TranslationError(f"a station has no frame for a {message.kind} without a command's name")


class State(Enum):
    NEW = auto()
    CHECKING = auto()
    READY = auto()
    QUIET = auto()  # without commands
    CLOSED = auto()


S = State


class ServerSession(Session):
    state_machine = StateMachine(
        [
            Transition(S.NEW, "login", "_login", (S.CHECKING,), "the gateway decides"),
            Transition(S.CHECKING, "app response", "_decide", (S.READY, S.QUIET, S.CLOSED), "ok, or close"),
            Transition(S.READY, "report", "_report", (S.READY,), "telemetry, then ok"),
            Transition(S.QUIET, "report", "_report", (S.QUIET,), "telemetry, then ok"),
            Transition(S.READY, "answer", "_answer", (S.READY,), "answers a command"),
            Transition(S.READY, "app request", "_command", (S.READY,), "command"),
        ]
    )

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context.now_s)
        self._name = ""
        self._commands: dict[int, str] = {}  # number → correlation
        self._number = 0

    @property
    def is_paused(self) -> bool:
        return self.state is S.CHECKING

    def _login(self, frame: Login, _now_s: float, step: Step) -> None:
        self._name = frame.station
        step.messages.append(to_message(frame, Sender.CLIENT))

    def _decide(self, message: Message, _now_s: float, step: Step) -> None:
        if message.failure is not None:
            self.state, step.closing = S.CLOSED, Closing("login_refused", message.failure.text)
            return
        self.state = S.QUIET if self._name == MUTE else S.READY
        step.frames.append(Ok())

    def _report(self, frame: Report, _now_s: float, step: Step) -> None:
        step.messages.append(to_message(frame, Sender.CLIENT))
        step.frames.append(Ok())

    def _command(self, message: Message, _now_s: float, step: Step) -> None:
        frame: Any = from_message(message, Sender.SERVER)
        if len(self._commands) == 255:
            raise StateError("255 commands are open")
        self._number = self._number % 255 + 1
        self._commands[self._number] = message.correlation
        step.frames.append(Command(self._number, frame.device, frame.word, frame.content))

    def _answer(self, frame: Answer, _now_s: float, step: Step) -> None:
        correlation = self._commands.pop(frame.number, None)
        if correlation is not None:
            found = to_message(frame, Sender.CLIENT)
            step.messages.append(
                Message(kind=Kind.RESPONSE, correlation=correlation, payload=found.payload, failure=found.failure)
            )


PROTOCOL = Protocol(
    name="station",
    title="station: weather stations",
    transports=(Transport(Carrier.TCP, 7997, "station"),),
    decoder_version=1,
    splitter=lambda _sender, _carrier: FRAMES.splitter(),
    decode=FRAMES.decode,
    dissect=FRAMES.dissect,
    clues=FRAMES.clues,
    to_message=to_message,
    from_message=from_message,
    server_session=ServerSession,
    state_machines={Sender.SERVER: ServerSession.state_machine},
    layout=FRAMES,
)
