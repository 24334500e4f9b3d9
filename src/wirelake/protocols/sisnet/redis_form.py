"""RESP commands in sisnet messages, and their answers in RESP under the same name.

The commands are those of redis connections. The state of such a connection (version, name, subscriptions) is shared by
all messages of this form on one sisnet connection.
"""

from collections.abc import Sequence

from msgspec import Struct

from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis import housekeeping
from wirelake.protocols.redis.commands import (
    EMPTY,
    HTTP,
    MISUSED,
    UNKNOWN,
    error,
    event_of,
    unknown_command,
    wrong_arguments,
)
from wirelake.protocols.redis.frames import BulkString, ClientFrame, Command, Integer, Null, Push, SimpleString, Value
from wirelake.protocols.redis.housekeeping import Hello, read_hello
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.session import SessionSettings
from wirelake.protocols.redis.translation import reply_value, to_message, value_from_message
from wirelake.protocols.redis.values import in_version_2

_SUBSCRIBES = frozenset({b"subscribe", b"psubscribe"})
_UNSUBSCRIBES = frozenset({b"unsubscribe", b"punsubscribe"})
_STAR = ord("*")
_TRANSACTIONS = frozenset({"discard", "exec", "multi", "unwatch", "watch"})
_BAD_NAME = error(b"ERR channel names and patterns are UTF-8 text here")
_LOGGED_IN = error(b"ERR the sisnet connection is logged in already")


class RedisRequest(Struct, frozen=True):
    """What it takes to answer a command."""

    verb: bytes
    version: int
    names: tuple[bytes, ...] = ()  # to confirm


NO_COMMAND = RedisRequest(b"", 2)  # not decoded


class RedisForm:
    """The RESP part of a sisnet session."""

    __slots__ = ("_channels", "_patterns", "_peer", "version")

    def __init__(self) -> None:
        self.version = 2
        self._peer = housekeeping.Peer(0)
        self._channels: dict[bytes, None] = {}
        self._patterns: dict[bytes, None] = {}

    def read(self, content: bytes) -> ClientFrame:
        """Decode a command. Raise ProtocolError. A line needs no end, because the message ends."""
        if content and content[0] != _STAR and not content.endswith(b"\n"):
            content += b"\r\n"
        frame = decode(content, Sender.CLIENT)
        return frame if isinstance(frame, ClientFrame) else Command(())

    def answer_directly(self, frame: ClientFrame) -> bytes | None:
        """Return the answer to a command that need not be passed up; None for others."""
        value = self._direct_value(frame)
        return None if value is None else self._encode([value], self.version)

    def ask(self, frame: ClientFrame) -> tuple[RedisRequest, Message | None]:
        """Return what it takes to answer a command, and the message to pass up; None if there is none."""
        verb, names = frame.verb, frame.args[1:]
        if verb in _UNSUBSCRIBES:
            names = names or tuple(self._names_of(verb))
            gone = [name for name in dict.fromkeys(names) if name in self._names_of(verb)]
            message = to_message(Command((frame.args[0], *gone)), Sender.CLIENT) if gone else None
            return RedisRequest(verb, self.version, names), message
        request = RedisRequest(verb, self.version, names if verb in _SUBSCRIBES else ())
        return request, to_message(frame, Sender.CLIENT)

    def answer(self, request: RedisRequest, message: Message) -> bytes:
        """Encode the answer to a command."""
        if message.failure is None and request.verb in _SUBSCRIBES | _UNSUBSCRIBES:
            return self._encode(self._confirmations(request), request.version)
        return self._encode([reply_value(message, request.verb, request.version)], request.version)

    def push(self, message: Message) -> bytes:
        """Encode a notification."""
        return self._encode([value_from_message(message)], self.version)

    def _direct_value(self, frame: ClientFrame) -> Value | None:  # noqa: PLR0911 (one return a command)
        args, event = frame.args, event_of(frame)
        match event:
            case "ping" | "echo":
                return BulkString(args[1]) if len(args) > 1 else SimpleString(b"PONG")
            case "select":
                return housekeeping.select(args)
            case "client":
                return housekeeping.client(args, self._peer)
            case "command":
                return housekeeping.command(args)
            case "hello":
                return self._hello(args)
            case "auth":
                return _LOGGED_IN
            case "quit":
                return housekeeping.OK
            case "reset":
                return error(b"ERR a sisnet connection is not reset")
        return _refusal(frame, event)

    def _hello(self, args: Sequence[bytes]) -> Value:
        hello = read_hello(args)
        if not isinstance(hello, Hello):
            return hello
        if hello.credentials is not None:
            return _LOGGED_IN
        if hello.client_name is not None:
            named = housekeeping.set_name(hello.client_name, self._peer)
            if named is not housekeeping.OK:
                return named
        self.version = hello.version or self.version
        return housekeeping.hello(self.version, self._peer, SessionSettings().redis_version)

    def _confirmations(self, request: RedisRequest) -> list[Value]:
        names = self._names_of(request.verb)
        found: list[Value] = []
        for name in request.names:
            if request.verb in _SUBSCRIBES:
                names[name] = None
            else:
                names.pop(name, None)
            found.append(self._confirmation(request.verb, BulkString(name)))
        return found or [self._confirmation(request.verb, Null())]

    def _confirmation(self, verb: bytes, name: Value) -> Value:
        return Push((BulkString(verb), name, Integer(len(self._channels) + len(self._patterns))))

    def _names_of(self, verb: bytes) -> dict[bytes, None]:
        return self._patterns if verb.startswith(b"p") else self._channels

    def _encode(self, values: Sequence[Value], version: int) -> bytes:
        return b"".join([(in_version_2(value) if version == 2 else value).encode() for value in values])


def _refusal(frame: ClientFrame, event: str) -> Value | None:
    """Return the error for a command that cannot be passed up; None if it can."""
    if event == EMPTY:
        return error(b"ERR no command")
    if event == MISUSED:
        return wrong_arguments(frame.verb)
    if event in (UNKNOWN, HTTP):
        return unknown_command(frame.args)
    if event in _TRANSACTIONS:
        return error(b"ERR transactions are served on the redis port only")
    channels = {"publish": frame.args[1:2], "subscribe": frame.args, "psubscribe": frame.args}.get(event, ())
    return None if all(map(_is_text, channels)) else _BAD_NAME


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
