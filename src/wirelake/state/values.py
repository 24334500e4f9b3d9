"""Redis values: strings and hashes under keys, some with an end. All in memory, as redis users expect, within a limit.

A value that is over is not there, whether or not the sweep has removed it yet. A hash is a row of its own, for its key,
and a row for each field.
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
    STATE_KEYS_LOOKED_AT,
    STATE_NAME_BYTES_MAX,
    STATE_VALUES_BYTES_MAX,
    STATE_VALUES_MAX,
)
from wirelake.state.batch import OneByOne, Statement
from wirelake.state.bounds import check_content, check_integer
from wirelake.state.glob import glob
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

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
    OneByOne("values", "DELETE FROM redis_values WHERE number <= ?"),
    OneByOne("values", "DELETE FROM redis_fields WHERE number <= ?"),
)

_VALUE_BYTES: Final = 256  # what a value takes in memory beyond its own bytes, about
_FIELD_BYTES: Final = 128  # the same for a field of a hash
_SPARE_NUMBERS: Final = 1024
NO_KEY: Final = -2  # redis' own words for `remaining_ms`
NO_END: Final = -1
ALL: Final = 2**63  # keys, to be looked at


class Hash(Struct):
    """Fields of a hash, which change in place."""

    fields: dict[bytes, bytes]
    size_bytes: int = 0


class Value(Struct, frozen=True, gc=False):
    number: int  # rises with each new key: the cursor of SCAN
    content: bytes | Hash
    expires_at_ms: int | None

    def over(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    @property
    def size_bytes(self) -> int:
        content = self.content
        return len(content) if type(content) is bytes else content.size_bytes  # type: ignore[union-attr]

    @property
    def type(self) -> str:
        return "string" if type(self.content) is bytes else "hash"


class Only(Enum):
    """SET with NX or XX."""

    IF_ABSENT = "NX"
    IF_PRESENT = "XX"


class Values:
    def __init__(self, writer: Writer, reader: Reader, bytes_max: int = STATE_VALUES_BYTES_MAX) -> None:
        self._writer = writer
        self._reader = reader
        self._bytes_max = bytes_max
        self._by_key: dict[bytes, Value] = {}
        self._keys: dict[int, bytes] = {}  # by number
        self._numbers: list[int] = []  # rising; also some that are gone
        self._last_number = 0
        self.size_bytes = 0
        self.changed: Callable[[bytes | None], object] | None = None  # hears of each key that changes; None: of all

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
            self._enter(key, Value(number, content if is_string else hashes.get(number, Hash({})), expires_at_ms))
        if self.changed is not None:
            self.changed(None)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written inside, to topics too, is on disk as one, or not at all. Raises StorageError before it."""
        self._writer.ready()
        with self._writer.whole():
            yield

    def __len__(self) -> int:
        """Also those that are over and not yet removed."""
        self._writer.fresh()
        return len(self._by_key)

    def get(self, key: bytes, now_ms: int) -> bytes | None:
        """Return the string. Raises WrongTypeError where there is a hash."""
        value = self._find(key, now_ms)
        if value is None:
            return None
        if isinstance(value.content, Hash):
            raise WrongTypeError
        return value.content

    def fields(self, key: bytes, now_ms: int) -> Mapping[bytes, bytes]:
        """Return a hash, which changes with the next write; an empty one where there is none."""
        value = self._find(key, now_ms)
        if value is None:
            return {}
        if not isinstance(value.content, Hash):
            raise WrongTypeError
        return value.content.fields

    def type(self, key: bytes, now_ms: int) -> str | None:
        """Return `string` or `hash`; None where there is no such key."""
        value = self._find(key, now_ms)
        return None if value is None else value.type

    def exists(self, keys: Iterable[bytes], now_ms: int) -> int:
        """How many of them are there; one named twice counts twice."""
        return sum(self._find(key, now_ms) is not None for key in keys)

    def remaining_ms(self, key: bytes, now_ms: int) -> int:
        """Until it is over; NO_END or NO_KEY."""
        value = self._find(key, now_ms)
        if value is None:
            return NO_KEY
        return NO_END if value.expires_at_ms is None else value.expires_at_ms - now_ms

    def keys(self, pattern: bytes, now_ms: int) -> list[bytes]:
        """All that match, oldest first."""
        return [key for _, keys in self.look(pattern, 0, ALL, now_ms) for key in keys]

    def scan(self, cursor: int, pattern: bytes, count: int, now_ms: int) -> tuple[int, list[bytes]]:
        """Look at `count` keys from the cursor on; the next cursor, 0 at the end, and those that match.

        A key that is there from the first call to the last is given exactly once.
        """
        found: list[bytes] = []
        for behind, keys in self.look(pattern, cursor, count, now_ms):
            cursor = behind
            found += keys
        return cursor, found

    def look(self, pattern: bytes, cursor: int, count: int, now_ms: int) -> Iterator[tuple[int, list[bytes]]]:
        """The same, a few at a time: the cursor behind them (0 at the end), and those that match.

        Keys may be set and deleted between two steps.
        """
        self._writer.fresh()
        matches = glob(pattern).fullmatch
        count = max(count, 1)
        while count > 0:
            start = bisect_right(self._numbers, cursor)
            numbers = self._numbers[start : start + min(count, STATE_KEYS_LOOKED_AT)]
            count -= len(numbers)
            found: list[bytes] = []
            for number in numbers:
                key = self._keys.get(number)
                if key is not None and matches(key) and not self._by_key[key].over(now_ms):
                    found.append(key)
            cursor = numbers[-1] if start + len(numbers) < len(self._numbers) else 0
            yield cursor, found
            if not cursor:
                return

    def set(
        self, key: bytes, content: bytes, now_ms: int, *, expires_at_ms: int | None = None, only: Only | None = None
    ) -> Commit | None:
        """None where `only` forbids it."""
        self._writer.ready()
        before = self._find(key, now_ms)
        if only is not None and (before is None) is not (only is Only.IF_ABSENT):
            return None
        _check_key(key)
        check_content(content, "a value")
        check_integer(expires_at_ms or 0, "the end of a value")
        stored = self._by_key.get(key)
        self._check_room(key, stored, len(content) - (stored.size_bytes if stored else 0))
        number = stored.number if stored else self._last_number + 1
        return self._store(key, Value(number, content, expires_at_ms))

    def set_many(self, contents: Mapping[bytes, bytes], now_ms: int) -> Commit:
        """Set all of them, or none."""
        self._writer.ready()
        grown = 0
        for key, content in contents.items():
            _check_key(key)
            check_content(content, "a value")
            stored = self._by_key.get(key)
            grown += len(content) - (stored.size_bytes if stored else -len(key) - _VALUE_BYTES)
        keys = len(self._by_key) + len(contents.keys() - self._by_key.keys())
        if self.size_bytes + grown > self._bytes_max or keys > STATE_VALUES_MAX:
            raise self._full()
        with self._writer.whole():
            for key, content in contents.items():
                self.set(key, content, now_ms)
        return self._writer.barrier()

    def set_fields(self, key: bytes, fields: Mapping[bytes, bytes], now_ms: int) -> tuple[int, Commit]:
        """Set fields of a hash, which is made if there is none; how many of them are new."""
        self._writer.ready()
        before = self.fields(key, now_ms)
        _check_key(key)
        grown = added = 0
        for field, content in fields.items():
            check_content(field, "a field's name")
            check_content(content, "a field's value")
            old = before.get(field)
            added += old is None
            grown += len(content) - (len(old) if old is not None else -len(field) - _FIELD_BYTES)
        if len(before) + added > STATE_HASH_FIELDS_MAX:
            raise FullError(f"a hash has at most {STATE_HASH_FIELDS_MAX} fields")
        stored = self._by_key.get(key)
        self._check_room(key, stored, grown)
        with self._writer.whole():
            if stored is None or stored.over(now_ms):
                number = self._last_number + 1 if stored is None else stored.number
                stored = Value(number, Hash({}), None)
                self._store(key, stored)
            assert isinstance(stored.content, Hash)  # noqa: S101 or `fields` would have refused it
            stored.content.fields.update(fields)
            stored.content.size_bytes += grown
            self.size_bytes += grown
            rows = [(stored.number, field, content) for field, content in fields.items()]
            size = sum(map(len, fields)) + sum(map(len, fields.values()))
            commit = self._writer.submit_many(_SET_FIELDS, rows, size)
        self._touch(key)
        return added, commit

    def delete_fields(self, key: bytes, fields: Iterable[bytes], now_ms: int) -> tuple[int, Commit]:
        """Remove fields of a hash, and with the last one the hash; how many there were."""
        self._writer.ready()
        there = set(fields) & self.fields(key, now_ms).keys()
        if not there:
            return 0, self._writer.barrier()
        value = self._by_key[key]
        assert isinstance(value.content, Hash)  # noqa: S101 or `fields` would have refused it
        if len(there) == len(value.content.fields):
            self._drop(key, value)
            return len(there), self._writer.barrier()
        shrunk = sum(len(field) + len(value.content.fields.pop(field)) + _FIELD_BYTES for field in there)
        value.content.size_bytes -= shrunk
        self.size_bytes -= shrunk
        self._touch(key)
        return len(there), self._writer.submit_many(_DELETE_FIELDS, [(value.number, field) for field in there])

    def clear(self) -> Commit:
        """Remove all values."""
        self._writer.ready()
        self._by_key, self._keys, self._numbers, self.size_bytes = {}, {}, [], 0
        with self._writer.whole():
            for statement in _CLEAR:
                self._writer.submit(statement, (self._last_number,))
        if self.changed is not None:
            self.changed(None)
        return self._writer.barrier()

    def expire(self, key: bytes, expires_at_ms: int | None, now_ms: int) -> Commit | None:
        """Give it another end, or none. None where there is no such key."""
        self._writer.ready()
        check_integer(expires_at_ms or 0, "the end of a value")
        value = self._find(key, now_ms)
        return None if value is None else self._store(key, Value(value.number, value.content, expires_at_ms))

    def delete(self, keys: Iterable[bytes], now_ms: int) -> tuple[int, Commit]:
        """How many there were."""
        self._writer.ready()
        there = 0
        with self._writer.whole():
            for key in keys:
                value = self._by_key.get(key)
                if value is not None:
                    there += not value.over(now_ms)
                    self._drop(key, value)
        return there, self._writer.barrier()

    def sweep(self, now_ms: int, rows_max: int) -> int:
        """Remove some that are over; how many were looked at."""
        self._writer.ready()
        query = "SELECT key FROM redis_values WHERE expires_at_ms <= ? LIMIT ?"
        keys = [key for (key,) in self._reader.rows(query, (now_ms, rows_max))]
        for key in keys:
            value = self._by_key.get(key)
            if value is not None and value.over(now_ms):  # or it was set anew a moment ago
                self._drop(key, value)
        return len(keys)

    def _find(self, key: bytes, now_ms: int) -> Value | None:
        self._writer.fresh()
        value = self._by_key.get(key)
        return None if value is None or value.over(now_ms) else value

    def _check_room(self, key: bytes, stored: Value | None, grown: int) -> None:
        if stored is None:
            grown += len(key) + _VALUE_BYTES
        is_new_one_too_many = stored is None and len(self._by_key) >= STATE_VALUES_MAX
        if is_new_one_too_many or self.size_bytes + grown > self._bytes_max:
            raise self._full()

    def _full(self) -> FullError:
        return FullError(f"the values take {self.size_bytes} of {self._bytes_max} bytes: there is no room for more")

    def _store(self, key: bytes, value: Value) -> Commit:
        content, kind = value.content, "string"
        before = self._enter(key, value)
        if before is not None and type(before.content) is Hash and before.content is not content:
            self._writer.submit(_DELETE_HASH, (before.number,))
        if type(content) is not bytes:
            content, kind = b"", "hash"
        if self.changed is not None:
            self.changed(key)
        row = (value.number, key, content, value.expires_at_ms, kind)
        return self._writer.submit(_SET, row, key=key, content_bytes=len(key) + len(content))

    def _touch(self, key: bytes) -> None:
        if self.changed is not None:
            self.changed(key)

    def _enter(self, key: bytes, value: Value) -> Value | None:
        """Put it in the place of the one before, which is returned."""
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

    def _drop(self, key: bytes, value: Value) -> None:
        del self._by_key[key]
        del self._keys[value.number]
        self.size_bytes -= len(key) + value.size_bytes + _VALUE_BYTES
        if len(self._numbers) > 2 * len(self._keys) + _SPARE_NUMBERS:
            self._numbers = sorted(self._keys)
        self._touch(key)
        with self._writer.whole():
            self._writer.submit(_DELETE, (value.number,))
            if isinstance(value.content, Hash):
                self._writer.submit(_DELETE_HASH, (value.number,))


def _check_key(key: bytes) -> None:
    if len(key) > STATE_NAME_BYTES_MAX:
        raise InputError(f"a key has {len(key)} bytes, over the limit of {STATE_NAME_BYTES_MAX}")
