import sqlite3
from pathlib import Path

import pytest

from state.series import stored_records
from wirelake.errors import StorageError, VersionError
from wirelake.state.records import SeriesRecord
from wirelake.state.schema import VERSION, migrate, read_version
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore
from wirelake.state.subscriptions import DeliveryCounts
from wirelake.state.tokens import KEYED, TokenHash, find_slow, hash_token

WAIT_S = 30
TOPIC = 1 << 40

# What each version could hold, in its own words; a database of version n gets the first n of them.
ROWS = (
    """
    INSERT INTO devices VALUES ('meter', 6, x'000102030405060708090a0b0c0d0e0f', 11);
    INSERT INTO topics VALUES (1, '@news', 1), (2, '@old', 7);
    INSERT INTO notifications VALUES ({topic} + 2, 20, 3, 'bob', CAST('two' AS BLOB)),
        ({topic} + 3, 30, 0, '', CAST('three' AS BLOB));
    INSERT INTO subscriptions VALUES (1, 'ann', 0, 1, 1, x'0201');
    INSERT INTO layouts VALUES ('sisdb', 'day', '[["time","I",8,1]]');
    INSERT INTO series VALUES (1, 'sisdb', 'day', 'sh', 0);
    INSERT INTO records VALUES (1, 5, 1, CAST('later' AS BLOB)), (1, 4, 2, CAST('sooner' AS BLOB));
    INSERT INTO redis_values VALUES (3, x'6b', x'76', NULL);
    """,
    """
    INSERT INTO sessions VALUES (x'01', 'magline', 'ann', 50, '["@news"]');
    """,
    """
    INSERT INTO retained VALUES (2, 7, 70, 1, 'bob', CAST('kept' AS BLOB));
    """,
    """
    INSERT INTO topics VALUES (3, '@many', 0);
    INSERT INTO notifications VALUES (3 * {topic} + 1, 10, 0, 'bob', CAST('onetwo' AS BLOB), x'0300000003000000');
    """,
    """
    INSERT INTO sessions VALUES (x'03', 'magline', 'ann', 50, '[]', x'0a');
    """,
    """
    INSERT INTO identities VALUES ('bob', x'0102', x'0304', 0, 0, 0, 8, 'blake2b');
    """,
    """
    INSERT INTO device_seals VALUES ('meter', 6, x'0b');
    """,
    """
    INSERT INTO redis_values VALUES (4, x'68', x'', NULL, 'hash');
    INSERT INTO redis_fields VALUES (4, x'66', x'77');
    INSERT INTO topics VALUES (4, '@stream', 0, 1);
    """,
    """
    INSERT INTO identities VALUES ('eve', x'0102', x'0305', 0, 0, 0, 9, 'blake2b', '["phone","chat"]');
    """,
    """
    INSERT INTO devices VALUES ('valve', 6, x'0f', 12);
    """,
    """
    INSERT INTO identities VALUES ('zoe', 10, '[]');
    INSERT INTO tokens VALUES ('zoe', 'old', 'blake2b', x'0102', x'0306', 0, 0, 0, 10, 20),
        ('zoe', 'new', 'blake2b', x'0102', x'0307', 0, 0, 0, 11, NULL);
    INSERT INTO sessions VALUES (x'04', 'magline', 'zoe', 50, '[]', x'0a', 'new');
    """,
)


def make(path: Path, version: int) -> None:
    """A database as that version left it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for step, rows in enumerate(ROWS[:version], 1):
        migrate(connection, step)
        connection.executescript(rows.format(topic=TOPIC))
    secret = hash_token("token")
    hashed = (secret.salt, secret.digest, secret.cost, secret.block, secret.lanes)
    if version < 11:
        columns = "name, salt, digest, cost, block, lanes, added_at_ms"
        connection.execute(f"INSERT INTO identities ({columns}) VALUES (?,?,?,?,?,?,?)", ("ann", *hashed, 9))
    else:
        connection.execute("INSERT INTO identities VALUES ('ann', 9, '[]')")
        connection.execute("INSERT INTO tokens VALUES ('ann', 'x', 'scrypt', ?,?,?,?,?, 9, NULL)", hashed)
    connection.close()


def test_every_version_has_rows_here() -> None:
    assert len(ROWS) == VERSION


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_database_of_every_version_opens_with_all_it_held(path: Path, version: int) -> None:
    make(path, version)
    store = StateStore(path)
    identity = store.identities.find("ann")
    assert identity is not None
    (token,) = identity.tokens
    assert find_slow([token], "token") is token
    assert (identity.added_at_ms, token.added_at_ms, token.expires_at_ms) == (9, 9, None)
    keyed = store.identities.find("bob")
    hashes = [] if keyed is None else [each.hash for each in keyed.tokens]
    assert hashes == ([TokenHash(b"\1\2", b"\3\4", 0, 0, 0, KEYED)] if version >= 6 else [])
    several = store.identities.find("zoe")
    ends = [] if several is None else [(each.id, each.added_at_ms, each.expires_at_ms) for each in several.tokens]
    assert ends == ([("old", 10, 20), ("new", 11, None)] if version >= 11 else [])
    assert store.identities.roles_of("bob") == ()
    assert store.identities.roles_of("eve") == (("phone", "chat") if version >= 9 else ())
    device = store.devices.find("meter")
    assert device is not None
    assert (device.type, device.key, device.added_at_ms) == (6, bytes(range(16)), 11)
    assert [(waiting.position, waiting.content) for waiting in store.topics.backlog("ann")] == [(2, b"two")]
    assert store.topics.delivery_counts("ann", "@news") == DeliveryCounts(acked=1, expired=1, pending=1)
    assert store.topics.head("@old") == 7
    assert stored_records(store, "sisdb", "sh", "day") == [SeriesRecord(4, b"sooner"), SeriesRecord(5, b"later")]
    assert store.values.get(b"k", 0) == b"v"
    assert (store.sessions.find(b"\1", 0) is not None) is (version >= 2)
    assert (store.topics.retained("@old") is not None) is (version >= 3)
    assert [each.content for each in store.topics.read_after("@many", 0)] == ([b"one", b"two"] if version >= 4 else [])
    assert store.topics.head("@many") == (2 if version >= 4 else 0)
    for sid, since, secret, login in ((b"\1", 2, b"", ""), (b"\3", 5, b"\n", ""), (b"\4", 11, b"\n", "new")):
        session = store.sessions.find(sid, 0)
        found = None if session is None else (session.resume_secret, session.token)
        assert found == ((secret, login) if version >= since else None)
    assert (store.devices.find("valve") is not None) is (version >= 10)
    assert store.devices.seals("meter") == ({6: b"\v"} if version >= 7 else {})
    # And what later versions brought works here too.
    store.sessions.save(ResumableSession(b"\2", "magline", "ann", 60, ())).wait(WAIT_S)
    store.topics.publish("@news", b"four", 40, retain=True)[1].wait(WAIT_S)
    retained = store.topics.retained("@news")
    assert retained is not None
    assert (retained.position, retained.content) == (4, b"four")
    store.close()
    with sqlite3.connect(path) as connection:
        assert read_version(connection) == VERSION
    connection.close()


def test_a_step_that_fails_leaves_the_version_before_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, VERSION)
    steps = ("",) * VERSION + ("CREATE TABLE half (x); CREATE TABLE half (x)",)
    monkeypatch.setattr("wirelake.state.schema.MIGRATIONS", steps)
    monkeypatch.setattr("wirelake.state.schema.migrate.__defaults__", (VERSION + 1,))
    with pytest.raises(StorageError, match="half already exists"):
        StateStore(path)
    monkeypatch.undo()
    StateStore(path).close()


def test_a_later_version_is_refused(path: Path) -> None:
    make(path, VERSION)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(VersionError, match=f"version {VERSION + 1}, but this program knows versions up to {VERSION}"):
        StateStore(path)


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(VersionError, match="another program"):
        StateStore(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"something else " * 100)
    with pytest.raises(StorageError, match="not a database"):
        StateStore(path)
    assert path.read_bytes() == b"something else " * 100
