"""The file state.db: who may write it, how it is opened.

Two connections: the writer thread's, and one that only reads, for the owner. With `synchronous=FULL` a commit
returns after the fsync of the write-ahead log, and readers see it no earlier.
"""

import fcntl
import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from wirelake.errors import InUseError, StorageError
from wirelake.limits import STATE_CHECK_BYTES_MAX, STATE_LOCKED_WAIT_S, STATE_WAL_BYTES_MAX
from wirelake.state.damage import ADVICE, trouble_of
from wirelake.state.reader import Reader
from wirelake.state.schema import migrate

_PRIVATE: Final = 0o600
_STATEMENTS_CACHED: Final = 256


class Database:
    """Opened for writing by one process at a time, and brought to the schema of today."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with ExitStack() as opened:
            opened.callback(os.close, _lock(path))
            try:
                _make_private(path)
                self.writing = opened.enter_context(closing(_connect(path)))
                self.writing.execute("PRAGMA journal_mode = WAL")
                self.writing.execute("PRAGMA synchronous = FULL")
                self.writing.execute(f"PRAGMA journal_size_limit = {STATE_WAL_BYTES_MAX}")
                migrate(self.writing)
                self.writing.execute("UPDATE meta SET value = value + 1 WHERE name = 'opened'")
                reading = opened.enter_context(closing(_connect(path)))
                reading.execute("PRAGMA query_only = ON")
                self.reader = Reader(reading)
            except (sqlite3.Error, OSError) as error:
                raise trouble_of(f"{path} cannot be opened", error) from error
            self._opened = opened.pop_all()  # from here on it stays open

    def meta(self, name: str) -> Any:
        """A value of the database as a whole; None where it has none of that name."""
        row = self.reader.row("SELECT value FROM meta WHERE name = ?", (name,))
        return None if row is None else row[0]

    def check(self, bytes_max: int = STATE_CHECK_BYTES_MAX) -> None:
        """Look through the whole file for damage, unless it is larger than this; StorageError if there is any."""
        if self.path.stat().st_size > bytes_max:
            return
        found = self.reader.row("PRAGMA quick_check(1)")
        if found != ("ok",):
            reason = "" if found is None else str(found[0]).replace("\n", " ")
            raise StorageError(f"{self.path} cannot be opened: it is damaged ({reason}); {ADVICE}")

    def close(self) -> None:
        """Closing the last connection also moves the write-ahead log into the file."""
        self._opened.close()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        isolation_level=None,  # transactions begin and end where we say
        check_same_thread=False,
        timeout=STATE_LOCKED_WAIT_S,
        cached_statements=_STATEMENTS_CACHED,
    )


def _make_private(path: Path) -> None:
    """SQLite gives the files beside it the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    try:
        os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(path: Path) -> int:
    """A lock file of our own: SQLite's locks last for a transaction only, and this one lasts while we are open."""
    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        raise StorageError(f"{beside} cannot be opened: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise InUseError(f"{path} is open for writing in process {holder or 'unknown'}") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
