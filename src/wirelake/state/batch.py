"""What one transaction will write, gathered in memory by the owner and executed by the writer.

Statements take many rows at once. Not only for speed: the sqlite3 module gives up the interpreter lock at each step,
and getting it back from a busy event loop can take milliseconds. One step for 128 rows makes that rare.
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.limits import STATE_STATEMENT_ROWS_MAX
from wirelake.state.log_position import LogPosition

Row = tuple[object, ...]

_CHUNKS: Final = (STATE_STATEMENT_ROWS_MAX, 16, 4, 1)  # few sizes, so that prepared statements are found again


class Statement(Struct, frozen=True):
    """SQL as `head row,row,row tail`.

    Statements of one lane keep their order. Lanes must not depend on each other's order within a transaction: they
    are written one after the other, so that each has long runs of the same statement.
    """

    lane: str
    head: str
    row: str
    tail: str = ""


class OneByOne(Struct, frozen=True):
    """SQL that takes one row at a time."""

    lane: str
    sql: str


AnyStatement = Statement | OneByOne


class Run(Struct):
    """Rows for the same statement. A row with a key takes the place of an earlier one with the same key."""

    statement: AnyStatement
    rows: dict[object, Row]


class Batch:
    __slots__ = ("commit", "lanes", "number", "operations", "position", "size_bytes")

    def __init__(self, commit: Commit, number: int = 0) -> None:
        self.commit = commit
        self.number = number  # of this batch, counted over restarts
        self.position: LogPosition | None = None  # of the log, as it was when this was taken up
        self.lanes: dict[str, list[Run]] = {}
        self.operations = 0
        self.size_bytes = 0

    def add(self, statement: AnyStatement, row: Row, key: object, size_bytes: int) -> None:
        """Keys are anything but plain integers, which number the rows without one."""
        self.operations += 1
        self.size_bytes += size_bytes
        if key is None:
            key = self.operations
        runs = self.lanes.get(statement.lane)
        if runs is None:
            self.lanes[statement.lane] = [Run(statement, {key: row})]
        elif runs[-1].statement is statement:
            runs[-1].rows[key] = row
        else:
            runs.append(Run(statement, {key: row}))

    def add_many(self, statement: AnyStatement, rows: Sequence[Row], size_bytes: int) -> None:
        """Rows without keys."""
        first = self.operations + 1
        self.operations += len(rows)
        self.size_bytes += size_bytes
        runs = self.lanes.setdefault(statement.lane, [])
        if not runs or runs[-1].statement is not statement:
            runs.append(Run(statement, {}))
        runs[-1].rows.update(zip(range(first, first + len(rows)), rows, strict=True))

    def execute(self, connection: sqlite3.Connection) -> None:
        """Write all of it. The transaction around it is the writer's."""
        for runs in self.lanes.values():
            for run in runs:
                if isinstance(run.statement, OneByOne):
                    connection.executemany(run.statement.sql, run.rows.values())
                else:
                    _execute_many(connection, run.statement, run.rows)


def _execute_many(connection: sqlite3.Connection, statement: Statement, rows: dict[object, Row]) -> None:
    values = iter(rows.values())
    left = len(rows)
    for size in _CHUNKS:
        while left >= size:
            connection.execute(_sql(statement, size), list(chain.from_iterable(islice(values, size))))
            left -= size


@lru_cache(maxsize=256)
def _sql(statement: Statement, rows: int) -> str:
    return f"{statement.head}{','.join([statement.row] * rows)}{statement.tail}"
