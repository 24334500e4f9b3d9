"""Redis values: bytes under bytes, some with an end. All in memory, as redis users expect, within a limit.

A value that is over is not there, whether or not the sweep has removed it yet.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import FullError, InputError
from wirelake.limits import STATE_KEYS_LOOKED_AT, STATE_NAME_BYTES_MAX, STATE_VALUES_BYTES_MAX, STATE_VALUES_MAX
from wirelake.state.batch import Statement
from wirelake.state.bounds import check_content, check_integer
from wirelake.state.glob import glob
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

_SET: Final = Statement(
    "values", "INSERT OR REPLACE INTO redis_values (number, key, value, expires_at_ms) VALUES ", "(?,?,?,?)"
)
_DELETE: Final = Statement("values", "DELETE FROM redis_values WHERE number IN (", "?", ")")

_VALUE_BYTES: Final = 256  # what a value takes in memory beyond its own bytes, about
_SPARE_NUMBERS: Final = 1024
NO_KEY: Final = -2  # redis' own words for `remaining_ms`
NO_END: Final = -1
ALL: Final = 2**63  # keys, to be looked at


class Value(Struct, frozen=True, gc=False):
    number: int  # rises with each new key: the cursor of SCAN
    content: bytes
    expires_at_ms: int | None

    def over(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


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

    def load(self) -> None:
        self._by_key, self._keys, self._numbers, self.size_bytes = {}, {}, [], 0
        query = "SELECT number, key, value, expires_at_ms FROM redis_values ORDER BY number"
        for number, key, content, expires_at_ms in self._reader.rows(query):
            self._enter(key, Value(number, content, expires_at_ms))

    def __len__(self) -> int:
        """Also those that are over and not yet removed."""
        self._writer.fresh()
        return len(self._by_key)

    def get(self, key: bytes, now_ms: int) -> bytes | None:
        value = self._find(key, now_ms)
        return None if value is None else value.content

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
        if len(key) > STATE_NAME_BYTES_MAX:
            raise InputError(f"a key has {len(key)} bytes, over the limit of {STATE_NAME_BYTES_MAX}")
        check_content(content, "a value")
        check_integer(expires_at_ms or 0, "the end of a value")
        stored = self._by_key.get(key)
        grown = self.size_bytes + len(content) - (len(stored.content) if stored else -len(key) - _VALUE_BYTES)
        if grown > self._bytes_max or (stored is None and len(self._by_key) >= STATE_VALUES_MAX):
            raise FullError(f"the values take {self.size_bytes} of {self._bytes_max} bytes: there is no room for more")
        number = stored.number if stored else self._last_number + 1
        return self._store(key, Value(number, content, expires_at_ms))

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

    def _store(self, key: bytes, value: Value) -> Commit:
        self._enter(key, value)
        row = (value.number, key, value.content, value.expires_at_ms)
        return self._writer.submit(_SET, row, key=key, content_bytes=len(key) + len(value.content))

    def _enter(self, key: bytes, value: Value) -> None:
        before = self._by_key.get(key)
        self._by_key[key] = value
        if before is not None:
            self.size_bytes += len(value.content) - len(before.content)
            return
        self.size_bytes += len(key) + len(value.content) + _VALUE_BYTES
        self._keys[value.number] = key
        self._numbers.append(value.number)
        self._last_number = max(self._last_number, value.number)

    def _drop(self, key: bytes, value: Value) -> None:
        del self._by_key[key]
        del self._keys[value.number]
        self.size_bytes -= len(key) + len(value.content) + _VALUE_BYTES
        if len(self._numbers) > 2 * len(self._keys) + _SPARE_NUMBERS:
            self._numbers = sorted(self._keys)
        self._writer.submit(_DELETE, (value.number,))
