"""Translate between sisnet frames and common messages, by way of `Request` and `Answer`.

The name of a message becomes the correlation, so that requests and answers in the log pair up as on the wire.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from wirelake.errors import EncodeError, TranslationError
from wirelake.message import (
    GATEWAY_SERVICE,
    LAYOUT,
    ROWS,
    Credentials,
    Device,
    Failure,
    FailureCode,
    Kind,
    Message,
    Op,
    Operation,
    Topic,
    content_of,
    control,
    control_op,
)
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.sisnet.answer import Answer, read_answer, type_of, write_answer
from wirelake.protocols.sisnet.binary import BinaryAnswer
from wirelake.protocols.sisnet.constants import Ans, Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis
from wirelake.protocols.sisnet.request import (
    DEFAULT_SERVICE,
    REDIS_SERVICE,
    Request,
    headers_for_keys,
    read_request,
    read_value,
    write_binary_request,
    write_json_request,
)
from wirelake.protocols.text import from_base64, word_of, write_json
from wirelake.protocols.translation import Loss

ANS = "sisnet.ans"  # header: the type of an empty answer, which its value does not show
PUBLISH_COMMAND = "publish"  # the `command` of an answer that is a notification of a topic
_EMPTY: Mapping[int, Any] = {Ans.ARRAY.value: [], Ans.ARRAY_2D.value: [], Ans.OBJECT.value: {}}
_OPS = {op.value: op for op in Op}
_OF_THE_CONNECTION = frozenset({Op.LOGIN.value, Op.LOGOUT.value, Op.PING.value, LAYOUT})  # not of a service

Encodable = TypeVar("Encodable", bound=Frame)


def to_message(frame: Frame, sender: Sender) -> Message:
    """Return the common message of a frame."""
    frame = cast(SisnetFrame, frame)
    if is_request(frame, sender):
        return request_to_message(read_request(frame), frame)
    return answer_to_message(read_answer(frame), frame)


def from_message(message: Message, sender: Sender) -> SisnetFrame:
    """Return the frame with which `sender` sends this message: JSON, or a data line for packed records."""
    if message.kind is Kind.RESPONSE:
        return write_checked(lambda: write_answer(answer_from_message(message), message.correlation))
    if message.kind is Kind.NOTIFICATION and sender is Sender.SERVER:
        return write_checked(lambda: write_answer(notification_to_answer(message), message.correlation))
    return request_from_message(message, message.correlation)


def is_request(frame: SisnetFrame, sender: Sender) -> bool:
    """Return whether a frame is a request; else it is an answer."""
    if isinstance(frame, Json):
        return frame.is_request
    if isinstance(frame, Http | Redis):
        return sender is Sender.CLIENT
    return not isinstance(frame, BinaryAnswer)


def gateway_command(request: Request) -> str:
    """Return the command of a request to the gateway itself; "" for one to a service."""
    if request.service == GATEWAY_SERVICE and request.command in _OPS:
        return request.command
    ours = request.service in {"", GATEWAY_SERVICE} and request.command in _OF_THE_CONNECTION
    return request.command if ours else ""


def request_to_message(request: Request, frame: SisnetFrame) -> Message:
    common: dict[str, Any] = {"name": frame.name, "protocol": "sisnet", "correlation": frame.message_name}
    headers = dict(request.headers)
    if request.fmt:
        headers["fmt"] = request.fmt
    fields, payload = _contents(request)
    command = gateway_command(request)
    if command == LAYOUT:
        return Message(kind=Kind.CONTROL, fields=fields, headers=headers, **(common | {"name": LAYOUT}))
    if command == Op.PUBLISH:
        return _publication(fields, payload, headers, common)
    if command:
        return _control(_OPS[command], fields, payload, headers, common)
    service = request.service or DEFAULT_SERVICE
    target = Operation(service, request.command, word_of(headers.pop("object", "")))
    return Message(kind=Kind.REQUEST, target=target, fields=fields, payload=payload, headers=headers, **common)


def answer_to_message(answer: Answer, frame: SisnetFrame) -> Message:
    common: dict[str, Any] = {"name": frame.name, "protocol": "sisnet", "correlation": frame.message_name}
    if answer.headers.get("command") == PUBLISH_COMMAND and isinstance(answer.msg, dict):
        return _notification(answer.msg, common)
    failure = Failure(word_of(answer.msg), answer.ans) if answer.ans < 0 else None
    fields: dict[str, Any] = {}
    if failure is None and answer.msg is not None:
        fields = answer.msg if isinstance(answer.msg, dict) else {"msg": answer.msg}
    headers = answer.headers
    if answer.dialect is Dialect.NEW and answer.msg in ({}, []) and answer.ans in (Ans.ARRAY_2D, Ans.OBJECT):
        headers = {**headers, ANS: answer.ans}
    return Message(
        kind=Kind.RESPONSE,
        failure=failure,
        fields=fields,
        payload=answer.payload,
        headers=headers,
        more=answer.more,
        **common,
    )


def request_from_message(
    message: Message, name: str, dialect: Dialect = Dialect.NEW, *, binary: bool = False
) -> SisnetFrame:
    """Return the request with this name. Raise TranslationError for a message that is none, or has no service."""
    target = message.target
    if isinstance(target, Operation) and message.payload:
        if target.service == DEFAULT_SERVICE and message.fields.keys() == {"key", "sdb"}:
            line = _data_line(message, target, name)
            if line is not None:
                return line
        if target.service == REDIS_SERVICE and not message.fields:
            return Redis(name, message.payload)
    if binary:
        return write_checked(lambda: write_binary_request(_raw(message, _request(message, dialect)), name))
    return write_checked(lambda: write_json_request(_request(message, dialect), name))


def answer_from_message(message: Message, dialect: Dialect = Dialect.NEW) -> Answer:
    """Return the answer of a response, or of a push of records."""
    headers = headers_for_keys(message.headers)
    if message.failure is not None:
        expired = message.failure.code in {FailureCode.GONE, Ans.EXPIRED}
        ans = Ans.EXPIRED if expired else Ans.FAILED
        return Answer(ans=ans.value, msg=message.failure.text, headers=headers, dialect=dialect)
    if message.payload and not message.fields:
        return Answer(ans=Ans.BYTES.value, payload=message.payload, more=message.more, headers=headers, dialect=dialect)
    msg: Any = message.fields or None
    if message.payload:
        msg = message.fields | {"payload": b64encode(message.payload).decode()}
    elif message.parts:
        msg = [_notification_values(part) for part in message.parts]
    elif message.fields.keys() == {"msg"} and isinstance(message.fields["msg"], str | int | list | tuple):
        value = message.fields["msg"]
        msg = message.fields if isinstance(value, bool) else value
    if not msg and message.headers.get(ROWS):
        return Answer(ans=Ans.ARRAY_2D.value, msg=[], more=message.more, headers=headers, dialect=dialect)
    if not msg and message.headers.get(ANS) in _EMPTY:
        ans = message.headers[ANS]
        return Answer(ans=ans, msg=_EMPTY[ans], more=message.more, headers=headers, dialect=dialect)
    return Answer(ans=type_of(msg), msg=msg, more=message.more, headers=headers, dialect=dialect)


def notification_to_answer(message: Message, dialect: Dialect = Dialect.NEW) -> Answer:
    values = _notification_values(message)
    return Answer(ans=Ans.OBJECT.value, msg=values, headers={"command": PUBLISH_COMMAND}, dialect=dialect)


def write_checked(write: Callable[[], Encodable]) -> Encodable:
    """Return the result of `write`. Raise TranslationError if JSON cannot express a value."""
    try:
        return write()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TranslationError(f"a value that JSON cannot hold: {error}") from error


def _contents(request: Request) -> tuple[dict[str, Any], bytes]:
    """Return the fields and the payload of a request."""
    ask = request.ask
    if ask is None:
        return {}, request.payload
    if not isinstance(ask, dict):
        return {"msg": ask}, request.payload
    payload = from_base64(ask.get("payload"))
    if payload is None or request.payload:
        return ask, request.payload
    return {key: value for key, value in ask.items() if key != "payload"}, payload


def _control(
    op: Op, fields: dict[str, Any], payload: bytes, headers: dict[str, Any], common: dict[str, Any]
) -> Message:
    credentials = None
    if op is Op.LOGIN:
        user = fields.get("name", fields.get("username"))
        credentials = Credentials(word_of(user), word_of(fields.get("password")))
        fields = {key: value for key, value in fields.items() if key not in {"name", "username", "password"}}
    elif op in {Op.SUBSCRIBE, Op.UNSUBSCRIBE}:
        fields = {"topics": _topics(fields)}
    return control(op, credentials=credentials, fields=fields, payload=payload, headers=headers, **common)


def _topics(fields: dict[str, Any]) -> list[str]:
    given = fields.get("topic", fields.get("topics"))
    if given is None:
        return []
    return [word_of(topic) for topic in given] if isinstance(given, list) else [word_of(given)]


def _publication(fields: dict[str, Any], payload: bytes, headers: dict[str, Any], common: dict[str, Any]) -> Message:
    beside = {key: value for key, value in fields.items() if key not in {"topic", "type", "content", "encoding"}}
    return Message(
        kind=Kind.NOTIFICATION,
        target=Topic(word_of(fields.get("topic"))),
        type=_integer(fields.get("type")),
        payload=_content(fields) or payload,
        headers=headers | beside,
        **common,
    )


def _notification(values: dict[str, Any], common: dict[str, Any]) -> Message:
    topic = word_of(values.get("topic"))
    return Message(
        kind=Kind.NOTIFICATION,
        target=Topic(topic) if topic else None,
        id=word_of(values.get("id")),
        type=_integer(values.get("type")),
        at_ms=_integer(values.get("ts")),
        payload=_content(values),
        **common,
    )


def _notification_values(message: Message) -> dict[str, Any]:
    topic = message.target.name if isinstance(message.target, Topic) else ""
    values = {"topic": topic, "id": message.id, "type": message.type, "ts": message.at_ms}
    return values | _content_values(content_of(message))


def _content(fields: dict[str, Any]) -> bytes:
    content = fields.get("content")
    if content is None:
        return b""
    if not isinstance(content, str):
        return write_json(content)
    packed = from_base64(content) if fields.get("encoding") == "base64" else None
    return content.encode() if packed is None else packed


def _content_values(content: bytes) -> dict[str, Any]:
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content": b64encode(content).decode(), "encoding": "base64"}


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _data_line(message: Message, target: Operation, name: str) -> DataLine | None:
    """Return a data line; None if the key or the table cannot be in one."""
    key, sdb = message.fields["key"], message.fields["sdb"]
    if not isinstance(key, str) or not isinstance(sdb, str) or target.object:
        return None
    try:
        DataLine(name, target.op, key, sdb, b"").encode()
    except EncodeError:
        return None
    return DataLine(name, target.op, key, sdb, message.payload)


def _request(message: Message, dialect: Dialect) -> Request:
    op = control_op(message)
    target = message.target
    fmt = word_of(message.headers.get("fmt"))
    headers = headers_for_keys(message.headers)
    if op is not None:
        service = "" if op in _OF_THE_CONNECTION - {Op.PING} else GATEWAY_SERVICE
        ask = _control_ask(op, message)
        return Request(service=service, command=op.value, ask=ask, fmt=fmt, headers=headers, dialect=dialect)
    if message.kind is Kind.CONTROL and message.name == LAYOUT:
        return Request(command=LAYOUT, ask=message.fields, fmt=fmt, headers=headers, dialect=dialect)
    if message.kind is Kind.NOTIFICATION and isinstance(target, Topic):
        ask = {"topic": target.name, **({"type": message.type} if message.type else {})}
        ask |= _content_values(content_of(message))
        return Request(service=GATEWAY_SERVICE, command=PUBLISH_COMMAND, ask=ask, headers=headers, dialect=dialect)
    if message.kind not in {Kind.REQUEST, Kind.EVENT} or not isinstance(target, Operation):
        raise TranslationError(f"sisnet has no message for a {message.kind} that is not to a service")
    if target.object:
        headers["object"] = target.object
    return Request(
        service=target.service, command=target.op, ask=_ask(message), fmt=fmt, headers=headers, dialect=dialect
    )


def _raw(message: Message, request: Request) -> Request:
    """Return the request with its payload as bytes, unless that could be mistaken for JSON."""
    bare = message.kind in {Kind.REQUEST, Kind.EVENT} and not message.fields
    if not bare or read_value(message.payload)[0] is not None:
        return request
    return replace(request, ask=None, payload=message.payload)


def _control_ask(op: Op, message: Message) -> Any:
    if op is Op.LOGIN:
        if message.credentials is None:
            raise TranslationError("a login without credentials")
        return message.fields | {"name": message.credentials.user, "password": message.credentials.token}
    if op in {Op.SUBSCRIBE, Op.UNSUBSCRIBE}:
        topics = list(message.fields.get("topics", ()))
        return {"topic": topics[0] if len(topics) == 1 else topics}
    return _ask(message)


def _ask(message: Message) -> Any:
    if message.payload:
        return message.fields | {"payload": b64encode(message.payload).decode()}
    if message.fields.keys() == {"msg"} and not isinstance(message.fields["msg"], dict | None):
        return message.fields["msg"]
    return message.fields or None


# ── what sisnet cannot express

_ADD = Operation("calc", "add")

LOSSES = (
    Loss(
        "a notification's source and headers",
        "are left out",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", source="erp", headers={"a": 1}, payload=b"hi"),
        Message(kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), id="7", payload=b"hi"),
    ),
    Loss(
        "a notification's fields, without payload",
        "become JSON in the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", fields={"a": 1}),
        Message(
            kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), id="7", payload=b'{"a":1}'
        ),
    ),
    Loss(
        "a notification's fields and payload together",
        "are refused",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"a": 1}, payload=b"hi"),
        None,
    ),
    Loss(
        "an answer's fields and payload together",
        "the payload becomes base64 in a field of that name",
        Message(kind=Kind.RESPONSE, fields={"a": 1}, payload=b"hi"),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", fields={"a": 1, "payload": "aGk="}),
    ),
    Loss(
        "a list of notifications",
        "becomes an array of objects in one field",
        Message(kind=Kind.RESPONSE, parts=(Message(kind=Kind.NOTIFICATION, id="7", payload=b"hi"),)),
        Message(
            kind=Kind.RESPONSE,
            name="json",
            protocol="sisnet",
            fields={"msg": [{"topic": "", "id": "7", "type": 0, "ts": 0, "content": "hi"}]},
        ),
    ),
    Loss(
        "an error code other than -100",
        "becomes -1; the text stays",
        Message(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", failure=Failure("no such thing", -1)),
    ),
    Loss(
        "bytes among the fields",
        "become base64 text",
        Message(kind=Kind.REQUEST, target=_ADD, fields={"a": b"hi"}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, fields={"a": "aGk="}),
    ),
    Loss(
        "a float that is infinite or not a number",
        "becomes null",
        Message(kind=Kind.RESPONSE, fields={"a": math.inf}),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", fields={"a": None}),
    ),
    Loss(
        "a request's field called payload that holds base64",
        "becomes the payload",
        Message(kind=Kind.REQUEST, target=_ADD, fields={"payload": "aGk="}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, payload=b"hi"),
    ),
    Loss(
        "the host and group of an address",
        "are left out; service, operation and object cross",
        Message(kind=Kind.REQUEST, target=Operation("calc", "add", "x", host="h", group="g")),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=Operation("calc", "add", "x")),
    ),
    Loss(
        "a header that is called like one of sisnet's own keys",
        "is left out",
        Message(kind=Kind.REQUEST, target=_ADD, headers={"ask": 1, "lang": "de"}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, headers={"lang": "de"}),
    ),
    Loss(
        "an event for a service",
        "becomes a request under an empty name; its answer is ignored",
        Message(kind=Kind.EVENT, target=_ADD, fields={"a": 1}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, fields={"a": 1}),
    ),
    Loss(
        "telemetry, and requests to devices",
        "are refused: sisnet has requests to services only",
        Message(kind=Kind.TELEMETRY, target=Device("1234"), fields={"a": 1}),
        None,
    ),
    Loss(
        "a publication's source",
        "is left out: the gateway knows who is logged in",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), source="erp", payload=b"hi"),
        Message(kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), payload=b"hi"),
        Sender.CLIENT,
    ),
)
