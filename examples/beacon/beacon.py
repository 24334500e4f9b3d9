"""A sixth protocol in one file: weather beacons that send `BE | u8 n | station[n] | i16 tenths of a degree`."""

import struct
from collections.abc import Iterator

from wirelake.errors import ProtocolError, TranslationError
from wirelake.message import Device, Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport
from wirelake.protocols.splitter import Splitter
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
)
