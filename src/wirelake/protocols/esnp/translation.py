"""esnp messages as common messages; `writing.py` goes the other way.

DATA lines are the fields, PAYLOAD lines the payload, ADDRESS lines the operation, HEADER lines the headers. A HEADER
`to` is the header `timeout_ms`. What only esnp has is kept under names of its own, so that it is still there when the
message goes on to another esnp peer:

esnp.flags    flags that the message's kind does not say already: trace, async, the application's
esnp.session  SESSION_INFO lines, name → value
esnp.source   SOURCE_ADDRESS lines, [kind, text] each
esnp.seq_no   SEQ_NO, [current, last]
esnp.lines    lines that are not ours to read, passed on untouched, [type, bytes] each
esnp.body     SESSION_INFO, HEADER, DATA and PAYLOAD lines as they came, [type, bytes] each: only between two sessions,
              where the gateway passes a request or an answer on. They then stand for the values read from them.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast

from msgspec.structs import replace

from wirelake.message import GATEWAY_SERVICE, TRACE, Credentials, Failure, Kind, Op, Topic, control
from wirelake.message import Message as Common
from wirelake.protocols.esnp.contents import OBJECT, OP, PASSED, SERVICE, Contents, read_contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.opcodes import Flag
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.jsontext import write_json

PROTOCOL_NAME = "esnp"
_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT = range(Flag.TRACE_INFO, Flag.EVENT + 1)
_SAID_BY_KIND = frozenset({_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT})


class Role(StrEnum):
    """What a message is for, as its flags and addresses say."""

    RESPONSE = "response"
    TRACE = "trace"
    NOTIFICATION = "notification"
    ONE_WAY = "one-way"
    GATEWAY = "gateway"  # a request to the service `wirelake`
    REQUEST = "request"


def to_message(frame: Frame, sender: Sender) -> Common:
    """Total: a message with a malformed line becomes one with a failure that says so."""
    return message_of(read_contents(cast(EsnpMessage, frame)), sender)


def role_of(contents: Contents, sender: Sender) -> Role:
    """A message without any flag is a request: to answer one too many is better than to leave somebody waiting."""
    flags, addresses = contents.flags, contents.addresses
    service = addresses.get(SERVICE, "")
    if _RESP in flags:
        return Role.RESPONSE
    if _TRACE_INFO in flags:
        return Role.TRACE
    if service == GATEWAY_SERVICE:
        return Role.GATEWAY
    if not is_one_way(contents):
        return Role.REQUEST
    pushed = sender is Sender.SERVER and _EVENT in flags and not service and OBJECT in addresses
    return Role.NOTIFICATION if pushed else Role.ONE_WAY


def is_one_way(contents: Contents) -> bool:
    """Nobody waits for an answer to this: an event, or an info without a number that an answer could bear."""
    flags = contents.flags
    if _REQUEST in flags or (_INFO in flags and contents.message_id is not None):
        return False
    return _INFO in flags or _EVENT in flags


def with_lines(message: Common, contents: Contents) -> Common:
    """The message with its body lines as they came, for an esnp peer at the other end of its way."""
    if not contents.passed:
        return message
    passed = [[line.type, line.data] for line in contents.passed]
    return replace(message, headers={**message.headers, PASSED: passed})


def message_of(contents: Contents, sender: Sender) -> Common:
    return _TO[role_of(contents, sender)](contents)


def _response(contents: Contents) -> Common:
    seq_no = contents.seq_no
    return Common(
        kind=Kind.RESPONSE,
        name="response",
        correlation=_text(contents.source_message_id),
        target=contents.operation,
        fields=dict(contents.data),
        payload=contents.payload,
        more=0 if seq_no is None or contents.malformed is not None else seq_no.more,
        **_about(contents),
    )


def _trace(contents: Contents) -> Common:
    return Common(
        kind=Kind.EVENT,
        name=TRACE,
        correlation=_text(contents.source_message_id),
        target=contents.operation,
        fields=dict(contents.data),
        payload=contents.payload,
        **_about(contents),
    )


def _one_way(contents: Contents) -> Common:
    return Common(
        kind=Kind.EVENT,
        name="info" if _INFO in contents.flags else "event",
        correlation=_text(contents.message_id),
        target=contents.operation,
        fields=dict(contents.data),
        payload=contents.payload,
        **_about(contents),
    )


def _request(contents: Contents) -> Common:
    return Common(
        kind=Kind.REQUEST,
        name="request" if _REQUEST in contents.flags or _INFO not in contents.flags else "info",
        correlation=_text(contents.message_id),
        target=contents.operation,
        fields=dict(contents.data),
        payload=contents.payload,
        **_about(contents),
    )


def _notification(contents: Contents) -> Common:
    fields = dict(contents.data)
    return Common(
        kind=Kind.NOTIFICATION,
        name="notification",
        target=Topic(contents.addresses[OBJECT]),
        id=_take(fields, "id", str) or "",
        type=_take(fields, "type", int) or 0,
        at_ms=_take(fields, "ts", int) or 0,
        fields=fields,
        payload=contents.payload,
        **_about(contents),
    )


def _gateway(contents: Contents) -> Common:
    make = _TO_CONTROL.get(contents.addresses.get(OP, ""))
    if make is not None:
        return make(contents)
    return Common(
        kind=Kind.CONTROL,
        name=contents.addresses.get(OP, ""),
        correlation=_text(contents.message_id),
        target=contents.operation,
        fields=dict(contents.data),
        payload=contents.payload,
        **_about(contents),
    )


def _login(contents: Contents) -> Common:
    given = dict(contents.data)
    user, token = given.get("user"), given.get("token")
    credentials = Credentials(user if isinstance(user, str) else "", token if isinstance(token, str) else "")
    return _control(contents, Op.LOGIN, credentials=credentials)


def _topics(op: Op) -> Callable[[Contents], Common]:
    def make(contents: Contents) -> Common:
        topics = [value for name, value in contents.data if name == "topic" and isinstance(value, str)]
        return _control(contents, op, fields={"topics": topics})

    return make


def _service(op: Op) -> Callable[[Contents], Common]:
    def make(contents: Contents) -> Common:
        given = dict(contents.data)
        service, group = given.get("service"), given.get("group")
        fields = {"service": service if isinstance(service, str) else ""}
        return _control(contents, op, fields=fields if group is None else {**fields, "group": group})

    return make


def _publish(contents: Contents) -> Common:
    """The content is the payload, or else DATA `content`."""
    fields = dict(contents.data)
    payload = contents.payload
    if not contents.payloads and "content" in fields:
        payload = _content(fields.pop("content"))
    return Common(
        kind=Kind.NOTIFICATION,
        name=Op.PUBLISH.value,
        correlation=_text(contents.message_id),
        target=Topic(_take(fields, "topic", str) or ""),
        type=_take(fields, "type", int) or 0,
        at_ms=_take(fields, "ts", int) or 0,
        fields=fields,
        payload=payload,
        **_about(contents),
    )


def _control(contents: Contents, op: Op, **rest: Any) -> Common:
    return control(op, name=op.value, correlation=_text(contents.message_id), **_about(contents), **rest)


def _about(contents: Contents) -> dict[str, Any]:
    """What every message has, whatever it is for."""
    headers = contents.headers
    flags = [flag for flag in contents.flags if flag not in _SAID_BY_KIND]
    if flags:
        headers["esnp.flags"] = flags
    if contents.session:
        headers["esnp.session"] = contents.session
    if contents.sources:
        headers["esnp.source"] = [list(source) for source in contents.sources]
    if contents.seq_no is not None:
        headers["esnp.seq_no"] = [contents.seq_no.current, contents.seq_no.last]
    if contents.kept:
        headers["esnp.lines"] = [[line.type, line.data] for line in contents.kept]
    failure = None
    if contents.malformed is not None:
        failure = Failure(f"malformed: {contents.malformed}")
    elif contents.error is not None:
        failure = Failure(contents.error)
    return {"protocol": PROTOCOL_NAME, "headers": headers, "failure": failure}


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _take(fields: dict[str, Any], name: str, kind: type) -> Any:
    """The field of that name, moved out of the fields if it is what it should be."""
    return fields.pop(name) if type(fields.get(name)) is kind else None


def _content(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else write_json(value)


_TO: dict[Role, Callable[[Contents], Common]] = {
    Role.RESPONSE: _response,
    Role.TRACE: _trace,
    Role.NOTIFICATION: _notification,
    Role.ONE_WAY: _one_way,
    Role.GATEWAY: _gateway,
    Role.REQUEST: _request,
}
_TO_CONTROL: dict[str, Callable[[Contents], Common]] = {
    Op.LOGIN.value: _login,
    Op.PING.value: lambda contents: _control(contents, Op.PING),
    Op.SUBSCRIBE.value: _topics(Op.SUBSCRIBE),
    Op.UNSUBSCRIBE.value: _topics(Op.UNSUBSCRIBE),
    Op.REGISTER.value: _service(Op.REGISTER),
    Op.UNREGISTER.value: _service(Op.UNREGISTER),
    Op.PUBLISH.value: _publish,
}
