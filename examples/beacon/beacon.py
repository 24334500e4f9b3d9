"""A protocol of devices in one file: weather beacons that send `BE | u8 n | station[n] | i16 tenths of a degree`.

A beacon only sends, by UDP. Served by a gateway, a reading of a registered station is published as its telemetry.
"""

import struct
from collections.abc import Iterator
from enum import Enum, auto

from wirelake.errors import ProtocolError, TranslationError
from wirelake.message import Credentials, Device, Kind, Message, Op, control
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.state_machine import StateMachine, Transition
from wirelake.protocols.tree import Dissector, Tree

MAGIC = 0xBE


class Reading(Frame, frozen=True):
    name = "reading"
    station: str
    tenths: int

    def encode(self) -> bytes:
        station = self.station.encode()
        return bytes([MAGIC, len(station)]) + station + struct.pack(">h", self.tenths)


class BeaconSplitter(Splitter):
    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        start = 0
        while len(buffer) >= start + 2:
            if buffer[start] != MAGIC:
                raise ProtocolError("magic", f"a reading starts with {MAGIC:02x}", start)
            size = buffer[start + 1] + 4
            if start + size > len(buffer):
                return size
            start += size
            ends.append(start)
        return 2


def dissect(frame: bytes, _sender: Sender) -> Tree:
    d = Dissector(frame, "beacon reading")
    try:
        if d.u8("magic") != MAGIC:
            raise ProtocolError("magic", f"a reading starts with {MAGIC:02x}", 0)
        d.text("station", d.u8("station size"))
        tenths = d.number("tenths", "h")
        d.note(f"{tenths / 10:.1f} °C")
        d.finish()
    except ProtocolError as error:
        return Tree(d.root, error)
    return Tree(d.root)


def decode(frame: bytes, sender: Sender) -> Reading:
    tree = dissect(frame, sender)
    if tree.error is not None:
        raise tree.error
    return Reading(tree.root.find("station").value, tree.root.find("tenths").value)


def to_message(frame: Frame, _sender: Sender) -> Message:
    if not isinstance(frame, Reading):
        raise TranslationError("a beacon sends readings only")
    return Message(kind=Kind.TELEMETRY, source=frame.station, fields={"celsius": frame.tenths / 10})


def from_message(message: Message, _sender: Sender) -> Reading:
    if not isinstance(message.target, Device) or "celsius" not in message.fields:
        raise TranslationError("a beacon carries a station's temperature and nothing else")
    return Reading(message.target.serial, round(message.fields["celsius"] * 10))


def clues(_frame: bytes, _sender: Sender) -> Iterator[Clue]:
    yield Clue(8, "starts with BE")
    yield Clue(8, "the station's length fits")


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
    splitter=lambda _sender, _carrier: BeaconSplitter(frame_bytes_max=259),
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    server_session=ServerSession,
    state_machines={Sender.SERVER: ServerSession.state_machine},
)
