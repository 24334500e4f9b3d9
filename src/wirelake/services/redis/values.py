"""Implement the commands on strings and hashes."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from wirelake.errors import InputError, WrongTypeError
from wirelake.limits import VALUES_KEYS_AT_ONCE, VALUES_PAIRS_MAX, VALUES_TRANSACTION_KEYS_MAX
from wirelake.protocols.redis.frames import EncodedMap
from wirelake.services.redis.arguments import (
    I64,
    OK,
    SYNTAX,
    Args,
    RedisCall,
    Work,
    Writes,
    add_size,
    at_least,
    at_most,
    exactly,
    number,
    pairs,
)
from wirelake.state.values import SetCondition, Values

_ONLY: Final = {b"nx": SetCondition.IF_ABSENT, b"xx": SetCondition.IF_PRESENT}
_UNITS_MS: Final = {b"ex": 1000, b"px": 1, b"exat": 1000, b"pxat": 1}


class SetOptions(Struct):
    """Hold the options of a SET."""

    only: SetCondition | None = None
    expires_at_ms: int | None = None
    keep_ttl: bool = False
    return_old: bool = False


_NO_OPTIONS: Final = SetOptions()


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
        for index, key in enumerate(at_least(call.args, 1, "mget")):
            try:
                value = self._values.get(key, call.now_ms)
            except WrongTypeError:
                value = None
            found.append(value)
            size = add_size(size, value or b"")
            if index % VALUES_KEYS_AT_ONCE == 0:
                yield None
        return found

    def _length(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "strlen")
        return len(self._values.get(key, call.now_ms) or b"")

    def _set(self, call: RedisCall) -> Any:
        key, content = at_least(call.args, 2, "set")[:2]
        now_ms, values = call.now_ms, self._values
        options = _parse_set_options(call.args[2:], now_ms) if len(call.args) > 2 else _NO_OPTIONS
        old = values.get(key, now_ms) if options.return_old else None
        expires_at_ms = self._expiry_of(key, now_ms) if options.keep_ttl else options.expires_at_ms
        commit = values.set(key, content, now_ms, expires_at_ms=expires_at_ms, only=options.only)
        if commit is not None:
            self._writes.last = commit
        if options.return_old:
            return old
        return None if commit is None else OK

    def _set_many(self, call: RedisCall) -> Any:
        at_most(call.args, 2 * VALUES_PAIRS_MAX, "keys and values")
        self._writes.last = self._values.set_many(pairs(call.args, "mset"), call.now_ms)
        return OK

    def _set_for(self, call: RedisCall) -> Any:
        return self._set_with_expiry(call, 1000, "setex")

    def _set_for_ms(self, call: RedisCall) -> Any:
        return self._set_with_expiry(call, 1, "psetex")

    def _set_with_expiry(self, call: RedisCall, unit_ms: int, name: str) -> Any:
        key, amount, content = exactly(call.args, 3, name)
        self._store(key, content, call.now_ms, _expiry(amount, unit_ms, call.now_ms, name))
        return OK

    def _get_and_set(self, call: RedisCall) -> bytes | None:
        key, content = exactly(call.args, 2, "getset")
        old = self._values.get(key, call.now_ms)
        self._store(key, content, call.now_ms, None)
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
        self._store(key, content, call.now_ms, self._expiry_of(key, call.now_ms))
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
        self._store(key, b"%d" % result, now_ms, self._expiry_of(key, now_ms))
        return result

    def _store(self, key: bytes, content: bytes, now_ms: int, expires_at_ms: int | None) -> None:
        self._writes.last = self._values.set(key, content, now_ms, expires_at_ms=expires_at_ms) or self._writes.last

    def _expiry_of(self, key: bytes, now_ms: int) -> int | None:
        """Return when the current value expires, or None."""
        remaining_ms = self._values.remaining_ms(key, now_ms)
        return now_ms + remaining_ms if remaining_ms > 0 else None


def _parse_set_options(args: Args, now_ms: int) -> SetOptions:
    """Parse the options of SET: all words before any number, because redis raises its errors in this order."""
    parsed = SetOptions()
    expiry, text = b"", b""  # the option with the expiry, which may be repeated
    index = 0
    while index < len(args):
        option = args[index].lower()
        index += 1
        if option in _ONLY and parsed.only in (None, _ONLY[option]):
            parsed.only = _ONLY[option]
        elif option == b"get":
            parsed.return_old = True
        elif option == b"keepttl" and not expiry:
            parsed.keep_ttl = True
        elif option in _UNITS_MS and index < len(args) and expiry in (b"", option) and not parsed.keep_ttl:
            expiry, text = option, args[index]
            index += 1
        else:
            raise InputError(SYNTAX)
    if expiry:
        parsed.expires_at_ms = _expiry(text, _UNITS_MS[expiry], 0 if expiry.endswith(b"at") else now_ms, "set")
    return parsed


def _expiry(amount: bytes, unit_ms: int, from_ms: int, name: str) -> int:
    units = number(amount)
    expires_at_ms = units * unit_ms + from_ms
    if units <= 0 or expires_at_ms not in I64:
        raise InputError(f"ERR invalid expire time in '{name}' command")
    return expires_at_ms


class HashCommands:
    def __init__(self, values: Values, writes: Writes) -> None:
        self._values = values
        self._writes = writes
        self.operations: dict[str, Callable[[RedisCall], Any]] = {
            "hdel": self._delete,
            "hget": self._get,
            "hgetall": self._get_all,
            "hmget": self._get_many,
            "hset": self._set,
        }

    def _set(self, call: RedisCall) -> int:
        key, *fields = at_least(call.args, 3, "hset")
        at_most(fields, 2 * VALUES_PAIRS_MAX, "fields and values")
        added, self._writes.last = self._values.set_fields(key, pairs(fields, "hset"), call.now_ms)
        return added

    def _get(self, call: RedisCall) -> bytes | None:
        key, field = exactly(call.args, 2, "hget")
        return self._values.fields(key, call.now_ms).get(field)

    def _get_many(self, call: RedisCall) -> list[bytes | None]:
        key, *fields = at_least(call.args, 2, "hmget")
        at_most(fields, VALUES_PAIRS_MAX, "fields")
        found = list(map(self._values.fields(key, call.now_ms).get, fields))
        size = 0
        for value in found:
            size = add_size(size, value or b"")
        return found

    def _get_all(self, call: RedisCall) -> Any:
        (key,) = exactly(call.args, 1, "hgetall")
        fields = dict(self._values.fields(key, call.now_ms))
        return fields if len(fields) <= VALUES_KEYS_AT_ONCE else self._get_all_in_steps(call, fields)

    def _get_all_in_steps(self, call: RedisCall, fields: dict[bytes, bytes]) -> Work:
        """Return many fields in steps. The response to a redis client is encoded on the way; others get a dict."""
        is_redis = call.peer.protocol == "redis"
        encoded: list[bytes] = []
        size = 0
        for index, (field, value) in enumerate(fields.items()):
            size = add_size(add_size(size, field), value)
            if is_redis:
                encoded.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(field), field, len(value), value))
            if index % VALUES_KEYS_AT_ONCE == 0:
                yield None
        return EncodedMap(len(fields), b"".join(encoded)) if is_redis else fields

    def _delete(self, call: RedisCall) -> int:
        key, *fields = at_least(call.args, 2, "hdel")
        at_most(fields, VALUES_PAIRS_MAX, "fields")
        removed, commit = self._values.delete_fields(key, fields, call.now_ms)
        if removed:
            self._writes.last = commit
        return removed
