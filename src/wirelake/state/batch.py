"""Collect what one transaction will write, and the log position that is written with it.

Statements take many rows at once, and not only for speed: the sqlite3 module releases the interpreter lock at each
step, and getting it back from a busy event loop can take milliseconds. One step for 128 rows makes that rare.

The log position says how far into the event log the state goes:

    batch         number of the last batch that is in the database
    next_seq      every record before this one has its effect in the database
    durable_seq   every record before this one was on disk when the batch was started

A change is submitted before its record is appended, so `next_seq`, read when a batch is started, covers nothing that is
not in this batch or an earlier one. A log that ends before `durable_seq` has lost records. One that ends between the
two was cut short by a crash, before anything of it was confirmed.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from msgspec import Struct, json

from wirelake.commit import Commit
from wirelake.limits import STATE_STATEMENT_ROWS_MAX

# Tables that are restored from the records of the log: see replay.py.
_RESTORABLE: Final = frozenset({"topics", "notifications", "subscriptions", "retained"})
# Tables whose loss breaks no promise: a session that cannot be resumed logs in again.
_EXPENDABLE: Final = frozenset({"sessions"})

_WRITE_POSITION: Final = "INSERT OR REPLACE INTO meta VALUES ('log', ?)"
_UNLOGGED: Final = "unlogged"
_CHUNK_ROWS: Final = (STATE_STATEMENT_ROWS_MAX, 16, 4, 1)  # few sizes, so that prepared statements are reused

Row = tuple[object, ...]
LogEnds = Callable[[], tuple[int, int]]  # the log's next seq, and the seq before which all is on disk
OnBatch = Callable[[int, list[str]], None]  # number of the batch, and the changed tables that the log cannot restore


class LogPosition(Struct, frozen=True):
    batch: int
    next_seq: int
    durable_seq: int

    def write(self, connection: sqlite3.Connection) -> None:
        """Write it in the open transaction."""
        connection.execute(_WRITE_POSITION, (json.encode(self).decode(),))


def read_log_position(connection: sqlite3.Connection) -> LogPosition | None:
    """Return None for a state that was written without a log, or by a version without positions."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'log'").fetchone()
    return None if row is None else json.decode(row[0], type=LogPosition)


def unrestorable_tables(tables: frozenset[str] | set[str]) -> list[str]:
    """Return those of the tables that must not be lost and that the log cannot restore."""
    return sorted(tables - _RESTORABLE - _EXPENDABLE)


def mark_unlogged(connection: sqlite3.Connection, tables: list[str]) -> None:
    """Store that these were changed while no log was open, until a gateway records it in the log."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_UNLOGGED,)).fetchone()
    before = set(row[0].split(",")) if row is not None else set()
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_UNLOGGED, ",".join(sorted(before | set(tables)))))


def pop_unlogged(connection: sqlite3.Connection) -> list[str]:
    """Return and forget what was changed while no log was open."""
    rows = connection.execute("DELETE FROM meta WHERE name = ? RETURNING value", (_UNLOGGED,)).fetchall()
    return rows[0][0].split(",") if rows else []


class Statement(Struct, frozen=True):
    """Write SQL as `head row,row,row tail`.

    Statements of one lane keep their order. Lanes must not depend on each other's order within a transaction: they are
    written one after the other, so that each has long runs of the same statement.
    """

    lane: str
    head: str
    row: str
    tail: str = ""


class SingleRowStatement(Struct, frozen=True):
    """Write SQL that takes one row at a time."""

    lane: str
    sql: str


AnyStatement = Statement | SingleRowStatement


class StatementRows(Struct):
    """Hold rows for the same statement. A row with a key replaces an earlier one with the same key."""

    statement: AnyStatement
    rows: dict[object, Row]


class Batch:
    """Collect the operations of one transaction."""

    __slots__ = ("commit", "lanes", "number", "operations", "position", "size_bytes")

    def __init__(self, commit: Commit, number: int = 0) -> None:
        self.commit = commit
        self.number = number  # of this batch, counted across restarts
        self.position: LogPosition | None = None  # of the log when the writer took the batch
        self.lanes: dict[str, list[StatementRows]] = {}
        self.operations = 0
        self.size_bytes = 0

    def add(self, statement: AnyStatement, row: Row, key: object, size_bytes: int) -> None:
        """Add a row. Keys are anything but plain integers, which number the rows without a key."""
        self.operations += 1
        self.size_bytes += size_bytes
        if key is None:
            key = self.operations
        runs = self.lanes.get(statement.lane)
        if runs is None:
            self.lanes[statement.lane] = [StatementRows(statement, {key: row})]
        elif runs[-1].statement is statement:
            runs[-1].rows[key] = row
        else:
            runs.append(StatementRows(statement, {key: row}))

    def add_many(self, statement: AnyStatement, rows: Sequence[Row], size_bytes: int) -> None:
        """Add rows without keys."""
        first = self.operations + 1
        self.operations += len(rows)
        self.size_bytes += size_bytes
        runs = self.lanes.setdefault(statement.lane, [])
        if not runs or runs[-1].statement is not statement:
            runs.append(StatementRows(statement, {}))
        runs[-1].rows.update(zip(range(first, first + len(rows)), rows, strict=True))

    def execute(self, connection: sqlite3.Connection) -> None:
        """Write all of it in the transaction that the writer has started."""
        for runs in self.lanes.values():
            for run in runs:
                if isinstance(run.statement, SingleRowStatement):
                    connection.executemany(run.statement.sql, run.rows.values())
                else:
                    _execute_many(connection, run.statement, run.rows)


def _execute_many(connection: sqlite3.Connection, statement: Statement, rows: dict[object, Row]) -> None:
    values = iter(rows.values())
    left = len(rows)
    for size in _CHUNK_ROWS:
        while left >= size:
            connection.execute(_sql(statement, size), list(chain.from_iterable(islice(values, size))))
            left -= size


@lru_cache(maxsize=256)
def _sql(statement: Statement, rows: int) -> str:
    return f"{statement.head}{','.join([statement.row] * rows)}{statement.tail}"
