"""The tables, as the steps that made them. A step, once released, is never changed: the next one changes its work.

A notification's key is one integer, `topic << 40 | position`: a topic is a range of keys, an ack's id leads to its row
without an index, and a publish appends one row whatever the number of subscribers; many at once are one row too, see
`stretch.py`. A topic's head is the last key in its range, or its floor where all were removed.
"""

import sqlite3
from typing import Final

from wirelake.errors import VersionError

APPLICATION_ID: Final = 0x574C5354  # "WLST", in the file's header

STEPS: Final[tuple[str, ...]] = (
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
    # 3: the last value of a topic, for those who come later
    """
    CREATE TABLE retained (
        topic INTEGER PRIMARY KEY, position INTEGER NOT NULL, at_ms INTEGER NOT NULL, type INTEGER NOT NULL,
        publisher TEXT NOT NULL, content BLOB NOT NULL
    );
    """,
    # 4: notifications that were published together are one row
    """
    ALTER TABLE notifications ADD COLUMN sizes BLOB;
    """,
    # 5: a session is resumed by whoever proves to have had its keys
    """
    ALTER TABLE sessions ADD COLUMN resume_secret BLOB NOT NULL DEFAULT x'';
    """,
    # 6: tokens are hashed with scrypt, or with a key
    """
    ALTER TABLE identities ADD COLUMN kind TEXT NOT NULL DEFAULT 'scrypt';
    """,
    # 7: sealed commands of devices that came, so that they do not come twice
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
)
VERSION: Final = len(STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """How many steps the database has taken; 0 for a new one. Refuses what is not ours or not yet known."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or application or version):
        raise VersionError("the file is a database of another program")
    if version > VERSION:
        raise VersionError(f"the state is of version {version}; this program knows versions up to {VERSION}")
    return int(version)


def migrate(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """Take the missing steps, each in a transaction of its own: a crash leaves the version before or after it."""
    for done in range(version_of(connection), version):
        connection.executescript(
            f"BEGIN IMMEDIATE; {STEPS[done]}; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {done + 1}; COMMIT;"
        )
