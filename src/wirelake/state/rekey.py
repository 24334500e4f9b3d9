"""Change the key that the secrets in state.db are encrypted with, while no gateway has it open."""

import sqlite3
from pathlib import Path

from wirelake.errors import InputError
from wirelake.key_source import KeySource
from wirelake.state.database import open_for_writing, storage_error
from wirelake.state.encryption import RekeyReport, SecretCipher, encrypt_all, needs_key, read_key, scrub
from wirelake.state.schema import migrate


def rekey(path: Path, old: KeySource, new: KeySource, *, discard: bool = False) -> RekeyReport:
    """Encrypt all secrets with the key from `new`. A file that does not exist is created, with a new key.

    With `discard`, rows are removed that cannot be decrypted with the key from `old`, which may be lost. Without, they
    are an error, and nothing changes. Raise InUseError if a gateway has the state open.
    """
    if not path.exists():
        raise InputError(f"there is no {path}, and so nothing to encrypt")
    with open_for_writing(path) as connection:
        try:
            migrate(connection)
            before = _old_cipher(connection, old, discard=discard)
            if new.is_missing:
                new.create()
            after = SecretCipher(new.read())
            if before is not None and before.key_id == after.key_id and not discard:
                raise InputError(f"{new} is the key that state.db is encrypted with already: name another one")
            report = encrypt_all(connection, before, after, discard=discard)
            scrub(connection)
        except sqlite3.Error as error:
            raise storage_error(f"{path} cannot be changed", error) from error
    return report


def _old_cipher(connection: sqlite3.Connection, old: KeySource, *, discard: bool) -> SecretCipher | None:
    """Return None if there is nothing to decrypt or, with `discard`, if the key is not there."""
    if not needs_key(connection):
        return None
    try:
        return SecretCipher(read_key(connection, old))
    except InputError:
        if not discard:
            raise
        return None
