"""Dissect comet frames into a tree with offsets. All errors about malformed frames come from here."""

from datetime import UTC, datetime

from wirelake.errors import ProtocolError
from wirelake.protocols.comet.constants import CLIENT_TYPES, ERROR_NAMES, SERVER_TYPES, ClientType, ServerType
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Dissector, Tree

_TIMESTAMP_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999


def dissect(frame: bytes, sender: Sender) -> Tree:
    """Return the fields of a frame, up to the first error."""
    dissector = Dissector(frame, "comet")
    try:
        _walk(dissector, sender)
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def _walk(d: Dissector, sender: Sender) -> None:
    length = d.u16("length", "type and body, without these two bytes")
    if length != d.left:
        raise ProtocolError("length", f"length says {length}, the frame has {d.left}", 0)
    number = d.u8("type")
    kind = (CLIENT_TYPES if sender is Sender.CLIENT else SERVER_TYPES).get(number)
    if kind is None:
        raise ProtocolError("unknown_type", f"type {number} is not one that a {sender} sends", 2)
    d.note(kind.name.lower())
    d.root.name = f"comet {kind.name.lower()}"
    if isinstance(kind, ClientType):
        _client_body(d, kind)
    else:
        _server_body(d, kind)
    d.finish()


def _client_body(d: Dissector, kind: ClientType) -> None:
    match kind:
        case ClientType.AUTH:
            _text(d, "client_id")
            _text(d, "token")
        case ClientType.EXCHANGE_KEY:
            _bytes(d, "secret_key")
        case ClientType.SUBSCRIBE | ClientType.UNSUBSCRIBE:
            _texts(d, "topic")
        case ClientType.MESSAGE_ACK:
            _texts(d, "msg_id")
        case ClientType.REPORT_ENVIRON:
            d.u8("network_type")
            d.u8("isp")
            _text(d, "phone_type")
            _texts(d, "extra")


def _server_body(d: Dissector, kind: ServerType) -> None:
    match kind:
        case ServerType.ERROR:
            code = d.u8("code")
            d.note(ERROR_NAMES.get(code, "not a known code"))
            _text(d, "reason")
        case ServerType.AUTH_SUCCESS:
            _bytes(d, "encrypt_key")
        case ServerType.TOPIC_LIST:
            _texts(d, "topic")
        case ServerType.MESSAGE_LIST:
            for index in range(d.u8("count")):
                with d.group(f"message {index}"):
                    _message(d)
        case ServerType.MESSAGE:
            _message(d)


def _message(d: Dissector) -> None:
    d.u8("msg_type")
    _text(d, "msg_id")
    _bytes(d, "content")
    ts = int(d.number("ts", "q"))
    if 0 < ts <= _TIMESTAMP_MS_MAX:
        d.note(datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds"))


def _text(d: Dissector, name: str) -> None:
    d.text(name, d.u16(f"{name} size"))


def _bytes(d: Dissector, name: str) -> None:
    d.raw(name, d.u16(f"{name} size"))


def _texts(d: Dissector, name: str) -> None:
    for index in range(d.u8("count")):
        _text(d, f"{name} {index}")
