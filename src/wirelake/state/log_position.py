"""How far into the event log the state goes: written with every batch, in the same transaction.

    batch         number of the last batch that is in the database
    next_seq      every record before this one has its effect in the database
    durable_seq   every record before this one was on disk when the batch was taken up

A change is submitted before its record is appended, so `next_seq`, read when a batch is taken up, covers nothing that
is not in this batch or an earlier one. A log that ends before `durable_seq` has lost records. One that ends between the
two was cut short by a crash, before anything of it was confirmed.
"""

import sqlite3
from collections.abc import Callable
from typing import Final

from msgspec import Struct, json

# What the log's own records bring back: see `restoring.py`.
RESTORABLE: Final = frozenset({"topics", "notifications", "subscriptions", "retained"})
# What nobody was promised: a session that cannot be resumed logs in again.
EXPENDABLE: Final = frozenset({"sessions"})

_WRITE: Final = "INSERT OR REPLACE INTO meta VALUES ('log', ?)"
_UNLOGGED: Final = "unlogged"

LogEnds = Callable[[], tuple[int, int]]  # the log's next seq, and the seq before which all is on disk
TellBatch = Callable[
    [int, list[str]], None
]  # a batch's number, and which tables it changed that the log cannot restore


class LogPosition(Struct, frozen=True):
    batch: int
    next_seq: int
    durable_seq: int

    def write(self, connection: sqlite3.Connection) -> None:
        """Put it into the transaction that is open."""
        connection.execute(_WRITE, (json.encode(self).decode(),))


def read_position(connection: sqlite3.Connection) -> LogPosition | None:
    """None for a state that was written without a log, or before positions were kept."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'log'").fetchone()
    return None if row is None else json.decode(row[0], type=LogPosition)


def unrestorable(tables: frozenset[str] | set[str]) -> list[str]:
    """Of these tables, those whose loss the log cannot make good."""
    return sorted(tables - RESTORABLE - EXPENDABLE)


def note_unlogged(connection: sqlite3.Connection, tables: list[str]) -> None:
    """Remember that these were changed while no log was open, until a gateway puts it into the log."""
    known = connection.execute("SELECT value FROM meta WHERE name = ?", (_UNLOGGED,)).fetchone()
    before = set(known[0].split(",")) if known is not None else set()
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_UNLOGGED, ",".join(sorted(before | set(tables)))))


def take_unlogged(connection: sqlite3.Connection) -> list[str]:
    """What was changed while no log was open; forgotten with this."""
    known = connection.execute("DELETE FROM meta WHERE name = ? RETURNING value", (_UNLOGGED,)).fetchall()
    return known[0][0].split(",") if known else []
