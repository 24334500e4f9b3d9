"""sisnet frames ⇄ common messages. The frames' views, `Request` and `Answer`, stand in between.

The message's name becomes the correlation, so that questions and answers in the log pair up as they did on the wire.
"""

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
from wirelake.protocols.jsontext import write_json
from wirelake.protocols.sisnet.answer import Answer, read_answer, type_of, write_answer
from wirelake.protocols.sisnet.binary_form import BinaryAnswer
from wirelake.protocols.sisnet.data_line import DataLine
from wirelake.protocols.sisnet.foreign import Http, Redis
from wirelake.protocols.sisnet.json_form import Json
from wirelake.protocols.sisnet.names import SisnetFrame
from wirelake.protocols.sisnet.opcodes import Ans, Dialect
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
from wirelake.protocols.texts import from_base64, word_of

ANS = "sisnet.ans"  # header: the type of an empty answer, which its value does not tell
PUSHED = "publish"  # the `command` of an answer that is a topic's notification
_EMPTY: Mapping[int, Any] = {Ans.ARRAY.value: [], Ans.ARRAY_2D.value: [], Ans.OBJECT.value: {}}
_OPS = {op.value: op for op in Op}
_OF_THE_CONNECTION = frozenset({Op.LOGIN.value, Op.LOGOUT.value, Op.PING.value, LAYOUT})  # asked of no service

Written = TypeVar("Written", bound=Frame)


def to_message(frame: Frame, sender: Sender) -> Message:
    frame = cast(SisnetFrame, frame)
    if is_request(frame, sender):
        return request_to_message(read_request(frame), frame)
    return answer_to_message(read_answer(frame), frame)


def from_message(message: Message, sender: Sender) -> SisnetFrame:
    """The frame with which `sender` says this: JSON, or a data line for records that are packed."""
    if message.kind is Kind.RESPONSE:
        return written(lambda: write_answer(answer_from_message(message), message.correlation))
    if message.kind is Kind.NOTIFICATION and sender is Sender.SERVER:
        return written(lambda: write_answer(notification_to_answer(message), message.correlation))
    return request_from_message(message, message.correlation)


def is_request(frame: SisnetFrame, sender: Sender) -> bool:
    if isinstance(frame, Json):
        return frame.is_request
    if isinstance(frame, Http | Redis):
        return sender is Sender.CLIENT
    return not isinstance(frame, BinaryAnswer)


def gateway_command(request: Request) -> str:
    """Which command of the gateway itself this is; empty for one of a service."""
    if request.service == GATEWAY_SERVICE and request.command in _OPS:
        return request.command
    ours = request.service in {"", GATEWAY_SERVICE} and request.command in _OF_THE_CONNECTION
    return request.command if ours else ""


def request_to_message(request: Request, frame: SisnetFrame) -> Message:
    about: dict[str, Any] = {"name": frame.name, "protocol": "sisnet", "correlation": frame.message_name}
    headers = dict(request.headers)
    if request.fmt:
        headers["fmt"] = request.fmt
    fields, payload = _contents(request)
    command = gateway_command(request)
    if command == LAYOUT:
        return Message(kind=Kind.CONTROL, fields=fields, headers=headers, **(about | {"name": LAYOUT}))
    if command == Op.PUBLISH:
        return _publication(fields, payload, headers, about)
    if command:
        return _control(_OPS[command], fields, payload, headers, about)
    service = request.service or DEFAULT_SERVICE
    target = Operation(service, request.command, word_of(headers.pop("object", "")))
    return Message(kind=Kind.REQUEST, target=target, fields=fields, payload=payload, headers=headers, **about)


def answer_to_message(answer: Answer, frame: SisnetFrame) -> Message:
    about: dict[str, Any] = {"name": frame.name, "protocol": "sisnet", "correlation": frame.message_name}
    if answer.headers.get("command") == PUSHED and isinstance(answer.msg, dict):
        return _notification(answer.msg, about)
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
        **about,
    )


def request_from_message(
    message: Message, name: str, dialect: Dialect = Dialect.NEW, *, binary: bool = False
) -> SisnetFrame:
    """The request under this name. Raises TranslationError for what is none, or goes to no service."""
    target = message.target
    if isinstance(target, Operation) and message.payload:
        if target.service == DEFAULT_SERVICE and message.fields.keys() == {"key", "sdb"}:
            line = _data_line(message, target, name)
            if line is not None:
                return line
        if target.service == REDIS_SERVICE and not message.fields:
            return Redis(name, message.payload)
    if binary:
        return written(lambda: write_binary_request(_raw(message, _request(message, dialect)), name))
    return written(lambda: write_json_request(_request(message, dialect), name))


def answer_from_message(message: Message, dialect: Dialect = Dialect.NEW) -> Answer:
    """What a response says, or a push of records for whoever subscribed to them."""
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
    return Answer(ans=Ans.OBJECT.value, msg=values, headers={"command": PUSHED}, dialect=dialect)


def written(write: Callable[[], Written]) -> Written:
    """What `write` makes, or the reason why JSON cannot hold a value in it."""
    try:
        return write()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TranslationError(f"a value that JSON cannot hold: {error}") from error


def _contents(request: Request) -> tuple[dict[str, Any], bytes]:
    """The fields and the payload of a request."""
    ask = request.ask
    if ask is None:
        return {}, request.payload
    if not isinstance(ask, dict):
        return {"msg": ask}, request.payload
    payload = from_base64(ask.get("payload"))
    if payload is None or request.payload:
        return ask, request.payload
    return {key: value for key, value in ask.items() if key != "payload"}, payload


def _control(op: Op, fields: dict[str, Any], payload: bytes, headers: dict[str, Any], about: dict[str, Any]) -> Message:
    credentials = None
    if op is Op.LOGIN:
        user = fields.get("name", fields.get("username"))
        credentials = Credentials(word_of(user), word_of(fields.get("password")))
        fields = {key: value for key, value in fields.items() if key not in {"name", "username", "password"}}
    elif op in {Op.SUBSCRIBE, Op.UNSUBSCRIBE}:
        fields = {"topics": _topics(fields)}
    return control(op, credentials=credentials, fields=fields, payload=payload, headers=headers, **about)


def _topics(fields: dict[str, Any]) -> list[str]:
    given = fields.get("topic", fields.get("topics"))
    if given is None:
        return []
    return [word_of(topic) for topic in given] if isinstance(given, list) else [word_of(given)]


def _publication(fields: dict[str, Any], payload: bytes, headers: dict[str, Any], about: dict[str, Any]) -> Message:
    beside = {key: value for key, value in fields.items() if key not in {"topic", "type", "content", "encoding"}}
    return Message(
        kind=Kind.NOTIFICATION,
        target=Topic(word_of(fields.get("topic"))),
        type=_whole(fields.get("type")),
        payload=_content(fields) or payload,
        headers=headers | beside,
        **about,
    )


def _notification(values: dict[str, Any], about: dict[str, Any]) -> Message:
    topic = word_of(values.get("topic"))
    return Message(
        kind=Kind.NOTIFICATION,
        target=Topic(topic) if topic else None,
        id=word_of(values.get("id")),
        type=_whole(values.get("type")),
        at_ms=_whole(values.get("ts")),
        payload=_content(values),
        **about,
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


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _data_line(message: Message, target: Operation, name: str) -> DataLine | None:
    """Records of one key and table, unless their names have no place in a data line."""
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
        return Request(service=GATEWAY_SERVICE, command=PUSHED, ask=ask, headers=headers, dialect=dialect)
    if message.kind not in {Kind.REQUEST, Kind.EVENT} or not isinstance(target, Operation):
        raise TranslationError(f"sisnet has no way to say a {message.kind} that asks no service")
    if target.object:
        headers["object"] = target.object
    return Request(
        service=target.service, command=target.op, ask=_ask(message), fmt=fmt, headers=headers, dialect=dialect
    )


def _raw(message: Message, request: Request) -> Request:
    """With the payload as bytes, where it cannot be taken for JSON."""
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
