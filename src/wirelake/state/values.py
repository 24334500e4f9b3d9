"""Store redis values: strings and hashes, optionally with an expiry. All are in memory, within a limit.

A value that has expired does not exist, whether or not the sweep has removed it yet. A hash is one row for its key and
a row for each field.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import FullError, InputError, WrongTypeError
from wirelake.limits import (
    STATE_HASH_FIELDS_MAX,
    STATE_KEYS_AT_ONCE,
    STATE_NAME_BYTES_MAX,
    STATE_VALUES_BYTES_MAX,
    STATE_VALUES_MAX,
)
from wirelake.state.batch import SingleRowStatement, Statement
from wirelake.state.database import StateReader
from wirelake.state.glob import compile_glob
from wirelake.state.schema import check_content, check_integer
from wirelake.state.writer import StateWriter

_SET: Final = Statement(
    "values", "INSERT OR REPLACE INTO redis_values (number, key, value, expires_at_ms, type) VALUES ", "(?,?,?,?,?)"
)
_DELETE: Final = Statement("values", "DELETE FROM redis_values WHERE number IN (", "?", ")")
_SET_FIELDS: Final = Statement(
    "values", "INSERT OR REPLACE INTO redis_fields (number, field, value) VALUES ", "(?,?,?)"
)
_DELETE_FIELDS: Final = Statement("values", "DELETE FROM redis_fields WHERE (number, field) IN (VALUES ", "(?,?)", ")")
_DELETE_HASH: Final = Statement("values", "DELETE FROM redis_fields WHERE number IN (", "?", ")")
_CLEAR: Final = (
    SingleRowStatement("values", "DELETE FROM redis_values WHERE number <= ?"),
    SingleRowStatement("values", "DELETE FROM redis_fields WHERE number <= ?"),
)

_VALUE_BYTES: Final = 256  # approximate overhead of a value in memory
_FIELD_BYTES: Final = 128  # the same for a field of a hash
_SPARE_NUMBERS: Final = 1024  # removed numbers that may stay in the list
NO_KEY: Final = -2  # the answers of redis for `remaining_ms`
NO_EXPIRY: Final = -1
ALL_KEYS: Final = 2**63  # as the count of a scan


class Hash(Struct):
    """Hold the fields of a hash, which change in place."""

    fields: dict[bytes, bytes]
    size_bytes: int = 0


class StoredValue(Struct, frozen=True, gc=False):
    number: int  # increases with each new key: the cursor of SCAN
    content: bytes | Hash
    expires_at_ms: int | None

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    @property
    def size_bytes(self) -> int:
        content = self.content
        return len(content) if type(content) is bytes else content.size_bytes  # type: ignore[union-attr]

    @property
    def type(self) -> str:
        return "string" if type(self.content) is bytes else "hash"


class SetCondition(Enum):
    """Make SET conditional, as NX and XX do."""

    IF_ABSENT = "NX"
    IF_PRESENT = "XX"


class Values:
    """Keep all redis values in memory, and on disk."""

    def __init__(self, writer: StateWriter, reader: StateReader, bytes_max: int = STATE_VALUES_BYTES_MAX) -> None:
        self._writer = writer
        self._reader = reader
        self._bytes_max = bytes_max
        self._by_key: dict[bytes, StoredValue] = {}
        self._keys: dict[int, bytes] = {}  # by number
        self._numbers: list[int] = []  # rising; includes some that are removed
        self._last_number = 0
        self.size_bytes = 0
        self.on_change: Callable[[bytes | None], object] | None = None  # called with each changed key; None: all keys

    def load(self) -> None:
        self._by_key, self._keys, self._numbers, self.size_bytes = {}, {}, [], 0
        hashes: dict[int, Hash] = {}
        for number, field, content in self._reader.rows("SELECT number, field, value FROM redis_fields"):
            found = hashes.setdefault(number, Hash({}))
            found.fields[field] = content
            found.size_bytes += len(field) + len(content) + _FIELD_BYTES
        query = "SELECT number, key, value, expires_at_ms, type FROM redis_values ORDER BY number"
        for number, key, content, expires_at_ms, kind in self._reader.rows(query):
            is_string = kind == "string"
            self._insert(
                key, StoredValue(number, content if is_string else hashes.get(number, Hash({})), expires_at_ms)
            )
        if self.on_change is not None:
            self.on_change(None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside, topics included, atomically. Raise StorageError if the state cannot be written."""
        self._writer.check_writable()
        with self._writer.transaction():
            yield

    def __len__(self) -> int:
        """Count all values, including expired ones that are not removed yet."""
        self._writer.reload_if_stale()
        return len(self._by_key)

    def get(self, key: bytes, now_ms: int) -> bytes | None:
        """Return the string, or None. Raise WrongTypeError if the value is a hash."""
        value = self._find(key, now_ms)
        if value is None:
            return None
        if isinstance(value.content, Hash):
            raise WrongTypeError
        return value.content

    def fields(self, key: bytes, now_ms: int) -> Mapping[bytes, bytes]:
        """Return the fields of a hash, which change with the next write; empty if there is no such key."""
        value = self._find(key, now_ms)
        if value is None:
            return {}
        if not isinstance(value.content, Hash):
            raise WrongTypeError
        return value.content.fields

    def type(self, key: bytes, now_ms: int) -> str | None:
        """Return `string` or `hash`; None if there is no such key."""
        value = self._find(key, now_ms)
        return None if value is None else value.type

    def exists(self, keys: Iterable[bytes], now_ms: int) -> int:
        """Count those that exist; a key named twice counts twice."""
        return sum(self._find(key, now_ms) is not None for key in keys)

    def remaining_ms(self, key: bytes, now_ms: int) -> int:
        """Return the time until the value expires, or NO_EXPIRY or NO_KEY."""
        value = self._find(key, now_ms)
        if value is None:
            return NO_KEY
        return NO_EXPIRY if value.expires_at_ms is None else value.expires_at_ms - now_ms

    def scan_in_steps(self, pattern: bytes, cursor: int, count: int, now_ms: int) -> Iterator[tuple[int, list[bytes]]]:
        """Scan `count` keys, a few at a time: yield the next cursor (0 at the end), and the keys that match.

        Keys may be set and deleted between two steps. A key that exists throughout is returned exactly once.
        """
        self._writer.reload_if_stale()
        matches = compile_glob(pattern).fullmatch
        count = max(count, 1)
        while count > 0:
            start = bisect_right(self._numbers, cursor)
            numbers = self._numbers[start : start + min(count, STATE_KEYS_AT_ONCE)]
            count -= len(numbers)
            found: list[bytes] = []
            for number in numbers:
                key = self._keys.get(number)
                if key is not None and matches(key) and not self._by_key[key].is_expired(now_ms):
                    found.append(key)
            cursor = numbers[-1] if start + len(numbers) < len(self._numbers) else 0
            yield cursor, found
            if not cursor:
                return

    def set(
        self,
        key: bytes,
        content: bytes,
        now_ms: int,
        *,
        expires_at_ms: int | None = None,
        only: SetCondition | None = None,
    ) -> Commit | None:
        """Set a string. Return None if `only` prevents it."""
        self._writer.check_writable()
        before = self._find(key, now_ms)
        if only is not None and (before is None) is not (only is SetCondition.IF_ABSENT):
            return None
        _check_key(key)
        check_content(content, "a value")
        check_integer(expires_at_ms or 0, "the expiry of a value")
        stored = self._by_key.get(key)
        self._check_space(key, stored, len(content) - (stored.size_bytes if stored else 0))
        number = stored.number if stored else self._last_number + 1
        return self._store(key, StoredValue(number, content, expires_at_ms))

    def set_many(self, contents: Mapping[bytes, bytes], now_ms: int) -> Commit:
        """Set all of them, or none."""
        self._writer.check_writable()
        growth = 0
        for key, content in contents.items():
            _check_key(key)
            check_content(content, "a value")
            stored = self._by_key.get(key)
            growth += len(content) - (stored.size_bytes if stored else -len(key) - _VALUE_BYTES)
        keys = len(self._by_key) + len(contents.keys() - self._by_key.keys())
        if self.size_bytes + growth > self._bytes_max or keys > STATE_VALUES_MAX:
            raise self._full()
        with self._writer.transaction():
            for key, content in contents.items():
                self.set(key, content, now_ms)
        return self._writer.barrier()

    def set_fields(self, key: bytes, fields: Mapping[bytes, bytes], now_ms: int) -> tuple[int, Commit]:
        """Set fields of a hash, which is created if needed. Return how many fields are new."""
        self._writer.check_writable()
        before = self.fields(key, now_ms)
        _check_key(key)
        growth = added = 0
        for field, content in fields.items():
            check_content(field, "a field's name")
            check_content(content, "a field's value")
            old = before.get(field)
            added += old is None
            growth += len(content) - (len(old) if old is not None else -len(field) - _FIELD_BYTES)
        if len(before) + added > STATE_HASH_FIELDS_MAX:
            raise FullError(f"a hash has at most {STATE_HASH_FIELDS_MAX} fields")
        stored = self._by_key.get(key)
        self._check_space(key, stored, growth)
        with self._writer.transaction():
            if stored is None or stored.is_expired(now_ms):
                number = self._last_number + 1 if stored is None else stored.number
                stored = StoredValue(number, Hash({}), None)
                self._store(key, stored)
            assert isinstance(stored.content, Hash)  # noqa: S101 or `fields` would have refused it
            stored.content.fields.update(fields)
            stored.content.size_bytes += growth
            self.size_bytes += growth
            rows = [(stored.number, field, content) for field, content in fields.items()]
            size = sum(map(len, fields)) + sum(map(len, fields.values()))
            commit = self._writer.submit_many(_SET_FIELDS, rows, size)
        self._notify(key)
        return added, commit

    def delete_fields(self, key: bytes, fields: Iterable[bytes], now_ms: int) -> tuple[int, Commit]:
        """Remove fields of a hash, and with the last one the hash. Return how many existed."""
        self._writer.check_writable()
        existing = set(fields) & self.fields(key, now_ms).keys()
        if not existing:
            return 0, self._writer.barrier()
        value = self._by_key[key]
        assert isinstance(value.content, Hash)  # noqa: S101 or `fields` would have refused it
        if len(existing) == len(value.content.fields):
            self._drop(key, value)
            return len(existing), self._writer.barrier()
        shrunk = sum(len(field) + len(value.content.fields.pop(field)) + _FIELD_BYTES for field in existing)
        value.content.size_bytes -= shrunk
        self.size_bytes -= shrunk
        self._notify(key)
        return len(existing), self._writer.submit_many(_DELETE_FIELDS, [(value.number, field) for field in existing])

    def clear(self) -> Commit:
        """Remove all values."""
        self._writer.check_writable()
        self._by_key, self._keys, self._numbers, self.size_bytes = {}, {}, [], 0
        with self._writer.transaction():
            for statement in _CLEAR:
                self._writer.submit(statement, (self._last_number,))
        if self.on_change is not None:
            self.on_change(None)
        return self._writer.barrier()

    def expire(self, key: bytes, expires_at_ms: int | None, now_ms: int) -> Commit | None:
        """Change or remove the expiry. Return None if there is no such key."""
        self._writer.check_writable()
        check_integer(expires_at_ms or 0, "the expiry of a value")
        value = self._find(key, now_ms)
        return None if value is None else self._store(key, StoredValue(value.number, value.content, expires_at_ms))

    def delete(self, keys: Iterable[bytes], now_ms: int) -> tuple[int, Commit]:
        """Delete keys. Return how many existed."""
        self._writer.check_writable()
        existing = 0
        with self._writer.transaction():
            for key in keys:
                value = self._by_key.get(key)
                if value is not None:
                    existing += not value.is_expired(now_ms)
                    self._drop(key, value)
        return existing, self._writer.barrier()

    def sweep(self, now_ms: int, rows_max: int) -> int:
        """Remove some expired values. Return how many were visited."""
        self._writer.check_writable()
        query = "SELECT key FROM redis_values WHERE expires_at_ms <= ? LIMIT ?"
        keys = [key for (key,) in self._reader.rows(query, (now_ms, rows_max))]
        for key in keys:
            value = self._by_key.get(key)
            if value is not None and value.is_expired(now_ms):  # or it was set again a moment ago
                self._drop(key, value)
        return len(keys)

    def _find(self, key: bytes, now_ms: int) -> StoredValue | None:
        self._writer.reload_if_stale()
        value = self._by_key.get(key)
        return None if value is None or value.is_expired(now_ms) else value

    def _check_space(self, key: bytes, stored: StoredValue | None, growth: int) -> None:
        if stored is None:
            growth += len(key) + _VALUE_BYTES
        is_one_too_many = stored is None and len(self._by_key) >= STATE_VALUES_MAX
        if is_one_too_many or self.size_bytes + growth > self._bytes_max:
            raise self._full()

    def _full(self) -> FullError:
        return FullError(f"cannot store more values: they take {self.size_bytes} of {self._bytes_max} bytes")

    def _store(self, key: bytes, value: StoredValue) -> Commit:
        content, kind = value.content, "string"
        before = self._insert(key, value)
        if before is not None and type(before.content) is Hash and before.content is not content:
            self._writer.submit(_DELETE_HASH, (before.number,))
        if type(content) is not bytes:
            content, kind = b"", "hash"
        if self.on_change is not None:
            self.on_change(key)
        row = (value.number, key, content, value.expires_at_ms, kind)
        return self._writer.submit(_SET, row, key=key, content_bytes=len(key) + len(content))

    def _notify(self, key: bytes) -> None:
        if self.on_change is not None:
            self.on_change(key)

    def _insert(self, key: bytes, value: StoredValue) -> StoredValue | None:
        """Store it in memory. Return the value that it replaces."""
        before = self._by_key.get(key)
        self._by_key[key] = value
        if before is not None:
            self.size_bytes += value.size_bytes - before.size_bytes
            return before
        self.size_bytes += len(key) + value.size_bytes + _VALUE_BYTES
        self._keys[value.number] = key
        self._numbers.append(value.number)
        self._last_number = max(self._last_number, value.number)
        return None

    def _drop(self, key: bytes, value: StoredValue) -> None:
        del self._by_key[key]
        del self._keys[value.number]
        self.size_bytes -= len(key) + value.size_bytes + _VALUE_BYTES
        if len(self._numbers) > 2 * len(self._keys) + _SPARE_NUMBERS:
            self._numbers = sorted(self._keys)
        self._notify(key)
        with self._writer.transaction():
            self._writer.submit(_DELETE, (value.number,))
            if isinstance(value.content, Hash):
                self._writer.submit(_DELETE_HASH, (value.number,))


def _check_key(key: bytes) -> None:
    if len(key) > STATE_NAME_BYTES_MAX:
        raise InputError(f"a key has {len(key)} bytes, over the limit of {STATE_NAME_BYTES_MAX}")
