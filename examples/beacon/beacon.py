"""A protocol of devices in one file: weather beacons that send `BE | u8 n | station[n] | i16 tenths of a degree`.

A beacon only sends, by UDP. Served by a gateway, a reading of a registered station is published as its telemetry.
"""

from enum import Enum, auto
from typing import Annotated

from wirelake.errors import TranslationError
from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    InUnits,
    LayoutFrame,
    MessageRule,
    MessageRules,
    const,
    i16,
    scaled,
    text8,
    u8,
)
from wirelake.message import Credentials, Device, Kind, Message, Op, control
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.state_machine import StateMachine, Transition


class Packet(Envelope, frame_bytes_max=259):
    magic: Annotated[u8, const(0xBE, text="a reading starts with be")]
    body: Body


class Reading(LayoutFrame, frozen=True, envelope=Packet):
    """The temperature at a station."""

    station: text8
    tenths: Annotated[i16, scaled(0.1, "°C")]


FRAMES = FrameSet("beacon", Packet, [Reading])


RULES = MessageRules(
    "beacon",
    {Reading: MessageRule(Kind.TELEMETRY, source="station", fields={"celsius": InUnits("tenths")})},
)
to_message = RULES.to_message


def from_message(message: Message, _sender: Sender) -> Reading:
    if not isinstance(message.target, Device) or "celsius" not in message.fields:
        raise TranslationError("a beacon carries a station's temperature and nothing else")
    return Reading(message.target.serial, round(message.fields["celsius"] * 10))


class State(Enum):
    NEW = auto()
    CHECKING = auto()  # whether the station is registered
    READY = auto()
    CLOSED = auto()


S = State


class ServerSession(Session):
    """The session of one address, which speaks for one station."""

    state_machine = StateMachine(
        [
            Transition(S.NEW, "reading", "_log_in", (S.CHECKING,), "the gateway decides whether it knows the station"),
            Transition(
                S.CHECKING, "app response", "_decide", (S.READY, S.CLOSED), "the reading is telemetry; or close"
            ),
            Transition(
                S.READY, "reading", "_report", (S.READY, S.CLOSED), "telemetry; close if it names another station"
            ),
        ]
    )

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context.now_s)
        self._first = Reading("", 0)

    @property
    def is_paused(self) -> bool:
        return self.state is S.CHECKING

    def _log_in(self, frame: Reading, _now_s: float, step: Step) -> None:
        self._first = frame
        step.messages.append(control(Op.LOGIN, credentials=Credentials(frame.station, "", is_device=True)))

    def _decide(self, message: Message, now_s: float, step: Step) -> None:
        self.state = S.READY
        if message.failure is None:
            self._report(self._first, now_s, step)
        else:
            self._close(step, "login_refused", message.failure.text)

    def _report(self, frame: Reading, _now_s: float, step: Step) -> None:
        if frame.station != self._first.station:
            self._close(step, "another_station", f"{frame.station} sends from the address of {self._first.station}")
        else:
            step.messages.append(to_message(frame, Sender.CLIENT))

    def _close(self, step: Step, code: str, text: str) -> None:
        self.state = S.CLOSED
        step.closing = Closing(code, text)


PROTOCOL = Protocol(
    name="beacon",
    title="beacon: weather stations",
    transports=(Transport(Carrier.UDP, 7999, "beacon"),),
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
    message_rules=RULES,
)
