"""Translate between comet frames and common messages."""

from wirelake.errors import TranslationError
from wirelake.layout import MessageRule, MessageRules
from wirelake.message import Failure, FailureCode, Kind, Op, Topic, content_of, control_op
from wirelake.message import Message as Common
from wirelake.protocols.comet import frames
from wirelake.protocols.comet.constants import ERROR_NAMES, ErrorCode
from wirelake.protocols.frame import Sender
from wirelake.protocols.translation import Loss

EXCHANGE_KEY = "exchange_key"
AUTH_SUCCESS = "auth_success"
REPORT_ENVIRON = "report_environ"
_FAILURE_CODES = {int(FailureCode.ACCESS_DENIED): int(ErrorCode.ACCESS_DENIED)}


RULES = MessageRules(
    "comet",
    {
        frames.Auth: MessageRule(Kind.CONTROL, Op.LOGIN, credentials=("client_id", "token")),
        frames.ExchangeKey: MessageRule(Kind.CONTROL, payload="secret_key"),
        frames.GetTopicList: MessageRule(Kind.CONTROL, Op.TOPICS),
        frames.Subscribe: MessageRule(Kind.CONTROL, Op.SUBSCRIBE),
        frames.Unsubscribe: MessageRule(Kind.CONTROL, Op.UNSUBSCRIBE),
        frames.GetMessageList: MessageRule(Kind.CONTROL, Op.BACKLOG),
        frames.Heartbeat: MessageRule(Kind.CONTROL, Op.PING),
        frames.MessageAck: MessageRule(Kind.CONTROL, Op.ACK, fields={"ids": "msg_ids"}),
        frames.ReportEnviron: MessageRule(Kind.EVENT),
        frames.Ok: MessageRule(Kind.RESPONSE),
        frames.Error: MessageRule(Kind.RESPONSE, failure=("reason", "code")),
        frames.AuthSuccess: MessageRule(Kind.RESPONSE, payload="encrypt_key"),
        frames.TopicList: MessageRule(Kind.RESPONSE),
        frames.MessageList: MessageRule(Kind.RESPONSE, parts="messages"),
        frames.Message: MessageRule(Kind.NOTIFICATION, id="msg_id", type="msg_type", at_ms="ts", payload="content"),
    },
)
to_message = RULES.to_message


def from_message(message: Common, sender: Sender) -> frames.CometFrame:
    """Return the frame with which `sender` sends this message. Raise TranslationError if comet has none."""
    return _client_frame(message) if sender is Sender.CLIENT else _server_frame(message)


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
        code = _FAILURE_CODES.get(message.failure.code, message.failure.code)
        is_known = message.protocol == "comet" or code in ERROR_NAMES
        return frames.Error(code if is_known else ErrorCode.SERVER_ERROR, message.failure.text)
    if message.name == AUTH_SUCCESS:
        return frames.AuthSuccess(message.payload)
    if message.name == "message_list" or message.parts:
        return frames.MessageList(tuple(notification(part) for part in message.parts))
    if "topics" in message.fields:
        return frames.TopicList(tuple(message.fields["topics"]))
    if message.fields or message.payload:
        raise TranslationError("a comet answer carries no fields and no payload")
    return frames.Ok()


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
