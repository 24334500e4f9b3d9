"""The service `redis`: values under keys, as redis words and answers it.

Each operation is a redis command with its `args`. What is told of a value is told once that value is on disk: a
question behind a write that is still on its way waits for it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from wirelake.broker.broker import Broker, answered
from wirelake.broker.jobs import Job, Jobs
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError
from wirelake.limits import (
    STATE_VALUES_BYTES_MAX,
    VALUES_ANSWER_BYTES_MAX,
    VALUES_ANSWER_HELD_BYTES,
    VALUES_KEYS_AT_ONCE,
)
from wirelake.message import Message, Operation
from wirelake.protocols.resp.frames import BulkString, EncodedArray
from wirelake.state.values import ALL, NO_END, NO_KEY, Only, Values

SERVICE: Final = "redis"

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_I64: Final = range(-(2**63), 2**63)
_SCAN_KEYS: Final = 10  # looked at, where SCAN names no count
_SCAN_KEYS_MAX: Final = 10_000  # COUNT is a hint
_CURSOR_DIGITS_MAX: Final = 20
_ITEM_BYTES: Final = 16  # about what an item of a list takes beside its own bytes
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
    def __init__(
        self, broker: Broker, values: Values, jobs: Jobs, now_ms: Callable[[], int], about: Callable[[], str]
    ) -> None:
        self._broker = broker
        self._values = values
        self._jobs = jobs
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
            "persist": self._persist,
            "pexpire": self._expire_ms,
            "pttl": self._remaining_ms,
            "set": self._set,
            "strlen": self._length,
            "ttl": self._remaining,
            "type": self._type,
            "unlink": self._delete,
        }
        self._long_operations: dict[str, Callable[[Peer, Message, Args, int], Job]] = {
            "keys": self._keys,
            "mget": self._get_many,
            "scan": self._scan,
        }

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        """Raises InputError in the words of redis."""
        op = message.target.op if isinstance(message.target, Operation) else ""
        args = _args(message)
        operation = self._operations.get(op.lower())
        if operation is not None and (len(args) <= VALUES_KEYS_AT_ONCE or operation != self._delete):
            before = self._written
            said = operation(args, self._now_ms())
            is_decided = self._written is before and before.done
            self._answer(peer, message, said, None if is_decided else self._written)
            return
        long_operation = self._delete_many if operation is not None else self._long_operations.get(op.lower())
        if long_operation is None:
            raise InputError(f"ERR unknown command '{op[:128]}'")
        self._jobs.start(peer, message, long_operation(peer, message, args, self._now_ms()))

    def _answer(self, peer: Peer, message: Message, said: Any, commit: Commit | None) -> None:
        if isinstance(said, bytes):
            answer = answered(message, name="bulk_string", protocol="resp", payload=said)
        else:
            answer = answered(message, fields={} if said is _OK else {"value": said})
        if commit is not None and len(answer.payload) > VALUES_ANSWER_HELD_BYTES:
            self._jobs.start(peer, message, self._wait(peer, answer, commit))
        else:
            self._broker.after(commit, peer, answer)

    def _wait(self, peer: Peer, answer: Message, commit: Commit) -> Job:
        """Answer when this is durable."""
        yield commit
        self._broker.after(commit, peer, answer)

    # Reading

    def _get(self, args: Args, now_ms: int) -> bytes | None:
        (key,) = _exactly(args, 1, "get")
        return self._values.get(key, now_ms)

    def _get_many(self, peer: Peer, message: Message, args: Args, now_ms: int) -> Job:
        get, found, size = self._values.get, [], 0
        for place, key in enumerate(_some(args, "mget")):
            value = get(key, now_ms)
            found.append(value)
            size = _counted(size, value or b"")
            if place % VALUES_KEYS_AT_ONCE == 0:
                yield None
        yield self._written
        self._broker.after(self._written, peer, answered(message, fields={"value": found}))

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

    def _keys(self, peer: Peer, message: Message, args: Args, now_ms: int) -> Job:
        (pattern,) = _exactly(args, 1, "keys")
        yield from self._look(peer, message, pattern, 0, ALL, now_ms, is_scan=False)

    def _look(
        self, peer: Peer, message: Message, pattern: bytes, cursor: int, count: int, now_ms: int, *, is_scan: bool
    ) -> Job:
        """Look for keys. A redis client's answer is encoded on the way, others take what there is as a list."""
        is_redis = peer.protocol == "resp"
        found: list[bytes] = []
        encoded: list[bytes] = []
        part: list[bytes] = []
        size = matched = 0
        for behind, keys in self._values.look(pattern, cursor, count, now_ms):
            cursor = behind
            for key in keys:
                size = _counted(size, key)
            matched += len(keys)
            if is_redis:
                part += [b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]
                if len(part) >= VALUES_KEYS_AT_ONCE:
                    encoded.append(b"".join(part))
                    part.clear()
            else:
                found += keys
            yield None
        yield self._written
        if is_redis:
            head = b"*2\r\n" + BulkString(b"%d" % cursor).encode() if is_scan else b""
            payload = b"".join([head, b"*%d\r\n" % matched, *encoded, *part])
            answer = answered(message, name=EncodedArray.name, protocol="resp", payload=payload)
        else:
            answer = answered(message, fields={"value": [b"%d" % cursor, found] if is_scan else found})
        self._broker.after(self._written, peer, answer)

    def _scan(self, peer: Peer, message: Message, args: Args, now_ms: int) -> Job:
        cursor, *options = _some(args, "scan")
        if not cursor.isdigit() or len(cursor) > _CURSOR_DIGITS_MAX or int(cursor) not in _I64:
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
        if wanted != _STRING:
            pattern = b"[]"  # nothing: there are no values of another type
        yield from self._look(peer, message, pattern, int(cursor), min(count, _SCAN_KEYS_MAX), now_ms, is_scan=True)

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

    def _delete_many(self, peer: Peer, message: Message, args: Args, now_ms: int) -> Job:
        """Many keys: others may be served between two parts of them."""
        gone = 0
        for place in range(0, len(args), VALUES_KEYS_AT_ONCE):
            gone += self._delete(args[place : place + VALUES_KEYS_AT_ONCE], now_ms)
            yield None
        self._broker.after(self._written, peer, answered(message, fields={"value": gone}))

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


def _counted(size: int, item: bytes) -> int:
    """The size of a list with one more item. Raises InputError beyond the limit of an answer."""
    size += len(item) + _ITEM_BYTES
    if size > VALUES_ANSWER_BYTES_MAX:
        raise InputError(
            f"ERR the answer is over the limit of {VALUES_ANSWER_BYTES_MAX} bytes: ask for less, or use SCAN"
        )
    return size


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
