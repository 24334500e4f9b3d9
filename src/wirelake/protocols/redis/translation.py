"""Translate between RESP commands and values and common messages.

Commands about topics, logins and the connection are requests to the gateway itself. All others are requests to the
service `redis`, which has an operation for each.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from wirelake.errors import TranslationError
from wirelake.message import (
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
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.commands import COMMANDS, error
from wirelake.protocols.redis.frames import BulkString, ClientFrame, RespFrame, Value
from wirelake.protocols.redis.housekeeping import Hello, as_text, read_hello
from wirelake.protocols.redis.values import from_plain, pairs_to_plain, to_plain
from wirelake.protocols.translation import Loss

SERVICE = "redis"
DEFAULT_USER = "default"  # of a password without a name
PATTERN = "pattern"  # header of a notification that a pattern matched

_LISTS = frozenset({b"exec", b"xrange", b"xread"})
_CODE_WORD = re.compile(r"[A-Z][A-Z0-9_]+(?: |\Z)")


def to_message(frame: Frame, _sender: Sender) -> Message:
    """Return the common message of a command or value."""
    if isinstance(frame, ClientFrame):
        return _from_client(frame)
    if isinstance(frame, Value):
        return _from_server(frame)
    raise TypeError(f"{type(frame).__name__} is not a RESP frame")


def from_message(message: Message, sender: Sender) -> RespFrame:
    """Return the command or RESP 3 value with which `sender` sends this. Raise TranslationError if there is none."""
    return value_from_message(message) if sender is Sender.SERVER else command_from_message(message)


def command_from_message(message: Message) -> frames.Command:
    """Return the command of a message. Raise TranslationError if there is none."""
    return frames.Command(tuple(_client_args(message)))


def value_from_message(message: Message) -> Value:
    """Return the RESP 3 value of a message. Raise TranslationError if there is none."""
    if message.kind is Kind.NOTIFICATION:
        pattern = message.headers.get(PATTERN)
        words = [b"message"] if pattern is None else [b"pmessage", _bytes(pattern)]
        return frames.Push(tuple(map(BulkString, [*words, _topic(message), content_of(message)])))
    if message.kind is Kind.EVENT and message.protocol == "redis" and message.name == frames.Push.name:
        items = from_plain(message.fields.get("value"))
        return frames.Push(items.items if isinstance(items, frames.Array) else (items,))
    if message.kind is not Kind.RESPONSE:
        raise TranslationError(f"a redis server has no value for a {message.kind}")
    return _answer_value(message)


def reply_value(message: Message, verb: bytes, version: int) -> Value:
    """Return the answer to a command; an error if RESP cannot express it, because every command needs an answer.

    The answer to PUBLISH is the number of receivers, 0 if it is unknown. An empty answer to GET is an empty string, not
    OK. For an empty list, RESP 2 has a null of its own. The streams of XREAD are a map in RESP 3 only.
    """
    if verb in _LISTS and message.failure is None and version == 2 and message.fields == {"value": None}:
        return frames.NullArray()
    if message.failure is None and verb == b"publish":
        receivers = message.fields.get("receivers")
        return frames.Integer(receivers if isinstance(receivers, int) else 0)
    if message.failure is None and verb == b"get" and not (message.fields or message.payload):
        return BulkString(b"")
    try:
        value = value_from_message(message)
    except TranslationError as fault:
        return error(b"ERR the answer does not fit: " + str(fault).encode(errors="backslashreplace"))
    if verb == b"xread" and version == 3 and isinstance(value, frames.Array):
        streams = [each.items for each in value.items if isinstance(each, frames.Array)]
        return frames.Map(tuple([frames.Pair(*each) for each in streams]))
    return value


def notification_of(value: Value) -> Message | None:
    """Return the notification in `message channel content` or `pmessage pattern channel content`; None for others."""
    if not isinstance(value, frames.Push | frames.Array) or not 3 <= len(value.items) <= 4:
        return None
    match [item.data for item in value.items if isinstance(item, BulkString)]:
        case [b"message", channel, content] if len(value.items) == 3:
            headers = {}
        case [b"pmessage", pattern, channel, content]:
            headers = {PATTERN: as_text(pattern)}
        case _:
            return None
    return Message(
        kind=Kind.NOTIFICATION,
        name="pmessage" if headers else "message",
        protocol="redis",
        target=Topic(as_text(channel)),
        headers=headers,
        payload=content,
    )


def failure_text(failure: Failure) -> bytes:
    """Return the text of an error. It begins with a code in capitals; NOPERM or ERR is added if there is none."""
    code = "NOPERM" if failure.code == FailureCode.ACCESS_DENIED else "ERR"
    text = failure.text if _CODE_WORD.match(failure.text) else f"{code} {failure.text}"
    return error(text.encode(errors="backslashreplace")).text


def _from_client(frame: ClientFrame) -> Message:
    verb = frame.verb
    if verb in _TO:
        return replace(_TO[verb](frame.args), name=verb.decode(), protocol="redis")
    if not frame.args:
        return Message(kind=Kind.CONTROL, name=frame.name, protocol="redis")
    name = verb.decode() if verb in COMMANDS else frame.name
    target = Operation(SERVICE, as_text(verb))
    return Message(kind=Kind.REQUEST, name=name, protocol="redis", target=target, fields={"args": list(frame.args[1:])})


def _from_server(value: Value) -> Message:
    notification = notification_of(value)
    if notification is not None:
        return notification
    parts: dict[str, Any] = {}
    match value:
        case frames.SimpleError() | frames.BulkError():
            parts["failure"] = Failure(as_text(value.text))
        case BulkString():
            parts["payload"] = value.data
        case frames.VerbatimString():
            parts["payload"] = value.data
            parts["headers"] = {"format": as_text(value.format)}
        case frames.Attribute():
            inner = _from_server(value.value)
            return replace(inner, headers={**inner.headers, "attributes": pairs_to_plain(value.pairs)})
        case _:
            parts["fields"] = {"value": to_plain(value)}
    kind = Kind.EVENT if isinstance(value, frames.Push) else Kind.RESPONSE
    return Message(kind=kind, name=value.name, protocol="redis", **parts)


def _auth(args: Sequence[bytes]) -> Message:
    """Return a login. Invalid arguments are left out, because they may contain a password."""
    match args:
        case (_, password):
            return control(Op.LOGIN, credentials=Credentials(DEFAULT_USER, as_text(password)))
        case (_, user, password):
            return control(Op.LOGIN, credentials=Credentials(as_text(user), as_text(password)))
    return control(Op.LOGIN)


def _hello(args: Sequence[bytes]) -> Message:
    hello = read_hello(args)
    if not isinstance(hello, Hello):
        return Message(kind=Kind.CONTROL)
    fields: dict[str, Any] = {}
    if hello.version is not None:
        fields["version"] = hello.version
    if hello.client_name is not None:
        fields["client_name"] = as_text(hello.client_name)
    if hello.credentials is None:
        return Message(kind=Kind.CONTROL, fields=fields)
    return control(Op.LOGIN, fields=fields, credentials=hello.credentials)


def _names(field: str, op: Op) -> Callable[[Sequence[bytes]], Message]:
    return lambda args: control(op, fields={field: [as_text(arg) for arg in args[1:]]})


def _ping(args: Sequence[bytes]) -> Message:
    return control(Op.PING, payload=b" ".join(args[1:]))


def _publish(args: Sequence[bytes]) -> Message:
    if len(args) != 3:
        return Message(kind=Kind.NOTIFICATION, payload=b" ".join(args[1:]))
    return Message(kind=Kind.NOTIFICATION, target=Topic(as_text(args[1])), payload=args[2])


_TO: dict[bytes, Callable[[Sequence[bytes]], Message]] = {
    b"auth": _auth,
    b"hello": _hello,
    b"ping": _ping,
    b"echo": _ping,
    b"quit": lambda _args: control(Op.LOGOUT),
    b"reset": lambda _args: control(Op.LOGOUT),
    b"subscribe": _names("topics", Op.SUBSCRIBE),
    b"unsubscribe": _names("topics", Op.UNSUBSCRIBE),
    b"psubscribe": _names("patterns", Op.SUBSCRIBE),
    b"punsubscribe": _names("patterns", Op.UNSUBSCRIBE),
    b"publish": _publish,
}


def _client_args(message: Message) -> list[bytes]:  # noqa: PLR0911 (one return a command)
    ours = message.protocol == "redis"
    match control_op(message):
        case Op.LOGIN:
            return _login_args(message)
        case Op.LOGOUT:
            return [b"RESET" if ours and message.name == "reset" else b"QUIT"]
        case Op.PING if ours and message.name == "echo":
            return [b"ECHO", message.payload]
        case Op.PING:
            return [b"PING", message.payload] if message.payload else [b"PING"]
        case (Op.SUBSCRIBE | Op.UNSUBSCRIBE) as op:
            return _subscription_args(message, op)
    if message.kind is Kind.NOTIFICATION:
        return [b"PUBLISH", _topic(message), content_of(message)]
    if message.kind is Kind.REQUEST and isinstance(message.target, Operation) and message.target.service == SERVICE:
        return _request_args(message, message.target)
    if ours and message.kind is Kind.CONTROL and message.name == "hello":
        return _login_args(message)
    hello = message.target
    target_name = f"{hello.service} {hello.op}".rstrip() if isinstance(hello, Operation) else "this"
    raise TranslationError(f"a redis client has no command for a {message.kind} to {target_name}")


def _login_args(message: Message) -> list[bytes]:
    who, version, client_name = message.credentials, message.fields.get("version"), message.fields.get("client_name")
    login = [] if who is None else [b"AUTH", _bytes(who.user), _bytes(who.token)]
    if version is None:
        return login or [b"HELLO"]
    named = [] if client_name is None else [b"SETNAME", _bytes(client_name)]
    return [b"HELLO", _bytes(version), *login, *named]


def _subscription_args(message: Message, op: Op) -> list[bytes]:
    given = [field for field in ("topics", "patterns") if field in message.fields]
    if len(given) != 1:
        raise TranslationError("a command takes either topics or patterns")
    names = [_bytes(name) for name in message.fields[given[0]]]
    if not names and op is Op.SUBSCRIBE:
        raise TranslationError("a subscription to nothing")
    return [(b"P" if given == ["patterns"] else b"") + op.upper().encode(), *names]


def _request_args(message: Message, target: Operation) -> list[bytes]:
    others = message.fields.keys() - {"args"}
    if others or not target.op:
        raise TranslationError(f"a redis command has only args, not {', '.join(sorted(others)) or 'a missing op'}")
    args = [_bytes(arg) for arg in message.fields.get("args", ())]
    return [_bytes(target.op.upper()), *args, *([message.payload] if message.payload else [])]


def _bytes(value: Any) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode(errors="backslashreplace")
        case bool():
            pass
        case int() if -(2**63) <= value < 2**64:
            return b"%d" % value
        case float():
            return repr(value).encode()
    raise TranslationError(f"an argument is bytes, text or a number, not this {type(value).__name__}")


def _topic(message: Message) -> bytes:
    if not isinstance(message.target, Topic):
        raise TranslationError("a notification without a topic")
    return _bytes(message.target.name)


def _answer_value(message: Message) -> Value:
    if message.failure is not None:
        return frames.SimpleError(failure_text(message.failure))
    if message.more or message.parts:
        raise TranslationError("an answer in several parts")
    if message.fields and message.payload:
        raise TranslationError("fields and payload together do not fit where there is room for one value")
    if message.payload or (message.protocol == "redis" and message.name == BulkString.name):
        return BulkString(message.payload)
    if not message.fields:
        return frames.SimpleString(b"OK")
    if message.fields.keys() == {"value"}:
        return from_plain(message.fields["value"])
    return from_plain(message.fields)


# ── what RESP cannot express

_HI = Message(kind=Kind.NOTIFICATION, name="message", protocol="redis", target=Topic("@news"), payload=b"hi")

LOSSES = (
    Loss(
        "a notification's id, type and time",
        "are left out: a subscriber gets the topic and the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", type=3, at_ms=1234, payload=b"hi"),
        _HI,
    ),
    Loss(
        "headers and source",
        "are left out, but for the pattern that a subscription matched by",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), source="erp", headers={"lang": "de"}, payload=b"hi"),
        _HI,
    ),
    Loss(
        "a notification's fields without payload",
        "become JSON in the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"a": 1}),
        Message(kind=Kind.NOTIFICATION, name="message", protocol="redis", target=Topic("@news"), payload=b'{"a":1}'),
    ),
    Loss("a notification without a topic", "is refused", Message(kind=Kind.NOTIFICATION, payload=b"hi"), None),
    Loss(
        "an answer's fields",
        "become one map (in RESP 2 a flat array); texts inside it come back as bytes",
        Message(kind=Kind.RESPONSE, fields={"a": 1, "b": "x"}),
        Message(kind=Kind.RESPONSE, name="map", protocol="redis", fields={"value": {"a": 1, "b": b"x"}}),
    ),
    Loss(
        "an answer with neither fields nor payload",
        "is the status OK",
        Message(kind=Kind.RESPONSE),
        Message(kind=Kind.RESPONSE, name="simple_string", protocol="redis", fields={"value": "OK"}),
    ),
    Loss(
        "a whole number beyond 64 bits",
        "is a big number, and comes back as text",
        Message(kind=Kind.RESPONSE, fields={"value": 10**20}),
        Message(kind=Kind.RESPONSE, name="big_number", protocol="redis", fields={"value": "100000000000000000000"}),
    ),
    Loss(
        "fields and payload together",
        "are refused",
        Message(kind=Kind.RESPONSE, fields={"a": 1}, payload=b"hi"),
        None,
    ),
    Loss(
        "an answer in several parts",
        "is refused",
        Message(kind=Kind.RESPONSE, fields={"value": 1}, more=2),
        None,
    ),
    Loss(
        "an error's number",
        "is left out; a text without a code word in capitals gets ERR before it",
        Message(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Message(kind=Kind.RESPONSE, name="simple_error", protocol="redis", failure=Failure("ERR no such thing")),
    ),
    Loss(
        "line breaks in an error",
        "become spaces",
        Message(kind=Kind.RESPONSE, failure=Failure("ERR one\ntwo")),
        Message(kind=Kind.RESPONSE, name="simple_error", protocol="redis", failure=Failure("ERR one two")),
    ),
    Loss(
        "telemetry and events",
        "are refused",
        Message(kind=Kind.TELEMETRY, fields={"a": 1}),
        None,
    ),
    Loss(
        "texts and numbers in a command",
        "become bytes, and a payload its last argument",
        Message(kind=Kind.REQUEST, target=Operation("redis", "set"), fields={"args": ["n", 5]}, payload=b"NX"),
        Message(
            kind=Kind.REQUEST,
            name="set",
            protocol="redis",
            target=Operation("redis", "set"),
            fields={"args": [b"n", b"5", b"NX"]},
        ),
        Sender.CLIENT,
    ),
    Loss(
        "requests to services other than redis",
        "are refused: RESP has no place for the service's name",
        Message(kind=Kind.REQUEST, target=Operation("math", "add"), fields={"a": 1}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "acknowledgements, backlogs and registrations",
        "are refused: the gateway acknowledges for the subscriber",
        control(Op.ACK, fields={"ids": ["7"]}),
        None,
        Sender.CLIENT,
    ),
)
