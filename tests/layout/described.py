"""Frames of two built-in protocols, described, beside their hand-written codecs."""

from datetime import UTC, datetime
from typing import Annotated

from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    at_most,
    bytes16,
    const,
    crc16_modbus,
    flags,
    i64,
    length_of_rest,
    list8,
    names,
    opcode,
    rest_bytes,
    secret,
    short_length,
    shown,
    text8,
    text16,
    u8,
    u16,
)
from wirelake.protocols.comet.constants import ERROR_NAMES
from wirelake.protocols.frame import Sender


class CometEnvelope(Envelope, frame_bytes_max=65_537, limit_name="comet_frame_bytes_max"):
    length: Annotated[u16, length_of_rest(write_max=32_767)]
    type: Annotated[u8, opcode()]
    body: Body


Texts = Annotated[list8[text16], at_most(127)]


class CometClientFrame(LayoutFrame, frozen=True, envelope=CometEnvelope, sender=Sender.CLIENT):
    pass


class CometServerFrame(LayoutFrame, frozen=True, envelope=CometEnvelope, sender=Sender.SERVER):
    pass


class Auth(CometClientFrame, frozen=True, opcode=0):
    """The first frame of a client."""

    client_id: text16
    token: Annotated[text16, secret]


class ExchangeKey(CometClientFrame, frozen=True, opcode=1):
    secret_key: Annotated[bytes16, secret]


class GetTopicList(CometClientFrame, frozen=True, opcode=2):
    pass


class Subscribe(CometClientFrame, frozen=True, opcode=3):
    topics: Texts


class Unsubscribe(CometClientFrame, frozen=True, opcode=4):
    topics: Texts


class GetMessageList(CometClientFrame, frozen=True, opcode=5):
    pass


class Heartbeat(CometClientFrame, frozen=True, opcode=6):
    pass


class MessageAck(CometClientFrame, frozen=True, opcode=7):
    msg_ids: Texts


class ReportEnviron(CometClientFrame, frozen=True, opcode=8):
    network_type: u8
    isp: u8
    phone_type: text16
    extra: Texts


class Ok(CometServerFrame, frozen=True, opcode=0):
    pass


class Error(CometServerFrame, frozen=True, opcode=1):
    code: Annotated[u8, names(ERROR_NAMES, "not a known code")]
    reason: text16


class AuthSuccess(CometServerFrame, frozen=True, opcode=2):
    encrypt_key: bytes16


class TopicList(CometServerFrame, frozen=True, opcode=3):
    topics: Texts


def time_of(milliseconds: int) -> str:
    if not 0 < milliseconds <= 253_402_300_799_999:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


class Message(CometServerFrame, frozen=True, opcode=5):
    msg_type: u8
    msg_id: text16
    content: bytes16
    ts: Annotated[i64, shown(time_of)]


class MessageList(CometServerFrame, frozen=True, opcode=4):
    messages: Annotated[list8[Message], at_most(127)]


COMET = FrameSet(
    "comet",
    CometEnvelope,
    [
        *(
            Auth,
            ExchangeKey,
            GetTopicList,
            Subscribe,
            Unsubscribe,
            GetMessageList,
            Heartbeat,
            MessageAck,
            ReportEnviron,
        ),
        *(Ok, Error, AuthSuccess, TopicList, MessageList, Message),
    ],
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
