"""The service `redis`: values under keys, as redis words and answers it.

Each operation is a redis command with its `args`. What is told of a value is told once that value is on disk: a
question behind a write that is still on its way waits for it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from wirelake.broker.broker import Broker, answered
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError
from wirelake.limits import STATE_VALUES_BYTES_MAX
from wirelake.message import Message, Operation
from wirelake.state.values import NO_END, NO_KEY, Only, Values

SERVICE: Final = "redis"

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_I64: Final = range(-(2**63), 2**63)
_SCAN_KEYS: Final = 10  # looked at, where SCAN names no count
_SCAN_KEYS_MAX: Final = 100_000
_STRING: Final = b"string"  # the one type of value there is
_SYNTAX: Final = "ERR syntax error"
_NOT_A_NUMBER: Final = "ERR value is not an integer or out of range"
_CONFIG: Final = {b"appendonly": b"yes", b"databases": b"1", b"maxmemory": b"%d" % STATE_VALUES_BYTES_MAX, b"save": b""}

Args = Sequence[bytes]


class Setting(Struct):
    """What may follow the key and the value of a SET."""

    only: Only | None = None
    expires_at_ms: int | None = None
    keep_end: bool = False
    tell_old: bool = False


class ValueService:
    def __init__(self, broker: Broker, values: Values, now_ms: Callable[[], int], about: Callable[[], str]) -> None:
        self._broker = broker
        self._values = values
        self._now_ms = now_ms
        self._about = about  # what INFO tells
        self._written = Commit.resolved()  # the last write: when it is durable, so are those before it
        self._operations: dict[str, Callable[[Args, int], Any]] = {
            "config": self._config,
            "dbsize": self._size,
            "del": self._delete,
            "exists": self._exists,
            "expire": self._expire,
            "get": self._get,
            "info": self._info,
            "keys": self._keys,
            "mget": self._get_many,
            "persist": self._persist,
            "pexpire": self._expire_ms,
            "pttl": self._remaining_ms,
            "scan": self._scan,
            "set": self._set,
            "strlen": self._length,
            "ttl": self._remaining,
            "type": self._type,
            "unlink": self._delete,
        }

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        """Raises InputError in the words of redis."""
        op = message.target.op if isinstance(message.target, Operation) else ""
        operation = self._operations.get(op.lower())
        if operation is None:
            raise InputError(f"ERR unknown command '{op[:128]}'")
        before = self._written
        said = operation(_args(message), self._now_ms())
        if isinstance(said, bytes):
            answer = answered(message, name="bulk_string", protocol="resp", payload=said)
        else:
            answer = answered(message, fields={} if said is _OK else {"value": said})
        reads_what_is_decided = self._written is before and before.done
        self._broker.after(None if reads_what_is_decided else self._written, peer, answer)

    # Reading

    def _get(self, args: Args, now_ms: int) -> bytes | None:
        (key,) = _exactly(args, 1, "get")
        return self._values.get(key, now_ms)

    def _get_many(self, args: Args, now_ms: int) -> list[bytes | None]:
        get = self._values.get
        return [get(key, now_ms) for key in _some(args, "mget")]

    def _exists(self, args: Args, now_ms: int) -> int:
        return self._values.exists(_some(args, "exists"), now_ms)

    def _length(self, args: Args, now_ms: int) -> int:
        (key,) = _exactly(args, 1, "strlen")
        return len(self._values.get(key, now_ms) or b"")

    def _type(self, args: Args, now_ms: int) -> str:
        (key,) = _exactly(args, 1, "type")
        return "none" if self._values.get(key, now_ms) is None else _STRING.decode()

    def _size(self, args: Args, _now_ms: int) -> int:
        _exactly(args, 0, "dbsize")
        return len(self._values)

    def _keys(self, args: Args, now_ms: int) -> list[bytes]:
        (pattern,) = _exactly(args, 1, "keys")
        return self._values.keys(pattern, now_ms)

    def _scan(self, args: Args, now_ms: int) -> list[Any]:
        cursor, *options = _some(args, "scan")
        if not cursor.isdigit() or int(cursor) not in _I64:
            raise InputError("ERR invalid cursor")
        pattern, count, wanted = b"*", _SCAN_KEYS, _STRING
        if len(options) % 2:
            raise InputError(_SYNTAX)
        for option, value in zip(options[::2], options[1::2], strict=True):
            match option.lower():
                case b"match":
                    pattern = value
                case b"count":
                    count = _number(value)
                    if count < 1:
                        raise InputError(_SYNTAX)
                case b"type":
                    wanted = value.lower()
                case _:
                    raise InputError(_SYNTAX)
        following, keys = self._values.scan(int(cursor), pattern, min(count, _SCAN_KEYS_MAX), now_ms)
        return [b"%d" % following, keys if wanted == _STRING else []]

    def _remaining(self, args: Args, now_ms: int) -> int:
        (key,) = _exactly(args, 1, "ttl")
        left_ms = self._values.remaining_ms(key, now_ms)
        return left_ms if left_ms in (NO_KEY, NO_END) else (left_ms + 500) // 1000

    def _remaining_ms(self, args: Args, now_ms: int) -> int:
        (key,) = _exactly(args, 1, "pttl")
        return self._values.remaining_ms(key, now_ms)

    def _info(self, _args: Args, _now_ms: int) -> bytes:
        """All of it, whatever sections were asked for."""
        keys = len(self._values)
        keyspace = f"# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n" if keys else "# Keyspace\r\n"
        return (self._about() + f"# Memory\r\nused_memory:{self._values.size_bytes}\r\n\r\n" + keyspace).encode()

    def _config(self, args: Args, _now_ms: int) -> dict[bytes, bytes]:
        """The few that benchmarks and clients look at; nothing can be changed here."""
        sub, *names = _some(args, "config")
        if sub.lower() != b"get" or not names:
            raise InputError(f"ERR CONFIG {sub[:32].decode(errors='backslashreplace')} is not served here")
        return {name: _CONFIG[name] for name in map(bytes.lower, names) if name in _CONFIG}

    # Writing

    def _set(self, args: Args, now_ms: int) -> Any:
        if len(args) < 2:
            raise _misused("set")
        key, content = args[:2]
        setting = _setting(args[2:], now_ms) if len(args) > 2 else _PLAIN
        values = self._values
        old = values.get(key, now_ms) if setting.tell_old else None
        expires_at_ms = setting.expires_at_ms
        if setting.keep_end:
            left_ms = values.remaining_ms(key, now_ms)
            expires_at_ms = now_ms + left_ms if left_ms > 0 else None
        commit = values.set(key, content, now_ms, expires_at_ms=expires_at_ms, only=setting.only)
        if commit is not None:
            self._written = commit
        if setting.tell_old:
            return old
        return None if commit is None else _OK

    def _delete(self, args: Args, now_ms: int) -> int:
        gone, self._written = self._values.delete(_some(args, "del"), now_ms)
        return gone

    def _expire(self, args: Args, now_ms: int) -> int:
        return self._end(args, now_ms, 1000, "expire")

    def _expire_ms(self, args: Args, now_ms: int) -> int:
        return self._end(args, now_ms, 1, "pexpire")

    def _end(self, args: Args, now_ms: int, unit_ms: int, name: str) -> int:
        if len(args) < 2:
            raise _misused(name)
        conditions = _conditions(args[2:])
        key, ends_at_ms = args[0], now_ms + _number(args[1]) * unit_ms
        if ends_at_ms not in _I64:
            raise InputError(f"ERR invalid expire time in '{name}' command")
        left_ms = self._values.remaining_ms(key, now_ms)
        if left_ms == NO_KEY or not _allowed(conditions, left_ms, ends_at_ms - now_ms):
            return 0
        if ends_at_ms <= now_ms:
            return self._delete([key], now_ms)
        self._written = self._values.expire(key, ends_at_ms, now_ms) or self._written
        return 1

    def _persist(self, args: Args, now_ms: int) -> int:
        (key,) = _exactly(args, 1, "persist")
        if self._values.remaining_ms(key, now_ms) in (NO_KEY, NO_END):
            return 0
        self._written = self._values.expire(key, None, now_ms) or self._written
        return 1


_OK: Final = object()
_PLAIN: Final = Setting()
_ONLY: Final = {b"nx": Only.IF_ABSENT, b"xx": Only.IF_PRESENT}
_CONDITIONS: Final = frozenset({b"nx", b"xx", b"gt", b"lt"})
_UNITS_MS: Final = {b"ex": 1000, b"px": 1, b"exat": 1000, b"pxat": 1}


def _setting(options: Args, now_ms: int) -> Setting:
    """Words first, numbers then: that is the order of redis' complaints."""
    found = Setting()
    end, text = b"", b""  # the option that says when it ends; the same one may come again
    place = 0
    while place < len(options):
        option = options[place].lower()
        place += 1
        if option in _ONLY and found.only in (None, _ONLY[option]):
            found.only = _ONLY[option]
        elif option == b"get":
            found.tell_old = True
        elif option == b"keepttl" and not end:
            found.keep_end = True
        elif option in _UNITS_MS and place < len(options) and end in (b"", option) and not found.keep_end:
            end, text = option, options[place]
            place += 1
        else:
            raise InputError(_SYNTAX)
    if end:
        amount = _number(text)
        found.expires_at_ms = amount * _UNITS_MS[end] + (0 if end.endswith(b"at") else now_ms)
        if amount <= 0 or found.expires_at_ms not in _I64:
            raise InputError("ERR invalid expire time in 'set' command")
    return found


def _conditions(options: Args) -> set[bytes]:
    """EXPIRE with NX, XX, GT or LT."""
    words = {option.lower() for option in options}
    for option in options:
        if option.lower() not in _CONDITIONS:
            raise InputError(f"ERR Unsupported option {option[:32].decode(errors='backslashreplace')}")
    if b"nx" in words and len(words) > 1:
        raise InputError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if words >= {b"gt", b"lt"}:
        raise InputError("ERR GT and LT options at the same time are not compatible")
    return words


def _allowed(conditions: set[bytes], left_ms: int, wanted_ms: int) -> bool:
    """A value without an end counts as one that never ends."""
    endless = left_ms == NO_END
    refused = (
        (b"nx" in conditions and not endless)
        or (b"xx" in conditions and endless)
        or (b"gt" in conditions and (endless or wanted_ms <= left_ms))
        or (b"lt" in conditions and not endless and wanted_ms >= left_ms)
    )
    return not refused


def _args(message: Message) -> list[bytes]:
    """Bytes from redis clients; from others, texts and numbers too."""
    args = message.fields.get("args", [])
    if not isinstance(args, list | tuple):
        raise InputError("ERR args is a list")
    return [arg if type(arg) is bytes else _bytes(arg) for arg in args]


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode()
    raise InputError("ERR an argument is a text or a number")


def _number(text: bytes) -> int:
    if _INTEGER.fullmatch(text) is None or int(text) not in _I64:
        raise InputError(_NOT_A_NUMBER)
    return int(text)


def _exactly(args: Args, count: int, name: str) -> Args:
    if len(args) != count:
        raise _misused(name)
    return args


def _some(args: Args, name: str) -> Args:
    if not args:
        raise _misused(name)
    return args


def _misused(name: str) -> InputError:
    return InputError(f"ERR wrong number of arguments for '{name}' command")
