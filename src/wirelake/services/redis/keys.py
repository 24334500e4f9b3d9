"""Implement the commands on keys, for values of any type."""

from collections.abc import Callable
from typing import Any, Final

from wirelake.broker.peer import Peer
from wirelake.errors import InputError
from wirelake.limits import VALUES_KEYS_AT_ONCE, VALUES_TRANSACTION_KEYS_MAX
from wirelake.protocols.redis.frames import BulkString, EncodedArray
from wirelake.services.redis.access import CommandAccess, only_readable
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
    quoted,
)
from wirelake.state.topics import TopicStore
from wirelake.state.values import ALL_KEYS, NO_EXPIRY, NO_KEY, Values

_SCAN_KEYS: Final = 10  # examined by a SCAN without COUNT
_SCAN_KEYS_MAX: Final = 10_000  # COUNT is a hint
_CURSOR_DIGITS_MAX: Final = 20
_CONDITIONS: Final = frozenset({b"nx", b"xx", b"gt", b"lt"})
_FLUSH_OPTIONS: Final = frozenset({b"async", b"sync"})


class KeyCommands:
    def __init__(
        self,
        values: Values,
        topics: TopicStore,
        writes: Writes,
        access: CommandAccess,
        may_flush: Callable[[Peer], bool],
    ) -> None:
        self._access = access
        self._values = values
        self._topics = topics
        self._writes = writes
        self._may_flush = may_flush
        self.operations: dict[str, Callable[[RedisCall], Any]] = {
            "dbsize": self._size,
            "del": self._delete,
            "exists": self._exists,
            "expire": self._expire,
            "flushdb": self._flush,
            "keys": self._keys,
            "persist": self._persist,
            "pexpire": self._expire_ms,
            "pttl": self._pttl,
            "scan": self._scan,
            "ttl": self._ttl,
            "type": self._type,
            "unlink": self._delete,
        }

    def _exists(self, call: RedisCall) -> int:
        return self._values.exists(at_least(call.args, 1, "exists"), call.now_ms)

    def _type(self, call: RedisCall) -> str:
        (key,) = exactly(call.args, 1, "type")
        found = self._values.type(key, call.now_ms)
        if found is None and key.startswith(b"@") and self._is_stream(call.peer, key.decode(errors="replace")):
            return "stream"
        return found or "none"

    def _is_stream(self, peer: Peer, name: str) -> bool:
        return bool(self._topics.head(name)) and self._access.may_subscribe(peer, name)

    def _size(self, call: RedisCall) -> Any:
        exactly(call.args, 0, "dbsize")
        return len(self._values) if self._access.readable(call.peer) is None else self._count(call)

    def _count(self, call: RedisCall) -> Work:
        """Count the keys that the peer may read."""
        self._check_keys_in_transaction(call, "DBSIZE")
        rights = self._access.readable(call.peer)
        count = 0
        for _, keys in self._values.scan_in_steps(b"*", 0, ALL_KEYS, call.now_ms):
            count += len(only_readable(keys, rights))
            yield None
        return count

    def _keys(self, call: RedisCall) -> Work:
        (pattern,) = exactly(call.args, 1, "keys")
        self._check_keys_in_transaction(call, "KEYS")
        _, found = yield from self._find_keys(call, pattern, 0, ALL_KEYS)
        return found

    def _check_keys_in_transaction(self, call: RedisCall, name: str) -> None:
        if call.is_queued and len(self._values) > VALUES_TRANSACTION_KEYS_MAX:
            raise InputError(f"ERR inside MULTI, {name} looks through at most {VALUES_TRANSACTION_KEYS_MAX} keys")

    def _scan(self, call: RedisCall) -> Work:
        cursor, *options = at_least(call.args, 1, "scan")
        if not cursor.isdigit() or len(cursor) > _CURSOR_DIGITS_MAX or int(cursor) not in I64:
            raise InputError("ERR invalid cursor")
        pattern, count, value_type = b"*", _SCAN_KEYS, ""
        if len(options) % 2:
            raise InputError(SYNTAX)
        for option, value in zip(options[::2], options[1::2], strict=True):
            match option.lower():
                case b"match":
                    pattern = value
                case b"count":
                    count = number(value)
                    if count < 1:
                        raise InputError(SYNTAX)
                case b"type":
                    value_type = value.lower().decode(errors="replace")
                case _:
                    raise InputError(SYNTAX)
        count_max = VALUES_TRANSACTION_KEYS_MAX if call.is_queued else _SCAN_KEYS_MAX
        next_cursor, found = yield from self._find_keys(call, pattern, int(cursor), min(count, count_max), value_type)
        if isinstance(found, EncodedArray):
            return EncodedArray(b"*2\r\n" + BulkString(b"%d" % next_cursor).encode() + found.data)
        return [b"%d" % next_cursor, found]

    def _find_keys(self, call: RedisCall, pattern: bytes, cursor: int, count: int, value_type: str = "") -> Work:
        """Find keys that the peer may read. The response to a redis client is encoded on the way; others get a list."""
        is_redis, now_ms = call.peer.protocol == "redis", call.now_ms
        rights = self._access.readable(call.peer)
        found: list[bytes] = []
        encoded: list[bytes] = []
        part: list[bytes] = []
        size = matched = 0
        for next_cursor, scanned in self._values.scan_in_steps(pattern, cursor, count, now_ms):
            cursor, keys = next_cursor, only_readable(scanned, rights)
            if value_type:
                keys = [key for key in keys if self._values.type(key, now_ms) == value_type]
            for key in keys:
                size = add_size(size, key)
            matched += len(keys)
            if is_redis:
                part += [b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]
                if len(part) >= VALUES_KEYS_AT_ONCE:
                    encoded.append(b"".join(part))
                    part.clear()
            else:
                found += keys
            yield None
        return cursor, EncodedArray(b"".join([b"*%d\r\n" % matched, *encoded, *part])) if is_redis else found

    def _ttl(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "ttl")
        remaining_ms = self._values.remaining_ms(key, call.now_ms)
        return remaining_ms if remaining_ms in (NO_KEY, NO_EXPIRY) else (remaining_ms + 500) // 1000

    def _pttl(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "pttl")
        return self._values.remaining_ms(key, call.now_ms)

    def _delete(self, call: RedisCall) -> Any:
        if call.is_queued:
            at_most(call.args, VALUES_TRANSACTION_KEYS_MAX, "keys inside MULTI")
        if len(call.args) > VALUES_KEYS_AT_ONCE and not call.is_queued:
            return self._delete_many(call)
        return self._remove(at_least(call.args, 1, "del"), call.now_ms)

    def _delete_many(self, call: RedisCall) -> Work:
        """Delete many keys in steps, with other peers served in between."""
        removed = 0
        for start in range(0, len(call.args), VALUES_KEYS_AT_ONCE):
            removed += self._remove(call.args[start : start + VALUES_KEYS_AT_ONCE], call.now_ms)
            yield None
        return removed

    def _remove(self, keys: Args, now_ms: int) -> int:
        removed, self._writes.last = self._values.delete(keys, now_ms)
        return removed

    def _expire(self, call: RedisCall) -> int:
        return self._set_expiry(call, 1000, "expire")

    def _expire_ms(self, call: RedisCall) -> int:
        return self._set_expiry(call, 1, "pexpire")

    def _set_expiry(self, call: RedisCall, unit_ms: int, name: str) -> int:
        key, amount, *options = at_least(call.args, 2, name)
        conditions, now_ms = _conditions(options), call.now_ms
        expires_at_ms = now_ms + number(amount) * unit_ms
        if expires_at_ms not in I64:
            raise InputError(f"ERR invalid expire time in '{name}' command")
        remaining_ms = self._values.remaining_ms(key, now_ms)
        if remaining_ms == NO_KEY or not _is_allowed(conditions, remaining_ms, expires_at_ms - now_ms):
            return 0
        if expires_at_ms <= now_ms:
            return self._remove([key], now_ms)
        self._writes.last = self._values.expire(key, expires_at_ms, now_ms) or self._writes.last
        return 1

    def _persist(self, call: RedisCall) -> int:
        (key,) = exactly(call.args, 1, "persist")
        if self._values.remaining_ms(key, call.now_ms) in (NO_KEY, NO_EXPIRY):
            return 0
        self._writes.last = self._values.expire(key, None, call.now_ms) or self._writes.last
        return 1

    def _flush(self, call: RedisCall) -> Any:
        """Remove all values; durable topics stay."""
        if len(call.args) > 1:
            raise InputError(SYNTAX)
        if call.args and call.args[0].lower() not in _FLUSH_OPTIONS:
            raise InputError(SYNTAX)
        if not self._may_flush(call.peer):
            raise InputError(
                f"NOPERM User {quoted(call.peer.identity.encode())} has no permissions to run the 'flushdb' command"
            )
        self._writes.last = self._values.clear()
        return OK


def _conditions(options: Args) -> set[bytes]:
    """Parse the options NX, XX, GT and LT of EXPIRE."""
    words = {option.lower() for option in options}
    for option in options:
        if option.lower() not in _CONDITIONS:
            raise InputError(f"ERR Unsupported option {quoted(option)}")
    if b"nx" in words and len(words) > 1:
        raise InputError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if words >= {b"gt", b"lt"}:
        raise InputError("ERR GT and LT options at the same time are not compatible")
    return words


def _is_allowed(conditions: set[bytes], remaining_ms: int, new_ms: int) -> bool:
    """Return whether the options allow the new expiry. A value without expiry counts as one that never expires."""
    has_no_expiry = remaining_ms == NO_EXPIRY
    refused = (
        (b"nx" in conditions and not has_no_expiry)
        or (b"xx" in conditions and has_no_expiry)
        or (b"gt" in conditions and (has_no_expiry or new_ms <= remaining_ms))
        or (b"lt" in conditions and not has_no_expiry and new_ms >= remaining_ms)
    )
    return not refused
