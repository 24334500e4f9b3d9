import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, one_of, sampled_from, text

from state.conftest import Reopen
from state.killed_migration import KEYS, SECRETS, make_clear
from wirelake.errors import InputError, StorageError
from wirelake.key_source import KeySource, state_key
from wirelake.state.encryption import DEVICE_KEY, RESUME_SECRET, SECRET_COLUMNS, SecretCipher, needs_scrub, read_key_id
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore

WAIT_S = 30
KEY = bytes(range(0x40, 0x50))
SECRET = bytes(range(0x60, 0x80))
CIPHER = SecretCipher(bytes(32))

row_keys = one_of(text(min_size=1), binary(min_size=1))
columns = sampled_from(SECRET_COLUMNS)


def stored_bytes(path: Path) -> bytes:
    """Return the database with its write-ahead log and whatever else it has."""
    return b"\n".join(file.read_bytes() for file in path.parent.glob("state.db*"))


def fill(store: StateStore) -> None:
    store.devices.add("meter", 6, KEY, 10)
    store.devices.add("valve", 6, KEY[::-1], 10)
    store.devices.add("plain", 6, None, 10)
    store.sessions.save(ResumableSession(b"sid", "magline", "ann", 50, (), SECRET)).wait(WAIT_S)


# ── values


@given(columns, row_keys, binary())
def test_what_is_encrypted_is_decrypted(column, row_key, secret) -> None:  # type: ignore[no-untyped-def]
    value = CIPHER.encrypt(column, row_key, secret)
    assert CIPHER.decrypt(column, row_key, value) == secret
    assert value != CIPHER.encrypt(column, row_key, secret), "a nonce is used once"


@given(binary(max_size=64), integers(min_value=0))
def test_a_value_with_a_flipped_bit_or_cut_short_is_refused(secret: bytes, place: int) -> None:
    value = CIPHER.encrypt(DEVICE_KEY, "meter", secret)
    bit = place % (8 * len(value))
    flipped = bytearray(value)
    flipped[bit // 8] ^= 1 << bit % 8
    for changed in (bytes(flipped), value[: bit // 8]):
        with pytest.raises(StorageError, match=r"the key of device 'meter' in state\.db cannot be decrypted"):
            CIPHER.decrypt(DEVICE_KEY, "meter", changed)


@given(row_keys, row_keys)
def test_a_value_is_of_no_use_elsewhere(row_key: str | bytes, other: str | bytes) -> None:
    value = CIPHER.encrypt(DEVICE_KEY, row_key, KEY)
    with pytest.raises(StorageError):
        CIPHER.decrypt(RESUME_SECRET, row_key, value)
    with pytest.raises(StorageError):
        SecretCipher(b"\1" * 32).decrypt(DEVICE_KEY, row_key, value)
    if other != row_key and (isinstance(other, str) == isinstance(row_key, str)):
        with pytest.raises(StorageError):
            CIPHER.decrypt(DEVICE_KEY, other, value)


# ── the file


def test_secrets_are_in_no_file_of_the_state(store: StateStore, path: Path, reopen: Reopen) -> None:
    fill(store)
    for _ in range(2):
        stored = stored_bytes(path)
        assert b"meter" in stored
        assert not any(secret in stored for secret in (KEY, KEY[::-1], SECRET))
        store = reopen()
    assert [device.key for device in store.devices.list()] == [KEY, None, KEY[::-1]]
    session = store.sessions.find(b"sid", 0)
    assert session is not None
    assert session.resume_secret == SECRET


def test_values_that_changed_places_are_refused(store: StateStore, path: Path) -> None:
    fill(store)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (meter,) = connection.execute("SELECT key FROM devices WHERE serial = 'meter'").fetchone()
        connection.execute(
            "UPDATE devices SET key = (SELECT key FROM devices WHERE serial = 'valve') WHERE key = ?", [meter]
        )
        connection.execute("UPDATE devices SET key = ? WHERE serial = 'valve'", [meter])
    with pytest.raises(StorageError, match=r"the key of device 'meter' in state\.db cannot be decrypted.*--discard"):
        StateStore(path)


def test_clear_text_of_an_earlier_version_is_encrypted_and_gone(path: Path) -> None:
    make_clear(path)
    before = stored_bytes(path)
    assert all(secret in before for secret in (*KEYS.values(), *SECRETS.values()))
    assert b"deleted" * 100 in before, "in a free page"
    store = StateStore(path)
    assert {device.serial: device.key for device in store.devices.list()} == KEYS
    for sid, secret in SECRETS.items():
        session = store.sessions.find(sid, 0)
        assert session is not None
        assert session.resume_secret == secret
    stored = stored_bytes(path)
    assert not any(secret in stored for secret in (*KEYS.values(), *SECRETS.values(), b"deleted"))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert read_key_id(connection)
        assert not needs_scrub(connection)


def test_a_kill_at_any_step_of_the_migration_loses_nothing(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("killed_migration.py")
    run = subprocess.run(
        [sys.executable, str(worker), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    kinds = run.stdout.split()
    assert kinds[-1] == "finished"
    assert {"clear", "encrypted"} <= set(kinds), "killed before and after the change of the rows"
    assert len(kinds) > 2 * len(KEYS)


def test_a_file_that_cannot_be_rewritten_is_at_the_next_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_clear(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM devices").fetchone()  # it reads the file as it was
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("wirelake.state.database.STATE_LOCKED_WAIT_S", 0.1)
            StateStore(path).close()
    assert "may still have them as they were before" in caplog.text
    StateStore(path).close()
    assert not any(secret in stored_bytes(path) for secret in KEYS.values())


# ── the key


def source(path: Path, key: bytes) -> KeySource:
    path.write_text(key.hex())
    return KeySource.parse(f"file:{path}", "state.key")


def test_a_missing_key_is_an_error_that_says_what_to_do(store: StateStore, path: Path) -> None:
    fill(store)
    store.close()
    key = path.parent / "keys" / "state.key"
    moved = key.rename(path.parent / "moved.key")
    with pytest.raises(
        InputError, match=r"keys/state\.key is missing.*Restore it.*set state\.key.*rekey file:.*--discard"
    ):
        StateStore(path)
    assert not key.exists(), "no other key takes its place"
    StateStore(path, key=KeySource.parse(f"file:{moved}", "state.key")).close()


def test_another_key_is_an_error_that_names_the_setting(store: StateStore, path: Path, tmp_path: Path) -> None:
    fill(store)
    store.close()
    other = source(tmp_path / "other.key", bytes(32))
    with pytest.raises(InputError, match=r"state\.key = file:.*other\.key is another key \(id .*wirelake state rekey"):
        StateStore(path, key=other)
    StateStore(path).close()


def test_a_key_that_nothing_needs_may_be_exchanged(store: StateStore, path: Path, tmp_path: Path) -> None:
    store.devices.add("plain", 6, None, 1)
    store.close()
    other = source(tmp_path / "other.key", bytes(32))
    store = StateStore(path, key=other)
    store.devices.add("meter", 6, KEY, 1)
    store.close()
    with pytest.raises(InputError, match="another key"):
        StateStore(path)
    store = StateStore(path, key=other)
    device = store.devices.find("meter")
    assert device is not None
    assert device.key == KEY
    store.close()


def test_a_state_of_an_earlier_version_is_unchanged_without_its_key(path: Path) -> None:
    make_clear(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"state\.key = env:NO_KEY"):
        StateStore(path, key=state_key("env:NO_KEY", path.parent))
    assert path.read_bytes() == before
