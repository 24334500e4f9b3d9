"""Reads from disk, for the owner of memory: what is durable, and nothing later."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from typing import Any

from wirelake.errors import StorageError

Values = tuple[object, ...]


class Reader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Values = ()) -> Generator[Any, None, None]:
        """One at a time. Close it when you stop early, or the write-ahead log cannot be emptied."""
        try:
            with closing(self._connection.execute(sql, values)) as cursor:
                yield from cursor
        except sqlite3.Error as error:
            raise StorageError(f"the state cannot be read: {error}") from error

    def row(self, sql: str, values: Values = ()) -> Any:
        """The first one, or None."""
        with closing(self.rows(sql, values)) as rows:
            return next(rows, None)
