"""comet frames: big-endian, a two-byte length, a type by direction, and strings with a two-byte length.

 0       1       2       3
├───────┴───────┼───────┼───────────────
│    length     │ type  │ body …
└───────────────┴───────┴───────────────
length counts type and body.   string = u16 n | utf8[n]   bytes = u16 n | [n]   list = u8 count | items
"""

from collections.abc import Callable, Sequence
from struct import Struct as Layout
from struct import error as struct_error
from typing import ClassVar

from wirelake.errors import EncodeError
from wirelake.protocols.comet.constants import (
    COMET_FRAME_BYTES_MAX,
    COMET_WRITE_COUNT_MAX,
    COMET_WRITE_LENGTH_MAX,
    ClientType,
    ServerType,
)
from wirelake.protocols.comet.tree import dissect
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.splitter import Splitter

_HEAD = Layout(">HB")
_MESSAGE_HEAD = Layout(">HBBH")
_MESSAGE_BYTES = 1 + 1 + 2 + 2 + 8  # after its length, beside id and content
_I64 = Layout(">q")
_unpack_i64 = _I64.unpack_from
_CLIENT = Sender.CLIENT  # the lookup of an enum member costs more than the comparison
_U8_MAX = 0xFF
_U16_MAX = 0xFFFF


class CometSplitter(Splitter):
    """Cut a stream by the two-byte lengths."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = COMET_FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        size, start, limit, append = len(buffer), 0, self.frame_bytes_max, ends.append
        while start + 2 <= size:
            length = (buffer[start] << 8 | buffer[start + 1]) + 2
            if length > limit:
                self._check_size(length, start, "comet_frame_bytes_max")
            start += length
            if start > size:
                return length
            append(start)
        return 2


class CometFrame(Frame, frozen=True):
    """A frame of comet. `type` is its number among those of its sender."""

    type: ClassVar[int]
    sender: ClassVar[Sender]

    def body(self) -> bytes:
        """Return the bytes after the type."""
        return b""

    def encode(self) -> bytes:
        body = self.body()
        if len(body) + 1 > COMET_WRITE_LENGTH_MAX:
            raise EncodeError(f"{self.name} of {len(body) + 1} bytes: writers stay within {COMET_WRITE_LENGTH_MAX}")
        return _HEAD.pack(len(body) + 1, self.type) + body


class ClientFrame(CometFrame, frozen=True):
    sender = Sender.CLIENT


class ServerFrame(CometFrame, frozen=True):
    sender = Sender.SERVER


class Auth(ClientFrame, frozen=True):
    name = "auth"
    type = ClientType.AUTH
    client_id: str
    token: str

    def body(self) -> bytes:
        return _text(self.client_id) + _text(self.token)


class ExchangeKey(ClientFrame, frozen=True):
    name = "exchange_key"
    type = ClientType.EXCHANGE_KEY
    secret_key: bytes

    def body(self) -> bytes:
        return _bytes(self.secret_key)


class GetTopicList(ClientFrame, frozen=True):
    name = "get_topic_list"
    type = ClientType.GET_TOPIC_LIST


class Subscribe(ClientFrame, frozen=True):
    name = "subscribe"
    type = ClientType.SUBSCRIBE
    topics: tuple[str, ...]

    def body(self) -> bytes:
        return _texts(self.topics)


class Unsubscribe(ClientFrame, frozen=True):
    name = "unsubscribe"
    type = ClientType.UNSUBSCRIBE
    topics: tuple[str, ...]

    def body(self) -> bytes:
        return _texts(self.topics)


class GetMessageList(ClientFrame, frozen=True):
    name = "get_message_list"
    type = ClientType.GET_MESSAGE_LIST


class Heartbeat(ClientFrame, frozen=True):
    name = "heartbeat"
    type = ClientType.HEARTBEAT


class MessageAck(ClientFrame, frozen=True):
    name = "message_ack"
    type = ClientType.MESSAGE_ACK
    msg_ids: tuple[str, ...]

    def body(self) -> bytes:
        return _texts(self.msg_ids)


class ReportEnviron(ClientFrame, frozen=True):
    name = "report_environ"
    type = ClientType.REPORT_ENVIRON
    network_type: int
    isp: int
    phone_type: str
    extra: tuple[str, ...]

    def body(self) -> bytes:
        return _u8(self.network_type) + _u8(self.isp) + _text(self.phone_type) + _texts(self.extra)


class Ok(ServerFrame, frozen=True):
    name = "ok"
    type = ServerType.OK


class Error(ServerFrame, frozen=True):
    name = "error"
    type = ServerType.ERROR
    code: int
    reason: str

    def body(self) -> bytes:
        return _u8(self.code) + _text(self.reason)


class AuthSuccess(ServerFrame, frozen=True):
    name = "auth_success"
    type = ServerType.AUTH_SUCCESS
    encrypt_key: bytes

    def body(self) -> bytes:
        return _bytes(self.encrypt_key)


class TopicList(ServerFrame, frozen=True):
    name = "topic_list"
    type = ServerType.TOPIC_LIST
    topics: tuple[str, ...]

    def body(self) -> bytes:
        return _texts(self.topics)


class Message(ServerFrame, frozen=True):
    """A notification; message_list holds several of them. `content` is UTF-8 text, or sealed with a key.

     0       1       2       3       4       5
    ├───────┴───────┼───────┼────────┼───────┴──── … ─┬──── … ──┬──────┐
    │    length     │   5   │msg_type│ msg_id string  │ content │i64 ts│
    └───────────────┴───────┴────────┴──── … ─────────┴──── … ──┴──────┘
    """

    name = "message"
    type = ServerType.MESSAGE
    msg_type: int
    msg_id: str
    content: bytes
    ts: int  # milliseconds since 1970

    def body(self) -> bytes:
        return _u8(self.msg_type) + _text(self.msg_id) + _bytes(self.content) + _I64.pack(self.ts)

    def encode(self) -> bytes:
        """Encode at once, without `body`: servers write more of these than of any other frame."""
        msg_id, content = self.msg_id.encode(), self.content
        length = _MESSAGE_BYTES + len(msg_id) + len(content)
        if length > COMET_WRITE_LENGTH_MAX or not 0 <= self.msg_type <= _U8_MAX:
            return super().encode()  # raises the error
        head = _MESSAGE_HEAD.pack(length, self.type, self.msg_type, len(msg_id))
        return b"".join((head, msg_id, len(content).to_bytes(2, "big"), content, _I64.pack(self.ts)))


class MessageList(ServerFrame, frozen=True):
    name = "message_list"
    type = ServerType.MESSAGE_LIST
    messages: tuple[Message, ...]

    def body(self) -> bytes:
        return _count(self.messages) + b"".join([message.body() for message in self.messages])


def decode(frame: bytes, sender: Sender) -> CometFrame:
    """Decode one complete frame, including its head. Raise ProtocolError if it is malformed."""
    try:
        found, end = (_READ_CLIENT if sender is _CLIENT else _READ_SERVER)[frame[2]](frame)
        if end == len(frame) == (frame[0] << 8 | frame[1]) + 2:
            return found
    except (IndexError, UnicodeDecodeError, struct_error):
        pass
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")


# A reader takes a frame, and returns its content and where that ends. It does not check whether the frame is long
# enough: a missing byte raises IndexError, and a slice that is too short gives an end beyond the frame.
Reader = Callable[[bytes], tuple[CometFrame, int]]


def _read_text(frame: bytes, start: int) -> tuple[str, int]:
    end = start + 2 + (frame[start] << 8 | frame[start + 1])
    if end > len(frame):
        raise IndexError
    return frame[start + 2 : end].decode(), end


def _read_bytes(frame: bytes, start: int) -> tuple[bytes, int]:
    end = start + 2 + (frame[start] << 8 | frame[start + 1])
    return frame[start + 2 : end], end


def _read_texts(frame: bytes, start: int) -> tuple[tuple[str, ...], int]:
    texts = []
    end = start + 1
    for _ in range(frame[start]):  # inlined `_read_text`: an ack has up to 255 ids, and a busy client sends many acks
        begin = end + 2
        end = begin + (frame[end] << 8 | frame[end + 1])
        texts.append(frame[begin:end].decode())
    return tuple(texts), end


def _read_message(frame: bytes, start: int = 3) -> tuple[Message, int]:
    msg_id_start = start + 3
    content_size = msg_id_start + (frame[start + 1] << 8 | frame[start + 2])
    content_start = content_size + 2
    ts_start = content_start + (frame[content_size] << 8 | frame[content_size + 1])
    msg_id = frame[msg_id_start:content_size].decode()
    content = frame[content_start:ts_start]
    return Message(frame[start], msg_id, content, _unpack_i64(frame, ts_start)[0]), ts_start + 8


def _nothing(found: CometFrame) -> Reader:
    return lambda _frame: (found, 3)


def _texts_of(kind: type[Subscribe | Unsubscribe | MessageAck | TopicList]) -> Reader:
    def read(frame: bytes) -> tuple[CometFrame, int]:
        texts, end = _read_texts(frame, 3)
        return kind(texts), end

    return read


def _bytes_of(kind: type[ExchangeKey | AuthSuccess]) -> Reader:
    def read(frame: bytes) -> tuple[CometFrame, int]:
        data, end = _read_bytes(frame, 3)
        return kind(data), end

    return read


def _read_auth(frame: bytes) -> tuple[CometFrame, int]:
    client_id, end = _read_text(frame, 3)
    token, end = _read_text(frame, end)
    return Auth(client_id, token), end


def _read_environ(frame: bytes) -> tuple[CometFrame, int]:
    phone_type, end = _read_text(frame, 5)
    extra, end = _read_texts(frame, end)
    return ReportEnviron(frame[3], frame[4], phone_type, extra), end


def _read_error(frame: bytes) -> tuple[CometFrame, int]:
    reason, end = _read_text(frame, 4)
    return Error(frame[3], reason), end


def _read_message_list(frame: bytes) -> tuple[CometFrame, int]:
    messages = []
    end = 4
    for _ in range(frame[3]):
        message, end = _read_message(frame, end)
        messages.append(message)
    return MessageList(tuple(messages)), end


# In the order of the type numbers; a type beyond them raises IndexError.
_READ_CLIENT: Sequence[Reader] = (
    _read_auth,
    _bytes_of(ExchangeKey),
    _nothing(GetTopicList()),
    _texts_of(Subscribe),
    _texts_of(Unsubscribe),
    _nothing(GetMessageList()),
    _nothing(Heartbeat()),
    _texts_of(MessageAck),
    _read_environ,
)
_READ_SERVER: Sequence[Reader] = (
    _nothing(Ok()),
    _read_error,
    _bytes_of(AuthSuccess),
    _texts_of(TopicList),
    _read_message_list,
    _read_message,
)


def _u8(value: int) -> bytes:
    if not 0 <= value <= _U8_MAX:
        raise EncodeError(f"{value} does not fit one byte")
    return value.to_bytes(1, "big")


def _bytes(data: bytes) -> bytes:
    if len(data) > _U16_MAX:
        raise EncodeError(f"{len(data)} bytes do not fit a string of at most {_U16_MAX}")
    return len(data).to_bytes(2, "big") + data


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _count(items: Sequence[object]) -> bytes:
    if len(items) > COMET_WRITE_COUNT_MAX:
        raise EncodeError(f"a list of {len(items)}: writers stay within {COMET_WRITE_COUNT_MAX}")
    return len(items).to_bytes(1, "big")


def _texts(texts: Sequence[str]) -> bytes:
    return _count(texts) + b"".join([_text(text) for text in texts])
