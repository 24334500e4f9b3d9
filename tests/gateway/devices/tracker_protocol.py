"""A protocol of an installed package whose frames name devices: the frames of `beacon`, each acknowledged.

├──────┬─────────┬────────────┬────────────┤
│  BE  │    n    │ station[n] │ i16 tenths │   from the device
│  AC  │    n    │ station[n] │            │   acknowledgement
│  C0  │    n    │ station[n] │            │   query: the device answers with a reading
└──────┴─────────┴────────────┴────────────┘
"""

from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from gateway.installed_protocol import example
from wirelake.message import Credentials, Kind, Message, Op, control
from wirelake.protocols.context import SessionContext
from wirelake.protocols.device_session import DeviceSession, DeviceSettings
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.state_machine import StateMachine, Transition

beacon = example("beacon")
BROKEN = "broken"  # the session of this station raises


class Ack(Frame, frozen=True):
    name = "ack"
    is_reply = True
    station: str

    def encode(self) -> bytes:
        return bytes([0xAC, len(self.station)]) + self.station.encode()


class Query(Frame, frozen=True):
    name = "query"
    station: str

    def encode(self) -> bytes:
        return bytes([0xC0, len(self.station)]) + self.station.encode()


class State(Enum):
    NEW = auto()
    READY = auto()
    CLOSED = auto()


S = State


class ServerSession(DeviceSession):
    state_machine = StateMachine(
        [
            Transition(S.NEW, "reading", "_log_in", (S.NEW,), "the gateway is asked for the device"),
            Transition(S.NEW, "app response", "_accept", (S.READY,), "the first reading is reported"),
            Transition(S.READY, "reading", "_report", (S.READY,), "reported and acknowledged"),
            Transition(S.READY, "app request", "_query", (S.READY,), "the device is queried"),
            *(Transition(state, "app close", "_goodbye", (S.CLOSED,), "closed") for state in (S.NEW, S.READY)),
        ]
    )

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context.now_s)
        self.serial = ""
        self.device_type = 0
        self._first: Any = None
        self._request = ""  # correlation of the open query

    def _log_in(self, frame: Any, _now_s: float, step: Step) -> None:
        self.serial, self._first = frame.station, frame
        step.messages.append(control(Op.LOGIN, credentials=Credentials(frame.station, ""), correlation="login"))

    def _accept(self, _message: Message, now_s: float, step: Step) -> None:
        self._report(self._first, now_s, step)

    def _report(self, frame: Any, _now_s: float, step: Step) -> None:
        if frame.station == BROKEN:
            raise ZeroDivisionError("a fault of the session")
        message = beacon.RULES.to_message(frame, Sender.CLIENT)
        if self._request:
            message = replace(message, kind=Kind.RESPONSE, correlation=self._request)
            self._request = ""
        step.messages.append(message)
        step.frames.append(Ack(frame.station))

    def _query(self, message: Message, _now_s: float, step: Step) -> None:
        self._request = message.correlation
        step.frames.append(Query(self.serial))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing


PROTOCOL = Protocol(
    name="tracker",
    title="tracker: stations that move",
    transports=(Transport(Carrier.UDP, 7998, "tracker"), Transport(Carrier.TCP, 7998, "tracker")),
    decoder_version=1,
    splitter=lambda _sender, _carrier: beacon.FRAMES.splitter(),
    decode=beacon.FRAMES.decode,
    dissect=beacon.FRAMES.dissect,
    clues=beacon.FRAMES.clues,
    to_message=beacon.RULES.to_message,
    from_message=beacon.from_message,
    settings=DeviceSettings,
    server_session=ServerSession,
    device_of=lambda frame: frame.station if isinstance(frame, beacon.Reading) else None,
    state_machines={Sender.SERVER: ServerSession.state_machine},
)
