"""Packets of a built-in protocol, described, beside the hand-written codec."""

from typing import Annotated

from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    const,
    crc16_modbus,
    flags,
    length_of_rest,
    opcode,
    rest_bytes,
    short_length,
    text8,
    u8,
    u16,
)


class ApostolEnvelope(Envelope, byte_order="little", frame_bytes_max=32_769, limit_name="apostol_packet_bytes_max"):
    length: Annotated[short_length, length_of_rest(at_least=8)]
    version: Annotated[u8, const(1)]
    params: Annotated[
        u8,
        opcode(mask=0x40),
        flags("first", "last", "to the device", "answer", "zlib", "AES-128", "receipt", reserved=0x80),
    ]
    device_type: u8
    serial: text8
    command_no: u8
    packet_no: u8
    body: Body
    crc: Annotated[u16, crc16_modbus(over="length..body")]


class ApostolFrame(LayoutFrame, frozen=True, envelope=ApostolEnvelope):
    params: int
    device_type: int
    serial: str
    command_no: int
    packet_no: int


class Packet(ApostolFrame, frozen=True, opcode=0):
    data: rest_bytes


class Receipt(ApostolFrame, frozen=True, opcode=0x40):
    pass


APOSTOL = FrameSet("apostol", ApostolEnvelope, [Packet, Receipt])
