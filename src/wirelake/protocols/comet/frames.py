"""comet frames: big-endian, a two-byte length, a type by direction, and strings with a two-byte length.

The numbers of clients and servers overlap, so a frame can only be read if it is known who sent it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final, cast

from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    at_most,
    bytes16,
    i64,
    items,
    length_of_rest,
    list8,
    names,
    opcode,
    secret,
    shown,
    text16,
    u8,
    u16,
)
from wirelake.protocols.comet.constants import (
    COMET_FRAME_BYTES_MAX,
    COMET_WRITE_COUNT_MAX,
    COMET_WRITE_LENGTH_MAX,
    ERROR_NAMES,
    ClientType,
    ServerType,
)
from wirelake.protocols.frame import Sender

_TIMESTAMP_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999
_LENGTH_NOTE: Final = "type and body, without these two bytes"


def _time_in_words(milliseconds: int) -> str:
    if not 0 < milliseconds <= _TIMESTAMP_MS_MAX:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


class Comet(Envelope, frame_bytes_max=COMET_FRAME_BYTES_MAX, limit_name="comet_frame_bytes_max"):
    length: Annotated[u16, length_of_rest(write_max=COMET_WRITE_LENGTH_MAX), shown(_LENGTH_NOTE)]
    type: Annotated[u8, opcode()]
    body: Body


_Topics = Annotated[list8[text16], at_most(COMET_WRITE_COUNT_MAX), items("topic")]


class CometFrame(LayoutFrame, frozen=True, envelope=Comet):
    """A frame of comet."""

    sender: ClassVar[Sender]


class ClientFrame(CometFrame, frozen=True, sender=Sender.CLIENT):
    pass


class ServerFrame(CometFrame, frozen=True, sender=Sender.SERVER):
    pass


class Auth(ClientFrame, frozen=True, opcode=ClientType.AUTH):
    """The first frame of a client."""

    client_id: text16
    token: Annotated[text16, secret]


class ExchangeKey(ClientFrame, frozen=True, opcode=ClientType.EXCHANGE_KEY):
    """The key for the content of notifications, wrapped with the server's encrypt_key."""

    secret_key: Annotated[bytes16, secret]


class GetTopicList(ClientFrame, frozen=True, opcode=ClientType.GET_TOPIC_LIST):
    pass


class Subscribe(ClientFrame, frozen=True, opcode=ClientType.SUBSCRIBE):
    topics: _Topics


class Unsubscribe(ClientFrame, frozen=True, opcode=ClientType.UNSUBSCRIBE):
    topics: _Topics


class GetMessageList(ClientFrame, frozen=True, opcode=ClientType.GET_MESSAGE_LIST):
    pass


class Heartbeat(ClientFrame, frozen=True, opcode=ClientType.HEARTBEAT):
    pass


class MessageAck(ClientFrame, frozen=True, opcode=ClientType.MESSAGE_ACK):
    msg_ids: Annotated[list8[text16], at_most(COMET_WRITE_COUNT_MAX), items("msg_id")]


class ReportEnviron(ClientFrame, frozen=True, opcode=ClientType.REPORT_ENVIRON):
    network_type: u8
    isp: u8
    phone_type: text16
    extra: Annotated[list8[text16], at_most(COMET_WRITE_COUNT_MAX), items("extra")]


class Ok(ServerFrame, frozen=True, opcode=ServerType.OK):
    pass


class Error(ServerFrame, frozen=True, opcode=ServerType.ERROR):
    code: Annotated[u8, names(ERROR_NAMES, "not a known code")]
    reason: text16


class AuthSuccess(ServerFrame, frozen=True, opcode=ServerType.AUTH_SUCCESS):
    """The answer to auth, with the server's public key."""

    encrypt_key: bytes16


class TopicList(ServerFrame, frozen=True, opcode=ServerType.TOPIC_LIST):
    topics: _Topics


class Message(ServerFrame, frozen=True, opcode=ServerType.MESSAGE):
    """A notification. Its content is UTF-8 text, or sealed with a key; `ts` is in milliseconds since 1970."""

    msg_type: u8
    msg_id: text16
    content: bytes16
    ts: Annotated[i64, shown(_time_in_words)]


class MessageList(ServerFrame, frozen=True, opcode=ServerType.MESSAGE_LIST):
    """Notifications, each with the fields of a message from msg_type on."""

    messages: Annotated[list8[Message], at_most(COMET_WRITE_COUNT_MAX), items("message")]


FRAMES: Final = FrameSet(
    "comet",
    Comet,
    [
        *(Auth, ExchangeKey, GetTopicList, Subscribe, Unsubscribe, GetMessageList, Heartbeat, MessageAck),
        *(ReportEnviron, Ok, Error, AuthSuccess, TopicList, MessageList, Message),
    ],
)
CometSplitter: Final = FRAMES.splitter
decode: Final = cast(Callable[[bytes, Sender], CometFrame], FRAMES.decode)
