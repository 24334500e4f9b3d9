"""Reads from disk, for the owner of memory: what is durable, and nothing later."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from typing import Any

from wirelake.errors import StorageError
from wirelake.state.damage import is_damage, trouble_of

Values = tuple[object, ...]


class Reader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.trouble: StorageError | None = None  # why the last read failed; a damaged file stays damaged

    def rows(self, sql: str, values: Values = ()) -> Generator[Any, None, None]:
        """One at a time. Close it when you stop early, or the write-ahead log cannot be emptied."""
        try:
            with closing(self._connection.execute(sql, values)) as cursor:
                yield from cursor
        except sqlite3.Error as error:
            self.trouble = trouble_of("the state cannot be read", error)
            raise StorageError(*self.trouble.args) from error
        if self.trouble is not None and not is_damage(self.trouble.__cause__):
            self.trouble = None

    def row(self, sql: str, values: Values = ()) -> Any:
        """The first one, or None."""
        with closing(self.rows(sql, values)) as rows:
            return next(rows, None)
