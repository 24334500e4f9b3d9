"""Define the tables as a sequence of migrations, and check what may be stored in them.

A migration, once released, is never changed: a later one changes its result.

A notification's key is one integer, `topic << 40 | position`: a topic is a range of keys, an ack's id leads to its row
without an index, and a publish appends one row whatever the number of subscribers. Many published at once share a row,
see notification_rows.py. A topic's head is the last key in its range, or its floor if all were removed.

Values are checked before they join a batch, because one bad row would make the whole batch fail.
"""

import sqlite3
from typing import Final

from wirelake.errors import InputError, VersionError
from wirelake.limits import STATE_CONTENT_BYTES_MAX, STATE_NAME_BYTES_MAX

_I64_MAX: Final = 2**63 - 1
_SHORT_CHARS: Final = STATE_NAME_BYTES_MAX // 4  # within the limit, at four bytes each at most
APPLICATION_ID: Final = 0x574C5354  # "WLST", in the file's header

MIGRATIONS: Final[tuple[str, ...]] = (
    # 1
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    INSERT INTO meta VALUES ('epoch', lower(hex(randomblob(4)))), ('opened', 0);
    CREATE TABLE probe (id INTEGER PRIMARY KEY, content BLOB);
    CREATE TABLE identities (
        name TEXT PRIMARY KEY, salt BLOB NOT NULL, digest BLOB NOT NULL,
        cost INTEGER NOT NULL, block INTEGER NOT NULL, lanes INTEGER NOT NULL, added_at_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE devices (
        serial TEXT PRIMARY KEY, type INTEGER NOT NULL, key BLOB, added_at_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE topics (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, floor INTEGER NOT NULL);
    CREATE TABLE notifications (
        key INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, type INTEGER NOT NULL, publisher TEXT NOT NULL,
        content BLOB NOT NULL
    );
    CREATE TABLE subscriptions (
        topic INTEGER NOT NULL, identity TEXT NOT NULL, start INTEGER NOT NULL, cursor INTEGER NOT NULL,
        expired INTEGER NOT NULL, acks BLOB NOT NULL, PRIMARY KEY (topic, identity)
    ) WITHOUT ROWID;
    CREATE TABLE layouts (
        dataset TEXT NOT NULL, sdb TEXT NOT NULL, fields BLOB NOT NULL, PRIMARY KEY (dataset, sdb)
    ) WITHOUT ROWID;
    CREATE TABLE series (
        number INTEGER PRIMARY KEY, dataset TEXT NOT NULL, sdb TEXT NOT NULL, key TEXT NOT NULL,
        dropped INTEGER NOT NULL
    );
    CREATE TABLE records (
        series INTEGER NOT NULL, time INTEGER NOT NULL, arrival INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (series, time, arrival)
    ) WITHOUT ROWID;
    CREATE TABLE redis_values (
        number INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, expires_at_ms INTEGER
    );
    CREATE INDEX redis_values_by_expiry ON redis_values (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
    """,
    # 2: sessions that may be resumed
    """
    CREATE TABLE sessions (
        sid BLOB PRIMARY KEY, protocol TEXT NOT NULL, identity TEXT NOT NULL, until_ms INTEGER NOT NULL,
        topics BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX sessions_by_end ON sessions (until_ms);
    """,
    # 3: the last value of a topic, for later subscribers
    """
    CREATE TABLE retained (
        topic INTEGER PRIMARY KEY, position INTEGER NOT NULL, at_ms INTEGER NOT NULL, type INTEGER NOT NULL,
        publisher TEXT NOT NULL, content BLOB NOT NULL
    );
    """,
    # 4: notifications that were published together share a row
    """
    ALTER TABLE notifications ADD COLUMN sizes BLOB;
    """,
    # 5: a session is resumed by a peer that proves that it had the keys
    """
    ALTER TABLE sessions ADD COLUMN resume_secret BLOB NOT NULL DEFAULT x'';
    """,
    # 6: tokens are hashed with scrypt or with a key
    """
    ALTER TABLE identities ADD COLUMN kind TEXT NOT NULL DEFAULT 'scrypt';
    """,
    # 7: sealed commands received from devices, to reject replays
    """
    CREATE TABLE device_seals (
        serial TEXT NOT NULL, type INTEGER NOT NULL, seals BLOB NOT NULL, PRIMARY KEY (serial, type)
    ) WITHOUT ROWID;
    """,
    # 8: redis hashes, a row for each field; topics that are read as streams keep what their subscribers have acked
    """
    ALTER TABLE redis_values ADD COLUMN type TEXT NOT NULL DEFAULT 'string';
    CREATE TABLE redis_fields (
        number INTEGER NOT NULL, field BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (number, field)
    ) WITHOUT ROWID;
    ALTER TABLE topics ADD COLUMN is_stream INTEGER NOT NULL DEFAULT 0;
    """,
    # 9: what identities may do: the names of their roles, as a JSON list
    """
    ALTER TABLE identities ADD COLUMN roles TEXT NOT NULL DEFAULT '[]';
    """,
    # 10: keys of devices and secrets of sessions are encrypted, see encryption.py
    """
    INSERT INTO meta VALUES ('key_id', ''), ('scrub', 1);
    """,
    # 11: identities have several tokens, which may expire; a session is resumed while the token of its login is valid
    """
    CREATE TABLE tokens (
        identity TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, salt BLOB NOT NULL, digest BLOB NOT NULL,
        cost INTEGER NOT NULL, block INTEGER NOT NULL, lanes INTEGER NOT NULL, added_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER, PRIMARY KEY (identity, id)
    ) WITHOUT ROWID;
    CREATE INDEX tokens_by_expiry ON tokens (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
    INSERT INTO tokens SELECT name, lower(hex(randomblob(4))), kind, salt, digest, cost, block, lanes, added_at_ms, NULL
        FROM identities;
    ALTER TABLE identities DROP COLUMN salt;
    ALTER TABLE identities DROP COLUMN digest;
    ALTER TABLE identities DROP COLUMN cost;
    ALTER TABLE identities DROP COLUMN block;
    ALTER TABLE identities DROP COLUMN lanes;
    ALTER TABLE identities DROP COLUMN kind;
    ALTER TABLE sessions ADD COLUMN token TEXT NOT NULL DEFAULT '';
    """,
)
VERSION: Final = len(MIGRATIONS)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for a new database. Raise VersionError if it is not ours, or a later version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or application or version):
        raise VersionError("the file is a database of another program: use another data folder")
    if version > VERSION:
        raise VersionError(
            f"the state has version {version}, but this program knows versions up to {VERSION}: use a later one"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """Run the missing migrations, each in a transaction of its own: a crash leaves the version before or after it."""
    for before in range(read_version(connection), version):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[before]}; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {before + 1}; COMMIT;"
        )


def check_name(name: str, what: str) -> None:
    """Raise InputError unless the name is valid Unicode, not empty, without NUL, and within the limit."""
    if name.isascii() and 0 < len(name) <= _SHORT_CHARS and "\0" not in name:
        return
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not valid Unicode") from error
    if not size:
        raise InputError(f"{what} must not be empty")
    if size > STATE_NAME_BYTES_MAX:
        raise InputError(f"{what} has {size} bytes, over the limit of {STATE_NAME_BYTES_MAX}")
    if "\0" in name:
        raise InputError(f"{what} must not contain a NUL")


def check_content(content: bytes, what: str) -> None:
    """Raise InputError if the content exceeds the limit."""
    if len(content) > STATE_CONTENT_BYTES_MAX:
        raise InputError(f"{what} has {len(content)} bytes, over the limit of {STATE_CONTENT_BYTES_MAX}")


def check_integer(number: int, what: str) -> None:
    """Raise InputError unless the number fits 64 bits, signed."""
    if not -_I64_MAX - 1 <= number <= _I64_MAX:
        raise InputError(f"{what} does not fit 64 bits")
