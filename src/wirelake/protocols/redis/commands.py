"""The commands that the gateway serves, their numbers of arguments, and the errors of redis."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from wirelake.protocols.redis.constants import REDIS_LINE_BYTES_MAX
from wirelake.protocols.redis.frames import ClientFrame, SimpleError

_SHOWN_BYTES_MAX: Final = 128  # of the client's words, in an error that quotes them


class Arity(Struct, frozen=True):
    """How many arguments follow the name of a command, and which of them are keys."""

    least: int
    most: int | None = None
    keys: tuple[int, int, int] = (0, 0, 0)  # first, last (-1: to the end), step


_KEY: Final = (1, 1, 1)
_KEYS: Final = (1, -1, 1)
_PAIRS: Final = (1, -1, 2)


COMMANDS: Mapping[bytes, Arity] = {
    b"acl": Arity(1),
    b"append": Arity(2, 2, _KEY),
    b"auth": Arity(1, 2),
    b"client": Arity(1),
    b"command": Arity(0),
    b"config": Arity(1),
    b"dbsize": Arity(0, 0),
    b"decr": Arity(1, 1, _KEY),
    b"decrby": Arity(2, 2, _KEY),
    b"del": Arity(1, None, _KEYS),
    b"discard": Arity(0, 0),
    b"echo": Arity(1, 1),
    b"exec": Arity(0, 0),
    b"exists": Arity(1, None, _KEYS),
    b"expire": Arity(2, None, _KEY),
    b"flushdb": Arity(0),
    b"get": Arity(1, 1, _KEY),
    b"getdel": Arity(1, 1, _KEY),
    b"getset": Arity(2, 2, _KEY),
    b"hdel": Arity(2, None, _KEY),
    b"hello": Arity(0),
    b"hget": Arity(2, 2, _KEY),
    b"hgetall": Arity(1, 1, _KEY),
    b"hmget": Arity(2, None, _KEY),
    b"hset": Arity(3, None, _KEY),
    b"incr": Arity(1, 1, _KEY),
    b"incrby": Arity(2, 2, _KEY),
    b"info": Arity(0),
    b"keys": Arity(1, 1),
    b"mget": Arity(1, None, _KEYS),
    b"mset": Arity(2, None, _PAIRS),
    b"multi": Arity(0, 0),
    b"persist": Arity(1, 1, _KEY),
    b"pexpire": Arity(2, None, _KEY),
    b"ping": Arity(0, 1),
    b"psetex": Arity(3, 3, _KEY),
    b"psubscribe": Arity(1),
    b"pttl": Arity(1, 1, _KEY),
    b"publish": Arity(2, 2),
    b"punsubscribe": Arity(0),
    b"quit": Arity(0),
    b"reset": Arity(0, 0),
    b"scan": Arity(1),
    b"select": Arity(1, 1),
    b"set": Arity(2, None, _KEY),
    b"setex": Arity(3, 3, _KEY),
    b"strlen": Arity(1, 1, _KEY),
    b"subscribe": Arity(1),
    b"ttl": Arity(1, 1, _KEY),
    b"type": Arity(1, 1, _KEY),
    b"unlink": Arity(1, None, _KEYS),
    b"unsubscribe": Arity(0),
    b"unwatch": Arity(0, 0),
    b"watch": Arity(1, None, _KEYS),
    b"xadd": Arity(4, None, _KEY),
    b"xrange": Arity(3, None, _KEY),
    b"xread": Arity(3),
}
_NAMES: Final = {verb: verb.decode() for verb in COMMANDS}

# The first word of an HTTP request: a web page may trick a browser into sending one.
_HTTP_VERBS: Final = frozenset({b"post", b"host:"})

EMPTY: Final = "(empty)"
HTTP: Final = "(http)"
MISUSED: Final = "(misused)"
UNKNOWN: Final = "(unknown)"


def event_of(frame: ClientFrame) -> str:
    """Return the event of a command: its name, or one of the four words above."""
    if not frame.args:
        return EMPTY
    verb = frame.verb
    arity = COMMANDS.get(verb)
    if arity is None:
        return HTTP if verb in _HTTP_VERBS else UNKNOWN
    given = len(frame.args) - 1
    if given < arity.least or (arity.most is not None and given > arity.most):
        return MISUSED
    return _NAMES[verb]


def unknown_command(args: Sequence[bytes]) -> SimpleError:
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _SHOWN_BYTES_MAX:
            break
        shown += b"'%b' " % arg[: _SHOWN_BYTES_MAX - len(shown)]
    return error(b"ERR unknown command '%b', with args beginning with: %b" % (args[0][:_SHOWN_BYTES_MAX], shown))


def unknown_subcommand(args: Sequence[bytes]) -> SimpleError:
    return error(b"ERR unknown subcommand '%b'. Try %b HELP." % (args[1][:_SHOWN_BYTES_MAX], args[0].upper()))


def wrong_arguments(name: bytes) -> SimpleError:
    return error(b"ERR wrong number of arguments for '%b' command" % name)


def not_while_subscribed(name: bytes) -> SimpleError:
    return error(
        b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed"
        b" in this context" % name
    )


def error(text: bytes) -> SimpleError:
    """Return an error on one line, whatever it quotes."""
    return SimpleError(text[:REDIS_LINE_BYTES_MAX].replace(b"\r", b" ").replace(b"\n", b" "))


ABORTED: Final = SimpleError(b"EXECABORT Transaction discarded because of previous errors.")
NESTED: Final = SimpleError(b"ERR MULTI calls can not be nested")
NO_WATCH: Final = SimpleError(b"ERR WATCH inside MULTI is not allowed")
NOT_IN_TRANSACTION: Final = SimpleError(b"ERR Command not allowed inside a transaction")
NO_AUTH: Final = SimpleError(b"NOAUTH Authentication required.")
NO_AUTH_HELLO: Final = SimpleError(
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>"
    b" option can be used to authenticate the client and select the RESP protocol version at the same time"
)
WRONG_PASS: Final = SimpleError(b"WRONGPASS invalid username-password pair or user is disabled.")
NO_PROTO: Final = SimpleError(b"NOPROTO unsupported protocol version")
