"""apostol packets: little-endian, a one- or two-byte length, a device's serial, a CRC-16.

 0        1         2        3             4     5
├────────┼─────────┼────────┼─────────────┼─────┼─────────────┼────────────┼───────────┼────────┼──────┴──────┤
│ length │ version │ params │ device_type │  n  │ serial[n] … │ command_no │ packet_no │ data … │     crc     │
└────────┴─────────┴────────┴─────────────┴─────┴─────────────┴────────────┴───────────┴────────┴─────────────┘
length counts everything after itself. Up to 127 it is one byte; above, two: 0x80 | (length & 0x7F), length >> 7.
crc is CRC-16/MODBUS over all bytes before it, low byte first; so the CRC over the whole packet is 0.
params, by bit: 0 first packet, 1 last packet, 2 to the device, 3 answer, 4 zlib, 5 AES-128, 6 receipt, 7 zero.
"""

from struct import Struct as Layout
from struct import error as struct_error

from fastcrc.crc16 import modbus

from wirelake.errors import EncodeError, ProtocolError
from wirelake.message import BROADCAST_DEVICE_TYPE
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_PACKET_BYTES_MAX,
    FIRST,
    LAST,
    RECEIPT,
    RESERVED,
    SEALED,
    TO_DEVICE,
    VERSION,
    ZIPPED,
)
from wirelake.protocols.apostol.tree import LENGTH_MAX, LENGTH_MIN, dissect
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.splitter import Splitter

_HEAD = Layout("<BBBB")  # version, params, device_type, n
_NUMBERS = Layout("<BB")  # command_no, packet_no
_CRC_BYTES = 2
_REPEATS_MAX = 1024  # packets of one length that are walked over at once
_LONG = 0x80  # in the first byte of a length: a second one follows


class ApostolSplitter(Splitter):
    """Splits a TCP stream, or a datagram, which may hold several packets: use a new one for each, and call `finish`."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = APOSTOL_PACKET_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        size, start, limit, append = len(buffer), 0, self.frame_bytes_max, ends.append
        while start < size:
            length = buffer[start]
            if length < _LONG:
                if length < LENGTH_MIN:
                    text = f"length {length}: the shortest packet has {LENGTH_MIN} bytes after it"
                    raise ProtocolError("length_min", text, start)
                whole = length + 1
            elif start + 1 == size:
                return 2
            elif not buffer[start + 1]:
                raise ProtocolError("length_form", f"length {length & 0x7F} in two bytes: one is enough", start)
            else:
                whole = (length & 0x7F | buffer[start + 1] << 7) + 2
            if whole > limit:
                self._check_size(whole, start, "apostol_packet_bytes_max")
            start += whole
            if start > size:
                return whole
            append(start)
            if start < size and buffer[start] == length < _LONG:  # a device's reports are often of one length
                start = self._repeats_end(buffer, start, whole, ends)
        return 1

    def _repeats_end(self, buffer: bytes | bytearray, start: int, whole: int, ends: list[int]) -> int:
        """Append the ends of the packets from `start` on that have the length of the last one. Return the last end."""
        lengths = bytes(buffer[start : start + whole * _REPEATS_MAX : whole])
        alike = len(lengths) - len(lengths.lstrip(lengths[:1]))
        alike = min(alike, (len(buffer) - start) // whole)
        end = start + alike * whole
        ends.extend(range(start + whole, end + 1, whole))
        return end


class Packet(Frame, frozen=True, gc=False):
    """A command, or one part of it."""

    name = "packet"
    version: int
    params: int
    device_type: int
    serial: str
    command_no: int
    packet_no: int
    data: bytes

    @property
    def first(self) -> bool:
        return self.params & FIRST != 0

    @property
    def last(self) -> bool:
        return self.params & LAST != 0

    @property
    def single(self) -> bool:
        """Return whether this packet is the whole command."""
        return self.params & (FIRST | LAST | RECEIPT) == FIRST | LAST and self.packet_no == 0

    @property
    def to_device(self) -> bool:
        return self.params & TO_DEVICE != 0

    @property
    def answer(self) -> bool:
        return self.params & ANSWER != 0

    @property
    def zipped(self) -> bool:
        return self.params & ZIPPED != 0

    @property
    def sealed(self) -> bool:
        return self.params & SEALED != 0

    @property
    def receipt(self) -> bool:
        return self.params & RECEIPT != 0

    @property
    def broadcast(self) -> bool:
        """Return whether it names no device."""
        return self.device_type == BROADCAST_DEVICE_TYPE and not self.serial

    def encode(self) -> bytes:
        self._check()
        try:
            serial = self.serial.encode()
            head = _HEAD.pack(self.version, self.params, self.device_type, len(serial))
            body = head + serial + _NUMBERS.pack(self.command_no, self.packet_no) + self.data
        except (struct_error, UnicodeEncodeError) as error:
            raise EncodeError(f"{self.name}: {error}") from error
        packet = _length(len(body) + _CRC_BYTES) + body
        return packet + modbus(packet).to_bytes(_CRC_BYTES, "little")

    def _check(self) -> None:
        if self.version != VERSION:
            raise EncodeError(f"version {self.version}: there is only {VERSION}")
        if self.params & RESERVED:
            raise EncodeError("bit 7 of params must be zero")
        if self.receipt != isinstance(self, Receipt):
            raise EncodeError("bit 6 of params must be set in receipts, and only there")
        if self.receipt and self.data:
            raise EncodeError("a receipt has no data")


class Receipt(Packet, frozen=True, gc=False):
    """Confirms that a packet is on disk: same device, command_no and packet_no, the other direction."""

    name = "receipt"
    is_reply = True


def receipt_for(packet: Packet) -> Receipt:
    """Return the receipt that confirms a packet."""
    params = RECEIPT | ~packet.params & TO_DEVICE
    return Receipt(VERSION, params, packet.device_type, packet.serial, packet.command_no, packet.packet_no, b"")


def decode(frame: bytes, sender: Sender) -> Packet:
    """Decode one whole packet, length and crc included, as the splitter returns it.

    Indexing is faster than `unpack_from` here, and the CRC over the whole packet needs no copy of what it covers.
    """
    size = len(frame)
    try:
        if frame[0] < _LONG:
            at, good = 1, frame[0] + 1 == size
        else:
            high = frame[1]
            at, good = 2, high != 0 and (frame[0] & 0x7F | high << 7) + 2 == size
        if good and frame[at] == VERSION and modbus(frame) == 0:
            params = frame[at + 1]
            start = at + 4
            end = start + frame[at + 3]
            if end + 4 <= size:
                serial = frame[start:end].decode()
                if params < RECEIPT:
                    return Packet(
                        VERSION, params, frame[at + 2], serial, frame[end], frame[end + 1], frame[end + 2 : -2]
                    )
                if params < RESERVED and end + 4 == size:
                    return Receipt(VERSION, params, frame[at + 2], serial, frame[end], frame[end + 1], b"")
    except (IndexError, UnicodeDecodeError):
        pass
    raise dissect(frame, sender).error or AssertionError("dissect accepts a packet that decode refuses")


def _length(length: int) -> bytes:
    if length < _LONG:
        return length.to_bytes(1, "little")
    if length > LENGTH_MAX:
        raise EncodeError(f"a packet of {length} bytes exceeds the limit of {LENGTH_MAX}")
    return bytes((_LONG | length & 0x7F, length >> 7))
