"""The commands that clients send before any other: HELLO, SELECT, CLIENT and COMMAND.

HELLO [version [AUTH user password] [SETNAME name]] selects the version of the protocol, and may log in.
"""

from collections.abc import Sequence

from msgspec import Struct

from wirelake.message import Credentials
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.commands import COMMANDS, NO_PROTO, error, unknown_subcommand, wrong_arguments
from wirelake.protocols.redis.frames import BulkString, Integer, Pair, SimpleError, SimpleString, Value
from wirelake.protocols.redis.syntax import is_canonical

# ── HELLO

VERSIONS = {b"2": 2, b"3": 3}


class Hello(Struct, frozen=True):
    """What a HELLO requests."""

    version: int | None = None  # None: the present one
    credentials: Credentials | None = None
    client_name: bytes | None = None


def read_hello(args: Sequence[bytes]) -> Hello | SimpleError:
    """Return what a HELLO requests, or the error that answers it. `args` begins with the command itself."""
    if len(args) == 1:
        return Hello()
    version = VERSIONS.get(args[1])
    if version is None:
        is_number = args[1].removeprefix(b"-").isdigit()
        return NO_PROTO if is_number else error(b"ERR Protocol version is not an integer or out of range")
    credentials = client_name = None
    place = 2
    while place < len(args):
        option, rest = args[place].lower(), len(args) - place - 1
        if option == b"auth" and rest >= 2:
            credentials = Credentials(as_text(args[place + 1]), as_text(args[place + 2]))
            place += 3
        elif option == b"setname" and rest >= 1:
            client_name = args[place + 1]
            place += 2
        else:
            return error(b"ERR Syntax error in HELLO option '%b'" % args[place][:128])
    return Hello(version, credentials, client_name)


def as_text(data: bytes) -> str:
    """Decode bytes that should be UTF-8. Invalid bytes become escapes."""
    return data.decode(errors="backslashreplace")


# ── SELECT, CLIENT and COMMAND

OK = SimpleString(b"OK")
_CLIENT_ARGUMENTS = {
    b"getname": 2,
    b"id": 2,
    b"info": 2,
    b"no-evict": 3,
    b"no-touch": 3,
    b"setinfo": 4,
    b"setname": 3,
}
_INFO_OPTIONS = frozenset({b"lib-name", b"lib-ver"})
_CLIENT_TYPES = frozenset({b"master", b"normal", b"pubsub", b"replica", b"slave"})
_LIBRARY_BYTES_MAX = 256
_PRINTABLE = range(0x21, 0x7F)


class Peer(Struct):
    """What a client says about itself, and what else CLIENT LIST and INFO report."""

    id: int
    name: bytes = b""
    library: dict[bytes, bytes] = {}
    version: int = 2
    age_s: int = 0
    channels: int = 0
    patterns: int = 0
    queued: int = -1  # commands since MULTI; -1 outside of it

    def line(self, command: bytes) -> bytes:
        """Return the description of a client, as redis writes it."""
        flags = (b"P" if self.channels + self.patterns else b"") + (b"x" if self.queued >= 0 else b"")
        known: dict[bytes, bytes | int] = {
            b"id": self.id,
            b"name": self.name,
            b"age": self.age_s,
            b"idle": 0,
            b"flags": flags or b"N",
            b"db": 0,
            b"sub": self.channels,
            b"psub": self.patterns,
            b"multi": self.queued,
            b"cmd": command,
            b"lib-name": self.library.get(b"lib-name", b""),
            b"lib-ver": self.library.get(b"lib-ver", b""),
            b"resp": self.version,
        }
        shown = [b"%b=%b" % (name, each if isinstance(each, bytes) else b"%d" % each) for name, each in known.items()]
        return b" ".join(shown) + b"\n"


def select(args: Sequence[bytes]) -> Value:
    """Answer SELECT: there is only database 0."""
    number = args[1].removeprefix(b"-")
    if not is_canonical(number):
        return error(b"ERR value is not an integer or out of range")
    return OK if args[1] == b"0" else error(b"ERR DB index is out of range")


def client(args: Sequence[bytes], peer: Peer) -> Value:  # noqa: PLR0911 (one return a subcommand)
    refusal = misused_client(args)
    if refusal is not None:
        return refusal
    match args[1].lower():
        case b"list":
            return _client_list(args[2:], peer)
        case b"id":
            return Integer(peer.id)
        case b"getname":
            return BulkString(peer.name) if peer.name else frames.Null()
        case b"setname":
            return set_name(args[2], peer)
        case b"info":
            return BulkString(peer.line(b"client|info"))
        case b"no-evict" | b"no-touch":
            return OK
    return _set_info(args[2].lower(), args[3], peer)


def misused_client(args: Sequence[bytes]) -> Value | None:
    """Return the error for an invalid CLIENT command; None if it is valid."""
    sub = args[1].lower()
    if sub == b"list":
        return None
    wanted = _CLIENT_ARGUMENTS.get(sub)
    if wanted is None:
        return unknown_subcommand(args)
    return None if len(args) == wanted else wrong_arguments(b"client|" + sub)


def _client_list(options: Sequence[bytes], peer: Peer) -> Value:
    """Return a list of this client alone: others are not shown."""
    match [options[0].lower(), *options[1:]] if options else []:
        case []:
            is_listed = True
        case [b"type", kind]:
            if kind.lower() not in _CLIENT_TYPES:
                return error(b"ERR Unknown client type '%b'" % kind[:128])
            is_listed = kind.lower() == (b"pubsub" if peer.channels + peer.patterns else b"normal")
        case [b"id", *ids] if ids:
            if not all(map(is_canonical, ids)):
                return error(b"ERR Invalid client ID")
            is_listed = b"%d" % peer.id in ids
        case _:
            return error(b"ERR syntax error")
    return BulkString(peer.line(b"client|list") if is_listed else b"")


def _set_info(option: bytes, value: bytes, peer: Peer) -> Value:
    if option not in _INFO_OPTIONS:
        return error(b"ERR Unrecognized option '%b'" % option[:128])
    if not _is_word(value):
        return error(b"ERR %b cannot contain spaces, newlines or special characters." % option)
    peer.library = {**peer.library, option: value[:_LIBRARY_BYTES_MAX]}
    return OK


def set_name(name: bytes, peer: Peer) -> Value:
    """Answer CLIENT SETNAME."""
    if not _is_word(name):
        return error(b"ERR Client names cannot contain spaces, newlines or special characters.")
    peer.name = name
    return OK


def command(args: Sequence[bytes]) -> Value:
    """Answer COMMAND. Clients work without the details; redis-cli takes its hints from DOCS."""
    match args[1].lower() if len(args) > 1 else b"":
        case b"":
            return frames.Array(tuple(map(_described, COMMANDS)))
        case b"count":
            return Integer(len(COMMANDS))
        case b"docs":
            return frames.Map(())
        case b"info":
            return frames.Array(tuple([_described(name.lower()) for name in args[2:]]))
        case b"list":
            return frames.Array(tuple(map(BulkString, COMMANDS)))
    return unknown_subcommand(args)


def _described(name: bytes) -> Value:
    """Return name, number of words (negative: or more), flags, which arguments are keys, and four empty lists."""
    arity = COMMANDS.get(name)
    if arity is None:
        return frames.Null()
    words = arity.least + 1
    count = words if arity.most == arity.least else -words
    none = frames.Array(())
    return frames.Array((BulkString(name), Integer(count), none, *map(Integer, arity.keys), none, none, none, none))


def hello(version: int, peer: Peer, redis_version: str) -> Value:
    """Answer HELLO with the properties of this server."""
    properties: list[tuple[bytes, Value]] = [
        (b"server", BulkString(b"redis")),
        (b"version", BulkString(redis_version.encode())),
        (b"proto", Integer(version)),
        (b"id", Integer(peer.id)),
        (b"mode", BulkString(b"standalone")),
        (b"role", BulkString(b"master")),
        (b"modules", frames.Array(())),
    ]
    return frames.Map(tuple([Pair(BulkString(key), value) for key, value in properties]))


def _is_word(text: bytes) -> bool:
    return all(byte in _PRINTABLE for byte in text)
