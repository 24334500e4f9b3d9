"""Open the file state.db: who may write it, how it is read, and what to do if it is damaged.

There are two connections: one for the writer thread, and a read-only one for the thread that owns the store. With
`synchronous=FULL` a commit returns after the fsync of the write-ahead log, and readers do not see it earlier.
"""

import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from wirelake.errors import StorageError
from wirelake.files import FileLock, FileSystem
from wirelake.key_source import KeySource, state_key
from wirelake.limits import STATE_CHECK_BYTES_MAX, STATE_LOCKED_WAIT_S, STATE_WAL_BYTES_MAX
from wirelake.state.encryption import SecretCipher, encrypt_all, open_cipher, read_key_id, scrub
from wirelake.state.schema import migrate, read_version

_PRIVATE: Final = 0o600
_STATEMENTS_CACHED: Final = 256
_CORRUPTION_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF  # SQLite's extended error codes have the primary one in their last byte
CORRUPTION_ADVICE: Final = (
    "stop the gateway and restore state.db from a backup (what was published since is replayed from the log), "
    "or move it aside and start once with --accept-loss"
)

SqlValues = tuple[object, ...]


def is_corruption(error: BaseException | None) -> bool:
    """Tell whether SQLite reports that the file itself is damaged, rather than out of reach."""
    if not isinstance(error, sqlite3.Error):
        return False
    code: int = getattr(error, "sqlite_errorcode", 0)  # missing if the sqlite3 module itself raised it
    return code & _PRIMARY_CODE in _CORRUPTION_CODES


def storage_error(failed: str, error: Exception) -> StorageError:
    """Build the error to report: what failed, why, and for a damaged file what to do."""
    is_damaged = is_corruption(error)
    text = f"{failed}: state.db is damaged ({error}); {CORRUPTION_ADVICE}" if is_damaged else f"{failed}: {error}"
    reported = StorageError(text)
    reported.__cause__ = error
    return reported


class StateReader:
    """Read what is durable, for the thread that owns the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.error: StorageError | None = None  # why the last read failed; a damaged file stays damaged

    def rows(self, sql: str, values: SqlValues = ()) -> Generator[Any, None, None]:
        """Yield rows one at a time. Close it when you stop early, or the write-ahead log cannot be emptied."""
        try:
            with closing(self._connection.execute(sql, values)) as cursor:
                yield from cursor
        except sqlite3.Error as error:
            self.error = storage_error("the state cannot be read", error)
            raise StorageError(*self.error.args) from error
        if self.error is not None and not is_corruption(self.error.__cause__):
            self.error = None

    def row(self, sql: str, values: SqlValues = ()) -> Any:
        """Return the first row, or None."""
        with closing(self.rows(sql, values)) as rows:
            return next(rows, None)


class Database:
    """Open the database for writing, which one process at a time may do, and migrate it to the current schema.

    `key` says where the key for its secrets is. By default, that is `keys/state.key` beside the file.
    """

    def __init__(self, path: Path, key: KeySource | None = None) -> None:
        self.path = path
        with ExitStack() as opened:
            try:
                self.write_connection = opened.enter_context(open_for_writing(path))
                self.cipher = _prepare(self.write_connection, key or state_key("", path.parent))
                self.write_connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'opened'")
                read_connection = opened.enter_context(closing(_connect(path)))
                read_connection.execute("PRAGMA query_only = ON")
                self.reader = StateReader(read_connection)
            except (sqlite3.Error, OSError) as error:
                raise storage_error(f"{path} cannot be opened", error) from error
            self._opened = opened.pop_all()  # from here on it stays open

    def meta(self, name: str) -> Any:
        """Return a property of the database as a whole, or None."""
        row = self.reader.row("SELECT value FROM meta WHERE name = ?", (name,))
        return None if row is None else row[0]

    def check(self, bytes_max: int = STATE_CHECK_BYTES_MAX) -> None:
        """Check the whole file for damage, unless it is larger than this. Raise StorageError if there is any."""
        if self.path.stat().st_size > bytes_max:
            return
        result = self.reader.row("PRAGMA quick_check(1)")
        if result != ("ok",):
            reason = "" if result is None else str(result[0]).replace("\n", " ")
            raise StorageError(f"{self.path} cannot be opened: it is damaged ({reason}); {CORRUPTION_ADVICE}")

    def close(self) -> None:
        """Close the connections; closing the last one moves the write-ahead log into the file."""
        self._opened.close()


@contextmanager
def open_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock the file, and connect to it. Raise InUseError if another process has it open for writing."""
    lock = _lock(path)
    try:
        _make_private(path)
        with closing(_connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {STATE_WAL_BYTES_MAX}")
            yield connection
    finally:
        lock.release()


def _prepare(connection: sqlite3.Connection, key: KeySource) -> SecretCipher:
    """Migrate to the current schema, and encrypt the secrets of a version that stored them in clear text."""
    is_new = not read_version(connection)
    cipher = open_cipher(connection, key)  # before anything is changed
    migrate(connection)
    if read_key_id(connection) != cipher.key_id:  # clear text, or another key that nothing was encrypted with
        encrypt_all(connection, None, cipher)
    if is_new:
        connection.execute("DELETE FROM meta WHERE name = 'scrub'")
    scrub(connection)
    return cipher


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        isolation_level=None,  # transactions start and end explicitly
        check_same_thread=False,
        timeout=STATE_LOCKED_WAIT_S,
        cached_statements=_STATEMENTS_CACHED,
    )


def _make_private(path: Path) -> None:
    """Create the file readable by its owner only. SQLite gives its other files the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    try:
        os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)
    FileSystem().fsync_dir(path.parent)


def _lock(path: Path) -> FileLock:
    """Lock a file beside the database: SQLite's own locks last for a transaction only."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        return FileLock(lock_path, f"{path} is open for writing", _PRIVATE)
    except OSError as error:
        raise StorageError(f"{lock_path} cannot be opened: {error}") from error
