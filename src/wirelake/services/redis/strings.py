"""Commands on strings."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from wirelake.errors import InputError, WrongTypeError
from wirelake.limits import VALUES_KEYS_AT_ONCE, VALUES_PAIRS_MAX, VALUES_TRANSACTION_KEYS_MAX
from wirelake.services.redis.arguments import (
    I64,
    OK,
    SYNTAX,
    Args,
    RedisCall,
    Work,
    Writes,
    at_least,
    at_most,
    counted,
    exactly,
    number,
    pairs,
)
from wirelake.state.values import SetCondition, Values

_ONLY: Final = {b"nx": SetCondition.IF_ABSENT, b"xx": SetCondition.IF_PRESENT}
_UNITS_MS: Final = {b"ex": 1000, b"px": 1, b"exat": 1000, b"pxat": 1}


class Setting(Struct):
    """What may follow the key and the value of a SET."""

    only: SetCondition | None = None
    expires_at_ms: int | None = None
    keep_end: bool = False
    tell_old: bool = False


_PLAIN: Final = Setting()


class StringCommands:
    def __init__(self, values: Values, writes: Writes) -> None:
        self._values = values
        self._writes = writes
        self.operations: dict[str, Callable[[RedisCall], Any]] = {
            "append": self._append,
            "decr": self._decrement,
            "decrby": self._decrement_by,
            "get": self._get,
            "getdel": self._get_and_delete,
            "getset": self._get_and_set,
            "incr": self._increment,
            "incrby": self._increment_by,
            "mget": self._get_many,
            "mset": self._set_many,
            "psetex": self._set_for_ms,
            "set": self._set,
            "setex": self._set_for,
            "strlen": self._length,
        }

    def _get(self, call: RedisCall) -> bytes | None:
        (key,) = exactly(call.args, 1, "get")
        return self._values.get(key, call.now_ms)

    def _get_many(self, call: RedisCall) -> Work:
        if call.is_queued:
            at_most(call.args, VALUES_TRANSACTION_KEYS_MAX, "keys inside MULTI")
        found: list[bytes | None] = []
        size = 0
        for place, key in enumerate(at_least(call.args, 1, "mget")):
            try:
                value = self._values.get(key, call.now_ms)
            except WrongTypeError:
                value = None
            found.append(value)
            size = counted(size, value or b"")
            if place % VALUES_KEYS_AT_ONCE == 0:
                yield None
        return found

    def _length(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "strlen")
        return len(self._values.get(key, call.now_ms) or b"")

    def _set(self, call: RedisCall) -> Any:
        key, content = at_least(call.args, 2, "set")[:2]
        now_ms, values = call.now_ms, self._values
        setting = _setting(call.args[2:], now_ms) if len(call.args) > 2 else _PLAIN
        old = values.get(key, now_ms) if setting.tell_old else None
        expires_at_ms = self._end_of(key, now_ms) if setting.keep_end else setting.expires_at_ms
        commit = values.set(key, content, now_ms, expires_at_ms=expires_at_ms, only=setting.only)
        if commit is not None:
            self._writes.last = commit
        if setting.tell_old:
            return old
        return None if commit is None else OK

    def _set_many(self, call: RedisCall) -> Any:
        at_most(call.args, 2 * VALUES_PAIRS_MAX, "keys and values")
        self._writes.last = self._values.set_many(pairs(call.args, "mset"), call.now_ms)
        return OK

    def _set_for(self, call: RedisCall) -> Any:
        return self._set_with_end(call, 1000, "setex")

    def _set_for_ms(self, call: RedisCall) -> Any:
        return self._set_with_end(call, 1, "psetex")

    def _set_with_end(self, call: RedisCall, unit_ms: int, name: str) -> Any:
        key, amount, content = exactly(call.args, 3, name)
        self._put(key, content, call.now_ms, _end(amount, unit_ms, call.now_ms, name))
        return OK

    def _get_and_set(self, call: RedisCall) -> bytes | None:
        key, content = exactly(call.args, 2, "getset")
        old = self._values.get(key, call.now_ms)
        self._put(key, content, call.now_ms, None)
        return old

    def _get_and_delete(self, call: RedisCall) -> bytes | None:
        (key,) = exactly(call.args, 1, "getdel")
        old = self._values.get(key, call.now_ms)
        if old is not None:
            _, self._writes.last = self._values.delete([key], call.now_ms)
        return old

    def _append(self, call: RedisCall) -> int:
        key, tail = exactly(call.args, 2, "append")
        content = (self._values.get(key, call.now_ms) or b"") + tail
        self._put(key, content, call.now_ms, self._end_of(key, call.now_ms))
        return len(content)

    def _increment(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "incr")
        return self._add(key, 1, call.now_ms)

    def _decrement(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "decr")
        return self._add(key, -1, call.now_ms)

    def _increment_by(self, call: RedisCall) -> int:
        key, amount = exactly(call.args, 2, "incrby")
        return self._add(key, number(amount), call.now_ms)

    def _decrement_by(self, call: RedisCall) -> int:
        key, amount = exactly(call.args, 2, "decrby")
        if -number(amount) not in I64:
            raise InputError("ERR decrement would overflow")
        return self._add(key, -number(amount), call.now_ms)

    def _add(self, key: bytes, amount: int, now_ms: int) -> int:
        before = self._values.get(key, now_ms)
        result = amount + (0 if before is None else number(before))
        if result not in I64:
            raise InputError("ERR increment or decrement would overflow")
        self._put(key, b"%d" % result, now_ms, self._end_of(key, now_ms))
        return result

    def _put(self, key: bytes, content: bytes, now_ms: int, expires_at_ms: int | None) -> None:
        self._writes.last = self._values.set(key, content, now_ms, expires_at_ms=expires_at_ms) or self._writes.last

    def _end_of(self, key: bytes, now_ms: int) -> int | None:
        """When the value that is there ends, if it does."""
        left_ms = self._values.remaining_ms(key, now_ms)
        return now_ms + left_ms if left_ms > 0 else None


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
            raise InputError(SYNTAX)
    if end:
        found.expires_at_ms = _end(text, _UNITS_MS[end], 0 if end.endswith(b"at") else now_ms, "set")
    return found


def _end(amount: bytes, unit_ms: int, from_ms: int, name: str) -> int:
    units = number(amount)
    ends_at_ms = units * unit_ms + from_ms
    if units <= 0 or ends_at_ms not in I64:
        raise InputError(f"ERR invalid expire time in '{name}' command")
    return ends_at_ms
