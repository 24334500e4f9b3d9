"""Commands on hashes."""

from collections.abc import Callable
from typing import Any

from wirelake.limits import VALUES_KEYS_AT_ONCE, VALUES_PAIRS_MAX
from wirelake.protocols.redis.frames import EncodedMap
from wirelake.services.redis.arguments import RedisCall, Work, Writes, at_least, at_most, counted, exactly, pairs
from wirelake.state.values import Values


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
            size = counted(size, value or b"")
        return found

    def _get_all(self, call: RedisCall) -> Any:
        (key,) = exactly(call.args, 1, "hgetall")
        fields = dict(self._values.fields(key, call.now_ms))
        return fields if len(fields) <= VALUES_KEYS_AT_ONCE else self._get_all_of(call, fields)

    def _get_all_of(self, call: RedisCall, fields: dict[bytes, bytes]) -> Work:
        """Many fields. A redis client's answer is encoded on the way, others take what there is."""
        is_redis = call.peer.protocol == "redis"
        encoded: list[bytes] = []
        size = 0
        for place, (field, value) in enumerate(fields.items()):
            size = counted(counted(size, field), value)
            if is_redis:
                encoded.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(field), field, len(value), value))
            if place % VALUES_KEYS_AT_ONCE == 0:
                yield None
        return EncodedMap(len(fields), b"".join(encoded)) if is_redis else fields

    def _delete(self, call: RedisCall) -> int:
        key, *fields = at_least(call.args, 2, "hdel")
        at_most(fields, VALUES_PAIRS_MAX, "fields")
        gone, commit = self._values.delete_fields(key, fields, call.now_ms)
        if gone:
            self._writes.last = commit
        return gone
