"""Translate between comet frames and common messages."""

from collections.abc import Callable
from typing import Any

from wirelake.errors import TranslationError
from wirelake.message import Credentials, Failure, Kind, Op, Topic, content_of, control, control_op
from wirelake.message import Message as Common
from wirelake.protocols.comet import frames
from wirelake.protocols.comet.constants import ERROR_NAMES, ErrorCode
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.translation import Loss

EXCHANGE_KEY = "exchange_key"
AUTH_SUCCESS = "auth_success"
REPORT_ENVIRON = "report_environ"


def to_message(frame: Frame, _sender: Sender) -> Common:
    """Return the common message of a frame."""
    return _TO[type(frame)](frame)


def from_message(message: Common, sender: Sender) -> frames.CometFrame:
    """Return the frame with which `sender` sends this message. Raise TranslationError if comet has none."""
    return _client_frame(message) if sender is Sender.CLIENT else _server_frame(message)


def _notified(frame: frames.Message) -> Common:
    return Common(
        kind=Kind.NOTIFICATION,
        name="message",
        protocol="comet",
        id=frame.msg_id,
        payload=frame.content,
        type=frame.msg_type,
        at_ms=frame.ts,
    )


def notification(message: Common) -> frames.Message:
    """Return the frame of a notification."""
    return frames.Message(message.type, message.id, content_of(message), message.at_ms)


def _client_frame(message: Common) -> frames.CometFrame:  # noqa: PLR0911 (one return a frame)
    match control_op(message):
        case Op.LOGIN:
            if message.credentials is None:
                raise TranslationError("a login without credentials")
            return frames.Auth(message.credentials.user, message.credentials.token)
        case Op.TOPICS:
            return frames.GetTopicList()
        case Op.SUBSCRIBE:
            return frames.Subscribe(tuple(message.fields["topics"]))
        case Op.UNSUBSCRIBE:
            return frames.Unsubscribe(tuple(message.fields["topics"]))
        case Op.BACKLOG:
            return frames.GetMessageList()
        case Op.PING:
            return frames.Heartbeat()
        case Op.ACK:
            return frames.MessageAck(tuple(message.fields["ids"]))
    if message.name == EXCHANGE_KEY:
        return frames.ExchangeKey(message.payload)
    if message.name == REPORT_ENVIRON:
        given = message.fields
        return frames.ReportEnviron(given["network_type"], given["isp"], given["phone_type"], tuple(given["extra"]))
    raise TranslationError(f"a comet client has no frame for a {message.kind}")


def _server_frame(message: Common) -> frames.CometFrame:
    if message.kind is Kind.NOTIFICATION:
        return notification(message)
    if message.kind is not Kind.RESPONSE:
        raise TranslationError(f"a comet server has no frame for a {message.kind}")
    if message.failure is not None:
        is_known = message.protocol == "comet" or message.failure.code in ERROR_NAMES
        return frames.Error(message.failure.code if is_known else ErrorCode.SERVER_ERROR, message.failure.text)
    if message.name == AUTH_SUCCESS:
        return frames.AuthSuccess(message.payload)
    if message.name == "message_list" or message.parts:
        return frames.MessageList(tuple(notification(part) for part in message.parts))
    if "topics" in message.fields:
        return frames.TopicList(tuple(message.fields["topics"]))
    if message.fields or message.payload:
        raise TranslationError("a comet answer carries no fields and no payload")
    return frames.Ok()


def _response(frame: frames.CometFrame, **rest: Any) -> Common:
    return Common(kind=Kind.RESPONSE, name=frame.name, protocol="comet", **rest)


_TO: dict[type[Frame], Callable[[Any], Common]] = {
    frames.Auth: lambda f: _control(f, Op.LOGIN, credentials=Credentials(f.client_id, f.token)),
    frames.ExchangeKey: lambda f: Common(kind=Kind.CONTROL, name=f.name, protocol="comet", payload=f.secret_key),
    frames.GetTopicList: lambda f: _control(f, Op.TOPICS),
    frames.Subscribe: lambda f: _control(f, Op.SUBSCRIBE, fields={"topics": list(f.topics)}),
    frames.Unsubscribe: lambda f: _control(f, Op.UNSUBSCRIBE, fields={"topics": list(f.topics)}),
    frames.GetMessageList: lambda f: _control(f, Op.BACKLOG),
    frames.Heartbeat: lambda f: _control(f, Op.PING),
    frames.MessageAck: lambda f: _control(f, Op.ACK, fields={"ids": list(f.msg_ids)}),
    frames.ReportEnviron: lambda f: Common(
        kind=Kind.EVENT,
        name=f.name,
        protocol="comet",
        fields={
            "network_type": f.network_type,
            "isp": f.isp,
            "phone_type": f.phone_type,
            "extra": list(f.extra),
        },
    ),
    frames.Ok: lambda f: _response(f),
    frames.Error: lambda f: _response(f, failure=Failure(f.reason, f.code)),
    frames.AuthSuccess: lambda f: _response(f, payload=f.encrypt_key),
    frames.TopicList: lambda f: _response(f, fields={"topics": list(f.topics)}),
    frames.MessageList: lambda f: _response(f, parts=tuple(_notified(each) for each in f.messages)),
    frames.Message: _notified,
}


def _control(frame: frames.CometFrame, op: Op, **rest: Any) -> Common:
    return control(op, name=frame.name, protocol="comet", **rest)


LOSSES = (
    Loss(
        "a notification's topic",
        "is not on the wire: the client knows what it subscribed to",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", payload=b"hi"),
        Common(kind=Kind.NOTIFICATION, name="message", protocol="comet", id="7", payload=b"hi"),
    ),
    Loss(
        "headers and source",
        "are left out",
        Common(kind=Kind.NOTIFICATION, id="7", source="erp", headers={"lang": "de"}, payload=b"hi"),
        Common(kind=Kind.NOTIFICATION, name="message", protocol="comet", id="7", payload=b"hi"),
    ),
    Loss(
        "fields without payload",
        "become JSON in the content",
        Common(kind=Kind.NOTIFICATION, id="7", fields={"a": 1}),
        Common(kind=Kind.NOTIFICATION, name="message", protocol="comet", id="7", payload=b'{"a":1}'),
    ),
    Loss(
        "fields and payload together",
        "are refused",
        Common(kind=Kind.NOTIFICATION, id="7", fields={"a": 1}, payload=b"hi"),
        None,
    ),
    Loss(
        "an error code that comet does not know",
        "becomes 3, server error; the text stays",
        Common(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Common(kind=Kind.RESPONSE, name="error", protocol="comet", failure=Failure("no such thing", 3)),
    ),
    Loss(
        "requests to services, telemetry",
        "are refused: comet clients send requests to the gateway only",
        Common(kind=Kind.REQUEST),
        None,
    ),
    Loss(
        "publishing",
        "is refused: comet clients cannot publish",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), payload=b"hi"),
        None,
        Sender.CLIENT,
    ),
)
