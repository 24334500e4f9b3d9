"""RESP commands and values ⇄ common messages.

Commands about topics, logins and the connection are requests to the gateway itself; all others are requests to the
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
from wirelake.protocols.redis.hello import Hello, as_text, read_hello
from wirelake.protocols.redis.values import from_plain, pairs_to_plain, to_plain

SERVICE = "redis"
DEFAULT_USER = "default"  # whom a password without a name belongs to
PATTERN = "pattern"  # header of a notification that a pattern matched

_LISTS = frozenset({b"exec", b"xrange", b"xread"})
_CODE_WORD = re.compile(r"[A-Z][A-Z0-9_]+(?: |\Z)")


def to_message(frame: Frame, _sender: Sender) -> Message:
    if isinstance(frame, ClientFrame):
        return _from_client(frame)
    if isinstance(frame, Value):
        return _from_server(frame)
    raise TypeError(f"{type(frame).__name__} is not a RESP frame")


def from_message(message: Message, sender: Sender) -> RespFrame:
    """The command, or the RESP 3 value, with which `sender` says this. Raises TranslationError where there is none."""
    return value_from_message(message) if sender is Sender.SERVER else command_from_message(message)


def command_from_message(message: Message) -> frames.Command:
    return frames.Command(tuple(_client_args(message)))


def value_from_message(message: Message) -> Value:
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
    """The answer to this command as a value; one that RESP cannot carry is an error, so that the queue goes on.

    A publisher is told a number of receivers, 0 if it is not known. An empty answer to GET is an empty string, not OK.
    Where there is nothing to list, RESP 2 has a null of its own, and the streams of XREAD are no map there.
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
    """The notification that this is, if it is one: `message channel content` or `pmessage pattern channel content`."""
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
    """Errors begin with a code in capitals; those that come without one get the general one."""
    text = failure.text if _CODE_WORD.match(failure.text) else f"ERR {failure.text}"
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
            said = _from_server(value.value)
            return replace(said, headers={**said.headers, "attributes": pairs_to_plain(value.pairs)})
        case _:
            parts["fields"] = {"value": to_plain(value)}
    kind = Kind.EVENT if isinstance(value, frames.Push) else Kind.RESPONSE
    return Message(kind=kind, name=value.name, protocol="redis", **parts)


def _auth(args: Sequence[bytes]) -> Message:
    """Arguments that make no sense may still hold a password: they are left out."""
    match args:
        case (_, password):
            return control(Op.LOGIN, credentials=Credentials(DEFAULT_USER, as_text(password)))
        case (_, user, password):
            return control(Op.LOGIN, credentials=Credentials(as_text(user), as_text(password)))
    return control(Op.LOGIN)


def _hello(args: Sequence[bytes]) -> Message:
    asked = read_hello(args)
    if not isinstance(asked, Hello):
        return Message(kind=Kind.CONTROL)
    fields: dict[str, Any] = {}
    if asked.version is not None:
        fields["version"] = asked.version
    if asked.client_name is not None:
        fields["client_name"] = as_text(asked.client_name)
    if asked.credentials is None:
        return Message(kind=Kind.CONTROL, fields=fields)
    return control(Op.LOGIN, fields=fields, credentials=asked.credentials)


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
    asked = message.target
    whom = f"{asked.service} {asked.op}".rstrip() if isinstance(asked, Operation) else "this"
    raise TranslationError(f"a redis client has no command for a {message.kind} to {whom}")


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
