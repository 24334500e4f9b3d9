"""apostol packets: little-endian, a one- or two-byte length, a device's serial, a CRC-16.

The CRC covers all bytes before it and is stored low byte first, so the CRC over the whole packet is 0.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, cast

from wirelake.layout import (
    Bits,
    Body,
    Content,
    Envelope,
    FrameSet,
    LayoutFrame,
    const,
    contains,
    crc16_modbus,
    direction,
    fixed,
    flags,
    length_of_rest,
    names,
    opcode,
    rest_bytes,
    short_length,
    shown,
    text8,
    u8,
    u16,
)
from wirelake.message import BROADCAST_DEVICE_TYPE
from wirelake.protocols.apostol.commands import COMMANDS
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_PACKET_BYTES_MAX,
    BIT_NAMES,
    DEVICE_TYPE_NAMES,
    FIRST,
    LAST,
    LENGTH_MIN,
    RECEIPT,
    RESERVED,
    SEALED,
    TO_DEVICE,
    VERSION,
    ZIPPED,
    params_in_words,
)
from wirelake.protocols.frame import Sender

_WHOLE: Final = FIRST | LAST
_PLAIN: Final = _WHOLE | ZIPPED | SEALED | TO_DEVICE  # the bits that say whether a packet is a command in clear
_IS_FIRST: Final = Bits("packet_no", 0xFF, 0)


def _in_words(values: Mapping[str, Any]) -> str:
    is_piece = values["params"] & _WHOLE != _WHOLE or values["packet_no"] != 0
    return "a piece of a command" if is_piece else "a command, zipped or sealed"


class Apostol(
    Envelope, byte_order="little", frame_bytes_max=APOSTOL_PACKET_BYTES_MAX, limit_name="apostol_packet_bytes_max"
):
    length: Annotated[short_length, length_of_rest(at_least=LENGTH_MIN)]
    version: Annotated[u8, const(VERSION, is_carried=True)]
    params: Annotated[
        u8,
        opcode(mask=RECEIPT),
        flags(*BIT_NAMES, reserved=RESERVED),
        direction(TO_DEVICE),
        shown(params_in_words),
    ]
    device_type: Annotated[u8, names(DEVICE_TYPE_NAMES, "not a known type")]
    serial: text8
    command_no: u8
    packet_no: u8
    body: Body
    crc: Annotated[u16, crc16_modbus(over="length..body")]


class Packet(LayoutFrame, frozen=True, envelope=Apostol, opcode=0):
    """A command, or one part of it."""

    version: int
    params: int
    device_type: int
    serial: str
    command_no: int
    packet_no: int
    data: Annotated[
        rest_bytes,
        contains(
            Content("command", COMMANDS, Sender.CLIENT, (Bits("params", _PLAIN, _WHOLE), _IS_FIRST)),
            Content("command", COMMANDS, Sender.SERVER, (Bits("params", _PLAIN, _WHOLE | TO_DEVICE), _IS_FIRST)),
            otherwise=_in_words,
        ),
    ]

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


class Receipt(Packet, frozen=True, opcode=RECEIPT):
    """Confirms that a packet is on disk: same device, command_no and packet_no, the other direction."""

    is_reply = True
    data: Annotated[bytes, fixed(0)]


FRAMES: Final = FrameSet("apostol", Apostol, [Packet, Receipt])
# Splits a TCP stream, or a datagram, which may hold several packets: use a new one for each, and call `finish`.
ApostolSplitter: Final = FRAMES.splitter
decode: Final = cast(Callable[[bytes, Sender], Packet], FRAMES.decode)


def receipt_for(packet: Packet) -> Receipt:
    """Return the receipt that confirms a packet."""
    params = RECEIPT | ~packet.params & TO_DEVICE
    return Receipt(VERSION, params, packet.device_type, packet.serial, packet.command_no, packet.packet_no, b"")
