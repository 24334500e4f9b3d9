"""Tell a damaged database from one that is merely out of reach, and say what to do about it."""

import sqlite3
from typing import Final

from wirelake.errors import StorageError

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY: Final = 0xFF  # SQLite's extended codes keep the primary one in their last byte
ADVICE: Final = (
    "stop the gateway and restore state.db from a backup (what was published since is replayed from the log), "
    "or move it aside and start once with --accept-loss"
)


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file itself is wrong."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _DAMAGED


def trouble_of(what: str, error: Exception) -> StorageError:
    """Build the error to report: `what` failed, why, and for a damaged file what to do."""
    text = f"{what}: state.db is damaged ({error}); {ADVICE}" if is_damage(error) else f"{what}: {error}"
    trouble = StorageError(text)
    trouble.__cause__ = error
    return trouble
