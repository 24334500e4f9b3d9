"""Read the keys of devices from a state that a gateway may have open, without changing anything in it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from wirelake.key_source import KeySource
from wirelake.state.encryption import DEVICE_KEY, SecretCipher, open_cipher, read_key_id


class DeviceKeyReader:
    """Read the keys as often as needed. Only what has changed since the last time is decrypted."""

    def __init__(self, database: Path, key: KeySource) -> None:
        self._database = database
        self._key = key
        self._cipher: SecretCipher | None = None
        self._known: dict[str, tuple[bytes, bytes]] = {}  # by serial: as stored, and decrypted

    def read(self) -> dict[str, bytes]:
        """Return the keys by serial. Raise InputError if the key of the state is missing, or another one."""
        if not self._database.exists():
            return {}
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")  # so that the key id is that of the rows
            key_id = read_key_id(connection)
            stored = dict(connection.execute("SELECT serial, key FROM devices WHERE key IS NOT NULL"))
            if not key_id or not stored:  # a gateway of an earlier version wrote it, in clear text
                return stored
            if self._cipher is None or self._cipher.key_id != key_id:
                self._cipher = open_cipher(connection, self._key)
                self._known = {}
        self._known = {serial: self._decrypted(self._cipher, serial, value) for serial, value in stored.items()}
        return {serial: key for serial, (_, key) in self._known.items()}

    def _decrypted(self, cipher: SecretCipher, serial: str, value: bytes) -> tuple[bytes, bytes]:
        known = self._known.get(serial)
        if known is not None and known[0] == value:
            return known
        return value, cipher.decrypt(DEVICE_KEY, serial, value)
