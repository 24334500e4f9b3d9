"""Translate esnp messages to common messages. `writing.py` has the opposite direction.

DATA lines are the fields, PAYLOAD lines the payload, ADDRESS lines the operation, HEADER lines the headers. A HEADER
`to` is the header `timeout_ms`. What only esnp has is in headers of its own, so that another esnp peer receives it:

esnp.flags    flags that the message's kind does not imply: trace, async, those of applications
esnp.session  SESSION_INFO lines, name → value
esnp.source   SOURCE_ADDRESS lines, [kind, text] each
esnp.seq_no   SEQ_NO, [current, last]
esnp.lines    lines that we do not read, forwarded unchanged, [type, bytes] each
esnp.body     SESSION_INFO, HEADER, DATA and PAYLOAD lines as received, [type, bytes] each: only between two sessions,
              when the gateway forwards a request or an answer. They take precedence over the values read from them.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast

from msgspec.structs import replace

from wirelake.message import GATEWAY_SERVICE, TRACE, Credentials, Device, Failure, Kind, Op, Operation, Topic, control
from wirelake.message import Message as Common
from wirelake.protocols.esnp.constants import Flag
from wirelake.protocols.esnp.contents import BODY_HEADER, OBJECT, OP, SERVICE, Contents, read_contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.text import write_json
from wirelake.protocols.translation import Loss

PROTOCOL_NAME = "esnp"
_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT = range(Flag.TRACE_INFO, Flag.EVENT + 1)
_KIND_FLAGS = frozenset({_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT})


class Role(StrEnum):
    """What a message is for, by its flags and addresses."""

    RESPONSE = "response"
    TRACE = "trace"
    NOTIFICATION = "notification"
    ONE_WAY = "one-way"
    GATEWAY = "gateway"  # a request to the service `wirelake`
    REQUEST = "request"


def to_message(frame: Frame, sender: Sender) -> Common:
    """Return the common message. If a line is malformed, the message has a failure that says so."""
    return message_of(read_contents(cast(EsnpMessage, frame)), sender)


def role_of(contents: Contents, sender: Sender) -> Role:
    """Return what a message is for. One without flags is a request: its sender may wait for an answer."""
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
    """Return whether a message expects no answer: an event, or an info without a number."""
    flags = contents.flags
    if _REQUEST in flags or (_INFO in flags and contents.message_id is not None):
        return False
    return _INFO in flags or _EVENT in flags


def with_raw_body(message: Common, contents: Contents) -> Common:
    """Return the message with its body lines as received, for an esnp peer that receives it."""
    if not contents.raw_body:
        return message
    raw_body = [[line.type, line.data] for line in contents.raw_body]
    return replace(message, headers={**message.headers, BODY_HEADER: raw_body})


def message_of(contents: Contents, sender: Sender) -> Common:
    """Return the common message of contents."""
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
    """Return a notification. Its content is the payload, or else DATA `content`."""
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
    """Return the parts of a common message that do not depend on its kind."""
    headers = contents.headers
    flags = [flag for flag in contents.flags if flag not in _KIND_FLAGS]
    if flags:
        headers["esnp.flags"] = flags
    if contents.session:
        headers["esnp.session"] = contents.session
    if contents.sources:
        headers["esnp.source"] = [list(source) for source in contents.sources]
    if contents.seq_no is not None:
        headers["esnp.seq_no"] = [contents.seq_no.current, contents.seq_no.last]
    if contents.untouched:
        headers["esnp.lines"] = [[line.type, line.data] for line in contents.untouched]
    failure = None
    if contents.malformed is not None:
        failure = Failure(f"malformed: {contents.malformed}")
    elif contents.error is not None:
        failure = Failure(contents.error)
    return {"protocol": PROTOCOL_NAME, "headers": headers, "failure": failure}


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _take(fields: dict[str, Any], name: str, kind: type) -> Any:
    """Remove a field of this type from the fields and return it; None if there is none."""
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


# ── what esnp cannot express

_ADD = Operation("calc", "add")

LOSSES = (
    Loss(
        "an error's code",
        "is left out: esnp has only the text",
        Common(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Common(kind=Kind.RESPONSE, name="response", protocol="esnp", failure=Failure("no such thing")),
    ),
    Loss(
        "a correlation that is not a number",
        "is left out; on a connection the session gives numbers of its own",
        Common(kind=Kind.REQUEST, target=_ADD, correlation="n1"),
        Common(kind=Kind.REQUEST, name="request", protocol="esnp", target=_ADD),
    ),
    Loss(
        "an info's correlation",
        "is left out: with a number it would be a request",
        Common(kind=Kind.EVENT, name="info", correlation="7", fields={"a": 1}),
        Common(kind=Kind.EVENT, name="info", protocol="esnp", fields={"a": 1}),
    ),
    Loss(
        "source; id, type and time of anything but a notification",
        "are left out",
        Common(kind=Kind.REQUEST, target=_ADD, source="erp", id="7", type=1, at_ms=5),
        Common(kind=Kind.REQUEST, name="request", protocol="esnp", target=_ADD),
    ),
    Loss(
        "an event's name",
        "becomes `event`, unless it is `info` or `trace`",
        Common(kind=Kind.EVENT, name="report_environ", fields={"isp": 2}),
        Common(kind=Kind.EVENT, name="event", protocol="esnp", fields={"isp": 2}),
    ),
    Loss(
        "the id of what a client publishes",
        "is left out: the gateway gives one",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", payload=b"hi"),
        Common(kind=Kind.NOTIFICATION, name="publish", protocol="esnp", target=Topic("@news"), payload=b"hi"),
        Sender.CLIENT,
    ),
    Loss(
        "a notification without a topic",
        "is refused",
        Common(kind=Kind.NOTIFICATION, id="7", payload=b"hi"),
        None,
    ),
    Loss(
        "a notification with a field called id, type or ts",
        "is refused: esnp has these for the notification's own",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", fields={"type": "x"}),
        None,
    ),
    Loss(
        "publishing with a field called topic, content, type or ts",
        "is refused: esnp has these for the notification's own",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"content": 1}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "a list of notifications",
        "is refused: they go one by one",
        Common(kind=Kind.RESPONSE, parts=(Common(kind=Kind.NOTIFICATION, id="7"),)),
        None,
    ),
    Loss(
        "acks, topic lists, backlogs, logouts",
        "are refused: the gateway acks for the subscriber, and what waited comes with the subscription",
        control(Op.ACK, fields={"ids": ["7"]}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "requests to the gateway, from the gateway",
        "are refused",
        control(Op.LOGIN, credentials=Credentials("a", "b")),
        None,
    ),
    Loss(
        "telemetry",
        "is refused",
        Common(kind=Kind.TELEMETRY, fields={"watts": 12}),
        None,
    ),
    Loss(
        "requests to devices",
        "are refused: esnp asks services",
        Common(kind=Kind.REQUEST, target=Device("0042")),
        None,
    ),
    Loss(
        "an integer of more than 64 bits",
        "is refused",
        Common(kind=Kind.REQUEST, target=_ADD, fields={"a": 1 << 64}),
        None,
    ),
    Loss(
        "a value that is not null, a truth, a number, text, bytes, a list or a map with text for keys",
        "is refused",
        Common(kind=Kind.REQUEST, target=_ADD, fields={"a": {1: "one"}}),
        None,
    ),
)
