"""Encrypt the secrets in state.db: keys of devices, and what proves the right to resume a session.

AES-256-GCM, under one key for the whole file. A value is a byte for the format, a random nonce of 96 bits, and the
ciphertext with its tag. The name of the column and the primary key of the row are authenticated with it, so that a
value is of no use in another row. The table `meta` has

    key_id   of the key that everything is encrypted with; "" in a file of a version that stored clear text
    scrub    while free pages of the file, or the write-ahead log, may have clear text, or values under an earlier key

A change of the key rewrites all values and `key_id` in one transaction: a crash leaves the file as before or after it.
"""

import hmac
import logging
import os
import sqlite3
from typing import Any, Final

from msgspec import Struct, field

from wirelake.errors import InputError, StorageError
from wirelake.key_source import KeySource
from wirelake.state.batch import mark_unlogged

_log = logging.getLogger(__name__)
_FORMAT: Final = b"\x01"
_NONCE_BYTES: Final = 12
_HEADER_BYTES: Final = len(_FORMAT) + _NONCE_BYTES
_KEY_ID_BYTES: Final = 8
_KEY_ID_LABEL: Final = b"wirelake: id of the key of the state"
_NAMES_SHOWN: Final = 10

RowKey = str | bytes


class SecretColumn(Struct, frozen=True):
    table: str
    primary_key: str
    name: str
    noun: str

    def describe(self, row_key: RowKey) -> str:
        return f"{self.noun} {row_key!r}" if isinstance(row_key, str) else f"{self.noun} {row_key.hex()}"


DEVICE_KEY: Final = SecretColumn("devices", "serial", "key", "the key of device")
RESUME_SECRET: Final = SecretColumn("sessions", "sid", "resume_secret", "the secret of session")
SECRET_COLUMNS: Final = (DEVICE_KEY, RESUME_SECRET)


class SecretCipher:
    """Encrypt and decrypt single values."""

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (`wirelake doctor` runs without it)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self.key_id = key_id_of(key)
        self._aead = AESGCM(key)
        self._invalid = InvalidTag

    def __repr__(self) -> str:
        return f"SecretCipher({self.key_id})"

    def encrypt(self, column: SecretColumn, row_key: RowKey, secret: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + nonce + self._aead.encrypt(nonce, secret, _associated(column, row_key))

    def decrypt(self, column: SecretColumn, row_key: RowKey, value: bytes) -> bytes:
        """Raise StorageError if the value was changed, is of another row, or was encrypted with another key."""
        if value[:1] == _FORMAT and len(value) > _HEADER_BYTES:
            nonce = value[len(_FORMAT) : _HEADER_BYTES]
            try:
                return self._aead.decrypt(nonce, value[_HEADER_BYTES:], _associated(column, row_key))
            except self._invalid:
                pass
        raise StorageError(
            f"{column.describe(row_key)} in state.db cannot be decrypted: the row was changed from outside. Restore "
            "state.db from a backup, or remove what cannot be decrypted with `wirelake state rekey --discard`"
        )


def _associated(column: SecretColumn, row_key: RowKey) -> bytes:
    key = row_key.encode() if isinstance(row_key, str) else row_key
    return b"%b.%b\0%b" % (column.table.encode(), column.name.encode(), key)


def read_key_id(connection: sqlite3.Connection) -> str:
    """Return the id of the key that the secrets are encrypted with; "" if they are in clear text."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return ""
    row = connection.execute("SELECT value FROM meta WHERE name = 'key_id'").fetchone()
    return "" if row is None else row[0]


def has_secrets(connection: sqlite3.Connection) -> bool:
    """Tell whether there is anything encrypted, or to encrypt."""
    return any(
        connection.execute(f"SELECT 1 FROM {each.table} WHERE {each.name} IS NOT NULL LIMIT 1").fetchone()  # noqa: S608
        for each in SECRET_COLUMNS
    )


def open_cipher(connection: sqlite3.Connection, source: KeySource) -> SecretCipher:
    """Return the cipher for the secrets. Generate the key if none is set and nothing needs an older one.

    Raise InputError if the key is missing, or is not the one that the secrets are encrypted with.
    """
    if source.is_default and source.is_missing and not needs_key(connection):
        source.create()
    return SecretCipher(read_key(connection, source))


def needs_key(connection: sqlite3.Connection) -> bool:
    """Tell whether there are secrets that only a certain key decrypts."""
    return bool(read_key_id(connection)) and has_secrets(connection)


def read_key(connection: sqlite3.Connection, source: KeySource) -> bytes:
    """Return the key. Raise InputError if it is missing, or is not the one that the secrets are encrypted with."""
    if source.is_default and source.is_missing:
        raise InputError(
            f"{source.place} is missing, and the device keys in state.db cannot be decrypted without it. Restore it "
            f"from a backup of the data folder, or set {source.setting} if the key is elsewhere. If it is lost, "
            f"`wirelake state rekey {source} --discard` generates a new one and removes what only the old one decrypts"
        )
    key = source.read()
    key_id = read_key_id(connection)
    if key_id_of(key) != key_id and needs_key(connection):
        raise InputError(
            f"{source.setting} = {source} is another key (id {key_id_of(key)}) than the one that the device "
            f"keys in state.db are encrypted with (id {key_id}). Set {source.setting} to that one. To change the key, "
            "use `wirelake state rekey` while the old one is set"
        )
    return key


def key_id_of(key: bytes) -> str:
    """Return what identifies a key without revealing it."""
    return hmac.digest(key, _KEY_ID_LABEL, "sha256")[:_KEY_ID_BYTES].hex()


class RekeyReport(Struct):
    """Count what was encrypted, and list what was removed because nobody can decrypt it."""

    device_keys: int = 0
    sessions: int = 0
    discarded: list[str] = field(default_factory=list)  # serials of devices


def encrypt_all(
    connection: sqlite3.Connection, old: SecretCipher | None, new: SecretCipher, *, discard: bool = False
) -> RekeyReport:
    """Encrypt all secrets with a new key, in one transaction.

    They are encrypted with `old` so far, or in clear text if the key id says so. Raise StorageError if one cannot be
    decrypted; with `discard`, remove its row instead.
    """
    is_clear = not read_key_id(connection)
    report = RekeyReport()
    connection.execute("BEGIN IMMEDIATE")
    try:
        for column in SECRET_COLUMNS:
            rewriter = _Rewriter(column, old, new, is_clear)
            connection.create_function("rewritten", 2, rewriter.rewrite, deterministic=False)
            table, name = column.table, column.name
            changed = f"{name} = rewritten({column.primary_key}, {name})"
            updated = connection.execute(f"UPDATE {table} SET {changed} WHERE {name} IS NOT NULL")  # noqa: S608
            count = updated.rowcount - len(rewriter.unreadable)
            _discard(connection, column, rewriter.unreadable, discard)
            if column is DEVICE_KEY:
                report.device_keys, report.discarded = count, [str(serial) for serial in rewriter.unreadable]
            else:
                report.sessions = count
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('key_id', ?), ('scrub', 1)", (new.key_id,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    finally:
        connection.create_function("rewritten", 2, None)
    return report


class _Rewriter:
    """Encrypt the values of a column again, as a function of SQL. It cannot raise: SQLite would lose the reason."""

    def __init__(self, column: SecretColumn, old: SecretCipher | None, new: SecretCipher, is_clear: bool) -> None:
        self._column = column
        self._old = old
        self._new = new
        self._is_clear = is_clear
        self.unreadable: list[RowKey] = []

    def rewrite(self, row_key: RowKey, value: bytes) -> bytes:
        try:
            secret = value if self._is_clear else self._decrypt(row_key, value)
        except StorageError:
            self.unreadable.append(row_key)
            return value
        return self._new.encrypt(self._column, row_key, secret)

    def _decrypt(self, row_key: RowKey, value: bytes) -> bytes:
        if self._old is None:
            raise StorageError("the key is lost")
        return self._old.decrypt(self._column, row_key, value)


def _discard(connection: sqlite3.Connection, column: SecretColumn, row_keys: list[RowKey], is_wanted: bool) -> None:
    if not row_keys:
        return
    if not is_wanted:
        names = [column.describe(row_key) for row_key in row_keys[:_NAMES_SHOWN]]
        shown = ", ".join(names) + (" …" if len(row_keys) > _NAMES_SHOWN else "")
        raise StorageError(
            f"{len(row_keys)} secrets in state.db cannot be decrypted ({shown})"
            ": restore state.db from a backup, or use --discard to remove them"
        )
    tables = (column.table, "device_seals") if column is DEVICE_KEY else (column.table,)
    if column is DEVICE_KEY:
        mark_unlogged(connection, list(tables))
    for table in tables:
        rows: list[tuple[Any]] = [(row_key,) for row_key in row_keys]
        connection.executemany(f"DELETE FROM {table} WHERE {column.primary_key} = ?", rows)  # noqa: S608


def needs_scrub(connection: sqlite3.Connection) -> bool:
    """Tell whether unused parts of the file may have secrets as they were before."""
    return connection.execute("SELECT 1 FROM meta WHERE name = 'scrub'").fetchone() is not None


def scrub(connection: sqlite3.Connection) -> None:
    """Rewrite the file if needed, so that what was overwritten or deleted before is in none of its pages.

    If that fails, for example because the disk is too full for a second copy, it is tried again at the next start.
    """
    if not needs_scrub(connection):
        return
    try:
        connection.execute("VACUUM")
        (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise sqlite3.OperationalError("another process reads it")
        connection.execute("DELETE FROM meta WHERE name = 'scrub'")
    except sqlite3.Error as error:
        _log.warning(
            "state.db has encrypted secrets now, but unused parts of the file may still have them as they were before:"
            " it could not be rewritten (%s), which is tried again at the next start",
            error,
        )
