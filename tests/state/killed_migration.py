"""Kill the migration of a database with clear text at each of its steps, and check what is left each time.

    killed_migration.py FOLDER

Prints a word for each kill: what the database had then.
"""

import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from wirelake.state import database, encryption
from wirelake.state.schema import migrate
from wirelake.state.store import StateStore

CLEAR_VERSION: Final = 9
STEPS_MAX: Final = 1000
KEYS: Final = {f"meter {number}": bytes(range(number, number + 16)) for number in range(5)}
SECRETS: Final = {b"sid %d" % number: bytes(range(128 + number, 160 + number)) for number in range(3)}


def make_clear(path: Path) -> None:
    """Create a database as the last version left it that encrypted nothing, with traces of a deleted row."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = OFF")
        migrate(connection, CLEAR_VERSION)
        rows = [(serial, 6, key, 10) for serial, key in KEYS.items()]
        connection.executemany("INSERT INTO devices VALUES (?, ?, ?, ?)", rows)
        sessions = [(sid, "magline", "ann", 50, b"[]", secret) for sid, secret in SECRETS.items()]
        connection.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", sessions)
        connection.execute("INSERT INTO sessions VALUES (x'00', 'magline', '', 1, '[]', ?)", (b"deleted" * 1000,))
        connection.execute("DELETE FROM sessions WHERE sid = x'00'")


class Killer:
    """End this process, as a power failure of its own, at a certain step."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self, *_: object) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: Path) -> None:
        connect, encrypt = database._connect, encryption.SecretCipher.encrypt

        def traced_connect(path: Path) -> sqlite3.Connection:
            connection = connect(path)
            connection.set_trace_callback(self.step)  # called before each statement
            return connection

        def counted_encrypt(*values: object) -> bytes:
            self.step()
            return encrypt(*values)  # type: ignore[arg-type]

        database._connect = traced_connect
        encryption.SecretCipher.encrypt = counted_encrypt  # type: ignore[assignment, method-assign]
        StateStore(path).close()


def survives(path: Path, steps: int) -> bool:
    """Open the database in a process that is killed at that step, and tell whether it came to its end before."""
    child = os.fork()
    if not child:
        Killer(steps).open(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert status == 0, "it failed by itself"
    return not os.WIFSIGNALED(status)


def what_it_has(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        rows = dict(connection.execute("SELECT serial, key FROM devices"))
        key_id = encryption.read_key_id(connection)
    assert (rows == KEYS) is not bool(key_id), "all rows are as the key id says"
    assert rows.keys() == KEYS.keys()
    return "encrypted" if key_id else "clear"


def check(path: Path) -> None:
    """Open what was left, as the next start does."""
    store = StateStore(path)
    assert {device.serial: device.key for device in store.devices.list()} == KEYS
    assert all(store.sessions.find(sid, 0).resume_secret == secret for sid, secret in SECRETS.items())  # type: ignore[union-attr]
    store.close()
    stored = b"".join(file.read_bytes() for file in path.parent.glob("state.db*"))
    assert not any(secret in stored for secret in (*KEYS.values(), *SECRETS.values(), b"deleted"))


def main() -> None:
    folder = Path(sys.argv[1])
    made = folder / "made.db"
    make_clear(made)
    for steps in range(1, STEPS_MAX):
        path = folder / str(steps) / "state.db"
        path.parent.mkdir()
        shutil.copy(made, path)
        has_survived = survives(path, steps)
        print("finished" if has_survived else what_it_has(path))
        check(path)
        if has_survived:
            return


if __name__ == "__main__":
    main()
