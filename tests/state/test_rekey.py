import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from state.killed_migration import KEYS, SECRETS, make_clear
from wirelake.errors import InputError, InUseError, StorageError
from wirelake.key_source import KeySource, state_key
from wirelake.state.batch import pop_unlogged
from wirelake.state.rekey import rekey
from wirelake.state.store import StateStore

WAIT_S = 30


@pytest.fixture
def filled(path: Path) -> Path:
    """Return a state with devices, sessions and seals, encrypted with the default key."""
    make_clear(path)
    store = StateStore(path)
    store.devices.add("plain", 6, None, 1)
    store.devices.save_seals("meter 1", 6, b"seals")
    store.barrier().wait(WAIT_S)
    store.close()
    return path


@pytest.fixture
def old(path: Path) -> KeySource:
    return state_key("", path.parent)


@pytest.fixture
def new(tmp_path: Path) -> KeySource:
    return KeySource.parse(f"file:{tmp_path / 'elsewhere' / 'new.key'}", "SOURCE")


def stored_keys(path: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT serial, key FROM devices WHERE key NOT NULL"))


def check_keys(path: Path, key: KeySource) -> None:
    store = StateStore(path, key=key)
    assert {device.serial: device.key for device in store.devices.list()} == {**KEYS, "plain": None}
    found = [store.sessions.find(sid, 0) for sid in SECRETS]
    assert [each and each.resume_secret for each in found] == list(SECRETS.values())
    store.close()


def test_everything_is_encrypted_with_the_new_key_and_nothing_with_the_old(
    filled: Path, old: KeySource, new: KeySource
) -> None:
    before = stored_keys(filled)
    report = rekey(filled, old, new)
    assert (report.device_keys, report.sessions, report.discarded) == (len(KEYS), len(SECRETS), [])
    stored = b"".join(file.read_bytes() for file in filled.parent.glob("state.db*"))
    assert not any(value in stored for value in before.values())
    with pytest.raises(InputError, match="another key"):
        StateStore(filled, key=old)
    check_keys(filled, new)
    rekey(filled, new, old)
    check_keys(filled, old)


def test_a_state_of_an_earlier_version_gets_the_new_key_at_once(path: Path, old: KeySource, new: KeySource) -> None:
    make_clear(path)
    assert rekey(path, old, new).device_keys == len(KEYS)
    assert old.is_missing
    StateStore(path, key=new).close()


def test_without_the_old_key_nothing_changes(filled: Path, old: KeySource, new: KeySource) -> None:
    before = stored_keys(filled)
    Path(old.place).rename(filled.parent / "moved")
    with pytest.raises(InputError, match="is missing"):
        rekey(filled, old, new)
    assert stored_keys(filled) == before
    assert new.is_missing


def test_what_a_lost_key_encrypts_is_removed_if_that_is_wanted(filled: Path, old: KeySource) -> None:
    Path(old.place).unlink()
    report = rekey(filled, old, old, discard=True)
    assert sorted(report.discarded) == sorted(KEYS)
    store = StateStore(filled, key=old)
    assert store.devices.serials() == ["plain"]
    assert store.devices.seals("meter 1") == {}
    assert not any(store.sessions.find(sid, 0) for sid in SECRETS)
    store.close()
    with closing(sqlite3.connect(filled)) as connection:
        assert pop_unlogged(connection) == ["device_seals", "devices"], "the log has no record of it"


def test_a_single_row_that_was_changed_is_named_or_removed(filled: Path, old: KeySource, new: KeySource) -> None:
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("UPDATE devices SET key = zeroblob(45) WHERE serial = 'meter 2'")
    before = stored_keys(filled)
    with pytest.raises(StorageError, match=r"1 secrets .* \(the key of device 'meter 2'\).*--discard"):
        rekey(filled, old, new)
    assert stored_keys(filled) == before
    assert rekey(filled, old, new, discard=True).discarded == ["meter 2"]
    store = StateStore(filled, key=new)
    assert {device.serial for device in store.devices.list()} == {*KEYS, "plain"} - {"meter 2"}
    store.close()


def test_it_is_refused_while_a_gateway_has_the_state_open(filled: Path, old: KeySource, new: KeySource) -> None:
    store = StateStore(filled)
    with pytest.raises(InUseError):
        rekey(filled, old, new)
    store.close()


def test_the_same_key_and_a_missing_state_are_refused(filled: Path, old: KeySource, new: KeySource) -> None:
    with pytest.raises(InputError, match="name another one"):
        rekey(filled, old, old)
    with pytest.raises(InputError, match="nothing to encrypt"):
        rekey(filled.with_name("other.db"), old, new)
